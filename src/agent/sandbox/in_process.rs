//! Programs in this process, on threads of their own.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::blank::Blank;
use super::engine::{Engine, Stop};
use super::port::{Ended, GuestError, GuestErrorKind, GuestEvent, HostReply, Sandbox, Session};
use super::program::Program;
use super::spin::{Look, Sign};
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
        let stop = Arc::new(Stop::after(program.limits.wall));
        let place = Place::New(Box::new(program));
        let state = State { replies: Vec::new(), heard: 0, goes_on: true, place };
        let cell = Arc::new(Cell {
            stop,
            outbox: Arc::default(),
            has_replies: Sign::default(),
            state: Mutex::new(state),
        });
        cell.wake_engine();
        Box::new(InProcessSession {
            cell,
            look: Look::default(),
            heard: VecDeque::new(),
            replied: 0,
            is_busy: false,
            lockstep: None,
        })
    }
}

struct InProcessSession {
    cell: Arc<Cell>,
    look: Look,
    /// What was taken from the outbox and not given out.
    heard: VecDeque<GuestEvent>,
    /// How many replies it was given.
    replied: u64,
    /// It has not said that it waits for more than those.
    is_busy: bool,
    /// It is waited for where it is polled.
    lockstep: Option<Lockstep>,
}

/// What the two sides of a program share.
struct Cell {
    stop: Arc<Stop>,
    outbox: Arc<Outbox>,
    /// Whether there is something in the state that was not taken: to look for without the lock.
    has_replies: Sign,
    /// Locked to put something in or to take it out, never while the program runs.
    state: Mutex<State>,
}

struct State {
    replies: Vec<HostReply>,
    /// How many of its asks were heard.
    heard: u32,
    /// The program goes on with the replies even if it has made asks that were not heard.
    goes_on: bool,
    place: Place,
}

impl State {
    /// The engine, if it lies here: then it is on its way to a thread.
    fn depart(&mut self) -> Option<Place> {
        if !matches!(self.place, Place::New(_) | Place::Parked(_)) {
            return None;
        }
        Some(std::mem::replace(&mut self.place, Place::Busy))
    }

    /// As [`State::depart`], if the engine has something to do.
    fn depart_if_due(&mut self) -> Option<Place> {
        let is_due = matches!(&self.place, Place::Parked(engine) if self.is_due(engine));
        if is_due { self.depart() } else { None }
    }

    /// Whether the program goes on: with answers, and not before all that it asked for was heard. Then it does not depend on who is
    /// quicker with which answers it does.
    fn is_due(&self, engine: &Engine) -> bool {
        let has_answers = engine.has_answers() || !self.replies.is_empty();
        self.goes_on || has_answers && self.heard == engine.asked()
    }
}

/// Where the engine is.
enum Place {
    New(Box<Program>),
    /// It waits for its host and holds no thread.
    Parked(Box<Engine>),
    /// On a thread, or on the way there.
    Busy,
    /// It is gone.
    Gone,
}

/// What the program said, on the way to its host. Bounded by what a program may log and may ask for at once.
#[derive(Default)]
struct Outbox {
    /// Whether there is something that was not heard: to look for without the lock.
    has_events: Sign,
    /// Locked to put something in or to take it out.
    said: Mutex<Said>,
    /// Rung when the program says something, if it is watched.
    news: Condvar,
}

#[derive(Default)]
struct Said {
    events: VecDeque<GuestEvent>,
    /// Whoever waits for something that the program says, or for its end.
    waiter: Option<Waker>,
    /// A thread waits for what it says.
    is_watched: bool,
    has_ended: bool,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, event: GuestEvent) {
        let (waiter, is_watched) = {
            let mut said = self.lock();
            said.has_ended |= matches!(event, GuestEvent::Ended(_));
            said.events.push_back(event);
            self.has_events.set(true);
            (said.waiter.take(), said.is_watched)
        };
        if is_watched {
            self.news.notify_one();
        }
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// Blocks until the program has said something that satisfies `is_it`, or the time is over. Whether it has.
    fn watch(&self, time: Duration, is_it: impl Fn(&Said) -> bool) -> bool {
        let mut said = self.lock();
        said.is_watched = true;
        let watched = self.news.wait_timeout_while(said, time, |said| !is_it(said));
        let (mut said, _) = watched.unwrap_or_else(PoisonError::into_inner);
        said.is_watched = false;
        is_it(&said)
    }
}

impl Cell {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the engine a thread, if it has none.
    fn wake_engine(self: &Arc<Self>) {
        let idle = self.lock().depart();
        self.give_thread(idle);
    }

    /// Gives a thread to what [`State::depart`] took.
    fn give_thread(self: &Arc<Self>, idle: Option<Place>) {
        let Some(place) = idle else { return };
        let cell = Arc::clone(self);
        // Detached: it ends by itself, and says so in the outbox.
        drop(tokio::task::spawn_blocking(move || match place {
            Place::New(program) => {
                let (stop, outbox) = (Arc::clone(&cell.stop), Arc::clone(&cell.outbox));
                let say = Box::new(move |event| outbox.say(event));
                match guarded(|| Engine::new(*program, stop, say)) {
                    Ok(engine) => cell.run(Box::new(engine)),
                    Err(ended) => cell.end(*ended),
                }
            }
            Place::Parked(engine) => cell.run(engine),
            Place::Busy | Place::Gone => {}
        }));
    }

