//! One tree of the battery: a root whose journal can cancel it at a given message.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;

use super::root::log_violations;
use crate::budget::TreeLimits;
use crate::bus::{Journal, MemoryJournal, Retain};
use crate::cancel::CancelToken;
use crate::clock::Clock;
use crate::context::{Root, RunContext, RunSpec};
use crate::message::{MessageBody, ProcessingMessage, Timestamp};
use crate::outcome::{CancelledBy, SubAgentOutcome};
use crate::stream::SubAgentStream;
use crate::tree::RunTree;

/// How a run of the battery ended.
pub(super) enum Ended {
    With(SubAgentOutcome),
    Dropped,
}

pub(super) struct Probe {
    root: Root,
    journal: Arc<Trigger>,
}

/// A journal that cancels the tree inside the append of one message.
#[derive(Debug, Default)]
struct Trigger {
    kept: MemoryJournal,
    seen: AtomicUsize,
    fuse: OnceLock<(usize, CancelToken)>,
}

impl Journal for Trigger {
    fn record(&self, message: &ProcessingMessage) {
        self.kept.record(message);
        let seen = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some((at, token)) = self.fuse.get()
            && *at == seen
        {
            token.cancel(CancelledBy::User);
        }
    }
}

impl Probe {
    pub(super) fn new(limits: TreeLimits, retain: Retain) -> Self {
        let journal = Arc::new(Trigger::default());
        let root = Root::builder()
            .tree_limits(limits)
            .retain(retain)
            .seed(1)
            .clock(Clock::starting_at(Timestamp::default()))
            .journal(Arc::<Trigger>::clone(&journal))
            .build();
        Self { root, journal }
    }

    pub(super) fn root(&self) -> &Root {
        &self.root
    }

    pub(super) fn cancel_at(&self, message: usize) {
        let _ = self.journal.fuse.set((message, self.root.token().clone()));
    }

    /// The run, without a reader of its own, to be polled by hand or awaited.
    pub(super) fn run(
        &self,
        producer: impl FnOnce(RunContext) -> SubAgentStream,
    ) -> BoxFuture<'static, SubAgentOutcome> {
        Box::pin(self.root.run(RunSpec::new("checked", "check"), producer).settle())
    }

    pub(super) fn log(&self) -> Vec<ProcessingMessage> {
        self.journal.kept.messages()
    }

    /// What is wrong once it has ended.
    pub(super) fn wrong(&self, ended: &Ended) -> Vec<String> {
        let log = self.log();
        let mut wrong = log_violations(&log);
        let terminal = log.last().and_then(|message| match message.body() {
            MessageBody::RunFinished(body) if message.nesting()?.origin.parent_run_id.is_none() => {
                Some(body.to_outcome())
            }
            _ => None,
        });
        match (&terminal, ended) {
            (None, Ended::Dropped) if log.is_empty() => {}
            (None, _) => wrong.push("I1: the last message is not the root's run_finished".to_owned()),
            (Some(logged), Ended::With(outcome)) if logged != outcome => {
                wrong.push(format!("I3: it settled with {outcome:?} but the log says {logged:?}"));
            }
            (Some(SubAgentOutcome::Cancelled { .. }), Ended::Dropped) | (Some(_), Ended::With(_)) => {}
            (Some(other), Ended::Dropped) => wrong.push(format!("I1: dropped, but the log says {other:?}")),
        }
        if RunTree::of(&log) != self.root.snapshot() {
            wrong.push("I10: the tree of the log is not the live tree".to_owned());
        }
        if self.root.live_runs() > 0 {
            wrong.push(format!("I12: {} runs are live after the end", self.root.live_runs()));
        }
        let ledger = self.root.ledger();
        let all = ledger.limits().live.bound().and_then(|live| usize::try_from(live).ok());
        if ledger.free_permits() != all {
            wrong.push(format!("I18: {:?} of {all:?} permits are free after the end", ledger.free_permits()));
        }
        wrong
    }
}
