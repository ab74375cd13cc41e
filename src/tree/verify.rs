//! Holds a log against the invariants. Each violation names the invariant and the position.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::watch::{Misfit, RunWatch};
use crate::id::{RunId, Seq};
use crate::message::{
    MessageBody, Nesting, Origin, OtherBody, ProcessingMessage, RunFinished, Scope, Timestamp,
};
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
    runs: Vec<Run>,
    index: HashMap<RunId, usize>,
    /// The run of the latest message: most messages come from the same run as the one before.
    latest: Option<(Arc<Origin>, usize)>,
    root: Option<RunId>,
    root_finished: bool,
    live: usize,
    next_seq: Seq,
    last_seq: Seq,
    violations: Vec<Violation>,
}

#[derive(Debug)]
struct Run {
    origin: Arc<Origin>,
    /// Known before the child, so that following parents ends.
    parent: Option<usize>,
    /// None if its start is not in the log: then what its start would tell is not held against it.
    scope: Option<Scope>,
    next_run_seq: Seq,
    finished: bool,
    live_foreground: u64,
    /// Live background runs below it, those of settled descendants included.
    live_background: u64,
    /// What its settled descendants used.
    descendants: Usage,
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
        let (origin, seq) = (&nesting.origin, nesting.seq);
        self.last_seq = seq;
        if seq != self.next_seq {
            self.violate("I6", seq, format!("seq {} was expected", self.next_seq));
        }
        self.next_seq = seq.saturating_add(1);
        let root = self.root.get_or_insert_with(|| origin.root_run_id.clone());
        if *root != origin.root_run_id {
            self.violate("I6", seq, format!("a message of another root, {}", origin.root_run_id));
            return;
        }
        let known = match &self.latest {
            Some((latest, at)) if Arc::ptr_eq(latest, origin) => Some(*at),
            _ => self.index.get(&origin.run_id).copied(),
        };
        let at = match known {
            Some(at) => {
                self.later_message(at, message.body(), nesting);
                at
            }
            None => self.first_message(message.body(), nesting),
        };
        self.latest = Some((Arc::clone(origin), at));
    }

    fn first_message(&mut self, body: &MessageBody, nesting: &Nesting) -> usize {
        let Nesting { origin, seq, run_seq, time } = nesting;
        let run_id = &origin.run_id;
        let at = self.runs.len();
        self.index.insert(run_id.clone(), at);
        self.live += 1;
        self.runs.push(Run {
            origin: Arc::clone(origin),
            parent: None,
            scope: None,
            next_run_seq: run_seq.saturating_add(1),
            finished: false,
            live_foreground: 0,
            live_background: 0,
            descendants: Usage::default(),
            watch: RunWatch::default(),
        });
        self.check_place(at, nesting);
        match body {
            MessageBody::RunStarted(started) => {
                self.check_birth(at, started.scope, nesting);
                if *run_seq != 0 {
                    self.violate("I1", *seq, format!("run {run_id} starts with run_seq {run_seq}"));
                }
            }
            MessageBody::Other(other) if other.kind == "run_started" => self.violate_wire(other, *seq),
            other => {
                let kind = other.kind();
                self.violate("I1", *seq, format!("run {run_id} begins with {kind}, not run_started"));
            }
        }
        if let MessageBody::RunFinished(finished) = body {
            self.check_end(at, finished, nesting);
        } else if let Some(run) = self.runs.get_mut(at) {
            // What a cut head hides (an open call, say) is not held against the rest.
            let _ = run.watch.observe(body, *time);
        }
        at
    }

    /// Whether the envelope's place in the tree is one.
    fn check_place(&mut self, at: usize, nesting: &Nesting) {
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
        let Some(parent_at) = self.index.get(parent_id).copied().filter(|parent| *parent != at) else {
            self.violate("I6", *seq, format!("the parent of run {run_id}, {parent_id}, has not started"));
            return;
        };
        if let Some(run) = self.runs.get_mut(at) {
            run.parent = Some(parent_at);
        }
        let above = self.runs.get(parent_at).map_or(0, |parent| parent.origin.subtask_depth);
        if above.saturating_add(1) != origin.subtask_depth {
            let below = origin.subtask_depth;
            self.violate("I6", *seq, format!("run {run_id} at depth {below} has a parent at depth {above}"));
        }
    }

    /// Whether a run may start here, and the count of it above.
    fn check_birth(&mut self, at: usize, scope: Scope, nesting: &Nesting) {
        let Nesting { origin, seq, .. } = nesting;
        let run_id = &origin.run_id;
        let Some(run) = self.runs.get_mut(at) else { return };
        run.scope = Some(scope);
        let Some(parent_at) = run.parent else { return };
        let counted_by = if scope == Scope::Foreground { Some(parent_at) } else { self.heir(parent_at) };
        if let Some(above) = counted_by.and_then(|above| self.runs.get_mut(above)) {
            match scope {
                Scope::Foreground => above.live_foreground += 1,
                Scope::Background => above.live_background += 1,
            }
        }
        let Some(parent) = self.runs.get(parent_at) else { return };
        let too_late = match scope {
            Scope::Foreground => parent.finished.then_some("its parent's"),
            Scope::Background => self.root_finished.then_some("the root's"),
        };
        // A parent whose start is not in the log may have announced the call before its first message here.
        let announced = |label| parent.watch.has_open_label(label) || parent.scope.is_none();
        let unannounced = origin.parent_tool_call_id.as_ref().filter(|label| !announced(label));
        if let Some(whose) = too_late {
            self.violate("I9", *seq, format!("run {run_id} starts after {whose} run_finished"));
        } else if let Some(label) = unannounced {
            let problem = format!("run {run_id} starts while no call {label} of its parent is open");
            self.violate("I7", *seq, problem);
        }
    }

    fn later_message(&mut self, at: usize, body: &MessageBody, nesting: &Nesting) {
        let Nesting { origin, seq, run_seq, time } = nesting;
        let run_id = &origin.run_id;
        let Some(run) = self.runs.get_mut(at) else { return };
        let expected = std::mem::replace(&mut run.next_run_seq, run_seq.saturating_add(1));
        let moved = !Arc::ptr_eq(&run.origin, origin) && run.origin != *origin;
        let mut problem: Option<(&'static str, String)> = None;
        if run.finished {
            let kind = body.kind();
            problem = Some(("I3", format!("{kind} of run {run_id} after its run_finished")));
        } else {
            match body {
                MessageBody::RunStarted(_) => problem = Some(("I1", format!("run {run_id} starts twice"))),
                MessageBody::RunFinished(finished) => self.check_end(at, finished, nesting),
                MessageBody::Other(other) => self.violate_wire(other, *seq),
                body => {
                    problem = misfit(&mut run.watch, body, *time)
                        .map(|what| ("I8", format!("run {run_id}: {what}")));
                }
            }
        }
        if let Some((invariant, problem)) = problem {
            self.violate(invariant, *seq, problem);
        }
        if expected != *run_seq {
            self.violate("I6", *seq, format!("run_seq {expected} was expected, not {run_seq}"));
        }
        if moved {
            self.violate("I6", *seq, format!("run {run_id} changed its place in the tree"));
        }
    }

    fn check_end(&mut self, at: usize, finished: &RunFinished, nesting: &Nesting) {
        let (seq, run_id) = (nesting.seq, &nesting.origin.run_id);
        let is_root = *run_id == nesting.origin.root_run_id;
        let Some(run) = self.runs.get_mut(at) else { return };
        run.finished = true;
        self.live = self.live.saturating_sub(1);
        self.root_finished |= is_root;
        let live_below = if is_root { self.live as u64 } else { run.live_foreground };
        let mut problems = end_problems(run, finished);
        if live_below > 0 {
            let what = if is_root { "runs" } else { "foreground children" };
            problems.push(("I9", format!("ends while {live_below} {what} are live")));
        } else if run.live_background == 0
            && let (Some(own), Some(subtree)) = (&finished.usage, &finished.subtree_usage)
            && !same(subtree, &own.plus(&run.descendants))
        {
            problems.push(("I20", "the subtree's usage is not the sum of its runs'".into()));
        }
        let (scope, parent, inherited) = (run.scope, run.parent, run.live_background);
        let used = finished.usage.unwrap_or(run.watch.usage).plus(&run.descendants);
        // What outlives a run is its nearest live ancestor's from now on.
        let heir = parent.and_then(|parent| self.heir(parent));
        if let Some(heir) = heir.and_then(|heir| self.runs.get_mut(heir)) {
            heir.descendants.add(&used);
            heir.live_background += inherited;
            if scope == Some(Scope::Background) {
                heir.live_background = heir.live_background.saturating_sub(1);
            }
        }
        if scope == Some(Scope::Foreground)
            && let Some(parent) = parent.and_then(|parent| self.runs.get_mut(parent))
        {
            parent.live_foreground = parent.live_foreground.saturating_sub(1);
        }
        for (invariant, problem) in problems {
            self.violate(invariant, seq, format!("run {run_id}: {problem}"));
        }
    }

    /// A run or its nearest ancestor that has not finished.
    fn heir(&self, from: usize) -> Option<usize> {
        let mut at = Some(from);
        while let Some(run) = at.and_then(|at| self.runs.get(at)) {
            if !run.finished {
                return at;
            }
            at = run.parent;
        }
        None
    }

    /// Ends the log: every run must have its terminal.
    #[must_use]
    pub fn finish(mut self) -> Vec<Violation> {
        let open: Vec<RunId> =
            self.runs.iter().filter(|run| !run.finished).map(|run| run.origin.run_id.clone()).collect();
        for run in open {
            self.violate("I1", self.last_seq, format!("run {run} has no run_finished"));
        }
        self.violations
    }

    fn violate_wire(&mut self, other: &OtherBody, seq: Seq) {
        if let Some(problem) = &other.problem {
            self.violate("wire", seq, format!("{} is not what its kind says: {problem}", other.kind));
        }
    }

    fn violate(&mut self, invariant: &'static str, seq: Seq, message: String) {
        self.violations.push(Violation { invariant, seq, message });
    }
}

