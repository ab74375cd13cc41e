//! Producers behind a guard: their panics are their own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;

use crate::message::ProcessingMessage;
use crate::outcome::{FailureKind, SubAgentOutcome};
use crate::stream::{SubAgentStream, panic_text};

/// What a poll of a producer gave.
pub(super) enum Step {
    Message(ProcessingMessage),
    Ended(SubAgentOutcome),
}

/// Polls the producer; its panic is its end.
pub(super) fn poll_guarded(stream: &mut Option<SubAgentStream>, cx: &mut Context<'_>) -> Poll<Step> {
    let Some(producer) = stream else {
        return Poll::Ready(Step::Ended(SubAgentOutcome::failed(FailureKind::Vanished, "no producer")));
    };
    // The producer is dropped after a panic and never polled again, so nobody sees what the panic left half done.
    match catch_unwind(AssertUnwindSafe(|| Pin::new(producer).poll_next(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(Some(message))) => Poll::Ready(Step::Message(message)),
        Ok(Poll::Ready(None)) => {
            let outcome = stream.take().map(SubAgentStream::into_outcome);
            let vanished = || SubAgentOutcome::failed(FailureKind::Vanished, "no producer");
            Poll::Ready(Step::Ended(outcome.unwrap_or_else(vanished)))
        }
        Err(panic) => {
            let text = format!("the sub-agent panicked: {}", panic_text(&*panic));
            Poll::Ready(Step::Ended(SubAgentOutcome::failed(FailureKind::Panic, text)))
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
