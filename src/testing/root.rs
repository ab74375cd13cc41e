//! A root for tests: reproducible, with its whole log kept and held against the invariants.

use std::sync::Arc;

use super::timeline::timeline;
use crate::bus::MemoryJournal;
use crate::clock::Clock;
use crate::context::{Root, RootBuilder};
use crate::message::{ProcessingMessage, Timestamp};
use crate::tree::{RunTree, compact, verify};

/// 2026-01-01T00:00:00Z in microseconds: when a test's tree begins.
const START: u64 = 1_767_225_600_000_000;

/// A root with a seeded mint, a clock that starts at a fixed time, and its whole log in memory.
///
/// # Examples
///
/// See [`timeline`].
#[derive(Debug)]
pub struct TestRoot {
    root: Root,
    journal: Arc<MemoryJournal>,
}

impl TestRoot {
    /// With every default.
    #[must_use]
    pub fn new() -> Self {
        Self::of(Root::builder())
    }

    /// Of a builder that has the limits and the rest; seed, clock and journal are set here.
    #[must_use]
    pub fn of(builder: RootBuilder) -> Self {
        let journal = Arc::new(MemoryJournal::default());
        let clock = Clock::starting_at(Timestamp::from_micros(START));
        let root = builder.seed(1).clock(clock).journal(Arc::<MemoryJournal>::clone(&journal)).build();
        Self { root, journal }
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The log so far.
    #[must_use]
    pub fn log(&self) -> Vec<ProcessingMessage> {
        self.journal.messages()
    }

    /// The log so far as text.
    #[must_use]
    pub fn timeline(&self) -> String {
        timeline(&self.log())
    }

    /// What is wrong now that all has ended: with the log, with its compaction, with the tree, or with what is still held.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let log = self.log();
        let mut wrong = log_violations(&log);
        if self.journal.dropped() > 0 {
            wrong
                .push(format!("the journal of the test had no room for {} messages", self.journal.dropped()));
        }
        if RunTree::of(&log) != self.root.snapshot() {
            wrong.push("I10: the tree of the log is not the live tree".to_owned());
        }
        if self.root.live_runs() > 0 {
            wrong.push(format!("I12: {} runs are live after the end", self.root.live_runs()));
        }
        let ledger = self.root.ledger();
        if let (Some(free), Some(live)) = (ledger.free_permits(), ledger.limits().live.bound())
            && u32::try_from(free).ok() != Some(live)
        {
            wrong.push(format!("I18: {free} of {live} permits are free after the end"));
        }
        let (counted, used) = (ledger.tokens(), RunTree::of(&log).usage().tokens());
        if counted != used {
            wrong.push(format!("I20: the account has {counted} tokens, the runs used {used}"));
        }
        wrong
    }

    /// Ends the test of this tree and gives out its log.
    ///
    /// # Panics
    ///
    /// With everything that is wrong, and the timeline: see [`TestRoot::violations`].
    #[track_caller]
    #[expect(clippy::must_use_candidate, reason = "most tests call it for what it checks")]
    pub fn finish(self) -> Vec<ProcessingMessage> {
        let log = self.log();
        refuse(&self.violations(), &log);
        log
    }
}

impl Default for TestRoot {
    fn default() -> Self {
        Self::new()
    }
}

/// What is wrong with a whole log and with its compaction. Empty if both hold.
#[must_use]
pub fn log_violations(log: &[ProcessingMessage]) -> Vec<String> {
    let mut wrong: Vec<String> = verify(log).iter().map(ToString::to_string).collect();
    let compacted = compact(log);
    wrong.extend(verify(&compacted).iter().map(|violation| format!("compacted: {violation}")));
    let usages = (RunTree::of(log).usage(), RunTree::of(&compacted).usage());
    if usages.0 != usages.1 {
        wrong.push("I20: compaction changed the usage".to_owned());
    }
    wrong
}

/// Holds a whole log, and its compaction, against the invariants.
///
/// # Panics
///
/// With all violations and the timeline.
#[track_caller]
pub fn assert_verified(log: &[ProcessingMessage]) {
    refuse(&log_violations(log), log);
}

#[track_caller]
#[expect(clippy::panic, reason = "the failure of a test")]
fn refuse(wrong: &[String], log: &[ProcessingMessage]) {
    if !wrong.is_empty() {
        panic!("the log does not hold:\n- {}\n\n{}", wrong.join("\n- "), timeline(log));
    }
}
