//! How long others wait for a program to be done with its answers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// How long what a program started waits for the program to be done with the last answers. While it does, one thing happens after
/// the other, so that the order in the log is the program's own; a program that computes for longer holds nobody up.
const PATIENCE: Duration = Duration::from_millis(10);

/// How long it is waited for in all, where one answer follows the other and the program is never done with them: one whose calls are
/// refused as fast as it makes them would have everything else wait for ever.
const LONGEST_PATIENCE: Duration = Duration::from_millis(100);

/// In a tree that keeps step the waiting is not counted in time, but in turns that others have, each after so many things that the
/// program said: then they come at the same place each time.
const TURNS: u32 = 16;

/// The waiting for a program to be done with the last answers. Its time begins, and its timer is set, where it is waited for: most
/// programs are done sooner than somebody looks at the clock.
pub(super) struct Patience {
    since: Option<Instant>,
    until: Option<Instant>,
    /// How many turns others had, in a tree that keeps step.
    turns: Option<u32>,
    timer: Pin<Box<Sleep>>,
}

impl Patience {
    pub(super) fn begin(in_step: bool) -> Self {
        let timer = Box::pin(tokio::time::sleep(PATIENCE));
        Self { since: None, until: None, turns: in_step.then_some(0), timer }
    }

    /// An answer goes to a program that was done with those before, or that still has some.
    pub(super) fn renew(&mut self, was_idle: bool) {
        if was_idle {
            self.since = None;
            self.turns = self.turns.map(|_| 0);
        }
        self.until = None;
    }

    /// `is_mere_turn`: others have a turn, although the program has more to say.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>, is_mere_turn: bool) -> Poll<()> {
        if is_mere_turn && let Some(turns) = &mut self.turns {
            *turns += 1;
            return if *turns < TURNS { Poll::Pending } else { Poll::Ready(()) };
        }
        if self.until.is_none() {
            let now = Instant::now();
            let longest = *self.since.get_or_insert(now) + LONGEST_PATIENCE;
            let until = *self.until.insert(longest.min(now + PATIENCE));
            self.timer.as_mut().reset(until);
        }
        self.timer.as_mut().poll(cx)
    }
}
