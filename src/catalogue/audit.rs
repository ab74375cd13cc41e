//! The whole log of a run that was delegated.

use std::collections::HashSet;

use crate::bus::From;
use crate::context::Root;
use crate::id::RunId;
use crate::message::ProcessingMessage;
use crate::tree::Delivery;

/// What a run and the runs below it said.
#[derive(Debug, Clone, Default)]
pub struct SessionLog {
    /// The messages, in the order of the root's log.
    pub messages: Vec<ProcessingMessage>,
    /// How many more there were, which the root's log no longer retains: a journal has them.
    pub lost: u64,
}

/// The log of a session (a [`Record`](super::Record)'s, or any other run) and of all runs below it, from what the root retains.
///
/// Empty for a run that the root does not know. It copies a few words a message, and looks at the whole log.
#[must_use]
pub fn session_log(root: &Root, session: &RunId) -> SessionLog {
    let mut within: HashSet<RunId> = HashSet::from([session.clone()]);
    let mut log = SessionLog::default();
    let mut events = root.subscribe(From::Start);
    while let Some(delivery) = events.try_next() {
        match delivery {
            Delivery::Message(message) => {
                let Some(origin) = message.nesting().map(|nesting| &nesting.origin) else { continue };
                let is_below = origin.parent_run_id.as_ref().is_some_and(|parent| within.contains(parent));
                if is_below && !within.contains(&origin.run_id) {
                    within.insert(origin.run_id.clone());
                }
                if within.contains(&origin.run_id) {
                    log.messages.push(message);
                }
            }
            // The window begins here, or it moved on while this looked.
            Delivery::Gap(gap) => {
                let Some(top) = gap.snapshot.node(session) else { continue };
                let mut said = 0;
                for node in gap.snapshot.subtree(top) {
                    said += node.next_run_seq;
                    within.insert(node.origin.run_id.clone());
                }
                log.lost = said.saturating_sub(log.messages.len() as u64);
            }
        }
    }
    log
}
