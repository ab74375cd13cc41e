//! One run as the fold sees it. Status is a pure function of the events.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::id::{Seq, ToolCallId};
use crate::message::{
    Chunk, MessageBody, Origin, RunFinished, RunStarted, Timestamp, ToolCallUpdate, ToolResultUpdate,
};
use crate::outcome::{OutcomeKind, Usage};

/// How much text of the open turn a node keeps, in bytes; what comes after is counted. Long enough for any answer that
/// a person reads live, short enough that a thousand runs that babble fit into 64 MiB.
const TEXT_CAP: usize = 64 * 1024;

/// How long a call's one-line summary is, in characters: one line of a terminal.
const SUMMARY_CHARS: usize = 100;

/// One run of the tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Where it stands.
    pub origin: Arc<Origin>,
    /// Its first message; none if the log does not have it.
    pub started: Option<Arc<RunStarted>>,
    /// Its last message, once it has settled.
    pub finished: Option<Arc<RunFinished>>,
    /// What it does now.
    pub status: Status,
    /// The text of its open or latest turn, up to a cap. Empty once it has settled: then the outcome has it.
    pub text: String,
    /// The same for thinking.
    pub thinking: String,
    /// Bytes of text and thinking beyond the cap.
    pub omitted_bytes: u64,
    /// Its tool calls, by index.
    pub calls: Vec<Call>,
    /// The latest log line or status text.
    pub note: Option<Arc<str>>,
    /// Questions that wait for an answer.
    pub open_asks: Vec<String>,
    /// What it used so far.
    pub usage: Usage,
    /// Model turns so far.
    pub turns: u64,
    /// When its first known message came.
    pub first_time: Timestamp,
    /// When its latest message came.
    pub last_time: Timestamp,
    /// The `run_seq` that comes next.
    pub next_run_seq: Seq,
    /// The call of the parent that spawned it.
    pub spawned_by: Option<u32>,
    pub(super) parent: Option<usize>,
    pub(super) children: Vec<usize>,
    /// Whether a message of its own has said where it stands.
    pub(super) placed: bool,
    text_state: TextState,
    thinking_state: TextState,
    /// Its open calls: label, whether a child has come of it, index.
    open: BTreeSet<(ToolCallId, bool, u32)>,
}

/// What the next piece does to a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextState {
    /// It is appended.
    Growing,
    /// It is counted: the text is at its cap.
    Full,
    /// It begins a new text.
    Closed,
}

/// What a run does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Another message names it, but it has said nothing yet.
    Unseen,
    /// It waits for its turn.
    Queued,
    /// It works, or waits for its children.
    Running,
    /// It waits before it repeats something that failed.
    Retrying,
    /// It waits for an answer of a person.
    Asking,
    /// It has settled.
    Settled(OutcomeKind),
}

impl Status {
    /// The status after a message. `asks` is how many questions are open after it.
    #[must_use]
    pub fn after(self, body: &MessageBody, asks: usize) -> Self {
        if let Self::Settled(kind) = self {
            return Self::Settled(kind);
        }
        match body {
            MessageBody::RunFinished(body) => Self::Settled(body.outcome),
            _ if asks > 0 => Self::Asking,
            MessageBody::Queued(_) => Self::Queued,
            MessageBody::Retrying(_) => Self::Retrying,
            MessageBody::Chunk(_)
            | MessageBody::RunStarted(_)
            | MessageBody::TaskUpdate(_)
            | MessageBody::StepResult(_)
            | MessageBody::ToolCallUpdate(_)
            | MessageBody::ToolResultUpdate(_)
            | MessageBody::TurnFinished(_)
            | MessageBody::PlanningUpdate(_)
            | MessageBody::LogUpdate(_)
            | MessageBody::TodoUpdate(_)
            | MessageBody::Ask(_)
            | MessageBody::AskAnswered(_)
            | MessageBody::Alert(_)
            | MessageBody::ErrorNotice(_)
            | MessageBody::Other(_) => Self::Running,
        }
    }

    /// The word for it on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unseen => "unseen",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Asking => "asking",
            Self::Settled(kind) => kind.as_str(),
        }
    }

    /// True once it has settled.
    #[must_use]
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Settled(_))
    }
}

