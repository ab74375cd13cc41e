//! Holds a log against the invariants. Each violation names the invariant and the position.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::watch::{Misfit, RunWatch};
use crate::id::{RunId, Seq};
use crate::message::{MessageBody, Nesting, Origin, ProcessingMessage, RunFinished, RunStarted, Scope};
use crate::outcome::{OutcomeKind, Usage};

/// One way in which a log breaks an invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant's name, such as `I8`.
    pub invariant: &'static str,
    /// The message where it shows; for what is missing at the end, the last message.
    pub seq: Seq,
    /// What is wrong, for people.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at seq {}: {}", self.invariant, self.seq, self.message)
    }
}

/// All violations of a log; empty if it holds.
pub fn verify<'a>(log: impl IntoIterator<Item = &'a ProcessingMessage>) -> Vec<Violation> {
    let mut verifier = Verifier::new();
    for message in log {
        verifier.push(message);
    }
    verifier.finish()
}

/// Verifies a log message by message, in memory for its runs, not for its messages.
#[derive(Debug, Default)]
pub struct Verifier {
    runs: HashMap<RunId, Run>,
    root: Option<RunId>,
    next_seq: Seq,
    last_seq: Seq,
    violations: Vec<Violation>,
    /// What the runs that ended so far used.
    used: Usage,
}

#[derive(Debug)]
struct Run {
    origin: Arc<Origin>,
    next_run_seq: Seq,
    finished: bool,
    scope: Scope,
    live_foreground: u64,
    children_usage: Usage,
    background_below: bool,
    watch: RunWatch,
}

impl Verifier {
    /// A verifier that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next message of the log.
    pub fn push(&mut self, message: &ProcessingMessage) {
        let Some(nesting) = message.nesting() else {
            self.violate("I6", self.next_seq, "a message without an envelope".into());
            return;
        };
        let Nesting { origin, seq, run_seq, .. } = nesting;
        self.last_seq = *seq;
        if *seq != self.next_seq {
            self.violate("I6", *seq, format!("seq {} was expected", self.next_seq));
        }
        self.next_seq = seq.saturating_add(1);
        let root = self.root.get_or_insert_with(|| origin.root_run_id.clone());
        if *root != origin.root_run_id {
            self.violate("I6", *seq, format!("a message of another root, {}", origin.root_run_id));
            return;
        }
        match self.runs.get_mut(&origin.run_id) {
            None => self.first_message(message.body(), nesting),
            Some(run) => {
                let expected = std::mem::replace(&mut run.next_run_seq, run_seq.saturating_add(1));
                let (moved, over) = (*run.origin != **origin, run.finished);
                if expected != *run_seq {
                    self.violate("I6", *seq, format!("run_seq {expected} was expected, not {run_seq}"));
                }
                if moved {
                    self.violate("I6", *seq, format!("run {} changed its place in the tree", origin.run_id));
                }
                if over {
                    let kind = message.body().kind();
                    self.violate(
                        "I3",
                        *seq,
                        format!("{kind} of run {} after its run_finished", origin.run_id),
                    );
                    return;
                }
                self.later_message(message.body(), nesting);
            }
        }
    }

    fn first_message(&mut self, body: &MessageBody, nesting: &Nesting) {
        let Nesting { origin, seq, run_seq, .. } = nesting;
        let scope = match body {
            MessageBody::RunStarted(started) => {
                self.check_birth(started, nesting);
                started.scope
            }
            other => {
                let kind = other.kind();
                self.violate(
                    "I1",
                    *seq,
                    format!("run {} begins with {kind}, not run_started", origin.run_id),
                );
                Scope::Foreground
            }
        };
        if *run_seq != 0 {
            self.violate(
                "I1",
                *seq,
                format!("the first message of run {} has run_seq {run_seq}", origin.run_id),
            );
        }
        let mut run = Run {
            origin: Arc::clone(origin),
            next_run_seq: run_seq.saturating_add(1),
            finished: false,
            scope,
            live_foreground: 0,
            children_usage: Usage::default(),
            background_below: false,
            watch: RunWatch::default(),
        };
        if !matches!(body, MessageBody::RunStarted(_)) {
            // What a cut head hides (an open call, say) is not held against the rest.
            let _ = run.watch.observe(body, nesting.time);
        }
        self.runs.insert(origin.run_id.clone(), run);
        if let MessageBody::RunFinished(finished) = body {
            self.check_end(finished, nesting);
        }
    }

