//! Programs in this process, on threads of their own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;

use super::blank::Blank;
use super::engine::{Engine, Stop};
use super::lane::{Receiver, Sender, lane};
use super::port::{Ended, GuestError, GuestErrorKind, GuestEvent, HostReply, Sandbox, Session};
use super::program::Program;
use super::spin::{Look, watch};
use crate::context::Lockstep;
use crate::stream::panic_text;

/// Runs programs in this process. A program holds a thread of the runtime's blocking pool only while it computes: one that waits
/// for its host holds none, so programs may nest deeper than there are threads.
///
/// The engine looks for the end of a program's time between its steps, every few thousand of them. Code that makes slow native
/// calls one after the other is therefore given up in time, but may hold its thread for minutes more, and the runtime's shutdown
/// with it. A program that ends in a crash of the engine takes the process with it. Where code is hostile, use
/// [`ChildProcess`](super::ChildProcess).
#[derive(Debug, Clone, Copy, Default)]
pub struct InProcess;

impl Sandbox for InProcess {
    fn start(&self, program: Program) -> Box<dyn Session> {
        let (say, said) = lane();
        let (words, inbox) = lane();
        let cell = Arc::new(Cell {
            stop: Arc::new(Stop::after(program.limits.wall)),
            outbox: Arc::new(Outbox {
                lane: Mutex::new(say),
                waiter: AtomicWaker::new(),
                has_ended: AtomicBool::new(false),
            }),
            is_parked: AtomicBool::new(false),
            place: Mutex::new(Place::New(Box::new(program), inbox)),
        });
        cell.wake_engine();
        Box::new(InProcessSession {
            cell,
            said,
            words,
            look: Look::default(),
            told: 0,
            replied: 0,
            is_busy: false,
            lockstep: None,
        })
    }
}

struct InProcessSession {
    cell: Arc<Cell>,
    said: Receiver<GuestEvent>,
    words: Sender<Word>,
    look: Look,
    /// How many heard asks the program knows of.
    told: u32,
    /// How many replies it was given.
    replied: u64,
    /// It has not said that it waits for more than those.
    is_busy: bool,
    /// It is waited for where it is polled.
    lockstep: Option<Lockstep>,
}

/// What the two sides of a program share besides the lanes between them.
struct Cell {
    stop: Arc<Stop>,
    outbox: Arc<Outbox>,
    /// Whether the engine is parked: to look for without the lock.
    is_parked: AtomicBool,
    /// Locked to put the engine in or to take it out, never while the program runs.
    place: Mutex<Place>,
}

/// Where the engine is.
enum Place {
    New(Box<Program>, Receiver<Word>),
    /// It waits for its host and holds no thread.
    Parked(Box<Desk>),
    /// On a thread, or on the way there.
    Busy,
    /// It is gone.
    Gone,
}

/// What its host tells a program.
struct Word {
    reply: Option<HostReply>,
    /// How many of its asks were heard.
    heard: u32,
    /// The program goes on with the replies even if it has made asks that were not heard.
    goes_on: bool,
    /// Others come that belong to it.
    has_more: bool,
}

/// An engine, and what its host has told it.
struct Desk {
    engine: Box<Engine>,
    inbox: Receiver<Word>,
    /// Those that the engine has not taken.
    replies: Vec<HostReply>,
    heard: u32,
    goes_on: bool,
    has_more: bool,
}

impl Desk {
    fn new(engine: Engine, inbox: Receiver<Word>) -> Box<Self> {
        let (engine, replies) = (Box::new(engine), Vec::new());
        // Nobody has to tell it to begin.
        Box::new(Self { engine, inbox, replies, heard: 0, goes_on: true, has_more: false })
    }

    fn read_inbox(&mut self) {
        while let Some(word) = self.inbox.take() {
            self.replies.extend(word.reply);
            self.heard = word.heard;
            self.goes_on |= word.goes_on;
            self.has_more = word.has_more;
        }
    }

    /// Whether the program goes on: with answers, and not before all that it asked for was heard. Then it does not depend on who is
    /// quicker with which answers it does.
    fn is_due(&self) -> bool {
        let has_answers = self.engine.has_answers() || !self.replies.is_empty();
        !self.has_more && (self.goes_on || has_answers && self.heard == self.engine.asked())
    }

