//! Logs for tests, written as a timeline: `root started; root call 0; a started by root 0; a text x; a done`.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::id::{RunId, Seq, ToolCallId};
use crate::message::*;
use crate::outcome::{CancelledBy, FailureKind, LimitKind, StopReason, SubAgentOutcome, Usage};

/// Three levels, parallel children, call ids that siblings reuse, a background child with a child of its own that
/// outlives its parent, and every kind of ending.
pub(super) const RICH: &str = r#"
    root started; root think Plan; root think .; root think-end
    root text Del; root text egating.; root end; root turn 10 5
    root call 0; root call 1; root log spawning
    a started by root 0; b started by root 1
    a text 1; b text 2; a text 3; b text 4; a end; b end; a turn 3 1; b turn 4 1
    a call 0 as call_0; b call 0 as call_0
    aa started by a 0 as call_0; ba started by b 0 as call_0
    aa text deep; ba queued; aa end; aa turn 2 2; aa done; ba text x; ba end; ba turn 1 1; ba failed
    b result 0 error; b failed; root result 1 error
    a result 0; a text two; a end; a turn 3 3; a done; root result 0
    root call 2; bg started by root 2 background; root result 2
    bg text busy; bg text .
    root call 3; c started by root 3; c call 0 as call_0; c retrying; c text half; c ask q1; c answered q1
    bg end; bg turn 5 5
    c result 0 error; c end; c cancelled; root result 3 error
    root call 4; d started by root 4; d unbuilt; root result 4 error
    root call 5; e started by root 5
    e call 0 as call_0; e-bg started by e 0 background as call_0; e result 0; e text e; e end; e turn 7 7; e stopped
    root result 5; root other brand_new
    e-bg text late; e-bg end; e-bg turn 1 2
    bg call 0 as call_0; bg call 1 as call_1; bg result 1; bg result 0; bg turn 1 0; bg done
    root todo; root step; root plan; root task; root error; root alert; e-bg done
    root text Done; root text .; root end; root turn 20 9; root done
"#;

/// The log of a timeline.
pub(super) fn log(timeline: &str) -> Vec<ProcessingMessage> {
    let mut writer = Writer::default();
    for statement in timeline.split([';', '\n']).map(str::trim).filter(|text| !text.is_empty()) {
        writer.write(statement);
    }
    writer.messages
}

/// The rich log.
pub(super) fn rich() -> Vec<ProcessingMessage> {
    log(RICH)
}

/// Numbers the messages as a bus would that got them in this order.
pub(super) fn renumbered(messages: impl IntoIterator<Item = ProcessingMessage>) -> Vec<ProcessingMessage> {
    let mut next: HashMap<RunId, Seq> = HashMap::new();
    let stamp = |(seq, message): (usize, ProcessingMessage)| {
        let nesting = message.nesting().unwrap().clone();
        let run_seq = next.entry(nesting.origin.run_id.clone()).or_default();
        let nesting = Nesting { seq: seq as Seq, run_seq: *run_seq, ..nesting };
        *run_seq += 1;
        message.stamped(nesting)
    };
    messages.into_iter().enumerate().map(stamp).collect()
}

/// The same message in another envelope.
pub(super) fn restamped(message: &ProcessingMessage, change: impl FnOnce(&mut Nesting)) -> ProcessingMessage {
    let mut nesting = message.nesting().unwrap().clone();
    change(&mut nesting);
    message.clone().stamped(nesting)
}

/// The same envelope around another body.
pub(super) fn with_body(message: &ProcessingMessage, body: impl Into<MessageBody>) -> ProcessingMessage {
    ProcessingMessage::new(body).stamped(message.nesting().unwrap().clone())
}

/// The run that says it.
pub(super) fn run_of(message: &ProcessingMessage) -> RunId {
    message.nesting().unwrap().origin.run_id.clone()
}

