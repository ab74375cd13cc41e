//! One reader's position in the log.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;

use super::log::{EventBus, Place, Read};
use crate::id::Seq;
use crate::message::ProcessingMessage;
use crate::tree::{Delivery, Gap};

/// Messages copied under one lock: enough to make the lock's cost vanish, few enough to hold it for a microsecond.
pub(super) const BATCH: usize = 64;

/// Where a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// At the first message. What is no longer retained comes as a gap.
    Start,
    /// At the next message; what was before comes as one gap, so that the tree is whole.
    Now,
    /// At this message: one more than the last one that was received. Without a snapshot of what was before.
    Seq(Seq),
}

/// A stream of deliveries, from one position on.
///
/// # Cancel safety
///
/// `next` loses nothing when dropped. Dropping the subscription changes nothing for anybody else.
///
/// # Backpressure
///
/// None: a subscription that is not read costs the run nothing and falls off the retained window in time.
#[derive(Debug)]
pub struct Subscription {
    bus: Arc<EventBus>,
    /// Where in the log it waits.
    place: Option<Place>,
    cursor: Seq,
    batch: VecDeque<ProcessingMessage>,
    snapshot_first: bool,
}

impl Subscription {
    pub(super) fn new(bus: Arc<EventBus>, cursor: Seq, snapshot_first: bool) -> Self {
        Self { bus, place: None, cursor, batch: VecDeque::new(), snapshot_first }
    }

    /// The `seq` of the message that comes next.
    #[must_use]
    pub fn cursor(&self) -> Seq {
        self.cursor
    }

    /// The `seq` that the next message of the whole log gets.
    pub(crate) fn end(&self) -> Seq {
        self.bus.next_seq()
    }

    /// The next message of those that were already copied from the log: without its lock, and none if there is none.
    pub(crate) fn buffered(&mut self) -> Option<Delivery> {
        let message = self.batch.pop_front()?;
        self.cursor += 1;
        Some(Delivery::Message(message))
    }

    /// The next delivery of what stands before `end`, without waiting.
    pub(crate) fn before(&mut self, end: Seq) -> Option<Delivery> {
        if self.cursor < end { self.try_next() } else { None }
    }

    /// What is there now, without waiting.
    pub fn try_next(&mut self) -> Option<Delivery> {
        match self.advance(None) {
            Poll::Ready(delivery) => delivery,
            Poll::Pending => None,
        }
    }

    fn advance(&mut self, waker: Option<&std::task::Waker>) -> Poll<Option<Delivery>> {
        if std::mem::take(&mut self.snapshot_first) {
            let snapshot = Arc::new(self.bus.tree_before(self.cursor));
            // The window may have moved on meanwhile: then the snapshot has more, and the rest comes after it.
            self.cursor = self.cursor.max(snapshot.next_seq());
            return Poll::Ready(Some(Delivery::Gap(Gap { from_seq: 0, to_seq: self.cursor - 1, snapshot })));
        }
        if self.batch.is_empty() {
            let waiter = waker.map(|waker| (&mut self.place, waker));
            match self.bus.read(self.cursor, &mut self.batch, waiter) {
                Read::Messages => {}
                Read::Gap(gap) => {
                    self.cursor = gap.to_seq + 1;
                    return Poll::Ready(Some(Delivery::Gap(gap)));
                }
                Read::Pending => return Poll::Pending,
                Read::Ended => return Poll::Ready(None),
            }
        }
        self.cursor += 1;
        Poll::Ready(self.batch.pop_front().map(Delivery::Message))
    }
}

impl Stream for Subscription {
    type Item = Delivery;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        self.get_mut().advance(Some(cx.waker()))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.bus.forget(place);
        }
    }
}
