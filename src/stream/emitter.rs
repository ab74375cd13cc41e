//! How a message gets out of a producer: what the author of a block holds, and where a message lies until it is taken.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::desk::{self, Put};
use crate::message::ProcessingMessage;

/// Hands messages from inside a producer to whoever polls it. Clone it for parts that work at the same time.
#[derive(Debug, Clone)]
pub struct Emitter {
    pub(super) slot: Arc<Slot>,
}

impl Emitter {
    /// Emits one message. Resolves when it was taken: in a run under a pipe, when it is in the log. Once the stream has
    /// ended or was dropped, it resolves at once, and nobody hears the message.
    ///
    /// # Cancel safety
    ///
    /// Dropped before its first poll the message was never said; after it, it is said.
    pub fn send(&self, message: impl Into<ProcessingMessage>) -> Sending<'_> {
        Sending { slot: &self.slot, message: Some(message.into()), ticket: Ticket::None, waiter: None }
    }
}

/// A place for one message between the author's block and the stream, for senders that are not polled with the stream's own
/// waker: an author moved them to tasks of their own, or into a set of futures.
///
/// The others use the thread's desk, as long as no sender came here: from then on all do, so that none has to wait for ever.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Held for a move.
    state: Mutex<SlotState>,
    /// How many messages were taken: senders see without the lock whether theirs was.
    taken: AtomicU64,
    /// Whether a sender ever came here. Written inside the lock, before the stream's task is woken.
    pub(super) in_use: AtomicBool,
    /// How many messages went over the desk. Only the stream writes it.
    pub(super) over_desk: AtomicU64,
}

#[derive(Debug, Default)]
struct SlotState {
    message: Option<ProcessingMessage>,
    put: u64,
    /// The task that polls the stream: a sender polled by it needs no wake-up.
    driver: Option<Waker>,
    /// Who put the message, if another waker than the driver's polls it.
    sender: Option<Waker>,
    /// Who waits for the place, first come, first served; the numbers rise.
    waiting: VecDeque<(u64, Waker)>,
    last_waiter: u64,
    /// The stream is gone: nobody takes messages any more.
    closed: bool,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the message that lies there. False if there is none.
    pub(super) fn take(&self, message: &mut Option<ProcessingMessage>) -> bool {
        if !self.in_use.load(Ordering::Relaxed) {
            return false;
        }
        let mut state = self.lock();
        if state.message.is_none() {
            return false;
        }
        *message = state.message.take();
        self.taken.store(state.put, Ordering::Release);
        let (sender, next) = (state.sender.take(), state.waiting.pop_front());
        drop(state);
        sender.into_iter().chain(next.map(|(_, waker)| waker)).for_each(Waker::wake);
        true
    }

    /// Who polls the stream from now on.
    pub(super) fn drive(&self, driver: &Waker) {
        self.lock().driver = Some(driver.clone());
    }

    /// One more went over the desk. Called within a poll of the stream.
    pub(super) fn count_over_desk(&self) -> u64 {
        let count = self.over_desk.load(Ordering::Relaxed) + 1;
        self.over_desk.store(count, Ordering::Release);
        count
    }

    /// Lets those go who wait on tasks of their own for a stream that is gone.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let (sender, waiting) = (state.sender.take(), std::mem::take(&mut state.waiting));
        drop(state);
        sender.into_iter().chain(waiting.into_iter().map(|(_, waker)| waker)).for_each(Waker::wake);
    }
}

impl SlotState {
    /// Puts a waiter into the queue, or renews its waker where it already stands.
    fn wait(&mut self, number: &mut Option<u64>, waker: &Waker) {
        if let Some(place) = number.and_then(|number| self.place_of(number)) {
            if let Some((_, old)) = self.waiting.get_mut(place) {
                old.clone_from(waker);
            }
            return;
        }
        self.last_waiter += 1;
        *number = Some(self.last_waiter);
        self.waiting.push_back((self.last_waiter, waker.clone()));
    }

    fn place_of(&self, number: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&number, |(number, _)| *number).ok()
    }
}

/// The future of [`Emitter::send`].
#[must_use = "a message is said only when this is awaited"]
#[derive(Debug)]
pub struct Sending<'a> {
    slot: &'a Slot,
    message: Option<ProcessingMessage>,
    ticket: Ticket,
    waiter: Option<u64>,
}

/// How a sender recognises that its message was taken.
#[derive(Debug, Clone, Copy)]
enum Ticket {
    None,
    Slot(u64),
    Desk(u64),
}

impl Ticket {
    fn was_taken(self, slot: &Slot) -> bool {
        match self {
            Self::None => false,
            Self::Slot(ticket) => slot.taken.load(Ordering::Acquire) >= ticket,
            Self::Desk(ticket) => slot.over_desk.load(Ordering::Acquire) >= ticket,
        }
    }
}

impl Future for Sending<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.ticket.was_taken(this.slot) {
            return Poll::Ready(());
        }
        if this.message.is_some() && !this.slot.in_use.load(Ordering::Relaxed) {
            match desk::put(this.slot, cx.waker(), &mut this.message) {
                Put::Done => {
                    this.ticket = Ticket::Desk(this.slot.over_desk.load(Ordering::Relaxed) + 1);
                    return Poll::Pending;
                }
                Put::Said => return Poll::Ready(()),
                // The run is about to end, or to be looked after: the pipe has its turn first.
                Put::SaidLast => {
                    this.ticket = Ticket::Desk(this.slot.count_over_desk());
                    return Poll::Pending;
                }
                // Whoever is polled with the stream itself is polled again anyway after the place was emptied.
                Put::Occupied => return Poll::Pending,
                Put::Elsewhere => {}
            }
        }
        let mut state = this.slot.lock();
        if state.closed {
            return Poll::Ready(());
        }
        let driven = state.driver.as_ref().is_some_and(|driver| driver.will_wake(cx.waker()));
        if this.message.is_none() {
            if this.ticket.was_taken(this.slot) {
                return Poll::Ready(());
            }
            match this.ticket {
                _ if driven => {}
                // It lies on the desk until the poll that put it there has ended, which nobody announces.
                Ticket::Desk(_) => cx.waker().wake_by_ref(),
                Ticket::Slot(_) | Ticket::None => state.sender = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        this.slot.in_use.store(true, Ordering::Relaxed);
        if state.message.is_some() {
            // Whoever is polled with the stream itself is polled again anyway after the place was emptied.
            if !driven {
                state.wait(&mut this.waiter, cx.waker());
            }
            return Poll::Pending;
        }
        state.message = this.message.take();
        state.put += 1;
        this.ticket = Ticket::Slot(state.put);
        if !driven {
            state.sender = Some(cx.waker().clone());
            // The task that polls the stream may be another one than this.
            if let Some(driver) = &state.driver {
                driver.wake_by_ref();
            }
        }
        Poll::Pending
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        let Some(number) = self.waiter.filter(|_| self.message.is_some()) else { return };
        let mut state = self.slot.lock();
        match state.place_of(number) {
            Some(place) => {
                state.waiting.remove(place);
            }
            // It was woken for the place and will not use it: the next one is.
            None if state.message.is_none() => {
                let next = state.waiting.pop_front();
                drop(state);
                if let Some((_, waker)) = next {
                    waker.wake();
                }
            }
            None => {}
        }
    }
}
