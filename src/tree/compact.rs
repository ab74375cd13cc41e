//! A shorter log that says the same, and a whole one from a log that was cut.

use std::collections::HashMap;
use std::sync::Arc;

use super::positions::{Arrival, Positions};
use super::watch::RunWatch;
use crate::id::{RunId, Seq};
use crate::message::{
    Chunk, FinalCounters, MessageBody, Nesting, Origin, ProcessingMessage, RunFinished, Timestamp,
};
use crate::outcome::{FailureKind, SubAgentOutcome, Usage};

/// Joins the text deltas of each run where nothing else of that run is between them, and ends what the log left open:
/// runs without a terminal become `failed (vanished)`, their open calls get an error result.
///
/// Positions are numbered anew, so the result is a log of its own. What the reducer would not count (repeated, late,
/// foreign and unstamped messages) is left out. A log whose head was cut stays one whose head was cut.
#[must_use]
pub fn compact<'a>(log: impl IntoIterator<Item = &'a ProcessingMessage>) -> Vec<ProcessingMessage> {
    let mut compaction = Compaction::default();
    for message in log {
        compaction.push(message);
    }
    compaction.close_open_runs();
    compaction.messages
}

#[derive(Default)]
struct Compaction {
    messages: Vec<ProcessingMessage>,
    /// In the order of their births.
    runs: Vec<Run>,
    index: HashMap<RunId, usize>,
    root: Option<RunId>,
    positions: Positions,
    latest: Timestamp,
}

struct Run {
    origin: Arc<Origin>,
    /// Known before the child, so that following parents ends.
    parent: Option<usize>,
    next_run_seq: Seq,
    first_time: Timestamp,
    open_text: Option<OpenText>,
    watch: RunWatch,
    finished: bool,
    /// What its settled descendants used.
    descendants: Usage,
}

/// A delta that the next one may join.
struct OpenText {
    /// Where the first delta is.
    at: usize,
    /// All of them; empty while there is only the first.
    joined: String,
}

impl Compaction {
    fn push(&mut self, message: &ProcessingMessage) {
        let Some(Nesting { origin, time, seq, .. }) = message.nesting() else { return };
        let root = self.root.get_or_insert_with(|| origin.root_run_id.clone());
        if *root != origin.root_run_id || self.positions.note(*seq) == Arrival::Repeated {
            return;
        }
        self.latest = self.latest.max(*time);
        let at = match self.index.get(&origin.run_id) {
            Some(at) => *at,
            None => self.add(origin, *time),
        };
        let Some(run) = self.runs.get_mut(at) else { return };
        if run.finished || run.watch.observe(message.body(), *time).is_err() {
            return;
        }
        self.take(at, message.body().clone(), *time);
    }

    /// Puts a body behind the others of its run, or into the open text.
    fn take(&mut self, at: usize, body: MessageBody, time: Timestamp) {
        if let MessageBody::Chunk(chunk) = &body
            && self.join(at, chunk)
        {
            return;
        }
        self.end_text(at, false);
        let first = self.messages.len();
        let opens = matches!(&body, MessageBody::Chunk(chunk) if !chunk.done);
        self.append(at, body, time);
        if let Some(run) = self.runs.get_mut(at).filter(|_| opens) {
            run.open_text = Some(OpenText { at: first, joined: String::new() });
        }
    }

    fn add(&mut self, origin: &Arc<Origin>, time: Timestamp) -> usize {
        let at = self.runs.len();
        let parent = origin.parent_run_id.as_ref().and_then(|parent| self.index.get(parent)).copied();
        self.index.insert(origin.run_id.clone(), at);
        self.runs.push(Run {
            origin: Arc::clone(origin),
            parent,
            next_run_seq: 0,
            first_time: time,
            open_text: None,
            watch: RunWatch::default(),
            finished: false,
            descendants: Usage::default(),
        });
        at
    }

    /// Joins a delta to the open one of its run. False if it does not belong to it.
    fn join(&mut self, at: usize, chunk: &Chunk) -> bool {
        let Some(open) = self.runs.get_mut(at).and_then(|run| run.open_text.as_mut()) else { return false };
        let Some(MessageBody::Chunk(first)) = self.messages.get(open.at).map(ProcessingMessage::body) else {
            return false;
        };
        if (first.thinking, &first.meta) != (chunk.thinking, &chunk.meta) {
            return false;
        }
        // The text grows in one buffer and is put into a message once: a run may have a million deltas.
        if open.joined.is_empty() {
            open.joined.push_str(&first.content);
        }
        open.joined.push_str(&chunk.content);
        if chunk.done {
            self.end_text(at, true);
        }
        true
    }

    /// Puts the joined text where its first delta is.
    fn end_text(&mut self, at: usize, done: bool) {
        let Some(open) = self.runs.get_mut(at).and_then(|run| run.open_text.take()) else { return };
        if open.joined.is_empty() && !done {
            return;
        }
        if let Some(first) = self.messages.get_mut(open.at)
            && let (MessageBody::Chunk(chunk), Some(nesting)) = (first.body(), first.nesting())
        {
            let chunk = Chunk { content: open.joined.into(), done, ..chunk.clone() };
            *first = ProcessingMessage::new(chunk).stamped(nesting.clone());
        }
    }

    fn append(&mut self, at: usize, body: MessageBody, time: Timestamp) {
        let Some(run) = self.runs.get_mut(at) else { return };
        let nesting = Nesting {
            origin: Arc::clone(&run.origin),
            seq: self.messages.len() as Seq,
            run_seq: run.next_run_seq,
            time,
        };
        run.next_run_seq += 1;
        if let MessageBody::RunFinished(finished) = &body {
            run.finished = true;
            let used = finished.usage.unwrap_or(run.watch.usage).plus(&run.descendants);
            // Its nearest live ancestor: a background run may outlive the one that spawned it.
            let mut above = run.parent;
            while let Some(ancestor) = above.and_then(|above| self.runs.get_mut(above)) {
                if !ancestor.finished {
                    ancestor.descendants.add(&used);
                    break;
                }
                above = ancestor.parent;
            }
        }
        self.messages.push(ProcessingMessage::new(body).stamped(nesting));
    }

    /// Children are born after their parents, so the reverse order of births ends children first.
    fn close_open_runs(&mut self) {
        let text = "interrupted: the log ends before the run does";
        let now = self.latest;
        for at in (0..self.runs.len()).rev() {
            let Some(run) = self.runs.get_mut(at).filter(|run| !run.finished) else { continue };
            let mut closing = run.watch.close("interrupted", text, now);
            let counters = FinalCounters {
                usage: run.watch.usage,
                subtree_usage: run.watch.usage.plus(&run.descendants),
                turns: run.watch.turns,
                tool_calls: run.watch.tool_calls,
                duration_ms: now.millis_since(run.first_time),
                late: 0,
            };
            let outcome = SubAgentOutcome::failed(FailureKind::Vanished, text);
            closing.push(RunFinished::new(outcome, counters).into());
            for body in closing {
                self.take(at, body, now);
            }
        }
    }
}

#[cfg(test)]
#[path = "compact_tests.rs"]
mod tests;