/// All text of each run, thinking apart, as a reader of the log sees it.
pub(super) fn texts(log: &[ProcessingMessage]) -> HashMap<(RunId, bool), String> {
    let mut texts: HashMap<(RunId, bool), String> = HashMap::new();
    for message in log {
        if let MessageBody::Chunk(chunk) = message.body() {
            texts.entry((run_of(message), chunk.thinking)).or_default().push_str(&chunk.content);
        }
    }
    texts
}

/// A piece of JSON as a map.
pub(super) fn map(value: &Value) -> Arc<Map<String, Value>> {
    Arc::new(value.as_object().unwrap().clone())
}

#[derive(Default)]
struct Writer {
    messages: Vec<ProcessingMessage>,
    runs: HashMap<String, Run>,
}

#[derive(Clone)]
struct Run {
    origin: Arc<Origin>,
    run_seq: Seq,
    own: Usage,
    descendants: Usage,
    turns: u64,
    calls: HashMap<u32, ToolCallId>,
}

impl Writer {
    fn write(&mut self, statement: &str) {
        let words: Vec<&str> = statement.split_whitespace().collect();
        let (name, verb, rest) = (words[0], words[1], &words[2..]);
        if verb == "started" {
            let parent = rest.first().filter(|word| **word == "by").map(|_| rest[1]);
            self.start(name, parent, rest);
        }
        let body = self.body(name, verb, rest);
        let run = self.runs.get_mut(name).unwrap_or_else(|| panic!("{statement}: no run {name}"));
        let seq = self.messages.len() as Seq;
        let time = Timestamp::from_micros(1_700_000_000_000_000 + seq * 1000);
        let nesting = Nesting { origin: Arc::clone(&run.origin), seq, run_seq: run.run_seq, time };
        run.run_seq += 1;
        if matches!(body, MessageBody::RunFinished(_)) {
            let own = run.own;
            let mut above = run.origin.parent_run_id.clone();
            while let Some(parent) = above {
                let parent = self.runs.get_mut(&parent.to_string()).unwrap();
                parent.descendants.add(&own);
                above = parent.origin.parent_run_id.clone();
            }
        }
        self.messages.push(ProcessingMessage::new(body).stamped(nesting));
    }

    fn start(&mut self, name: &str, parent: Option<&str>, rest: &[&str]) {
        let index = rest.get(2).and_then(|word| word.parse().ok());
        let above = parent.map(|parent| &self.runs[parent]);
        let known = || above.and_then(|run| run.calls.get(&index?).cloned());
        let origin = Origin {
            root_run_id: "root".into(),
            run_id: name.into(),
            parent_run_id: parent.map(RunId::from),
            parent_tool_call_id: label(rest)
                .or_else(known)
                .or_else(|| index.map(|index: u32| default_label(index))),
            subtask_depth: above.map_or(0, |run| run.origin.subtask_depth + 1),
        };
        let run = Run {
            origin: Arc::new(origin),
            run_seq: 0,
            own: Usage::default(),
            descendants: Usage::default(),
            turns: 0,
            calls: HashMap::new(),
        };
        self.runs.entry(name.to_owned()).or_insert(run);
    }

