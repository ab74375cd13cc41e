//! How a run ends: synchronously, since appending never waits. So it works in a drop, during a panic, and from outside.

use std::sync::Arc;

use super::say::append;
use crate::bus::Wakers;
use crate::cancel::Cancelled;
use crate::context::{RunRecord, Told};
use crate::message::{FinalCounters, MessageBody, RunFinished};
use crate::outcome::SubAgentOutcome;

/// Settles a run: closes what it has open, appends its terminal, gives back what it holds. The first call wins; later ones
/// change nothing. Returns the outcome as it is in the log if this call was the first, and gives back the one that came too
/// late otherwise.
pub(super) fn close(
    record: &Arc<RunRecord>,
    outcome: SubAgentOutcome,
) -> Result<SubAgentOutcome, SubAgentOutcome> {
    close_locked(record, outcome, false)
}

/// As [`close`], by somebody else than the run's own pipe: which then learns from the record how the run ended.
pub(super) fn close_outside(record: &Arc<RunRecord>, outcome: SubAgentOutcome) {
    let _ = close_locked(record, outcome, true);
}

fn close_locked(
    record: &Arc<RunRecord>,
    outcome: SubAgentOutcome,
    from_outside: bool,
) -> Result<SubAgentOutcome, SubAgentOutcome> {
    let mut state = record.lock();
    if state.closed {
        return Err(outcome);
    }
    // What was decided before a limit or a cancel struck stays decided.
    let outcome = match (outcome, state.accepted.take()) {
        (SubAgentOutcome::Stopped { .. } | SubAgentOutcome::Cancelled { .. }, Some(result)) => {
            SubAgentOutcome::completed(*result)
        }
        (outcome, _) => outcome,
    };
    let now = record.root.clock().now();
    let mut wakers = Wakers::default();
    let (lost, lost_usage) = state.relayed.close(&record.origin.run_id, now);
    for (body, nesting) in lost {
        wakers.add(record.root.bus().append_stamped(body, &nesting));
    }
    state.children_usage.add(&lost_usage);
    let (code, message) = match &outcome {
        SubAgentOutcome::Completed { .. } => ("no_result", "the run ended before this call did"),
        SubAgentOutcome::Stopped { .. } => ("stopped", "the run was stopped before this call ended"),
        SubAgentOutcome::Cancelled { .. } => ("cancelled", "the run was cancelled before this call ended"),
        SubAgentOutcome::Failed { .. } => ("aborted", "the run failed before this call ended"),
    };
    for body in state.watch.close(code, message, now) {
        wakers.add(append(record, &mut state, body));
    }
    let in_flight = std::mem::take(&mut state.turn_usage);
    record.root.ledger().charge(&in_flight);
    let usage = state.watch.usage.plus(&in_flight);
    let subtree_usage = usage.plus(&state.children_usage);
    let text = state.take_text();
    let outcome = outcome.with_partial(text);
    let counters = FinalCounters {
        usage,
        subtree_usage,
        turns: state.watch.turns,
        tool_calls: state.watch.tool_calls,
        duration_ms: now.millis_since(state.first_time),
        late: state.late,
    };
    // Inside this run's lock: whoever finds it closed finds its usage in the account above. A background run may end after its
    // parent: then whoever is live above has it.
    for above in record.lineage().skip(1) {
        let mut above = above.lock();
        if !above.closed {
            above.children_usage.add(&subtree_usage);
            above.last_time = above.last_time.max(now);
            break;
        }
    }
    // Before the append: from here on the log has this run's last word, and a message that comes meanwhile is late.
    state.closed = true;
    state.counters = Some(Box::new(counters));
    state.ended_outside = from_outside.then(|| Box::new(outcome.clone()));
    let terminal: MessageBody = RunFinished::new(outcome.clone(), counters).into();
    wakers.add(append(record, &mut state, terminal));
    let told = state.told.take();
    drop(state);
    // No lock is held: whoever is told has locks of its own.
    if let Some(Told(tell)) = told {
        tell(&outcome);
    }
    // Gone from the table before anybody above can see that it has no more live children; the account of the parent is complete.
    record.root.live().remove(&record.origin.run_id);
    record.count_end();
    record.work.end();
    record.root.ended().notify_waiters();
    drop(wakers);
    if record.parent.is_none() {
        record.root.end_extensions();
    }
    Ok(outcome)
}

/// Ends all cancelled runs below `top` without waiting for them, deepest first: those that some other task still drives.
pub(super) fn close_below(top: &Arc<RunRecord>, forced: bool) {
    if top.live_children() == 0 {
        return;
    }
    for run in top.root.live_subtree_upwards(top) {
        if !Arc::ptr_eq(&run, top)
            && let Some(Cancelled { by }) = run.token.cancelled()
        {
            close_outside(&run, SubAgentOutcome::Cancelled { by, forced, partial: None });
        }
    }
}
