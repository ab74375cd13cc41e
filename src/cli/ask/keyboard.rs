//! Lines from the terminal, for as long as a question is open.
//!
//! Nothing waits in a read: a thread waits until there is a line, and takes it only while somebody wants one. What is typed at other
//! times stays with the terminal, for whoever reads it next.

use std::fmt;
use std::io::{self, IsTerminal, Read, Write, stdin};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::{LocalModes, QueueSelector, tcflush, tcgetattr, tcgetpgrp};
use tokio::sync::Notify;

use super::choice::Typed;

/// The most bytes that are kept of a line; a terminal has less.
const LINE_BYTES: usize = 64 * 1024;

/// How long to look away while another program has the terminal: nothing tells when it gives it back.
const LOOK_AWAY: Duration = Duration::from_millis(200);

/// See the module. Dropped, its thread ends.
pub(super) struct Keyboard {
    desk: Arc<Desk>,
    /// A byte here has the thread look at what is wanted; its end ends the thread.
    wake: UnixStream,
}

/// What is shared with the thread.
struct Desk {
    input: Box<dyn Input>,
    /// Held while a line is taken, which does not wait: nothing is taken after it is no longer wanted.
    state: Mutex<State>,
    came: Notify,
}

#[derive(Debug, Default)]
struct State {
    is_wanted: bool,
    /// The line so far.
    typed: Vec<u8>,
    came: Option<io::Result<Typed>>,
}

trait Input: AsFd + Send + Sync {}

impl<T: AsFd + Send + Sync> Input for T {}

impl Keyboard {
    /// That of standard input, if that is a terminal.
    pub(super) fn of_terminal() -> Option<Self> {
        let input = stdin();
        if input.is_terminal() { Self::of(input).ok() } else { None }
    }

    pub(super) fn of(input: impl AsFd + Send + Sync + 'static) -> io::Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let desk = Desk { input: Box::new(input), state: Mutex::default(), came: Notify::new() };
        let desk = Arc::new(desk);
        let thread = Arc::clone(&desk);
        std::thread::Builder::new().name("keyboard".into()).spawn(move || thread.watch(woken))?;
        Ok(Self { desk, wake })
    }

    /// Whether another program beside this one, such as a pager, has the terminal give it keys one by one: then there are no lines.
    pub(super) fn is_taken(&self) -> bool {
        self.desk.is_in_foreground() && !self.desk.gives_lines()
    }

    /// Forgets what was typed before now, since it was not meant for the question that is shown now, or that was taken off; and takes
    /// nothing more until a line is wanted.
    pub(super) fn forget(&mut self) {
        *self.desk.lock() = State::default();
        // From the background it would stop the process.
        if self.desk.is_in_foreground() {
            // What is no terminal has nothing to forget.
            let _ = tcflush(&self.desk.input, QueueSelector::IFlush);
        }
    }

    /// The next line.
    ///
    /// # Errors
    ///
    /// The terminal is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping it loses nothing: the next call goes on, unless [`Keyboard::forget`] comes between.
    pub(super) async fn line(&mut self) -> io::Result<Typed> {
        loop {
            let wants = {
                let mut state = self.desk.lock();
                if let Some(came) = state.came.take() {
                    return came;
                }
                !std::mem::replace(&mut state.is_wanted, true)
            };
            if wants {
                // A full pipe wakes, too.
                let _ = self.wake.write(&[0]);
            }
            self.desk.came.notified().await;
        }
    }
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread.
    fn watch(&self, mut woken: UnixStream) {
        loop {
            let is_wanted = self.lock().is_wanted;
            let looks_away = is_wanted && !self.is_ours();
            let flags = if is_wanted && !looks_away { PollFlags::IN } else { PollFlags::empty() };
            let mut polled = [PollFd::new(&woken, PollFlags::IN), PollFd::new(&self.input, flags)];
            let polled = match flags.is_empty() {
                true => polled.split_at_mut(1).0,
                false => &mut polled,
            };
            let patience = looks_away.then(|| Timespec::try_from(LOOK_AWAY).ok()).flatten();
            match poll(polled, patience.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return self.tell(Err(error.into())),
            }
            let is_woken = polled.first().is_some_and(|woken| !woken.revents().is_empty());
            if is_woken && !matches!(woken.read(&mut [0; 64]), Ok(1..)) {
                return;
            }
            self.take();
        }
    }

    fn tell(&self, came: io::Result<Typed>) {
        self.lock().came = Some(came);
        self.came.notify_one();
    }

    /// Takes what there is, if it is wanted.
    fn take(&self) {
        let mut state = self.lock();
        if !state.is_wanted || !self.is_ours() {
            return;
        }
        let mut polled = [PollFd::new(&self.input, PollFlags::IN)];
        if !matches!(poll(&mut polled, Some(&Timespec::default())), Ok(1..)) {
            return;
        }
        let [polled] = &polled;
        let is_gone = polled.revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
        let mut bytes = [0; 4096];
        let came = match rustix::io::read(&self.input, &mut bytes) {
            Ok(count) => state.add(bytes.get(..count).unwrap_or_default(), is_gone),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => None,
            Err(error) => Some(Err(error.into())),
        };
        if came.is_some() {
            *state = State { came, ..State::default() };
            drop(state);
            self.came.notify_one();
        }
    }

    /// Whether this program may read lines now. Another one may have the terminal, which stops those who read it all the same.
    fn is_ours(&self) -> bool {
        self.gives_lines() && self.is_in_foreground()
    }

    fn gives_lines(&self) -> bool {
        tcgetattr(&self.input).map_or(true, |modes| modes.local_modes.contains(LocalModes::ICANON))
    }

    fn is_in_foreground(&self) -> bool {
        tcgetpgrp(&self.input).map_or(true, |group| group == getpgrp())
    }
}

impl State {
    /// Adds what was read; what it makes.
    fn add(&mut self, read: &[u8], is_gone: bool) -> Option<io::Result<Typed>> {
        match read.split_last() {
            None if is_gone => Some(Err(io::ErrorKind::UnexpectedEof.into())),
            // What was typed before is declined with it.
            None => Some(Ok(Typed::End)),
            Some((b'\n', line)) => {
                self.typed.extend_from_slice(line);
                Some(Ok(Typed::Line(String::from_utf8_lossy(&self.typed).into_owned())))
            }
            Some(_) => {
                if self.typed.len() < LINE_BYTES {
                    self.typed.extend_from_slice(read);
                }
                None
            }
        }
    }
}

impl fmt::Debug for Keyboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyboard").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "keyboard_tests.rs"]
mod tests;
