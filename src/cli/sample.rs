//! Logs made by hand, for the tests of this room.

#![expect(clippy::needless_pass_by_value, reason = "bodies are written in place")]

use std::sync::Arc;

use serde_json::{Value, json};

use crate::message::{Nesting, Origin, ProcessingMessage, Timestamp};
use crate::tree::{Delivery, RunTree};

/// 2026-01-01T00:00:00Z.
pub(super) const START: u64 = 1_767_225_600_000;

/// A log that grows: each message 100 ms after the one before.
#[derive(Default)]
pub(super) struct Sample {
    pub(super) messages: Vec<ProcessingMessage>,
    runs: Vec<(Arc<Origin>, u64)>,
}

pub(super) fn at(ms: u64) -> Timestamp {
    Timestamp::from_micros((START + ms) * 1000)
}

impl Sample {
    /// Starts a run; none as its parent makes it the root.
    pub(super) fn start(
        &mut self,
        run: &str,
        parent: Option<(&str, Option<&str>)>,
        title: &str,
    ) -> &mut Self {
        let above = parent.map(|(parent, _)| self.origin(parent));
        let origin = Origin {
            root_run_id: above.as_ref().map_or(run, |_| "root").into(),
            run_id: run.into(),
            parent_run_id: parent.map(|(parent, _)| parent.into()),
            parent_tool_call_id: parent.and_then(|(_, call)| call).map(Into::into),
            subtask_depth: above.map_or(0, |above| above.subtask_depth + 1),
        };
        self.runs.push((Arc::new(origin), 0));
        self.say(
            run,
            json!({"type": "run_started", "agent": "worker", "title": title, "task": title,
            "scope": "foreground", "producer": "tool_loop"}),
        )
    }

    fn origin(&self, run: &str) -> Arc<Origin> {
        Arc::clone(&self.runs.iter().find(|(origin, _)| origin.run_id == run.into()).unwrap().0)
    }

    /// One message of a run, as its body's JSON.
    pub(super) fn say(&mut self, run: &str, body: Value) -> &mut Self {
        let seq = self.messages.len() as u64;
        let (origin, next) = self.runs.iter_mut().find(|(origin, _)| origin.run_id == run.into()).unwrap();
        let nesting = Nesting { origin: Arc::clone(origin), seq, run_seq: *next, time: at(seq * 100) };
        *next += 1;
        let message = ProcessingMessage::from_json(&body.to_string()).unwrap();
        self.messages.push(message.stamped(nesting));
        self
    }

    pub(super) fn text(&mut self, run: &str, text: &str, done: bool) -> &mut Self {
        self.say(run, json!({"type": "chunk", "content": text, "done": done}))
    }

    pub(super) fn call(&mut self, run: &str, index: u32, name: &str, args: Value) -> &mut Self {
        let id = format!("call_{index}");
        self.say(
            run,
            json!({"type": "tool_call_update", "tool_call_id": id, "call_index": index, "name": name,
            "args": args}),
        )
    }

    pub(super) fn result(&mut self, run: &str, index: u32, name: &str, error: Option<&str>) -> &mut Self {
        let result = error.map_or(json!({"result": 1}), |error| json!({"error": "code", "message": error}));
        let id = format!("call_{index}");
        self.say(
            run,
            json!({"type": "tool_result_update", "tool_call_id": id, "call_index": index, "name": name,
            "is_error": error.is_some(), "result": result, "duration_ms": 40}),
        )
    }

    /// Ends a run as completed.
    pub(super) fn complete(&mut self, run: &str, result: Value) -> &mut Self {
        self.say(
            run,
            json!({"type": "run_finished", "ok": true, "outcome": "completed", "result": result,
            "stop_class": "natural"}),
        )
    }

    /// Ends a run in another way.
    pub(super) fn end(&mut self, run: &str, outcome: &str, error: &str) -> &mut Self {
        self.say(
            run,
            json!({"type": "run_finished", "ok": false, "outcome": outcome, "error": error,
            "stop_class": "error"}),
        )
    }

    pub(super) fn tree(&self) -> RunTree {
        RunTree::of(&self.messages)
    }

    pub(super) fn deliveries(&self) -> impl Iterator<Item = Delivery> {
        self.messages.iter().cloned().map(Delivery::Message)
    }

    /// The log as JSON Lines.
    pub(super) fn log(&self) -> String {
        self.messages.iter().map(|message| message.to_json() + "\n").collect()
    }

    /// The time of the next message.
    pub(super) fn now(&self) -> Timestamp {
        at(self.messages.len() as u64 * 100)
    }
}

/// A root that delegates to two children: one has settled, one works.
pub(super) fn two_children() -> Sample {
    let mut log = Sample::default();
    log.start("root", None, "find where cancellation is handled")
        .text("root", "I delegate ", false)
        .text("root", "twice.", true)
        .say(
            "root",
            json!({"type": "turn_finished", "turn": 1, "stop_reason": "tool_calls",
            "usage": {"input_tokens": 1200, "output_tokens": 340, "cost_usd": 0.0123, "model_calls": 1}}),
        )
        .call("root", 0, "run_search", json!({"query": "cancel"}))
        .call("root", 1, "run_search", json!({"query": "abort"}))
        .start("a", Some(("root", Some("call_0"))), "cancel")
        .start("b", Some(("root", Some("call_1"))), "abort")
        .call("a", 0, "grep", json!({"pattern": "cancel", "path": "src"}))
        .call("b", 0, "grep", json!({"pattern": "abort"}))
        .result("a", 0, "grep", None)
        .text("a", "found 3 places", true)
        .complete("a", json!("found 3 places"))
        .result("root", 0, "run_search", None)
        .text("b", "looking at\nthe second file", false);
    log
}

/// The same, to its end.
pub(super) fn whole() -> Sample {
    let mut log = two_children();
    log.result("b", 0, "grep", Some("no such pattern"))
        .text("b", "", true)
        .end("b", "failed", "nothing found")
        .result("root", 1, "run_search", Some("nothing found"))
        .text("root", "In src/cancel.rs.\nThat is all.", true)
        .complete("root", json!("In src/cancel.rs.\nThat is all."));
    log
}
