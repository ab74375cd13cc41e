//! Producers behind a guard: their panics are their own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::message::ProcessingMessage;
use crate::outcome::{FailureKind, SubAgentOutcome};
use crate::stream::{Sink, SubAgentStream, panic_text};

/// What a poll of a producer gave.
pub(super) enum Step {
    /// There is a message.
    Message,
    /// Boxed, so that a step is two words: it is asked for each message.
    Ended(Box<SubAgentOutcome>),
}

/// Polls the producer; its panic is its end. A message goes where it is wanted, rather than through each caller's hands.
#[inline]
pub(super) fn poll_guarded(
    stream: &mut Option<SubAgentStream>,
    sink: Option<&Arc<dyn Sink>>,
    message: &mut Option<ProcessingMessage>,
    cx: &mut Context<'_>,
) -> Poll<Step> {
    let ended = |outcome| Poll::Ready(Step::Ended(Box::new(outcome)));
    let Some(producer) = stream else {
        return ended(SubAgentOutcome::failed(FailureKind::Vanished, "no producer"));
    };
    // The producer is dropped after a panic and never polled again, so nobody sees what the panic left half done.
    match catch_unwind(AssertUnwindSafe(|| producer.poll_into(cx, sink, message))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(true)) => Poll::Ready(Step::Message),
        Ok(Poll::Ready(false)) => {
            let outcome = stream.take().map(SubAgentStream::into_outcome);
            let vanished = || SubAgentOutcome::failed(FailureKind::Vanished, "no producer");
            ended(outcome.unwrap_or_else(vanished))
        }
        Err(panic) => {
            let text = format!("the sub-agent panicked: {}", panic_text(&*panic));
            ended(SubAgentOutcome::failed(FailureKind::Panic, text))
        }
    }
}

/// Drops the producer; a panic in one of its destructors harms nobody else.
pub(super) fn drop_guarded(stream: &mut Option<SubAgentStream>) {
    let stream = stream.take();
    if catch_unwind(AssertUnwindSafe(|| drop(stream))).is_err() {
        tracing::warn!("a sub-agent panicked while it was dropped");
    }
}
