//! What one run has open: the part of its story that has to be closed before its terminal.
//!
//! The pipe holds a live run to it, the verifier a finished log, and compaction a log that was cut.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::id::ToolCallId;
use crate::message::{AskAnswered, Chunk, Extra, MessageBody, Timestamp, ToolResultUpdate};
use crate::outcome::Usage;

/// What one run has open, and its counters.
#[derive(Debug, Default)]
pub(crate) struct RunWatch {
    /// By index, which is the order in which they were announced.
    open_calls: BTreeMap<u32, OpenCall>,
    /// How many open calls have a label: a run with a hundred thousand open calls must not search them one by one.
    open_labels: BTreeMap<ToolCallId, u32>,
    next_call_index: u32,
    text_open: bool,
    thinking_open: bool,
    /// In the order in which they were asked.
    open_asks: Vec<String>,
    pub(crate) turns: u64,
    pub(crate) tool_calls: u64,
    /// What the finished turns used.
    pub(crate) usage: Usage,
}

#[derive(Debug)]
struct OpenCall {
    id: ToolCallId,
    name: Arc<str>,
    since: Timestamp,
}

/// Why a message does not fit into a run's story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// A second result for a call, or one for a call that was never announced.
    ResultWithoutCall,
    /// A call under the index of an earlier one.
    CallIndexReused,
}

impl RunWatch {
    /// Notes a message. One that does not fit changes nothing.
    #[inline]
    pub(crate) fn observe(&mut self, body: &MessageBody, time: Timestamp) -> Result<(), Misfit> {
        match body {
            MessageBody::Chunk(chunk) => {
                let open = if chunk.thinking { &mut self.thinking_open } else { &mut self.text_open };
                *open = !chunk.done;
            }
            MessageBody::ToolCallUpdate(call) => {
                if call.call_index < self.next_call_index {
                    let still_open = self.open_calls.contains_key(&call.call_index);
                    return if still_open { Ok(()) } else { Err(Misfit::CallIndexReused) };
                }
                self.next_call_index = call.call_index.saturating_add(1);
                self.tool_calls += 1;
                let (id, name) = (call.tool_call_id.clone(), Arc::clone(&call.name));
                *self.open_labels.entry(id.clone()).or_default() += 1;
                self.open_calls.insert(call.call_index, OpenCall { id, name, since: time });
            }
            MessageBody::ToolResultUpdate(result) => {
                let call = self.open_calls.remove(&result.call_index).ok_or(Misfit::ResultWithoutCall)?;
                if let Some(count) = self.open_labels.get_mut(&call.id) {
                    *count -= 1;
                    if *count == 0 {
                        self.open_labels.remove(&call.id);
                    }
                }
            }
            MessageBody::TurnFinished(turn) => {
                self.turns += 1;
                self.usage.add(&turn.usage);
            }
            MessageBody::Ask(ask) => self.open_asks.push(ask.request_id.clone()),
            MessageBody::AskAnswered(answer) => self.open_asks.retain(|open| *open != answer.request_id),
            MessageBody::RunStarted(_)
            | MessageBody::RunFinished(_)
            | MessageBody::TaskUpdate(_)
            | MessageBody::StepResult(_)
            | MessageBody::PlanningUpdate(_)
            | MessageBody::LogUpdate(_)
            | MessageBody::TodoUpdate(_)
            | MessageBody::Retrying(_)
            | MessageBody::Queued(_)
            | MessageBody::Alert(_)
            | MessageBody::ErrorNotice(_)
            | MessageBody::Other(_) => {}
        }
        Ok(())
    }

    /// The messages that close what is open: answers to open asks, results for open calls in their order, then the ends of open texts.
    pub(crate) fn close(&mut self, code: &str, message: &str, now: Timestamp) -> Vec<MessageBody> {
        let mut closing: Vec<MessageBody> = Vec::new();
        for request_id in std::mem::take(&mut self.open_asks) {
            closing.push(unanswered(request_id));
        }
        self.open_labels.clear();
        for (index, call) in std::mem::take(&mut self.open_calls) {
            let result =
                Map::from_iter([("error".to_owned(), json!(code)), ("message".to_owned(), json!(message))]);
            closing.push(result_update(index, call.id, call.name, true, result, call.since, now));
        }
        if std::mem::take(&mut self.thinking_open) {
            closing.push(Chunk::end(true).into());
        }
        if std::mem::take(&mut self.text_open) {
            closing.push(Chunk::end(false).into());
        }
        closing
    }

    /// The calls that have no result yet, with their labels.
    pub(crate) fn open_calls(&self) -> impl Iterator<Item = (u32, &ToolCallId)> {
        self.open_calls.iter().map(|(index, call)| (*index, &call.id))
    }

    /// Label and tool of an open call.
    pub(super) fn open_call(&self, index: u32) -> Option<(&ToolCallId, &str)> {
        self.open_calls.get(&index).map(|call| (&call.id, &*call.name))
    }

    /// Whether a call with this label has no result yet.
    pub(super) fn has_open_label(&self, label: &ToolCallId) -> bool {
        self.open_labels.contains_key(label)
    }

    /// Whether a text or thinking group has no end yet.
    pub(crate) fn has_open_text(&self) -> bool {
        self.text_open || self.thinking_open
    }
}

/// What an ask comes to whose run ends.
fn unanswered(request_id: String) -> MessageBody {
    AskAnswered {
        request_id,
        decision: "deny".to_owned(),
        by: "run_ended".to_owned(),
        text: None,
        args: None,
        extra: Extra::default(),
    }
    .into()
}

fn result_update(
    call_index: u32,
    tool_call_id: ToolCallId,
    name: Arc<str>,
    is_error: bool,
    result: Map<String, Value>,
    since: Timestamp,
    now: Timestamp,
) -> MessageBody {
    let duration_ms = now.millis_since(since);
    let result = Arc::new(result);
    ToolResultUpdate {
        tool_call_id,
        call_index,
        name,
        is_error,
        result,
        duration_ms,
        message: None,
        extra: Extra::default(),
    }
    .into()
}
