//! A short look for what the other thread is about to say, before this one goes to sleep.
//!
//! To wake a sleeping thread takes the system longer than a program takes from one call of a tool to the next. So whoever waits for
//! the other side looks again for about that long first. Where that was in vain it is not tried again for a while, so that
//! a program that computes, or a host that waits for a model, costs nothing.

use std::hint::spin_loop;
use std::sync::{Arc, LazyLock};
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use futures::task::AtomicWaker;

/// How long: about what a wake-up takes, so that at worst a wait costs twice as much.
const LOOK: Duration = Duration::from_micros(30);

/// How many looks there are between two at the clock.
const LOOKS: u32 = 64;

/// How many waits go without it after one in vain.
const SKIPPED: u32 = 2;

/// With one processor the other side cannot go on meanwhile.
static IS_WORTH_IT: LazyLock<bool> =
    LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1));

/// Remembers whether looking was of use.
#[derive(Debug, Default)]
pub(super) struct Look {
    skip: u32,
}

impl Look {
    /// True as soon as `is_there` is; false if it was not in time, or if looking has been in vain lately.
    pub(super) fn out_for(&mut self, is_there: impl Fn() -> bool) -> bool {
        if is_there() {
            return true;
        }
        if self.skip > 0 || !*IS_WORTH_IT {
            self.skip = self.skip.saturating_sub(1);
            return false;
        }
        let start = Instant::now();
        while start.elapsed() < LOOK {
            // The clock costs more than a look: what comes is to be seen at once.
            for _ in 0..LOOKS {
                spin_loop();
                if is_there() {
                    return true;
                }
            }
        }
        self.skip = SKIPPED;
        false
    }
}

/// Blocks this thread until `is_there`, of which `waiter` is woken, or for this time. Whether it is.
pub(super) fn watch(waiter: &AtomicWaker, time: Duration, is_there: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    waiter.register(&Waker::from(Arc::new(Unpark(std::thread::current()))));
    loop {
        if is_there() {
            return true;
        }
        let left = time.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return false;
        }
        std::thread::park_timeout(left);
    }
}

/// Wakes a thread that waits in place.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