/// One tool call of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Its key within the run.
    pub index: u32,
    /// The provider's label.
    pub id: ToolCallId,
    /// The tool.
    pub name: Arc<str>,
    /// The arguments on one line, cut; or the status text that came with the call.
    pub summary: String,
    /// Open, or how it ended.
    pub state: CallState,
}

/// Whether a call has its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallState {
    /// Not yet.
    Open,
    /// It has.
    Done {
        /// Whether it failed.
        is_error: bool,
        /// How long it took.
        duration_ms: u64,
    },
}

impl Node {
    pub(super) fn new(origin: Arc<Origin>, time: Timestamp) -> Self {
        Self {
            origin,
            started: None,
            finished: None,
            status: Status::Unseen,
            text: String::new(),
            thinking: String::new(),
            omitted_bytes: 0,
            calls: Vec::new(),
            note: None,
            open_asks: Vec::new(),
            usage: Usage::default(),
            turns: 0,
            first_time: time,
            last_time: time,
            next_run_seq: 0,
            spawned_by: None,
            parent: None,
            children: Vec::new(),
            placed: false,
            text_state: TextState::Growing,
            thinking_state: TextState::Growing,
            open: BTreeSet::new(),
        }
    }

    /// The title, or what stands in for it.
    #[must_use]
    pub fn title(&self) -> &str {
        self.started.as_ref().map_or("(start not in the log)", |started| &started.title)
    }

    /// The agent's name, empty if the log does not have it.
    #[must_use]
    pub fn agent(&self) -> &str {
        self.started.as_ref().map_or("", |started| &started.agent)
    }

