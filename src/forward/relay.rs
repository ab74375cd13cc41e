//! Messages that are stamped already: those of a child that runs elsewhere. They keep their stamps and get a position here.

use crate::bus::Wakers;
use crate::context::{RunRecord, RunState};
use crate::message::{MessageBody, ProcessingMessage};

/// Passes on a stamped message, if it belongs to a run of this tree that no pipe of this process drives.
///
/// A producer that yields what a nested pipe has already appended would double it: such a message, one of another tree, and
/// one that does not continue its run are discarded and counted.
pub(super) fn relay<'a>(
    record: &'a RunRecord,
    state: &mut RunState,
    message: ProcessingMessage,
) -> Wakers<'a> {
    let Some(nesting) = message.nesting().cloned() else { return Wakers::default() };
    let root = &record.root;
    let is_ours = nesting.origin.root_run_id == *root.run_id() && !root.has_entered(&nesting.origin.run_id);
    if !is_ours || !state.relayed.accept(&record.origin, message.body(), &nesting) {
        state.late += 1;
        root.count_late(1);
        return Wakers::default();
    }
    match message.body() {
        MessageBody::TurnFinished(turn) => root.ledger().charge(&turn.usage),
        MessageBody::RunFinished(body)
            if nesting.origin.parent_run_id.as_ref() == Some(&record.origin.run_id) =>
        {
            state.children_usage.add(&body.subtree_usage.or(body.usage).unwrap_or_default());
        }
        _ => {}
    }
    state.last_time = root.clock().now();
    root.bus().append_stamped(message.into_body(), &nesting)
}