    /// One step of the engine with what it was told.
    fn step(&mut self, goes_on: bool) -> Option<Ended> {
        self.goes_on &= !goes_on;
        let (engine, replies) = (&mut self.engine, &mut self.replies);
        guarded(|| Ok(engine.step(replies, goes_on))).unwrap_or_else(|ended| Some(*ended))
    }
}

/// What the program said, on the way to its host. Bounded by what a program may log and may ask for at once.
struct Outbox {
    /// Locked to put one thing in, by the thread that runs the engine.
    lane: Mutex<Sender<GuestEvent>>,
    /// Whoever waits for something that the program says, or for its end.
    waiter: AtomicWaker,
    has_ended: AtomicBool,
}

impl Outbox {
    fn say(&self, event: GuestEvent) {
        let is_end = matches!(event, GuestEvent::Ended(_));
        self.lane.lock().unwrap_or_else(PoisonError::into_inner).send(event);
        if is_end {
            self.has_ended.store(true, Ordering::Release);
        }
        self.waiter.wake();
    }
}

impl Cell {
    fn lock(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out the engine, if it lies here: then it is on its way to a thread.
    fn depart(&self, place: &mut Place) -> Option<Place> {
        if !matches!(place, Place::New(..) | Place::Parked(_)) {
            return None;
        }
        self.is_parked.store(false, Ordering::Relaxed);
        Some(std::mem::replace(place, Place::Busy))
    }

    /// Gives the engine a thread, if it has none.
    fn wake_engine(self: &Arc<Self>) {
        let idle = self.depart(&mut self.lock());
        self.give_thread(idle);
    }

    /// As [`Cell::wake_engine`], if the engine has something to do.
    fn wake_engine_if_due(self: &Arc<Self>) {
        // Between what was put into its inbox and this look: an engine that parks looks the other way round, so one of the two sees.
        fence(Ordering::SeqCst);
        if !self.is_parked.load(Ordering::Relaxed) {
            return;
        }
        let idle = {
            let mut place = self.lock();
            let is_due = match &mut *place {
                Place::Parked(desk) => {
                    desk.read_inbox();
                    desk.is_due()
                }
                _ => false,
            };
            if is_due { self.depart(&mut place) } else { None }
        };
        self.give_thread(idle);
    }

    /// Gives a thread to what [`Cell::depart`] took.
    fn give_thread(self: &Arc<Self>, idle: Option<Place>) {
        let Some(place) = idle else { return };
        let cell = Arc::clone(self);
        // Detached: it ends by itself, and says so in the outbox.
        drop(tokio::task::spawn_blocking(move || match place {
            Place::New(program, inbox) => {
                let (stop, outbox) = (Arc::clone(&cell.stop), Arc::clone(&cell.outbox));
                let say = Box::new(move |event| outbox.say(event));
                match guarded(|| Engine::new(*program, stop, say)) {
                    Ok(engine) => cell.run(Desk::new(engine, inbox)),
                    Err(ended) => cell.end(*ended),
                }
            }
            Place::Parked(desk) => cell.run(desk),
            Place::Busy | Place::Gone => {}
        }));
    }

    /// Steps the engine until it has nothing to do.
    fn run(&self, mut desk: Box<Desk>) {
        let mut look = Look::default();
        loop {
            desk.read_inbox();
            let goes_on = desk.is_due() || self.stop.why().is_some();
            if let Some(ended) = desk.step(goes_on) {
                // Who ended it waits until nothing of it is left; who only waits for what it comes to need not.
                if self.stop.why().is_some() {
                    drop(desk);
                    return self.end(ended);
                }
                self.end(ended);
                Blank::make_ahead();
                return;
            }
            if look.out_for(|| !desk.inbox.is_empty()) {
                continue;
            }
            let mut place = self.lock();
            self.is_parked.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if desk.inbox.is_empty() && self.stop.why().is_none() {
                *place = Place::Parked(desk);
                return;
            }
            self.is_parked.store(false, Ordering::Relaxed);
        }
    }

    /// The program is over.
    fn end(&self, ended: Ended) {
        *self.lock() = Place::Gone;
        self.outbox.say(GuestEvent::Ended(ended));
    }
}

/// What the engine itself does wrong is the end of its program alone.
fn guarded<T>(work: impl FnOnce() -> Result<T, Box<Ended>>) -> Result<T, Box<Ended>> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = format!("the sandbox panicked: {}", panic_text(&*panic));
        let error = GuestError::new(GuestErrorKind::Crashed, text);
        Err(Box::new(Ended { result: Err(error), lines_left_out: 0 }))
    })
}

