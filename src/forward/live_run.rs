//! A run from its first message to its last, whatever happens in between: the guard of the pipe.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::close::{close, close_below};
use super::pipe::Phase;
use super::say::{append, say};
use crate::budget::WhenFull;
use crate::cancel::Cancelled;
use crate::context::{Birth, RunRecord};
use crate::message::{Extra, MessageBody, Queued, Scope};
use crate::outcome::{CancelledBy, FailureKind, SubAgentOutcome};

/// The run, as far as it has to be ended whatever happens: the guard.
#[derive(Debug)]
pub(super) struct LiveRun {
    pub(super) record: Arc<RunRecord>,
    begun: bool,
    settled: bool,
    /// It is dropped while something in it still holds the grace period.
    pub(super) abandons: bool,
}

impl LiveRun {
    pub(super) fn of(record: Arc<RunRecord>) -> Self {
        Self { record, begun: false, settled: false, abandons: false }
    }

    /// The run comes into being: its first message, its place among the live ones, its permit. One that was cancelled before
    /// never does.
    pub(super) fn begin(&mut self, birth: Birth) -> Result<Phase, SubAgentOutcome> {
        let record = &self.record;
        // Who must outlive it. Locked until the run is in the log and among the live, so that it ends before that one does.
        let outlived = match record.scope() {
            Scope::Foreground => record.parent.as_ref(),
            Scope::Background => record.lineage().skip(1).last(),
        };
        // Its parent too, whose call it is born in: somebody else may be about to close that, because of a cancel. From below upwards,
        // as those who close.
        let parent = record.parent.as_ref();
        let parent = parent.filter(|parent| outlived.is_some_and(|above| !Arc::ptr_eq(parent, above)));
        let begets = parent.map(|parent| (parent.lock(), parent));
        let gate = outlived.map(|above| above.lock());
        let is_orphan =
            begets.as_ref().is_some_and(|(state, parent)| state.closed && parent.token.is_cancelled());
        if let Some(above) = &gate
            && (is_orphan || above.refuses(record.scope()) || record.token.is_cancelled())
        {
            let by = record.token.cancelled().map_or(CancelledBy::Parent, |cancelled| cancelled.by);
            return Err(SubAgentOutcome::cancelled(by));
        }
        self.begun = true;
        birth.commit();
        // Locked before others can find it: who closes a run takes its lock first and then those above.
        let mut state = record.lock();
        record.root.live().insert(record.origin.run_id.clone(), Arc::clone(record));
        let wakers = append(record, &mut state, MessageBody::RunStarted(Arc::clone(&record.started)));
        drop(state);
        drop((gate, begets));
        drop(wakers);
        let ledger = record.root.ledger();
        if !ledger.has_permits() {
            return Ok(Phase::Running);
        }
        let parent = record.parent.as_ref().filter(|_| record.scope() == Scope::Foreground);
        let handed = parent.and_then(|parent| parent.work.wait_begins());
        if let Some(permit) = handed.or_else(|| ledger.try_permit()) {
            record.work.start(permit);
            return Ok(Phase::Running);
        }
        say(record, Queued { waiting_for: "permit".to_owned(), extra: Extra::default() }.into());
        let permit = ledger.permit();
        let WhenFull::Wait(deadline) = ledger.limits().when_full else {
            return Ok(Phase::Queued(Box::pin(std::future::ready(None))));
        };
        Ok(Phase::Queued(Box::pin(async move { tokio::time::timeout(deadline, permit).await.ok() })))
    }

    pub(super) fn settle(&mut self, outcome: SubAgentOutcome) -> SubAgentOutcome {
        self.settled = true;
        close(&self.record, outcome).unwrap_or_else(|late| {
            // Somebody outside ended the run already, because it did not end within the grace period.
            self.record.lock().ended_outside.take().map_or(late, |outcome| *outcome)
        })
    }

    /// The parent that waited for its last child needs a permit to go on.
    pub(super) fn resume_parent(&self) -> Option<BoxFuture<'static, ()>> {
        let parent = self.record.parent.as_ref().filter(|_| self.child_ended()).cloned()?;
        let permit = self.record.root.ledger().permit();
        let resumed = async move {
            // A parent that is cancelled goes on without one: it only ends.
            if let Ok(permit) = parent.token.or_cancel(permit).await {
                parent.work.start(permit);
            }
        };
        Some(Box::pin(resumed))
    }

    /// Notes the end with the parent's permit. True if the parent needs one now.
    fn child_ended(&self) -> bool {
        let record = &self.record;
        if !record.root.ledger().has_permits() || record.scope() != Scope::Foreground {
            return false;
        }
        record.parent.as_ref().is_some_and(|parent| parent.work.wait_ended())
    }
}

impl Drop for LiveRun {
    fn drop(&mut self) {
        if !self.begun || self.settled {
            return;
        }
        let record = &self.record;
        // A child that ends because its parent panicked did not fail: it ends with its parent.
        let outcome = if std::thread::panicking() && record.parent.is_none() {
            SubAgentOutcome::failed(FailureKind::Panic, "a panic passed through this run")
        } else {
            let by = if record.parent.is_some() { CancelledBy::Parent } else { CancelledBy::User };
            let by = record.token.cancelled().unwrap_or(Cancelled { by }).by;
            SubAgentOutcome::Cancelled { by, forced: self.abandons, partial: None }
        };
        // Whoever still works for this run from another task is to see that it is over.
        record.token.cancel(CancelledBy::Parent);
        // What is about to begin below is there before this, and is closed, or finds this.
        record.lock().settling = true;
        close_below(record, false);
        let _ = close(record, outcome);
        if self.child_ended()
            && let (Some(parent), Some(permit)) = (&record.parent, record.root.ledger().try_permit())
        {
            parent.work.start(permit);
        }
    }
}
