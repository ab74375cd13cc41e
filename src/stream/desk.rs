//! Where a block and the stream that polls it hand messages over without a lock.
//!
//! Nearly every message is emitted by a block while its own stream polls it, with the stream's own waker: then both are on one
//! thread, one after the other, and a place of that thread does. Everything else goes through the slot with its lock.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::task::{RawWakerVTable, Waker};

use crate::message::ProcessingMessage;

thread_local! {
    static DESK: Desk = const {
        Desk { key: Cell::new(Key::NOBODY), message: RefCell::new(None), sink: RefCell::new(None) }
    };
}

struct Desk {
    key: Cell<Key>,
    message: RefCell<Option<ProcessingMessage>>,
    sink: RefCell<Option<Arc<dyn Sink>>>,
}

/// Where messages go while their stream is polled, without a way back through all that polls it: the log.
pub(crate) trait Sink: Send + Sync {
    /// Takes the message, if it takes this one.
    fn take(&self, message: &mut Option<ProcessingMessage>) -> Taken;
}

/// What a sink says to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is to go the usual way.
    No,
    /// It was said, and its sender goes on.
    GoOn,
    /// It was said, or refused, and its sender waits for whoever polls the stream.
    Wait,
}

/// Whose desk it is now: a slot by its address, which stands still while its stream is polled, and a waker as
/// [`Waker::will_wake`] compares it.
#[derive(Clone, Copy, PartialEq)]
struct Key {
    slot: *const (),
    waker: (*const (), *const RawWakerVTable),
}

impl Key {
    const NOBODY: Self = Self { slot: std::ptr::null(), waker: (std::ptr::null(), std::ptr::null()) };

    fn of<T>(slot: &T, waker: &Waker) -> Self {
        Self { slot: std::ptr::from_ref(slot).cast(), waker: (waker.data(), waker.vtable()) }
    }
}

impl Desk {
    /// Gives the desk back to the outer stream; what lies there then is the inner one's, and so is the sink.
    fn give_back(&self, shift: &mut Shift, message: &mut Option<ProcessingMessage>) -> Option<Arc<dyn Sink>> {
        self.key.set(shift.outer);
        let mut place = self.message.borrow_mut();
        // Looked at before they are moved: messages are large, and most often there is none.
        if place.is_some() {
            *message = place.take();
        }
        if shift.outer_message.is_some() {
            *place = shift.outer_message.take();
        }
        self.sink.replace(shift.outer_sink.take())
    }

    /// Says the message, if there is a sink and it takes it. Meanwhile the desk has none, so that whoever is woken by it finds none in
    /// use.
    fn say(&self, message: &mut Option<ProcessingMessage>) -> Taken {
        let Some(sink) = self.sink.take() else { return Taken::No };
        let taken = sink.take(message);
        self.sink.replace(Some(sink));
        taken
    }
}

/// The desk of this thread, for one poll. Streams are polled inside one another: afterwards it is the outer one's again.
pub(super) struct Shift {
    outer: Key,
    outer_message: Option<ProcessingMessage>,
    outer_sink: Option<Arc<dyn Sink>>,
    has_ended: bool,
}

impl Shift {
    #[inline]
    pub(super) fn begin<T>(slot: &T, waker: &Waker, sink: Option<Arc<dyn Sink>>) -> Self {
        let mut shift = Self { outer: Key::NOBODY, outer_message: None, outer_sink: None, has_ended: false };
        let begun = DESK.try_with(|desk| {
            shift.outer = desk.key.replace(Key::of(slot, waker));
            let mut place = desk.message.borrow_mut();
            if place.is_some() {
                shift.outer_message = place.take();
            }
            shift.outer_sink = desk.sink.replace(sink);
        });
        // A thread that is ending has no desk any more.
        shift.has_ended = begun.is_err();
        shift
    }

    /// Gives out the message that was put during this poll, if there is one, and gives back the sink.
    #[inline]
    pub(super) fn end(mut self, message: &mut Option<ProcessingMessage>) -> Option<Arc<dyn Sink>> {
        let sink = DESK.try_with(|desk| desk.give_back(&mut self, message));
        self.has_ended |= sink.is_ok();
        sink.unwrap_or_default()
    }
}

impl Drop for Shift {
    #[inline]
    fn drop(&mut self) {
        // Without an end the poll panicked: what it put is lost with its stream.
        if !self.has_ended {
            let mut lost = None;
            let _ = DESK.try_with(|desk| desk.give_back(self, &mut lost));
        }
    }
}

/// Where a message that a block wants to hand over has gone.
pub(super) enum Put {
    /// It lies on the desk.
    Done,
    /// It was said.
    Said,
    /// It was said, and its sender is to wait all the same.
    SaidLast,
    /// Nowhere: another one lies there already.
    Occupied,
    /// Nowhere: the desk is not that of this slot and this waker.
    Elsewhere,
}

#[inline]
pub(super) fn put<T>(slot: &T, waker: &Waker, message: &mut Option<ProcessingMessage>) -> Put {
    let put = DESK.try_with(|desk| {
        if desk.key.get() != Key::of(slot, waker) {
            return Put::Elsewhere;
        }
        let place = desk.message.borrow();
        if place.is_some() {
            return Put::Occupied;
        }
        drop(place);
        match desk.say(message) {
            Taken::GoOn => return Put::Said,
            Taken::Wait => return Put::SaidLast,
            Taken::No => {}
        }
        *desk.message.borrow_mut() = message.take();
        Put::Done
    });
    put.unwrap_or(Put::Elsewhere)
}
