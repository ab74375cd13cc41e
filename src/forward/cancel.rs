//! Cancelling any node of a tree, with a definite end.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;

use super::close::{close_below, close_outside};
use crate::context::{Root, RunContext, RunRecord};
use crate::error::{ErrorKind, Result};
use crate::id::RunId;
use crate::outcome::{CancelledBy, SubAgentOutcome};

/// How much longer than the grace period a cancel waits for the pipes to end their runs themselves, before it ends them: so
/// that a pipe that has just forced its run's end is not raced.
const MARGIN: Duration = Duration::from_millis(250);

impl Root {
    /// Cancels a run and all its descendants, at once. The returned future resolves when the whole subtree is terminal, to the
    /// number of runs that were live in it: within the grace period, even if nobody polls them any more.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::UnknownRun`] if no such run is live in this tree.
    pub fn cancel(&self, run: &RunId, by: CancelledBy) -> Result<CancelEnd> {
        let record = self.live().get(run).cloned();
        let record = record.ok_or_else(|| ErrorKind::UnknownRun { run: run.to_string() })?;
        Ok(cancel(&record, by))
    }

    /// Cancels the whole tree; see [`Root::cancel`]. Of a tree that has not begun, the root run will be cancelled when it does.
    pub fn cancel_all(&self, by: CancelledBy) -> CancelEnd {
        let record = self.live().get(self.run_id()).cloned();
        match record {
            Some(record) => cancel(&record, by),
            None => {
                self.token().cancel(by);
                CancelEnd(Box::pin(std::future::ready(0)))
            }
        }
    }
}

impl RunContext {
    /// Cancels this run and its descendants; see [`Root::cancel`]. A producer that does so need not wait: its next await ends it.
    pub fn cancel(&self, by: CancelledBy) -> CancelEnd {
        cancel(self.record(), by)
    }
}

fn cancel(record: &Arc<RunRecord>, by: CancelledBy) -> CancelEnd {
    record.token.cancel(by);
    // After the cancel, so that no run can be born that is not waited for.
    let (count, record) = (record.root.count_live_subtree(record), Arc::clone(record));
    CancelEnd(Box::pin(async move {
        let patience = record.root.grace() + MARGIN;
        if tokio::time::timeout(patience, all_closed(&record)).await.is_err() {
            // Nobody polls them: the task that drove them is blocked or gone.
            close_below(&record, true);
            let by = record.token.cancelled().map_or(by, |cancelled| cancelled.by);
            close_outside(&record, SubAgentOutcome::Cancelled { by, forced: true, partial: None });
        }
        count
    }))
}

/// Waits until no run of the subtree is live. It holds none of them: of many, each is freed where it ends.
async fn all_closed(top: &Arc<RunRecord>) {
    // A run that was entered and never begins is counted, but it is not live.
    let is_live_below =
        || top.live_children() > 0 && top.root.live_subtree(top).iter().any(|run| !Arc::ptr_eq(run, top));
    loop {
        let ended = top.root.ended().notified();
        let mut ended = std::pin::pin!(ended);
        // Registered before the look, so that an end in between is not missed.
        ended.as_mut().enable();
        // Closed is its log; it is gone when it is no longer among the live, a moment later on the thread that closes it.
        let is_gone = top.is_closed() && !top.root.live().contains_key(&top.origin.run_id);
        if is_gone && !is_live_below() {
            return;
        }
        ended.await;
    }
}

/// Resolves when a cancelled subtree is terminal, to the number of runs that were live in it. The cancel itself has happened
/// already: dropping this only ends the waiting.
#[must_use = "the cancel has happened; this tells when it has ended"]
pub struct CancelEnd(BoxFuture<'static, usize>);

impl Future for CancelEnd {
    type Output = usize;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<usize> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for CancelEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CancelEnd")
    }
}
