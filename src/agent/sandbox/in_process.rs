//! Programs in this process, on threads of their own.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::engine::{Engine, Stop};
use super::port::{Ended, GuestError, GuestErrorKind, GuestEvent, HostReply, Sandbox, Session};
use super::program::Program;
use crate::stream::panic_text;

/// Runs programs in this process. A program holds a thread of the runtime's blocking pool only while it computes: one that waits
/// for its host holds none, so programs may nest deeper than there are threads.
///
/// A program that ends in a crash of the engine takes the process with it: where code is hostile, use
/// [`ChildProcess`](super::ChildProcess).
#[derive(Debug, Clone, Copy, Default)]
pub struct InProcess;

impl Sandbox for InProcess {
    fn start(&self, program: Program) -> Box<dyn Session> {
        let stop = Arc::new(Stop::new(Instant::now() + program.limits.wall));
        let state = State { place: Place::New(Box::new(program)), ..State::default() };
        let cell = Arc::new(Cell { stop, state: Mutex::new(state) });
        cell.lock().wake_engine(&cell);
        Box::new(InProcessSession { cell })
    }
}

struct InProcessSession {
    cell: Arc<Cell>,
}

/// What the two sides of a program share.
struct Cell {
    stop: Arc<Stop>,
    /// Locked to put something in or to take it out, never while the program runs.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    said: VecDeque<GuestEvent>,
    replies: Vec<HostReply>,
    place: Place,
    /// Whoever waits for something that the program says, or for its end.
    waiter: Option<Waker>,
    has_ended: bool,
}

/// Where the engine is.
#[derive(Default)]
enum Place {
    New(Box<Program>),
    /// It waits for its host and holds no thread.
    Parked(Box<Engine>),
    /// On a thread, or on the way there.
    Busy,
    /// It is gone.
    #[default]
    Gone,
}

impl Cell {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Gives the engine a thread, if it has none and there is something to do.
    fn wake_engine(&mut self, cell: &Arc<Cell>) {
        let place = std::mem::replace(&mut self.place, Place::Busy);
        let cell = Arc::clone(cell);
        match place {
            Place::New(program) => spawn(move || {
                let stop = Arc::clone(&cell.stop);
                match guarded(|| Engine::new(*program, stop)) {
                    Ok(engine) => run(&cell, Box::new(engine)),
                    Err(ended) => cell.end(*ended),
                }
            }),
            Place::Parked(engine) => spawn(move || run(&cell, engine)),
            other @ (Place::Busy | Place::Gone) => self.place = other,
        }
    }
}

impl Cell {
    /// The program is over, and so is its engine.
    fn end(&self, ended: Ended) {
        let waiter = {
            let mut state = self.lock();
            state.place = Place::Gone;
            if !std::mem::replace(&mut state.has_ended, true) {
                state.said.push_back(GuestEvent::Ended(ended));
            }
            state.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) {
    drop(tokio::task::spawn_blocking(work));
}

/// Steps the engine until it has nothing to do.
fn run(cell: &Arc<Cell>, mut engine: Box<Engine>) {
    loop {
        let replies = std::mem::take(&mut cell.lock().replies);
        let mut said = Vec::new();
        let step = guarded(|| Ok(engine.step(replies, &mut said)));
        let ended = match step {
            Ok(ended) => ended,
            Err(ended) => Some(*ended),
        };
        let waiter = {
            let mut state = cell.lock();
            state.said.extend(said);
            if ended.is_none() {
                if state.replies.is_empty() && cell.stop.why().is_none() {
                    state.place = Place::Parked(engine);
                    let waiter = state.waiter.take();
                    drop(state);
                    if let Some(waiter) = waiter {
                        waiter.wake();
                    }
                    return;
                }
                state.waiter.take()
            } else {
                None
            }
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
        if let Some(ended) = ended {
            // First its memory, then the word that it is over.
            drop(engine);
            return cell.end(ended);
        }
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

impl Session for InProcessSession {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<GuestEvent>> {
        let mut state = self.cell.lock();
        if let Some(event) = state.said.pop_front() {
            return Poll::Ready(Some(event));
        }
        if state.has_ended {
            return Poll::Ready(None);
        }
        state.waiter = Some(cx.waker().clone());
        Poll::Pending
    }

    fn reply(&mut self, reply: HostReply) {
        let mut state = self.cell.lock();
        state.replies.push(reply);
        state.wake_engine(&self.cell);
    }

    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.cell.stop.cancel();
        let mut state = self.cell.lock();
        if matches!(state.place, Place::Gone) {
            return Poll::Ready(());
        }
        state.waiter = Some(cx.waker().clone());
        // It ends itself, on a thread of its own: freeing what it has may take a while.
        state.wake_engine(&self.cell);
        Poll::Pending
    }
}

impl Drop for InProcessSession {
    fn drop(&mut self) {
        self.cell.stop.cancel();
        // Outside a runtime there is no thread for it: it is freed here, with the cell.
        if tokio::runtime::Handle::try_current().is_ok() {
            self.cell.lock().wake_engine(&self.cell);
        }
    }
}

#[cfg(test)]
#[path = "in_process_tests.rs"]
mod tests;
