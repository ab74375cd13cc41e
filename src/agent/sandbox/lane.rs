//! What one thread hands to another, in order: a ring for what is usual, and a list for what does not fit into it.
//!
//! Neither side waits for the other, and as long as the ring suffices neither takes a lock: a hand-over costs the two cores a line of
//! memory or two, which is most of what it costs at all.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rtrb::{Consumer, Producer, PushError, RingBuffer};

/// How many things the ring holds. A program seldom makes more calls at once; if it does, the others take the list.
const RING: usize = 64;

/// A lane, and its two ends.
pub(super) fn lane<T>() -> (Sender<T>, Receiver<T>) {
    let (producer, consumer) = RingBuffer::new(RING);
    let beyond = Arc::new(Beyond { has_some: AtomicBool::new(false), list: Mutex::default() });
    let sender = Sender { ring: producer, beyond: Arc::clone(&beyond), is_beyond: false };
    (sender, Receiver { ring: consumer, beyond })
}

/// What does not fit into the ring, which is younger than all that is in it. How much that may be is for those to bound who use it.
struct Beyond<T> {
    /// Whether there is something: to look for without the lock.
    has_some: AtomicBool,
    /// Locked to put something in or to take it out.
    list: Mutex<VecDeque<T>>,
}

impl<T> Beyond<T> {
    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end where things go in.
pub(super) struct Sender<T> {
    ring: Producer<T>,
    beyond: Arc<Beyond<T>>,
    /// The last thing went to the list, which may have been taken since.
    is_beyond: bool,
}

impl<T> Sender<T> {
    pub(super) fn send(&mut self, thing: T) {
        if !self.is_beyond {
            match self.ring.push(thing) {
                Ok(()) => return,
                Err(PushError::Full(thing)) => return self.send_beyond(thing),
            }
        }
        // The ring is used again when the list was taken, so that nothing overtakes.
        self.is_beyond = !self.beyond.lock().is_empty();
        if self.is_beyond { self.send_beyond(thing) } else { self.send(thing) }
    }

    fn send_beyond(&mut self, thing: T) {
        self.is_beyond = true;
        let mut list = self.beyond.lock();
        list.push_back(thing);
        self.beyond.has_some.store(true, Ordering::Release);
    }
}

/// The end where they come out.
pub(super) struct Receiver<T> {
    ring: Consumer<T>,
    beyond: Arc<Beyond<T>>,
}

impl<T> Receiver<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty() && !self.beyond.has_some.load(Ordering::Acquire)
    }

    /// The next thing, if there is one.
    pub(super) fn take(&mut self) -> Option<T> {
        let next = self.ring.pop().ok();
        if next.is_some() || !self.beyond.has_some.load(Ordering::Acquire) {
            return next;
        }
        let mut list = self.beyond.lock();
        // While there is something in the list, nothing goes into the ring: what is there now is older.
        if let Ok(next) = self.ring.pop() {
            return Some(next);
        }
        let next = list.pop_front();
        self.beyond.has_some.store(!list.is_empty(), Ordering::Release);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_into_the_ring_comes_after_it_and_before_what_is_sent_later() {
        let (mut sender, mut receiver) = lane();
        let mut sent = 0..;
        let mut taken = 0;
        assert!(receiver.is_empty() && receiver.take().is_none());
        // More and more at once, each time partly taken: the ring and the list fill up and run dry by turns.
        for round in [1, RING, RING + 1, 3 * RING, 5, 2 * RING] {
            sent.by_ref().take(round).for_each(|thing| sender.send(thing));
            for _ in 0..round.min(RING + 7) {
                assert!(!receiver.is_empty());
                assert_eq!(receiver.take(), Some(taken));
                taken += 1;
            }
        }
        while let Some(thing) = receiver.take() {
            assert_eq!(thing, taken);
            taken += 1;
        }
        assert!(receiver.is_empty());
        assert_eq!(Some(taken), sent.next());
    }

    #[test]
    fn between_threads_nothing_is_lost_or_overtaken() {
        const COUNT: usize = 200_000;
        let (mut sender, mut receiver) = lane();
        std::thread::scope(|scope| {
            scope.spawn(move || (0..COUNT).for_each(|thing| sender.send(thing)));
            let mut expected = 0;
            while expected < COUNT {
                match receiver.take() {
                    Some(thing) => {
                        assert_eq!(thing, expected);
                        expected += 1;
                    }
                    None => std::thread::yield_now(),
                }
            }
        });
    }
}
