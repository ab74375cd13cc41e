//! Keeping step with other threads, in a tree whose log is to be the same each time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cancel::CancelToken;

/// How long another thread is waited for with one thing that it does. A step of a program or a look at a file takes a fraction of a
/// millisecond; but where a machine has more to do than it can, a thread may not have its turn for half a second.
const STEP: Duration = Duration::from_secs(1);

/// How long it is waited for where one thing follows the other and nobody else has a turn.
const IN_A_ROW: Duration = Duration::from_secs(2);

/// How long a whole tree waits in vain, for what takes longer than [`STEP`]. After that it does not keep step any more: so a
/// thousand programs that compute for long hold up a tree no longer than this.
const IN_VAIN: Duration = Duration::from_secs(2);

/// How long the end of what was cancelled is waited for.
const END: Duration = Duration::from_millis(250);

/// How long nobody looks whether the run was cancelled meanwhile.
const LOOK: Duration = Duration::from_millis(20);

/// The right to wait for another thread where one is polled, which blocks the thread that polls.
///
/// What works on another thread (a program in a sandbox, a tool that reads files) is otherwise done when it is done, and which of
/// several is done first decides the order of the log. In a tree that was given a seed ([`RootBuilder::seed`](super::RootBuilder::seed))
/// whoever polls such work waits for it instead. So what a poll comes to depends on what was polled before, and the order of polls on
/// the tree alone.
///
/// All waits are bounded, and a cancel from another thread ends them: what takes longer than 1 s is waited for as in a tree without a
/// seed, and so is everything once the tree has waited for 2 s in vain. The order is then again that of time.
#[derive(Debug)]
pub struct Lockstep {
    tree: Arc<InVain>,
    run: CancelToken,
    in_a_row: Duration,
    has_given_up: bool,
}

/// What the waits of one tree in vain come to, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct InVain(AtomicU64);

impl Lockstep {
    pub(super) fn of(tree: &Arc<InVain>, run: &CancelToken) -> Self {
        Self { tree: Arc::clone(tree), run: run.clone(), in_a_row: Duration::ZERO, has_given_up: false }
    }

    /// Waits for something that the run has begun. `until` blocks for the time that it is given at most, and says whether what it
    /// waits for has come; it is called again until it has, the bounds are reached, or the run is cancelled. What was waited for in
    /// vain is not waited for again before [`Lockstep::heard`].
    pub fn wait(&mut self, until: impl FnMut(Duration) -> bool) {
        self.wait_for(STEP, true, until);
    }

    /// As [`Lockstep::wait`], for the end of something that was cancelled, and for 250 ms at most.
    pub fn wait_for_end(&mut self, until: impl FnMut(Duration) -> bool) {
        self.wait_for(END, false, until);
    }

    fn wait_for(&mut self, longest: Duration, heeds_cancel: bool, mut until: impl FnMut(Duration) -> bool) {
        let (bound, begin) = (self.bound(longest), Instant::now());
        let (mut waited, mut has_come) = (Duration::ZERO, false);
        while waited < bound && !has_come {
            has_come = until(LOOK.min(bound.saturating_sub(waited)));
            waited = begin.elapsed();
            if heeds_cancel && self.run.is_cancelled() {
                break;
            }
        }
        self.note(waited, has_come);
    }

    /// How long it may wait now.
    fn bound(&self, longest: Duration) -> Duration {
        if self.has_given_up {
            return Duration::ZERO;
        }
        let in_vain = Duration::from_nanos(self.tree.0.load(Ordering::Relaxed));
        longest.min(IN_A_ROW.saturating_sub(self.in_a_row)).min(IN_VAIN.saturating_sub(in_vain))
    }

    fn note(&mut self, waited: Duration, has_come: bool) {
        self.has_given_up = !has_come;
        self.in_a_row += waited;
        if !has_come {
            let nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
            self.tree.0.fetch_add(nanos, Ordering::Relaxed);
        }
    }

    /// The other thread has said something: what it does next is waited for again.
    pub fn heard(&mut self) {
        self.has_given_up = false;
    }

    /// Others have a turn.
    pub fn rested(&mut self) {
        self.in_a_row = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::CancelledBy;

    fn of(tree: &Arc<InVain>) -> Lockstep {
        Lockstep::of(tree, &CancelToken::new())
    }

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn what_was_waited_for_in_vain_is_not_waited_for_again_until_it_is_heard() {
        let mut one = of(&Arc::default());
        one.note(millis(10), true);
        assert_eq!(one.bound(STEP), STEP);
        one.note(millis(20), false);
        assert_eq!(one.bound(STEP), Duration::ZERO);
        one.heard();
        assert_eq!(one.bound(STEP), STEP);
    }

    #[test]
    fn what_is_waited_for_in_vain_is_counted_for_the_tree() {
        let tree = Arc::default();
        let (mut one, mut other) = (of(&tree), of(&tree));
        one.note(millis(1_000), false);
        assert_eq!(other.bound(STEP), STEP);
        other.note(millis(900), false);
        assert_eq!(of(&tree).bound(STEP), millis(100));
        of(&tree).note(millis(200), false);
        assert_eq!(of(&tree).bound(STEP), Duration::ZERO);
    }

    #[test]
    fn others_have_a_turn_after_a_while() {
        let mut one = of(&Arc::default());
        (0..2).for_each(|_| one.note(millis(900), true));
        assert_eq!(one.bound(STEP), millis(200));
        one.rested();
        assert_eq!(one.bound(STEP), STEP);
    }

    #[test]
    fn a_cancel_ends_the_wait_for_all_but_an_end() {
        let (run, mut looks) = (CancelToken::new(), 0);
        let mut one = Lockstep::of(&Arc::default(), &run);
        one.wait(|time| {
            assert_eq!(time, LOOK);
            looks += 1;
            run.cancel(CancelledBy::User);
            false
        });
        one.heard();
        one.wait_for_end(|_| {
            looks += 1;
            looks == 4
        });
        assert_eq!(looks, 4);
    }
}