    /// Calls that have no result yet.
    pub fn open_calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| call.state == CallState::Open)
    }

    /// Applies one body. Returns false if it came after the end and was left out.
    pub(super) fn apply(&mut self, body: &MessageBody, time: Timestamp) -> bool {
        if self.status.is_settled() {
            return false;
        }
        match body {
            MessageBody::Chunk(chunk) => self.push_text(chunk),
            MessageBody::RunStarted(body) => {
                if self.started.is_none() {
                    self.started = Some(Arc::clone(body));
                    self.first_time = time;
                }
            }
            MessageBody::RunFinished(body) => self.settle(body),
            MessageBody::ToolCallUpdate(body) => self.open_call(body),
            MessageBody::ToolResultUpdate(body) => self.close_call(body),
            MessageBody::TurnFinished(body) => {
                self.turns += 1;
                self.usage.add(&body.usage);
                // Also where its producer did not close the text: what comes next belongs to another turn.
                (self.text_state, self.thinking_state) = (TextState::Closed, TextState::Closed);
            }
            MessageBody::LogUpdate(body) => self.note = Some(first_line(&body.content)),
            MessageBody::Alert(body) => self.note = Some(first_line(&body.text)),
            MessageBody::ErrorNotice(body) => self.note = Some(first_line(&body.message)),
            MessageBody::Retrying(body) => self.note = Some(first_line(&body.reason)),
            MessageBody::Ask(body) => self.open_asks.push(body.request_id.clone()),
            MessageBody::AskAnswered(body) => self.open_asks.retain(|ask| *ask != body.request_id),
            MessageBody::TaskUpdate(_)
            | MessageBody::StepResult(_)
            | MessageBody::PlanningUpdate(_)
            | MessageBody::TodoUpdate(_)
            | MessageBody::Queued(_)
            | MessageBody::Other(_) => {}
        }
        self.status = self.status.after(body, self.open_asks.len());
        self.last_time = time;
        true
    }

    fn push_text(&mut self, chunk: &Chunk) {
        let (text, state) = if chunk.thinking {
            (&mut self.thinking, &mut self.thinking_state)
        } else {
            (&mut self.text, &mut self.text_state)
        };
        if *state == TextState::Closed {
            text.clear();
            *state = TextState::Growing;
        }
        let room = TEXT_CAP.saturating_sub(text.len());
        if *state == TextState::Growing && chunk.content.len() <= room {
            text.push_str(&chunk.content);
        } else {
            // Once a piece is left out, no later one may follow, however short: the text would skip something.
            let kept = if *state == TextState::Growing { chunk.content.floor_char_boundary(room) } else { 0 };
            text.push_str(chunk.content.get(..kept).unwrap_or_default());
            self.omitted_bytes += (chunk.content.len() - kept) as u64;
            *state = TextState::Full;
        }
        if chunk.done {
            *state = TextState::Closed;
        }
    }

    /// Where a call is, or would be: they stand in the order of their indices, and most come last.
    fn call_position(&self, index: u32) -> Result<usize, usize> {
        match self.calls.last() {
            Some(last) if last.index >= index => self.calls.binary_search_by_key(&index, |call| call.index),
            _ => Err(self.calls.len()),
        }
    }

    fn open_call(&mut self, body: &ToolCallUpdate) {
        let summary = || cut(&body.message.clone().unwrap_or_else(|| summarize(&body.args)), SUMMARY_CHARS);
        match self.call_position(body.call_index) {
            // A second update of one call is its status text, or its arguments when they are complete.
            Ok(at) => {
                let silent = body.message.is_none() && body.args.is_empty();
                if let Some(call) = self.calls.get_mut(at)
                    && (call.state == CallState::Open && !silent || call.summary.is_empty())
                {
                    call.summary = summary();
                }
            }
            Err(at) => {
                let id = body.tool_call_id.clone();
                self.open.insert((id.clone(), false, body.call_index));
                let (index, name) = (body.call_index, Arc::clone(&body.name));
                self.calls.insert(at, Call { index, id, name, summary: summary(), state: CallState::Open });
            }
        }
    }

    fn close_call(&mut self, body: &ToolResultUpdate) {
        let state = CallState::Done { is_error: body.is_error, duration_ms: body.duration_ms };
        match self.call_position(body.call_index) {
            Ok(at) => {
                if let Some(call) = self.calls.get_mut(at)
                    && call.state == CallState::Open
                {
                    call.state = state;
                    for claimed in [false, true] {
                        self.open.remove(&(call.id.clone(), claimed, call.index));
                    }
                }
            }
            // The call was announced in a part of the log that is not there.
            Err(at) => {
                let (index, id, name) = (body.call_index, body.tool_call_id.clone(), Arc::clone(&body.name));
                self.calls.insert(at, Call { index, id, name, summary: String::new(), state });
            }
        }
    }

    /// The call that a new child with this label comes from: the first open one that has no child yet, since providers
    /// reuse labels; else the first open one, since a call may have many children.
    pub(super) fn claim(&mut self, label: &ToolCallId) -> Option<u32> {
        let first = self.open.range((label.clone(), false, 0)..).next()?;
        let (id, _, index) = first.clone();
        if id != *label {
            return None;
        }
        self.open.remove(&(id.clone(), false, index));
        self.open.insert((id, true, index));
        Some(index)
    }

    fn settle(&mut self, body: &Arc<RunFinished>) {
        self.finished = Some(Arc::clone(body));
        if let Some(usage) = &body.usage {
            self.usage = *usage;
        }
        // A settled run holds its outcome and what its calls were; text would fill the memory of a long tree.
        self.text = String::new();
        self.thinking = String::new();
        self.open_asks = Vec::new();
        self.open = BTreeSet::new();
        self.calls.shrink_to_fit();
        self.children.shrink_to_fit();
    }
}

fn first_line(text: &str) -> Arc<str> {
    cut(text.lines().next().unwrap_or_default(), SUMMARY_CHARS).into()
}

/// The arguments as a person would say them: `pattern="x" path="src"`.
fn summarize(args: &Map<String, Value>) -> String {
    let mut line = String::new();
    for (key, value) in args {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(key);
        line.push('=');
        match value {
            Value::String(text) => line.push_str(&format!("{:?}", cut(text, 60))),
            Value::Array(items) => line.push_str(&format!("[{} items]", items.len())),
            Value::Object(map) => line.push_str(&format!("{{{} keys}}", map.len())),
            Value::Null | Value::Bool(_) | Value::Number(_) => line.push_str(&value.to_string()),
        }
        if line.len() > 4 * SUMMARY_CHARS {
            break;
        }
    }
    line
}

/// At most `max` characters, with an ellipsis where it was cut.
pub(crate) fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
    }
}