impl InProcessSession {
    /// Tells the program the replies, all at once.
    fn tell(&mut self, replies: impl ExactSizeIterator<Item = HostReply>, heard: u32, goes_on: bool) {
        self.is_busy = true;
        self.told = heard;
        if self.lockstep.is_some() {
            // It is polled again before anybody else has a turn: to be woken besides would be a poll at any time.
            drop(self.cell.outbox.waiter.take());
        }
        let mut left = replies.len();
        if left == 0 {
            self.words.send(Word { reply: None, heard, goes_on, has_more: false });
        }
        self.replied += left as u64;
        for reply in replies {
            left -= 1;
            self.words.send(Word { reply: Some(reply), heard, goes_on, has_more: left > 0 });
        }
        self.cell.wake_engine_if_due();
    }

    /// Waits until the program has said something, in a tree that keeps step.
    fn keep_up(&mut self) {
        let Some(lockstep) = &mut self.lockstep else { return };
        let (said, outbox) = (&self.said, &self.cell.outbox);
        let is_there = || !said.is_empty() || outbox.has_ended.load(Ordering::Acquire);
        lockstep.wait(|time| watch(&outbox.waiter, time, is_there));
    }
}

impl Session for InProcessSession {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<GuestEvent>> {
        if self.is_busy && !self.look.out_for(|| !self.said.is_empty()) {
            self.keep_up();
        }
        let mut event = self.said.take();
        if event.is_none() {
            let outbox = &self.cell.outbox;
            outbox.waiter.register(cx.waker());
            // Its end is said before it has ended.
            let has_ended = outbox.has_ended.load(Ordering::Acquire);
            event = self.said.take();
            if event.is_none() && !has_ended {
                if let Some(lockstep) = &mut self.lockstep {
                    lockstep.rested();
                }
                return Poll::Pending;
            }
        }
        if let Some(lockstep) = &mut self.lockstep {
            lockstep.heard();
        }
        if let Some(GuestEvent::Waiting { answered }) = event {
            self.is_busy = answered != self.replied;
        }
        Poll::Ready(event)
    }

    fn reply(&mut self, reply: HostReply) {
        self.tell(std::iter::once(reply), self.told, true);
    }

    fn reply_all(&mut self, replies: Vec<HostReply>) {
        self.tell(replies.into_iter(), self.told, true);
    }

    fn reply_ahead(&mut self, replies: &mut Vec<HostReply>, heard: u32) {
        self.tell(replies.drain(..), heard, false);
    }

    fn keep_step(&mut self, lockstep: Lockstep) {
        self.lockstep = Some(lockstep);
        // It begins by itself.
        self.is_busy = true;
    }

    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.cell.stop.cancel();
        let outbox = &self.cell.outbox;
        if let Some(lockstep) = &mut self.lockstep {
            self.cell.wake_engine();
            let has_ended = || outbox.has_ended.load(Ordering::Acquire);
            lockstep.wait_for_end(|time| watch(&outbox.waiter, time, has_ended));
        }
        outbox.waiter.register(cx.waker());
        if outbox.has_ended.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        // It ends itself, on a thread of its own: freeing what it has may take a while.
        self.cell.wake_engine();
        Poll::Pending
    }
}

impl Drop for InProcessSession {
    fn drop(&mut self) {
        self.cell.stop.cancel();
        if self.lockstep.is_some() {
            // Whoever waited for it has gone on to something else.
            drop(self.cell.outbox.waiter.take());
        }
        // Outside a runtime there is no thread for it: it is freed here, with the cell.
        if tokio::runtime::Handle::try_current().is_ok() {
            self.cell.wake_engine();
        }
    }
}

#[cfg(test)]
#[path = "in_process_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "odd_tests.rs"]
mod odd_tests;
