//! A stream with messages before and after it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;

use super::desk::Sink;
use super::{Producer, Step, SubAgentStream};
use crate::message::ProcessingMessage;
use crate::outcome::SubAgentOutcome;

/// Nothing in it is pinned.
#[pin_project]
pub(super) struct Around<F> {
    before: Option<ProcessingMessage>,
    inner: Option<SubAgentStream>,
    after: Option<F>,
    rest: VecDeque<ProcessingMessage>,
    outcome: Option<SubAgentOutcome>,
}

impl<F> Around<F> {
    pub(super) fn new(before: ProcessingMessage, inner: SubAgentStream, after: F) -> Self {
        Self {
            before: Some(before),
            inner: Some(inner),
            after: Some(after),
            rest: VecDeque::new(),
            outcome: None,
        }
    }
}

impl<F> Producer for Around<F>
where
    F: FnOnce(&SubAgentOutcome) -> Vec<ProcessingMessage> + Send,
{
    fn poll_step(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        sink: Option<&Arc<dyn Sink>>,
        message: &mut Option<ProcessingMessage>,
        outcome: &mut Option<SubAgentOutcome>,
    ) -> Poll<Step> {
        let this = self.project();
        if this.before.is_some() {
            *message = this.before.take();
            return Poll::Ready(Step::Message);
        }
        if let Some(inner) = this.inner {
            if ready!(inner.poll_into(cx, sink, message)) {
                return Poll::Ready(Step::Message);
            }
            let ended = this.inner.take().map(SubAgentStream::into_outcome);
            if let (Some(ended), Some(after)) = (&ended, this.after.take()) {
                *this.rest = after(ended).into();
            }
            *this.outcome = ended;
        }
        *message = this.rest.pop_front();
        if message.is_some() {
            return Poll::Ready(Step::Message);
        }
        *outcome = this.outcome.take();
        Poll::Ready(Step::End)
    }
}
