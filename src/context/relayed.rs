//! Runs of this tree that another process drives, as far as their messages come through here.

use std::sync::Arc;

use crate::id::RunId;
use crate::message::{FinalCounters, MessageBody, Nesting, Origin, RunFinished, Timestamp};
use crate::outcome::{FailureKind, SubAgentOutcome, Usage};
use crate::tree::RunWatch;

/// The runs whose messages a producer relays, in the order of their births.
#[derive(Debug, Default)]
pub(crate) struct Relayed(Vec<Run>);

#[derive(Debug)]
struct Run {
    origin: Arc<Origin>,
    next_run_seq: u64,
    watch: RunWatch,
    first_time: Timestamp,
    finished: bool,
    children_usage: Usage,
}

impl Relayed {
    fn find(&mut self, run_id: &RunId) -> Option<&mut Run> {
        self.0.iter_mut().rev().find(|run| run.origin.run_id == *run_id)
    }

    /// Notes a message that comes through `relay`. False if it does not continue the story of its run.
    pub(crate) fn accept(&mut self, relay: &Origin, body: &MessageBody, nesting: &Nesting) -> bool {
        let origin = &nesting.origin;
        if let Some(run) = self.find(&origin.run_id) {
            let fits = !run.finished
                && run.origin == *origin
                && run.next_run_seq == nesting.run_seq
                && !matches!(body, MessageBody::RunStarted(_))
                && run.watch.observe(body, nesting.time).is_ok();
            if fits {
                run.next_run_seq += 1;
                if let MessageBody::RunFinished(finished) = body {
                    run.finished = true;
                    let used = finished.subtree_usage.or(finished.usage).unwrap_or_default();
                    self.charge_parent(origin, &used);
                }
            }
            return fits;
        }
        let parent_depth = match &origin.parent_run_id {
            Some(parent) if *parent == relay.run_id => Some(relay.subtask_depth),
            Some(parent) => self.find(parent).filter(|run| !run.finished).map(|run| run.origin.subtask_depth),
            None => None,
        };
        let fits = matches!(body, MessageBody::RunStarted(_))
            && nesting.run_seq == 0
            && parent_depth.is_some_and(|depth| depth + 1 == origin.subtask_depth);
        if fits {
            let (origin, first_time) = (Arc::clone(origin), nesting.time);
            self.0.push(Run {
                origin,
                next_run_seq: 1,
                watch: RunWatch::default(),
                first_time,
                finished: false,
                children_usage: Usage::default(),
            });
        }
        fits
    }

    /// Adds what a run used to the account of its parent, if the parent is relayed too.
    fn charge_parent(&mut self, origin: &Origin, used: &Usage) {
        if let Some(parent) = origin.parent_run_id.as_ref().and_then(|parent| self.find(parent)) {
            parent.children_usage.add(used);
        }
    }

    /// The messages that end the runs whose terminal never came, youngest first, and what those right below `relay` used.
    pub(crate) fn close(&mut self, relay: &RunId, now: Timestamp) -> (Vec<(MessageBody, Nesting)>, Usage) {
        let (mut closing, mut usage) = (Vec::new(), Usage::default());
        for at in (0..self.0.len()).rev() {
            let Some(run) = self.0.get_mut(at).filter(|run| !run.finished) else { continue };
            let text = "the connection to this run was lost before its terminal came";
            let mut bodies = run.watch.close("lost", text, now);
            let counters = FinalCounters {
                usage: run.watch.usage,
                subtree_usage: run.watch.usage.plus(&run.children_usage),
                turns: run.watch.turns,
                tool_calls: run.watch.tool_calls,
                duration_ms: now.millis_since(run.first_time),
                late: 0,
            };
            bodies.push(
                RunFinished::new(SubAgentOutcome::failed(FailureKind::Vanished, text), counters).into(),
            );
            for body in bodies {
                let nesting =
                    Nesting { origin: Arc::clone(&run.origin), seq: 0, run_seq: run.next_run_seq, time: now };
                run.next_run_seq += 1;
                closing.push((body, nesting));
            }
            run.finished = true;
            let origin = Arc::clone(&run.origin);
            if origin.parent_run_id.as_ref() == Some(relay) {
                usage.add(&counters.subtree_usage);
            }
            self.charge_parent(&origin, &counters.subtree_usage);
        }
        (closing, usage)
    }
}