    fn body(&mut self, name: &str, verb: &str, rest: &[&str]) -> MessageBody {
        let run = self.runs.get_mut(name).unwrap_or_else(|| panic!("no run {name}"));
        let text = rest.join(" ");
        let number = |at: usize| rest[at].parse::<u64>().unwrap();
        let extra = Extra::default();
        match verb {
            "started" => started(name, rest.contains(&"background")),
            "text" => Chunk::text(text).into(),
            "whole" => Chunk { done: true, ..Chunk::text(text) }.into(),
            "think" => Chunk::thinking(text).into(),
            "end" => Chunk::end(false).into(),
            "think-end" => Chunk::end(true).into(),
            "call" => {
                let call_index = number(0) as u32;
                let tool_call_id = label(rest).unwrap_or_else(|| default_label(call_index));
                run.calls.insert(call_index, tool_call_id.clone());
                let args = map(&json!({ "n": call_index }));
                let name = "tool".into();
                ToolCallUpdate { tool_call_id, call_index, name, args, message: None, via: None, extra }
                    .into()
            }
            "result" => {
                let call_index = number(0) as u32;
                let known = run.calls.get(&call_index).cloned();
                ToolResultUpdate {
                    tool_call_id: known.unwrap_or_else(|| default_label(call_index)),
                    call_index,
                    name: "tool".into(),
                    is_error: rest.contains(&"error"),
                    result: map(&json!({"result": 1})),
                    duration_ms: 2,
                    message: None,
                    extra,
                }
                .into()
            }
            "turn" => {
                let usage = Usage { cost_usd: Some(0.1), ..Usage::of_call(number(0), number(1)) };
                run.own.add(&usage);
                run.turns += 1;
                TurnFinished { turn: run.turns, stop_reason: StopReason::EndTurn, usage, extra }.into()
            }
            "done" => run.end(SubAgentOutcome::completed("done")),
            "failed" => run.end(SubAgentOutcome::failed(FailureKind::Tool, "no")),
            "unbuilt" => run.end(SubAgentOutcome::failed(FailureKind::Construction, "no")),
            "cancelled" => {
                run.end(SubAgentOutcome::cancelled(CancelledBy::User).with_partial(Some(json!("half"))))
            }
            "stopped" => run.end(SubAgentOutcome::stopped_by(LimitKind::Turns, "no more")),
            "log" => MessageBody::log(name, Severity::Info, text),
            "queued" => Queued { waiting_for: "permit".into(), extra }.into(),
            "retrying" => Retrying { attempt: 2, delay_ms: 5, reason: "429".into(), extra }.into(),
            "error" => ErrorNotice { message: "hm".into(), severity: None, extra }.into(),
            "todo" => TodoUpdate { todos: vec![], extra }.into(),
            _ => foreign(verb, rest),
        }
    }
}

impl Run {
    fn end(&self, outcome: SubAgentOutcome) -> MessageBody {
        let counters = FinalCounters {
            usage: self.own,
            subtree_usage: self.own.plus(&self.descendants),
            turns: self.turns,
            tool_calls: self.calls.len() as u64,
            duration_ms: 3,
            late: 0,
        };
        RunFinished::new(outcome, counters).into()
    }
}

pub(super) fn started(name: &str, background: bool) -> MessageBody {
    RunStarted {
        agent: "agent".into(),
        title: name.into(),
        task: "do it".into(),
        scope: if background { Scope::Background } else { Scope::Foreground },
        producer: "script".into(),
        model: None,
        attempt: None,
        branch: None,
        timeout_ms: None,
        extra: Extra::default(),
    }
    .into()
}

/// Kinds that are easier to say in their wire form.
fn foreign(verb: &str, rest: &[&str]) -> MessageBody {
    let word = rest.first().copied().unwrap_or_default();
    let json = match verb {
        "ask" => {
            json!({"type":"ask","request_id":word,"kind":"permission","title":"t","deadline_ms":5})
        }
        "answered" => json!({"type":"ask_answered","request_id":word,"decision":"allow","by":"user"}),
        "step" => json!({"type":"step_result","step":{"id":"s"},"result":1}),
        "plan" => json!({"type":"planning_update","phase":"complete","status":"success"}),
        "task" => json!({"type":"task_update","event":"step_started","task":{"id":"t"}}),
        "alert" => json!({"type":"alert","from":"bg","kind":"completed","text":"t"}),
        "other" => json!({"type":word,"x":1}),
        "malformed" => json!({"type":word,"ok":"no"}),
        _ => panic!("unknown verb {verb}"),
    };
    ProcessingMessage::from_json(&json.to_string()).unwrap().into_body()
}

fn label(rest: &[&str]) -> Option<ToolCallId> {
    rest.iter().position(|word| *word == "as").map(|at| rest[at + 1].into())
}

fn default_label(index: u32) -> ToolCallId {
    ToolCallId::new(format!("call_{index}"))
}
