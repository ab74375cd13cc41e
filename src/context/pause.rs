//! Time in which a run waits for a person: it is not charged to the run or to those above it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::record::RunRecord;
use crate::message::Timestamp;

/// How long a run or a run below it has waited for persons. Taken alone, for a look or a sum.
#[derive(Debug, Default)]
pub(crate) struct PersonWaits {
    /// Almost no run ever waits: then there is no lock to take.
    any: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: usize,
    since: Timestamp,
    before: Duration,
}

/// What is not charged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Excused {
    /// So much up to now.
    pub(crate) time: Duration,
    /// Somebody is waited for right now.
    pub(crate) is_open: bool,
}

impl PersonWaits {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, now: Timestamp) {
        let mut state = self.lock();
        if state.open == 0 {
            state.since = now;
        }
        state.open += 1;
        self.any.store(true, Ordering::Release);
    }

    fn end(&self, now: Timestamp) {
        let mut state = self.lock();
        state.open = state.open.saturating_sub(1);
        if state.open == 0 {
            let waited = now.since(state.since);
            state.before += waited;
        }
    }

    pub(crate) fn excused(&self, now: impl FnOnce() -> Timestamp) -> Excused {
        if !self.any.load(Ordering::Acquire) {
            return Excused::default();
        }
        let state = self.lock();
        let is_open = state.open > 0;
        let open = if is_open { now().since(state.since) } else { Duration::ZERO };
        Excused { time: state.before + open, is_open }
    }
}

/// While it lives, the clocks of a run and of those above it stand still.
#[derive(Debug)]
pub(crate) struct Paused(Arc<RunRecord>);

impl Paused {
    pub(crate) fn begin(record: &Arc<RunRecord>) -> Self {
        let now = record.root.clock().now();
        record.lineage().for_each(|record| record.person_waits.begin(now));
        Self(Arc::clone(record))
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        let now = self.0.root.clock().now();
        self.0.lineage().for_each(|record| record.person_waits.end(now));
    }
}

impl RunRecord {
    /// The time in which this run or one below it waited for a person: what limits of time leave out.
    pub(crate) fn excused(&self) -> Excused {
        self.person_waits.excused(|| self.root.clock().now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_that_overlap_count_once() {
        let at = Timestamp::from_micros;
        let waits = PersonWaits::default();
        assert_eq!(waits.excused(|| at(5)), Excused::default());
        waits.begin(at(10));
        waits.begin(at(20));
        assert_eq!(waits.excused(|| at(25)), Excused { time: Duration::from_micros(15), is_open: true });
        waits.end(at(30));
        waits.end(at(40));
        waits.begin(at(100));
        waits.end(at(101));
        assert_eq!(waits.excused(|| at(500)), Excused { time: Duration::from_micros(31), is_open: false });
    }
}
