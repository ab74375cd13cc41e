//! Trying again what failed, with the failure in the note.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::failure::{BoxError, StepFailure, guarded, guarded_async};
use super::hooking::Hooking;
use crate::context::RunContext;
use crate::error::{ErrorKind, Result};
use crate::message::{Extra, Retrying};
use crate::stream::Emitter;
use crate::tool::{HookedCall, Hooks};

/// How an operation is tried again.
///
/// # Examples
///
/// ```
/// use anabranch::frame::Retry;
/// use std::time::Duration;
///
/// let retry = Retry::new("deploy").attempts(3)?.backing_off(Duration::from_secs(1), Duration::from_secs(30));
/// assert!(Retry::new("deploy").attempts(0).is_err());
/// # let _ = retry;
/// # Ok::<(), anabranch::error::Error>(())
/// ```
#[derive(Clone)]
pub struct Retry {
    name: Arc<str>,
    attempts: u32,
    first_delay: Duration,
    max_delay: Duration,
    hooks: Hooks,
    enrich: Arc<Enrich>,
    is_retryable: Arc<IsRetryable>,
}

/// A further note, of the original one and the last error.
type Enrich = dyn Fn(&str, &str) -> String + Send + Sync;
type IsRetryable = dyn Fn(&StepFailure) -> bool + Send + Sync;

/// One attempt, as the operation sees it.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// From 1.
    pub number: u32,
    /// What is to be called: the name of the operation, unless a hook redirected it.
    pub tool: Arc<str>,
    /// The note; from the second attempt on with what went wrong in the one before.
    pub note: String,
    /// The arguments, as the hooks left them.
    pub args: Arc<Map<String, Value>>,
}

/// Why an operation has no result after all of its attempts.
#[derive(Debug)]
pub struct RetryError {
    /// The operation.
    pub name: Arc<str>,
    /// How many attempts were made; 0 if a hook did not let it begin.
    pub attempts: u32,
    /// How the last one failed.
    pub last: StepFailure,
}

impl fmt::Display for RetryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.attempts == 1 { "" } else { "s" };
        write!(f, "{} failed after {} attempt{plural}: {}", self.name, self.attempts, self.last)
    }
}

impl std::error::Error for RetryError {
    /// The cause of the last failure: the failure itself is part of the text.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.last.source()
    }
}

impl RetryError {
    /// The last error as the type that the operation returned.
    #[must_use]
    pub fn last_as<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match &self.last {
            StepFailure::Failed(error) => error.downcast_ref(),
            StepFailure::Cancelled(_) | StepFailure::Aborted(_) | StepFailure::Panicked(_) => None,
        }
    }
}

impl Retry {
    /// At most two attempts, the second after half a second.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            attempts: 2,
            first_delay: Duration::from_millis(500),
            max_delay: Duration::from_secs(30),
            hooks: Hooks::new(),
            enrich: Arc::new(with_failure),
            is_retryable: Arc::new(|_| true),
        }
    }

    /// At most so many attempts in all. Default 2.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Frame`] if there would be none.
    pub fn attempts(mut self, attempts: u32) -> Result<Self> {
        if attempts == 0 {
            let reason = "attempts is 0; at least 1 is made".to_owned();
            return Err(ErrorKind::Frame { name: self.name.to_string(), reason }.into());
        }
        self.attempts = attempts;
        Ok(self)
    }

    /// Waits before the second attempt about `first`, before each further one about twice as long, and never longer than `max`: half
    /// of each wait is left to chance, so that siblings do not come back together. Default 500 ms and 30 s.
    #[must_use]
    pub fn backing_off(mut self, first: Duration, max: Duration) -> Self {
        (self.first_delay, self.max_delay) = (first, max);
        self
    }

    /// What the note of a further attempt is, made of the original note and the last error. Default: the note, and below it what
    /// failed and that another way is to be taken.
    #[must_use]
    pub fn enriching(mut self, enrich: impl Fn(&str, &str) -> String + Send + Sync + 'static) -> Self {
        self.enrich = Arc::new(enrich);
        self
    }

    /// Which failures are tried again. Default all. Cancels and aborts never are.
    #[must_use]
    pub fn retrying_if(
        mut self,
        is_retryable: impl Fn(&StepFailure) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.is_retryable = Arc::new(is_retryable);
        self
    }

    /// Hooks around the operation: once, not for each attempt.
    #[must_use]
    pub fn hooks(mut self, hooks: Hooks) -> Self {
        self.hooks = hooks;
        self
    }

    fn delay(&self, after: u32, cx: &RunContext) -> Duration {
        let doubled = 1_u32.checked_shl(after - 1).unwrap_or(u32::MAX);
        let bound = self.first_delay.saturating_mul(doubled).min(self.max_delay);
        let half = u64::try_from(bound.as_millis() / 2).unwrap_or(u64::MAX);
        bound - Duration::from_millis(half)
            + Duration::from_millis(cx.root().jitter(u64::from(after), half.saturating_add(1)))
    }
}

