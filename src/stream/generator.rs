//! A stream from one async block.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use pin_project::{pin_project, pinned_drop};

use super::desk::{Shift, Sink};
use super::emitter::{Emitter, Slot};
use super::{Producer, Step};
use crate::message::ProcessingMessage;
use crate::outcome::SubAgentOutcome;

#[pin_project(PinnedDrop)]
pub(super) struct Generator<Fut> {
    slot: Arc<Slot>,
    driver: Option<Waker>,
    /// Where the block's messages go at once; lent to the desk while the block is polled.
    sink: Option<Arc<dyn Sink>>,
    #[pin]
    work: Fut,
    /// The outcome, where messages are still to go out before it. Boxed, since that is seldom.
    ended: Option<Box<SubAgentOutcome>>,
}

impl<Fut> Generator<Fut> {
    pub(super) fn new(author: impl FnOnce(Emitter) -> Fut) -> Self {
        let slot = Arc::new(Slot::default());
        let work = author(Emitter { slot: Arc::clone(&slot) });
        Self { slot, driver: None, sink: None, work, ended: None }
    }
}

#[pinned_drop]
impl<Fut> PinnedDrop for Generator<Fut> {
    fn drop(self: Pin<&mut Self>) {
        self.project().slot.close();
    }
}

impl<Fut> Producer for Generator<Fut>
where
    Fut: Future + Send,
    Fut::Output: Into<SubAgentOutcome>,
{
    fn poll_step(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        sink: Option<&Arc<dyn Sink>>,
        message: &mut Option<ProcessingMessage>,
        declared: &mut Option<SubAgentOutcome>,
    ) -> Poll<Step> {
        let this = self.project();
        if this.driver.as_ref().is_none_or(|driver| !driver.will_wake(cx.waker())) {
            *this.driver = Some(cx.waker().clone());
            this.slot.drive(cx.waker());
        }
        let is_same = match (&*this.sink, sink) {
            (Some(own), Some(sink)) => Arc::ptr_eq(own, sink),
            (own, sink) => own.is_none() && sink.is_none(),
        };
        if !is_same {
            *this.sink = sink.cloned();
        }
        let mut is_on_desk = false;
        if this.ended.is_none() {
            let shift = Shift::begin(&**this.slot, cx.waker(), this.sink.take());
            if let Poll::Ready(outcome) = this.work.poll(cx) {
                *declared = Some(outcome.into());
            }
            *this.sink = shift.end(message);
            is_on_desk = message.is_some();
            if is_on_desk {
                this.slot.count_over_desk();
            }
        }
        if is_on_desk || this.slot.take(message) {
            // The outcome is held until every message that was put is out.
            if declared.is_some() {
                *this.ended = declared.take().map(Box::new);
            }
            return Poll::Ready(Step::Message);
        }
        if let Some(outcome) = this.ended.take() {
            *declared = Some(*outcome);
        }
        if declared.is_some() { Poll::Ready(Step::End) } else { Poll::Pending }
    }
}

#[cfg(test)]
#[path = "desk_tests.rs"]
mod desk_tests;
