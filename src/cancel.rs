//! Cancellation: tokens that form a tree and know who cancelled, and waits that end with them.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::outcome::CancelledBy;

/// The sign that a wait ended because of a cancel. Its own type, so that no wrapper can turn it into an error that a
/// model reads and works around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancelled {
    /// Who.
    pub by: CancelledBy,
}

/// The token of one run. Cancelling it cancels the tokens of all descendants.
#[derive(Debug, Clone)]
pub struct CancelToken(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    token: CancellationToken,
    cause: OnceLock<Cause>,
    parent: Option<CancelToken>,
    /// Counts the cancels of the whole tree, so that a pipe sees with one load that there was none.
    epoch: Arc<AtomicU64>,
}

/// Who cancelled, as the run itself and as its descendants report it.
#[derive(Debug, Clone, Copy)]
struct Cause {
    own: CancelledBy,
    below: CancelledBy,
}

impl CancelToken {
    /// The token of a root.
    #[must_use]
    pub fn new() -> Self {
        let epoch = Arc::new(AtomicU64::new(0));
        Self(Arc::new(Inner { token: CancellationToken::new(), cause: OnceLock::new(), parent: None, epoch }))
    }

    /// The token of a run that this one's run spawns.
    #[must_use]
    pub fn child(&self) -> Self {
        Self(Arc::new(Inner {
            token: self.0.token.child_token(),
            cause: OnceLock::new(),
            parent: Some(self.clone()),
            epoch: Arc::clone(&self.0.epoch),
        }))
    }

    /// Cancels this run and its descendants. The first cause stays.
    pub fn cancel(&self, by: CancelledBy) {
        let below = match by {
            CancelledBy::Shutdown | CancelledBy::DeadlineOfParent => by,
            CancelledBy::Itself | CancelledBy::Parent | CancelledBy::User => CancelledBy::Parent,
        };
        // The cause first: whoever sees the token cancelled must find out by whom.
        let _ = self.0.cause.set(Cause { own: by, below });
        self.0.token.cancel();
        self.0.epoch.fetch_add(1, Ordering::Release);
    }

    /// Whether this run or an ancestor was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.token.is_cancelled()
    }

    /// Who cancelled it; none if nobody did.
    #[must_use]
    pub fn cancelled(&self) -> Option<Cancelled> {
        self.is_cancelled().then(|| Cancelled { by: self.cause() })
    }

    fn cause(&self) -> CancelledBy {
        if let Some(cause) = self.0.cause.get() {
            return cause.own;
        }
        let above = std::iter::successors(self.0.parent.as_ref(), |token| token.0.parent.as_ref());
        above.filter_map(|token| token.0.cause.get()).next().map_or(CancelledBy::Parent, |cause| cause.below)
    }

    /// How many cancels there were in the whole tree; cheap enough to ask before every message.
    #[must_use]
    pub(crate) fn epoch(&self) -> u64 {
        self.0.epoch.load(Ordering::Acquire)
    }

    /// Waits for the cancel.
    ///
    /// # Cancel safety
    ///
    /// Dropping it only ends the waiting.
    pub fn wait(&self) -> WaitForCancellationFutureOwned {
        self.0.token.clone().cancelled_owned()
    }

    /// The same token as the type that other libraries take. Cancelling that one would hide who did it: use it to wait.
    #[must_use]
    pub fn as_tokio(&self) -> CancellationToken {
        self.0.token.clone()
    }

    /// Waits for `work`, or for the cancel, whichever is first; the cancel wins a draw.
    ///
    /// # Errors
    ///
    /// [`Cancelled`], and `work` is dropped.
    ///
    /// # Cancel safety
    ///
    /// As that of `work`.
    pub async fn or_cancel<F: Future>(&self, work: F) -> Result<F::Output, Cancelled> {
        let (mut cancelled, mut work) = (pin!(self.0.token.cancelled()), pin!(work));
        poll_fn(|cx| {
            if self.epoch() > 0 && self.is_cancelled() {
                return Poll::Ready(Err(Cancelled { by: self.cause() }));
            }
            if let Poll::Ready(output) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            // Only now, since most work never waits, and to enter the list of those who do takes two locks.
            cancelled.as_mut().poll(cx).map(|()| Err(Cancelled { by: self.cause() }))
        })
        .await
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_cause_stays_and_reaches_descendants() {
        let root = CancelToken::new();
        let (child, other) = (root.child(), root.child());
        let grandchild = child.child();
        child.cancel(CancelledBy::User);
        child.cancel(CancelledBy::Shutdown);
        assert_eq!(child.cancelled(), Some(Cancelled { by: CancelledBy::User }));
        assert_eq!(
            grandchild.or_cancel(std::future::pending::<()>()).await,
            Err(Cancelled { by: CancelledBy::Parent })
        );
        assert_eq!((root.cancelled(), other.cancelled()), (None, None));
        root.cancel(CancelledBy::DeadlineOfParent);
        assert_eq!(other.cancelled().unwrap().by, CancelledBy::DeadlineOfParent);
        assert_eq!(other.or_cancel(async { 1 }).await, Err(Cancelled { by: CancelledBy::DeadlineOfParent }));
    }
}