/// The default enrichment: of the original note, so that it does not grow from attempt to attempt.
fn with_failure(note: &str, error: &str) -> String {
    format!(
        "{}\n\nPREVIOUS ATTEMPT FAILED: {error}\nDo not do the same again: find out why it failed, and take another way.",
        note.trim_end()
    )
}

/// Runs an operation until it succeeds, or its attempts are used up.
///
/// The hooks decide once before the first attempt. Of a redirect the operation sees the arguments, whose `note` is then the note, and
/// the tool. They see the result once, with the time of all attempts; of a redirect then one more operation follows, and that is final.
///
/// # Errors
///
/// [`RetryError`], with the last failure as it was.
///
/// # Cancel safety
///
/// Dropping it drops the attempt under way.
pub async fn run_with_retry<R, E, Fut>(
    retry: &Retry,
    cx: &RunContext,
    emit: &Emitter,
    note: &str,
    args: Map<String, Value>,
    operation: impl Fn(Attempt) -> Fut,
) -> std::result::Result<R, RetryError>
where
    R: Serialize + DeserializeOwned,
    E: Into<BoxError>,
    Fut: Future<Output = std::result::Result<R, E>>,
{
    let made = AtomicU32::new(0);
    let hooking = Hooking { hooks: retry.hooks.clone(), cx, emit };
    let (made, operation) = (&made, &operation);
    let act = |call: HookedCall| async move {
        let redirected = call.args.get("note").and_then(Value::as_str);
        let original = redirected.unwrap_or(note).to_owned();
        let mut note = original.clone();
        let mut number = 1;
        loop {
            made.fetch_add(1, Ordering::Relaxed);
            let attempt =
                Attempt { number, tool: Arc::clone(&call.tool), note, args: Arc::clone(&call.args) };
            let work = async { operation(attempt).await.map_err(Into::into) };
            let failure = match guarded_async(cx, work).await {
                Ok(result) => return Ok(result),
                Err(failure) => failure,
            };
            if failure.must_end() || number >= retry.attempts {
                return Err(failure);
            }
            let reason = failure.to_string();
            let next =
                guarded(|| Ok((retry.is_retryable)(&failure).then(|| (retry.enrich)(&original, &reason))))?;
            let Some(next) = next else { return Err(failure) };
            note = next;
            let delay = retry.delay(number, cx);
            number += 1;
            let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
            emit.send(Retrying { attempt: number, delay_ms, reason, extra: Extra::default() }).await;
            if let Err(cancelled) = cx.or_cancel(tokio::time::sleep(delay)).await {
                return Err(StepFailure::Cancelled(cancelled.by));
            }
        }
    };
    let done = hooking.around(&retry.name, args, act).await;
    done.map_err(|last| {
        let attempts = made.load(Ordering::Relaxed);
        RetryError { name: Arc::clone(&retry.name), attempts, last }
    })
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("name", &self.name)
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}
