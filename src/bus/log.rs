//! The log itself.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::journal::Journal;
use super::subscription::{BATCH, From, Subscription};
use super::window::Window;
use crate::clock::Clock;
use crate::id::Seq;
use crate::message::{Chunk, MessageBody, Nesting, Origin, ProcessingMessage, Timestamp};
use crate::tree::{Gap, RunTree};

/// How much of a log stays in memory. What falls off is folded into the tree that a `gap` carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retain {
    /// Messages. Default 65,536.
    pub messages: usize,
    /// Bytes, about. Default 64 MiB.
    pub bytes: usize,
    /// Bytes of one message, beyond which its texts are cut. Default 1 MiB.
    pub message_bytes: usize,
}

impl Default for Retain {
    fn default() -> Self {
        Self { messages: 65_536, bytes: 64 << 20, message_bytes: 1 << 20 }
    }
}

/// The event log of one root.
#[derive(Debug)]
pub struct EventBus {
    /// One short lock for append and read: both copy a few words a message. Wakers are collected inside and woken outside,
    /// so that a subscriber that runs at once does not find it taken.
    log: Mutex<Log>,
    clock: Clock,
    retain: Retain,
    journal: Option<Arc<dyn Journal>>,
}

#[derive(Debug)]
struct Log {
    retained: Window,
    bytes: usize,
    /// The tree of everything before what is retained.
    base: Arc<RunTree>,
    ended: bool,
    waiting: Vec<Waker>,
    /// How often `waiting` was taken: tells a subscription whether its waker still stands where it left it.
    rounds: u64,
}

/// Where a subscription left its waker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    round: u64,
    at: usize,
}

impl Log {
    /// Leaves a subscription's waker, once: where it still waits, the waker is renewed.
    fn wait(&mut self, place: &mut Option<Place>, waker: &Waker) {
        let standing = place.filter(|place| place.round == self.rounds);
        if let Some(old) = standing.and_then(|place| self.waiting.get_mut(place.at)) {
            old.clone_from(waker);
            return;
        }
        *place = Some(Place { round: self.rounds, at: self.waiting.len() });
        self.waiting.push(waker.clone());
    }
}

impl EventBus {
    pub(crate) fn new(clock: Clock, retain: Retain, journal: Option<Arc<dyn Journal>>) -> Self {
        let log = Log {
            retained: Window::default(),
            bytes: 0,
            base: Arc::new(RunTree::new()),
            ended: false,
            waiting: Vec::new(),
            rounds: 0,
        };
        Self { log: Mutex::new(log), clock, retain, journal }
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        // A panic inside the lock could only come from a journal; the log itself is whole after each step.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a message of a run: the only way into the log, and only the pipe calls it.
    /// The caller drops the wakers when it holds no lock any more.
    #[inline]
    pub(crate) fn append(
        &self,
        origin: &Arc<Origin>,
        run_seq: Seq,
        mut body: MessageBody,
    ) -> (Timestamp, Wakers<'_>) {
        let bytes = self.cap(&mut body);
        let mut log = self.lock();
        // Inside the lock, so that times rise with positions.
        let time = self.clock.now();
        self.push(&mut log, body, bytes, origin, run_seq, time);
        (time, self.wakers(&mut log))
    }

    /// Appends a message that is stamped already: it keeps its stamps and gets this log's position.
    pub(crate) fn append_stamped(&self, mut body: MessageBody, nesting: &Nesting) -> Wakers<'_> {
        let bytes = self.cap(&mut body);
        let mut log = self.lock();
        self.push(&mut log, body, bytes, &nesting.origin, nesting.run_seq, nesting.time);
        self.wakers(&mut log)
    }

    /// Brings a body within the bounds on one message; its size.
    #[inline]
    fn cap(&self, body: &mut MessageBody) -> usize {
        let (mut bytes, max) = (body.approx_bytes(), self.retain.message_bytes);
        if body.is_too_deep(bytes) {
            *body = std::mem::replace(body, Chunk::default().into()).flattened();
            bytes = body.approx_bytes();
        }
        if bytes <= max {
            return bytes;
        }
        let whole = std::mem::replace(body, Chunk::default().into());
        *body = whole.capped_from(bytes, max);
        body.approx_bytes()
    }

