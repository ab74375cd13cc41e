//! Panics, told where they can be read.
//!
//! A panic inside a run is that run's failed outcome, and the program goes on: what its author still wants is where it
//! happened. Printed at once, it would be drawn across the live tree; not printed, a fault of the program itself would
//! stay hidden. So it is a note on stderr: at once, or when the tree has left the terminal.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::output::complain;

/// How many are told one by one: a tool that panics in each of a thousand runs does so for one reason.
const TOLD: usize = 10;

/// The panics of this process from [`Panics::watch`] on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Panics(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    hold: bool,
    held: Vec<String>,
    seen: usize,
}

impl Panics {
    /// Watches from now on. With `hold`, nothing is told before [`Self::tell`].
    pub(crate) fn watch(hold: bool) -> Self {
        let panics = Self(Arc::new(Mutex::new(State { hold, ..State::default() })));
        let hook = panics.clone();
        std::panic::set_hook(Box::new(move |panic| hook.saw(panic.to_string())));
        panics
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn saw(&self, panic: String) {
        let mut state = self.lock();
        state.seen += 1;
        if state.seen > TOLD {
            return;
        }
        if state.hold {
            state.held.push(panic);
        } else {
            complain(&mut io::stderr(), format_args!("note: {panic}"));
        }
    }

    /// Tells what was held, and from now on at once.
    pub(crate) fn tell(&self, err: &mut impl io::Write) {
        let mut state = self.lock();
        state.hold = false;
        for panic in state.held.drain(..) {
            complain(err, format_args!("note: {panic}"));
        }
        if state.seen > TOLD {
            complain(err, format_args!("note: {} more panics", state.seen - TOLD));
            state.seen = TOLD;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_told_once_and_a_flood_is_counted() {
        let panics = Panics(Arc::new(Mutex::new(State { hold: true, ..State::default() })));
        for number in 0..12 {
            panics.saw(format!("panicked at x.rs:1:1:\nboom {number}"));
        }
        let mut told = Vec::new();
        panics.tell(&mut told);
        panics.tell(&mut told);
        let told = String::from_utf8(told).unwrap();
        assert_eq!(told.lines().count(), 11);
        assert!(told.starts_with("note: panicked at x.rs:1:1: boom 0\n"), "{told}");
        assert!(told.ends_with("note: 2 more panics\n"), "{told}");
    }
}
