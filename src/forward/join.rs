//! How a run whose own work has ended waits for those below it that another task drives.

use std::sync::Arc;

use super::close::close_below;
use crate::context::RunRecord;
use crate::message::Scope;
use crate::outcome::CancelledBy;

/// What became of the runs that were waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Joined {
    Ended,
    /// They did not end within the grace period, and were ended without their pipes.
    GaveUp,
}

/// Waits until no run below that must end with `record` is live: patiently if `patient`, until somebody cancels; else they are
/// cancelled, and after the grace period ended without them.
pub(super) async fn join(record: Arc<RunRecord>, patient: bool) -> Joined {
    let is_root = record.parent.is_none();
    for run in record.root.live_subtree_upwards(&record) {
        // A background run of a child that has ended is nobody's foreground: only the root takes it along.
        let is_own = run.parent.as_ref().is_some_and(|parent| Arc::ptr_eq(parent, &record));
        let is_over = is_own && run.scope() == Scope::Foreground || is_root && !patient;
        // One that is cancelled already, with this run, knows why.
        if is_over && !Arc::ptr_eq(&run, &record) && !run.token.is_cancelled() {
            run.token.cancel(CancelledBy::Parent);
        }
    }
    let grace = record.root.grace();
    if patient {
        if tokio::time::timeout(grace, until(&record, |record| record.live_foreground() == 0)).await.is_err()
        {
            close_below(&record, true);
        }
        // Whoever cancels the root meanwhile cancels those that it waits for: then once more, without patience.
        let _ = record.token.or_cancel(until(&record, |record| record.awaited() == 0)).await;
        return Joined::Ended;
    }
    if tokio::time::timeout(grace, until(&record, |record| record.awaited() == 0)).await.is_ok() {
        return Joined::Ended;
    }
    close_below(&record, true);
    Joined::GaveUp
}

/// Waits until enough runs have ended.
async fn until(record: &RunRecord, is_enough: impl Fn(&RunRecord) -> bool) {
    loop {
        let ended = record.root.ended().notified();
        let mut ended = std::pin::pin!(ended);
        // Registered before the look, so that an end in between is not missed.
        ended.as_mut().enable();
        if is_enough(record) {
            return;
        }
        ended.await;
    }
}