    #[inline]
    fn wakers(&self, log: &mut Log) -> Wakers<'_> {
        if log.waiting.is_empty() {
            return Wakers::default();
        }
        log.rounds += 1;
        Wakers { waiting: std::mem::take(&mut log.waiting), bus: Some(self) }
    }

    #[inline]
    fn push(
        &self,
        log: &mut Log,
        body: MessageBody,
        bytes: usize,
        origin: &Arc<Origin>,
        run_seq: Seq,
        time: Timestamp,
    ) {
        log.ended |= matches!(body, MessageBody::RunFinished(_)) && origin.parent_run_id.is_none();
        if let Some(journal) = &self.journal {
            let seq = log.retained.next_seq();
            let nesting = Nesting { origin: Arc::clone(origin), seq, run_seq, time };
            let message = ProcessingMessage::new(body.clone()).stamped(nesting);
            // A panic here would leave a hole in the log, and one in a drop would end the process.
            if catch_unwind(AssertUnwindSafe(|| journal.record(&message))).is_err() {
                tracing::error!(seq, "the journal panicked; it may lack this message");
            }
        }
        log.retained.push(body, origin, run_seq, time);
        log.bytes += bytes;
        if log.retained.len() > self.retain.messages || log.bytes > self.retain.bytes {
            self.evict(log);
        }
    }

    /// Folds what is over the bounds into the base, a sixteenth of the window at once: the tree of the base is shared
    /// with gaps, and taking it back for each message would cost more than the fold.
    fn evict(&self, log: &mut Log) {
        let keep = self.retain.messages.saturating_sub(self.retain.messages / 16);
        let keep_bytes = self.retain.bytes.saturating_sub(self.retain.bytes / 16);
        let Log { retained, bytes, base, .. } = log;
        let base = Arc::make_mut(base);
        while retained.len() > keep.max(1) || *bytes > keep_bytes && retained.len() > 1 {
            let Some(folded) = retained.fold_into(base) else { return };
            *bytes = bytes.saturating_sub(folded);
        }
    }

    /// Reads from a position: what is retained, then live, with no message twice and none left out.
    ///
    /// Ends after the root's terminal. The wire's `gap` stands in for what is no longer retained.
    #[must_use]
    pub fn subscribe(self: &Arc<Self>, from: From) -> Subscription {
        let (cursor, snapshot_first) = match from {
            From::Start => (0, false),
            From::Seq(seq) => (seq, false),
            From::Now => {
                let next = self.next_seq();
                (next, next > 0)
            }
        };
        Subscription::new(Arc::clone(self), cursor, snapshot_first)
    }

    /// The tree after the latest message.
    #[must_use]
    pub fn snapshot(&self) -> RunTree {
        self.tree_before(Seq::MAX)
    }

    /// The tree of everything before `seq`, as far as there are messages. Folded outside the lock.
    pub(super) fn tree_before(&self, seq: Seq) -> RunTree {
        let base = Arc::clone(&self.lock().base);
        let mut tree = RunTree::clone(&base);
        drop(base);
        let mut batch = VecDeque::new();
        loop {
            match self.read(tree.next_seq(), &mut batch, None) {
                Read::Messages => {}
                Read::Gap(gap) => tree.clone_from(&gap.snapshot),
                Read::Pending | Read::Ended => return tree,
            }
            while let Some(message) = batch.pop_front() {
                if message.nesting().is_none_or(|nesting| nesting.seq >= seq) {
                    return tree;
                }
                tree.apply_message(&message);
            }
        }
    }

    /// Fills `batch` with messages from `cursor` on. If there is none, leaves the waker of the subscription.
    pub(super) fn read(
        &self,
        cursor: Seq,
        batch: &mut VecDeque<ProcessingMessage>,
        waiter: Option<(&mut Option<Place>, &Waker)>,
    ) -> Read {
        let mut log = self.lock();
        let first_seq = log.retained.first_seq();
        if cursor < first_seq {
            let snapshot = Arc::clone(&log.base);
            return Read::Gap(Gap { from_seq: cursor, to_seq: first_seq - 1, snapshot });
        }
        log.retained.read(cursor, BATCH, batch);
        if !batch.is_empty() {
            return Read::Messages;
        }
        if log.ended {
            return Read::Ended;
        }
        if let Some((place, waker)) = waiter {
            log.wait(place, waker);
        }
        Read::Pending
    }

    /// Takes a subscription's waker back.
    pub(super) fn forget(&self, place: Place) {
        let mut log = self.lock();
        if place.round == log.rounds
            && let Some(waker) = log.waiting.get_mut(place.at)
        {
            // The others keep their places.
            let waker = std::mem::replace(waker, Waker::noop().clone());
            drop(log);
            drop(waker);
        }
    }

    /// The `seq` that comes next.
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        self.lock().retained.next_seq()
    }

    /// Whether the root's terminal is in the log.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.lock().ended
    }
}

/// What a read found.
pub(super) enum Read {
    Messages,
    Gap(Gap),
    Pending,
    Ended,
}

/// The subscribers that an append has something for. Dropping it wakes them.
#[must_use = "dropped inside a lock, it wakes those who need the lock"]
#[derive(Debug, Default)]
pub(crate) struct Wakers<'a> {
    waiting: Vec<Waker>,
    bus: Option<&'a EventBus>,
}

impl<'a> Wakers<'a> {
    /// All of both: those of several appends under one lock.
    pub(crate) fn add(&mut self, mut more: Wakers<'a>) {
        if self.bus.is_none() {
            *self = more;
        } else {
            self.waiting.append(&mut more.waiting);
        }
    }
}

impl Drop for Wakers<'_> {
    fn drop(&mut self) {
        let Some(bus) = self.bus else { return };
        for waker in self.waiting.drain(..) {
            // A reader whose waker panics is an observer that panics: its own affair, also while a run is being dropped.
            if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
                tracing::warn!("the waker of a subscriber panicked");
            }
        }
        // The room is given back, so that many who wait again and again allocate once.
        let mut log = bus.lock();
        if log.waiting.capacity() == 0 {
            log.waiting = std::mem::take(&mut self.waiting);
        }
    }
}
