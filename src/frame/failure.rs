//! How one step of a pass fails.

use std::error::Error;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;

use crate::context::RunContext;
use crate::outcome::{CancelledBy, FailureKind, SubAgentOutcome};
use crate::stream::panic_text;

/// Any error.
pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// Why a step has no result. Exhaustive on purpose: the first two may never be worked around.
#[derive(Debug, thiserror::Error)]
pub enum StepFailure {
    /// The run, or that of its agent, was cancelled.
    #[error("cancelled by {0}")]
    Cancelled(CancelledBy),
    /// A rule of the host ended it: see [`Abort`].
    #[error("aborted: {0}")]
    Aborted(String),
    /// It failed.
    #[error("{0}")]
    Failed(#[source] BoxError),
    /// It panicked, with this text.
    #[error("it panicked: {0}")]
    Panicked(String),
}

impl StepFailure {
    /// Whether nobody is to go on after it.
    #[must_use]
    pub fn must_end(&self) -> bool {
        match self {
            Self::Cancelled(_) | Self::Aborted(_) => true,
            Self::Failed(_) | Self::Panicked(_) => false,
        }
    }

    /// The failure that an error is; an [`Abort`] is one wherever it comes from.
    pub(super) fn of(error: BoxError) -> Self {
        match error.downcast::<Abort>() {
            Ok(abort) => Self::Aborted(abort.reason),
            Err(error) => Self::Failed(error),
        }
    }

    /// The outcome of a run that ends with it.
    pub(super) fn outcome(&self, text: String) -> SubAgentOutcome {
        match self {
            Self::Cancelled(by) => SubAgentOutcome::cancelled(*by),
            Self::Aborted(_) => SubAgentOutcome::failed(FailureKind::Refused, text),
            Self::Failed(_) => SubAgentOutcome::failed(FailureKind::Step, text),
            Self::Panicked(_) => SubAgentOutcome::failed(FailureKind::Panic, text),
        }
    }
}

/// An error that ends everything above it: no retry, no refinement and no fallback takes its place. An executor returns it where a
/// rule forbids to go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Abort {
    /// Why.
    pub reason: String,
}

impl Abort {
    /// For this reason.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

/// The run of an agent that did not complete.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the sub-agent {} ({}): {}", .outcome.kind(), .outcome.stop_class(), .outcome.error_text().unwrap_or_default())]
pub struct NotCompleted {
    /// How it ended.
    pub outcome: SubAgentOutcome,
}

/// What the end of an agent's run means for a pass.
pub(super) fn answer_of(outcome: SubAgentOutcome) -> Result<serde_json::Value, StepFailure> {
    match outcome {
        SubAgentOutcome::Completed { result, .. } => Ok(result),
        SubAgentOutcome::Cancelled { by, .. } => Err(StepFailure::Cancelled(by)),
        // A run that was let in and still ends as refused was ended by a rule.
        SubAgentOutcome::Failed { kind: FailureKind::Refused, message, .. } => {
            Err(StepFailure::Aborted(message))
        }
        outcome @ (SubAgentOutcome::Stopped { .. } | SubAgentOutcome::Failed { .. }) => {
            Err(StepFailure::Failed(Box::new(NotCompleted { outcome })))
        }
    }
}

/// What a closure of an author may return: the value, or a result with any error.
pub trait Returns<T> {
    /// As a result.
    ///
    /// # Errors
    ///
    /// The author's.
    fn into_result(self) -> Result<T, BoxError>;
}

impl<T> Returns<T> for T {
    fn into_result(self) -> Result<T, BoxError> {
        Ok(self)
    }
}

impl<T, E: Into<BoxError>> Returns<T> for Result<T, E> {
    fn into_result(self) -> Result<T, BoxError> {
        self.map_err(Into::into)
    }
}

/// Runs an author's code: its panic and its error are failures.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, BoxError>) -> Result<T, StepFailure> {
    match std::panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(StepFailure::of),
        Err(panic) => Err(StepFailure::Panicked(panic_text(&*panic))),
    }
}

/// As [`guarded`], for code that waits; a cancel of the run ends it.
pub(super) async fn guarded_async<T>(
    cx: &RunContext,
    work: impl Future<Output = Result<T, BoxError>>,
) -> Result<T, StepFailure> {
    watched(cx, async { work.await.map_err(StepFailure::of) }).await
}

/// As [`guarded_async`], for what says itself how it failed.
pub(super) async fn watched<T>(
    cx: &RunContext,
    work: impl Future<Output = Result<T, StepFailure>>,
) -> Result<T, StepFailure> {
    match cx.or_cancel(AssertUnwindSafe(work).catch_unwind()).await {
        Err(cancelled) => Err(StepFailure::Cancelled(cancelled.by)),
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(StepFailure::Panicked(panic_text(&*panic))),
    }
}
