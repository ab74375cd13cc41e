//! Where a block and the stream that polls it hand messages over without a lock.
//!
//! Nearly every message is emitted by a block while its own stream polls it, with the stream's own waker: then both are on one
//! thread, one after the other, and a place of that thread does. Everything else goes through the slot with its lock.

use std::cell::{Cell, RefCell};
use std::task::{RawWakerVTable, Waker};

use crate::message::ProcessingMessage;

thread_local! {
    static DESK: Desk = const {
        Desk { key: Cell::new(Key::NOBODY), message: RefCell::new(None) }
    };
}

struct Desk {
    key: Cell<Key>,
    message: RefCell<Option<ProcessingMessage>>,
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
    /// Gives the desk back to the outer stream; what lies there then is the inner one's.
    fn give_back(&self, shift: &mut Shift, message: &mut Option<ProcessingMessage>) {
        self.key.set(shift.outer);
        let mut place = self.message.borrow_mut();
        // Looked at before they are moved: messages are large, and most often there is none.
        if place.is_some() {
            *message = place.take();
        }
        if shift.outer_message.is_some() {
            *place = shift.outer_message.take();
        }
    }
}

/// The desk of this thread, for one poll. Streams are polled inside one another: afterwards it is the outer one's again.
pub(super) struct Shift {
    outer: Key,
    outer_message: Option<ProcessingMessage>,
    has_ended: bool,
}

impl Shift {
    #[inline]
    pub(super) fn begin<T>(slot: &T, waker: &Waker) -> Self {
        let mut shift = Self { outer: Key::NOBODY, outer_message: None, has_ended: false };
        let begun = DESK.try_with(|desk| {
            shift.outer = desk.key.replace(Key::of(slot, waker));
            let mut place = desk.message.borrow_mut();
            if place.is_some() {
                shift.outer_message = place.take();
            }
        });
        // A thread that is ending has no desk any more.
        shift.has_ended = begun.is_err();
        shift
    }

    /// Gives out the message that was put during this poll, if there is one.
    #[inline]
    pub(super) fn end(mut self, message: &mut Option<ProcessingMessage>) {
        self.has_ended |= DESK.try_with(|desk| desk.give_back(&mut self, message)).is_ok();
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
        let mut place = desk.message.borrow_mut();
        if place.is_some() {
            return Put::Occupied;
        }
        *place = message.take();
        Put::Done
    });
    put.unwrap_or(Put::Elsewhere)
}