    fn check_birth(&mut self, started: &RunStarted, nesting: &Nesting) {
        let Nesting { origin, seq, .. } = nesting;
        let run_id = &origin.run_id;
        let Some(parent_id) = &origin.parent_run_id else {
            if *run_id != origin.root_run_id || origin.subtask_depth != 0 {
                self.violate(
                    "I6",
                    *seq,
                    format!("run {run_id} has no parent but is not the root at depth 0"),
                );
            }
            return;
        };
        let mut problems: Vec<(&'static str, String)> = Vec::new();
        match self.runs.get_mut(parent_id) {
            None => {
                problems.push(("I6", format!("the parent of run {run_id}, {parent_id}, has not started")))
            }
            Some(parent) => {
                if started.scope == Scope::Foreground {
                    parent.live_foreground += 1;
                }
                if parent.origin.subtask_depth.saturating_add(1) != origin.subtask_depth {
                    let (above, below) = (parent.origin.subtask_depth, origin.subtask_depth);
                    problems
                        .push(("I6", format!("run {run_id} at depth {below} has a parent at depth {above}")));
                }
                if parent.finished && started.scope == Scope::Foreground {
                    problems.push(("I9", format!("run {run_id} starts after its parent's run_finished")));
                }
                if let Some(label) = &origin.parent_tool_call_id
                    && !parent.watch.open_calls().any(|(_, open)| open == label)
                {
                    problems.push((
                        "I7",
                        format!("run {run_id} starts while no call {label} of its parent is open"),
                    ));
                }
            }
        }
        if started.scope == Scope::Background {
            self.mark_background_above(parent_id.clone());
        }
        for (invariant, problem) in problems {
            self.violate(invariant, *seq, problem);
        }
    }

    /// A background run may end after its parent, so what it used is in the account of whichever ancestor was live then.
    fn mark_background_above(&mut self, parent: RunId) {
        let mut next = Some(parent);
        while let Some(run) = next.and_then(|above| self.runs.get_mut(&above)) {
            if std::mem::replace(&mut run.background_below, true) {
                return;
            }
            next = run.origin.parent_run_id.clone();
        }
    }

    fn later_message(&mut self, body: &MessageBody, nesting: &Nesting) {
        let (seq, run_id) = (nesting.seq, &nesting.origin.run_id);
        match body {
            MessageBody::RunStarted(_) => self.violate("I1", seq, format!("run {run_id} starts twice")),
            MessageBody::RunFinished(finished) => self.check_end(finished, nesting),
            MessageBody::Other(other) if other.problem.is_some() => {
                let (kind, problem) = (&other.kind, other.problem.as_deref().unwrap_or_default());
                self.violate("wire", seq, format!("{kind} is not what its kind says: {problem}"));
            }
            body => {
                let Some(run) = self.runs.get_mut(run_id) else { return };
                if let Err(misfit) = run.watch.observe(body, nesting.time) {
                    let what = match misfit {
                        Misfit::ResultWithoutCall => "a result for a call that is not open",
                        Misfit::CallIndexReused => "a call under an index that an earlier call had",
                    };
                    self.violate("I8", seq, format!("run {run_id}: {what}"));
                }
            }
        }
    }

    fn check_end(&mut self, finished: &RunFinished, nesting: &Nesting) {
        let (seq, run_id) = (nesting.seq, &nesting.origin.run_id);
        let Some(run) = self.runs.get_mut(run_id) else { return };
        run.finished = true;
        let mut problems: Vec<(&'static str, String)> = Vec::new();
        for (index, label) in run.watch.open_calls() {
            problems.push(("I8", format!("run {run_id} ends while call {index} ({label}) has no result")));
        }
        if run.watch.has_open_text() {
            problems.push(("I9", format!("run {run_id} ends while its text is open")));
        }
        if run.live_foreground > 0 {
            let live = run.live_foreground;
            problems.push(("I9", format!("run {run_id} ends while {live} foreground children are live")));
        }
        if finished.ok != (finished.outcome == OutcomeKind::Completed) {
            problems.push(("I5", format!("run {run_id} says ok: {} but {}", finished.ok, finished.outcome)));
        }
        if let Some(usage) = &finished.usage {
            if !covers(usage, &run.watch.usage) {
                problems.push(("I20", format!("run {run_id} used less than its turns did")));
            }
            self.used.add(usage);
            // The root ends last, so its account is the whole tree's.
            let is_root = run.origin.parent_run_id.is_none();
            let sum = if is_root { self.used } else { usage.plus(&run.children_usage) };
            if let Some(subtree) = &finished.subtree_usage
                && (is_root || !run.background_below)
                && !same(subtree, &sum)
            {
                problems
                    .push(("I20", format!("run {run_id}: the subtree's usage is not the sum of its runs'")));
            }
        }
        let subtree = finished.subtree_usage.or(finished.usage).unwrap_or_default();
        let (scope, parent) = (run.scope, run.origin.parent_run_id.clone());
        if let Some(parent) = parent.and_then(|parent| self.runs.get_mut(&parent)) {
            parent.children_usage.add(&subtree);
            if scope == Scope::Foreground {
                parent.live_foreground = parent.live_foreground.saturating_sub(1);
            }
        } else if self.root.as_ref() == Some(run_id) {
            let live = self.runs.values().filter(|run| !run.finished).count();
            if live > 0 {
                problems.push(("I9", format!("the root ends while {live} runs are live")));
            }
        }
        for (invariant, problem) in problems {
            self.violate(invariant, seq, problem);
        }
    }

    /// Ends the log: every run must have its terminal.
    #[must_use]
    pub fn finish(mut self) -> Vec<Violation> {
        let mut open: Vec<String> =
            self.runs.values().filter(|run| !run.finished).map(|run| run.origin.run_id.to_string()).collect();
        open.sort();
        for run in open {
            self.violate("I1", self.last_seq, format!("run {run} has no run_finished"));
        }
        self.violations
    }

    fn violate(&mut self, invariant: &'static str, seq: Seq, message: String) {
        self.violations.push(Violation { invariant, seq, message });
    }
}

/// Whether `total` is at least `part` in every count.
fn covers(total: &Usage, part: &Usage) -> bool {
    total.input_tokens >= part.input_tokens
        && total.output_tokens >= part.output_tokens
        && total.model_calls >= part.model_calls
}

/// Whether two sums are the same; money up to rounding.
fn same(one: &Usage, two: &Usage) -> bool {
    let money = one.cost_usd.unwrap_or(0.0) - two.cost_usd.unwrap_or(0.0);
    (one.input_tokens, one.output_tokens, one.model_calls)
        == (two.input_tokens, two.output_tokens, two.model_calls)
        && money.abs() < 1e-9
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
