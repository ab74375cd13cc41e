//! A shorter log that says the same, and a whole one from a log that was cut.

use std::collections::HashMap;
use std::sync::Arc;

use super::watch::RunWatch;
use crate::id::{RunId, Seq};
use crate::message::{
    Chunk, FinalCounters, MessageBody, Nesting, Origin, ProcessingMessage, RunFinished, Timestamp,
};
use crate::outcome::{FailureKind, SubAgentOutcome, Usage};

/// Joins the text deltas of each run where nothing else of that run is between them, and ends what the log left open:
/// runs without a terminal become `failed (vanished)`, their open calls get an error result.
///
/// Positions are numbered anew, so the result is a log of its own. What the reducer would not count (late, foreign
/// and unstamped messages) is left out. A log whose head was cut stays one whose head was cut.
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
    runs: HashMap<RunId, Run>,
    births: Vec<RunId>,
    root: Option<RunId>,
    latest: Timestamp,
}

struct Run {
    origin: Arc<Origin>,
    next_run_seq: Seq,
    first_time: Timestamp,
    /// The open text that the next delta may join.
    joinable: Option<Joinable>,
    watch: RunWatch,
    finished: bool,
    children_usage: Usage,
}

/// A text that grows: written into its message once it is whole, so that joining is linear in its length.
struct Joinable {
    at: usize,
    text: String,
    is_joined: bool,
}

impl Compaction {
    fn push(&mut self, message: &ProcessingMessage) {
        let Some(Nesting { origin, time, .. }) = message.nesting() else { return };
        let root = self.root.get_or_insert_with(|| origin.root_run_id.clone());
        if *root != origin.root_run_id {
            return;
        }
        self.latest = self.latest.max(*time);
        if !self.runs.contains_key(&origin.run_id) {
            self.births.push(origin.run_id.clone());
            let run = Run {
                origin: Arc::clone(origin),
                next_run_seq: 0,
                first_time: *time,
                joinable: None,
                watch: RunWatch::default(),
                finished: false,
                children_usage: Usage::default(),
            };
            self.runs.insert(origin.run_id.clone(), run);
        }
        let Some(run) = self.runs.get_mut(&origin.run_id) else { return };
        if run.finished || run.watch.observe(message.body(), *time).is_err() {
            return;
        }
        if let MessageBody::Chunk(chunk) = message.body()
            && let Some(open) = &mut run.joinable
            && let Some(MessageBody::Chunk(first)) = self.messages.get(open.at).map(ProcessingMessage::body)
            && (first.thinking, &first.meta) == (chunk.thinking, &chunk.meta)
        {
            open.text.push_str(&chunk.content);
            open.is_joined = true;
            if chunk.done {
                self.write_text(&origin.run_id, true);
            }
            return;
        }
        self.write_text(&origin.run_id, false);
        if let MessageBody::Chunk(chunk) = message.body()
            && !chunk.done
            && let Some(run) = self.runs.get_mut(&origin.run_id)
        {
            let (at, text) = (self.messages.len(), chunk.content.to_string());
            run.joinable = Some(Joinable { at, text, is_joined: false });
        }
        self.append(&origin.run_id.clone(), message.body().clone(), *time);
    }

    /// The open text of a run ends where the log does.
    fn end_text(&mut self, run_id: &RunId, now: Timestamp) {
        if let Some(run) = self.runs.get_mut(run_id)
            && let Some(open) = &mut run.joinable
            && let Some(MessageBody::Chunk(first)) = self.messages.get(open.at).map(ProcessingMessage::body)
        {
            open.is_joined = true;
            let _ = run.watch.observe(&Chunk::end(first.thinking).into(), now);
        }
        self.write_text(run_id, true);
    }

    /// The open text of a run is whole.
    fn write_text(&mut self, run_id: &RunId, done: bool) {
        let joinable = self.runs.get_mut(run_id).and_then(|run| run.joinable.take());
        let Some(Joinable { at, text, is_joined: true }) = joinable else { return };
        if let Some(message) = self.messages.get_mut(at)
            && let MessageBody::Chunk(first) = message.body()
            && let Some(nesting) = message.nesting().cloned()
        {
            let whole = Chunk { content: text.into(), done, ..first.clone() };
            *message = ProcessingMessage::new(whole).stamped(nesting);
        }
    }

    fn append(&mut self, run_id: &RunId, body: MessageBody, time: Timestamp) {
        let Some(run) = self.runs.get_mut(run_id) else { return };
        let nesting = Nesting {
            origin: Arc::clone(&run.origin),
            seq: self.messages.len() as Seq,
            run_seq: run.next_run_seq,
            time,
        };
        run.next_run_seq += 1;
        if let MessageBody::RunFinished(finished) = &body {
            run.finished = true;
            let subtree = finished.subtree_usage.or(finished.usage).unwrap_or_default();
            // As the core does: into the account of the nearest ancestor that has not ended.
            let mut above = run.origin.parent_run_id.clone();
            while let Some(run) = above.and_then(|above| self.runs.get_mut(&above)) {
                if !run.finished {
                    run.children_usage.add(&subtree);
                    break;
                }
                above = run.origin.parent_run_id.clone();
            }
        }
        self.messages.push(ProcessingMessage::new(body).stamped(nesting));
    }

    /// Children are born after their parents, so the reverse order of births ends children first.
    fn close_open_runs(&mut self) {
        let text = "interrupted: the log ends before the run does";
        let now = self.latest;
        for run_id in std::mem::take(&mut self.births).into_iter().rev() {
            self.end_text(&run_id, now);
            let Some(run) = self.runs.get_mut(&run_id).filter(|run| !run.finished) else { continue };
            let mut closing = run.watch.close("interrupted", text, now);
            let counters = FinalCounters {
                usage: run.watch.usage,
                subtree_usage: run.watch.usage.plus(&run.children_usage),
                turns: run.watch.turns,
                tool_calls: run.watch.tool_calls,
                duration_ms: now.since(run.first_time).as_millis() as u64,
                late: 0,
            };
            let outcome = SubAgentOutcome::failed(FailureKind::Vanished, text);
            closing.push(RunFinished::new(outcome, counters).into());
            for body in closing {
                self.append(&run_id, body, now);
            }
        }
    }
}