    /// Steps the engine until it has nothing to do.
    fn run(&self, mut engine: Box<Engine>) {
        let mut look = Look::default();
        let mut replies = Vec::new();
        let mut goes_on = self.take_replies(&mut self.lock(), &mut replies, &engine);
        loop {
            let ended = match guarded(|| Ok(engine.step(&mut replies, goes_on))) {
                Ok(ended) => ended,
                Err(ended) => Some(*ended),
            };
            if let Some(ended) = ended {
                // Who ended it waits until nothing of it is left; who only waits for what it comes to need not.
                if self.stop.why().is_some() {
                    drop(engine);
                    return self.end(ended);
                }
                self.end(ended);
                Blank::make_ahead();
                return;
            }
            look.out_for(|| self.has_replies.is_set());
            let mut state = self.lock();
            let is_stopped = self.stop.why().is_some();
            if state.replies.is_empty() && !state.is_due(&engine) && !is_stopped {
                state.place = Place::Parked(engine);
                return;
            }
            goes_on = self.take_replies(&mut state, &mut replies, &engine) || is_stopped;
        }
    }

    /// Changes the replies for the emptied list of those before: two lists go to and fro, and nothing is allocated. Whether the program
    /// goes on with them.
    fn take_replies(&self, state: &mut State, emptied: &mut Vec<HostReply>, engine: &Engine) -> bool {
        let is_due = state.is_due(engine);
        self.has_replies.set(false);
        state.goes_on = false;
        std::mem::swap(&mut state.replies, emptied);
        is_due
    }

    /// The program is over.
    fn end(&self, ended: Ended) {
        self.lock().place = Place::Gone;
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
    /// Puts something into the state, `replies` among it, and gives the engine a thread if `put` lets it depart.
    fn hand_over(&mut self, replies: usize, put: impl FnOnce(&mut State) -> Option<Place>) {
        self.is_busy = true;
        self.replied += replies as u64;
        if self.lockstep.is_some() {
            // It is polled again before anybody else has a turn: to be woken besides would be a poll at any time.
            self.cell.outbox.lock().waiter = None;
        }
        let idle = {
            let mut state = self.cell.lock();
            let idle = put(&mut state);
            self.cell.has_replies.set(true);
            idle
        };
        self.cell.give_thread(idle);
    }

    /// The next event of those that were taken.
    fn next(&mut self) -> Option<GuestEvent> {
        let event = self.heard.pop_front()?;
        if let Some(lockstep) = &mut self.lockstep {
            lockstep.heard();
        }
        if let GuestEvent::Waiting { answered } = event {
            self.is_busy = answered != self.replied;
        }
        Some(event)
    }
}

impl Session for InProcessSession {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<GuestEvent>> {
        if let Some(event) = self.next() {
            return Poll::Ready(Some(event));
        }
        let outbox = &self.cell.outbox;
        if self.is_busy {
            let is_there = self.look.out_for(|| outbox.has_events.is_set());
            if !is_there && let Some(lockstep) = &mut self.lockstep {
                let is_it = |said: &Said| said.has_ended || !said.events.is_empty();
                lockstep.wait(|time| outbox.watch(time, is_it));
            }
        }
        {
            let mut said = outbox.lock();
            if said.events.is_empty() {
                if said.has_ended {
                    return Poll::Ready(None);
                }
                if let Some(lockstep) = &mut self.lockstep {
                    lockstep.rested();
                }
                said.waiter = Some(cx.waker().clone());
                return Poll::Pending;
            }
            // All at once: two lists go to and fro, and the program is not disturbed for each.
            outbox.has_events.set(false);
            std::mem::swap(&mut said.events, &mut self.heard);
        }
        Poll::Ready(self.next())
    }

    fn reply(&mut self, reply: HostReply) {
        self.reply_all(vec![reply]);
    }

    fn reply_all(&mut self, replies: Vec<HostReply>) {
        self.hand_over(replies.len(), |state| {
            state.replies.extend(replies);
            state.goes_on = true;
            state.depart()
        });
    }

    fn reply_ahead(&mut self, replies: &mut Vec<HostReply>, heard: u32) {
        self.hand_over(replies.len(), |state| {
            state.replies.append(replies);
            state.heard = heard;
            state.depart_if_due()
        });
    }

    fn keep_step(&mut self, lockstep: Lockstep) {
        self.lockstep = Some(lockstep);
        self.is_busy = true;
    }

    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.cell.stop.cancel();
        if let Some(lockstep) = &mut self.lockstep {
            self.cell.wake_engine();
            lockstep.wait_for_end(|time| self.cell.outbox.watch(time, |said| said.has_ended));
        }
        {
            let mut said = self.cell.outbox.lock();
            if said.has_ended {
                return Poll::Ready(());
            }
            said.waiter = Some(cx.waker().clone());
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
            self.cell.outbox.lock().waiter = None;
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