/// Notes a message in the run's story; says what does not fit.
fn misfit(watch: &mut RunWatch, body: &MessageBody, time: Timestamp) -> Option<&'static str> {
    let another = match body {
        MessageBody::ToolCallUpdate(call) => watch
            .open_call(call.call_index)
            .filter(|(id, name)| **id != call.tool_call_id || *name != &*call.name)
            .map(|_| "a call under an index that another open call has"),
        MessageBody::ToolResultUpdate(result) => watch
            .open_call(result.call_index)
            .filter(|(id, name)| **id != result.tool_call_id || *name != &*result.name)
            .map(|_| "a result that names another call than its index does"),
        _ => None,
    };
    match watch.observe(body, time) {
        Ok(()) => another,
        Err(Misfit::ResultWithoutCall) => Some("a result for a call that is not open"),
        Err(Misfit::CallIndexReused) => Some("a call under an index that an earlier call had"),
    }
}

/// What is wrong with a terminal in the light of the run's own messages.
fn end_problems(run: &Run, finished: &RunFinished) -> Vec<(&'static str, String)> {
    let mut problems: Vec<(&'static str, String)> = Vec::new();
    for (index, label) in run.watch.open_calls() {
        problems.push(("I8", format!("ends while call {index} ({label}) has no result")));
    }
    if run.watch.has_open_text() {
        problems.push(("I9", "ends while its text is open".into()));
    }
    let completed = finished.outcome == OutcomeKind::Completed;
    if finished.ok != completed {
        problems.push(("I5", format!("says ok: {} but {}", finished.ok, finished.outcome)));
    }
    if completed && finished.failure.is_some() {
        problems.push(("I5", "completed, but names a failure".into()));
    }
    if !completed && finished.result.as_ref().is_some_and(|result| !result.is_null()) {
        problems.push(("I5", format!("{}, but has a result", finished.outcome)));
    }
    if finished.usage.is_some_and(|usage| !covers(&usage, &run.watch.usage)) {
        problems.push(("I20", "used less than its turns did".into()));
    }
    let counters = [
        ("turns", finished.turns, run.watch.turns),
        ("tool calls", finished.tool_calls, run.watch.tool_calls),
    ];
    for (what, said, seen) in counters {
        if let Some(said) = said.filter(|said| *said != seen && run.scope.is_some()) {
            problems.push(("I20", format!("says {said} {what}, but its log has {seen}")));
        }
    }
    problems
}

/// Whether `total` is at least `part` in every count.
fn covers(total: &Usage, part: &Usage) -> bool {
    let [(a, b, c, d, money), (e, f, g, h, part)] = [counts(total), counts(part)];
    a >= e && b >= f && c >= g && d >= h && money >= part - rounding(part)
}

/// Whether two sums are the same; money up to rounding.
fn same(one: &Usage, two: &Usage) -> bool {
    let [(a, b, c, d, money), (e, f, g, h, other)] = [counts(one), counts(two)];
    (a, b, c, d) == (e, f, g, h) && (money - other).abs() <= rounding(other)
}

fn counts(usage: &Usage) -> (u64, u64, u64, u64, f64) {
    let (cached, money) = (usage.cached_tokens.unwrap_or(0), usage.cost_usd.unwrap_or(0.0));
    (usage.input_tokens, usage.output_tokens, usage.model_calls, cached, money)
}

/// A billionth: far more than adding in another order changes, far less than any price.
fn rounding(money: f64) -> f64 {
    1e-9 * money.abs().max(1.0)
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
