//! The decisions of the tool loop, without any waiting.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::answer::{Answer, read_answer};
use super::images;
use super::turn::{RawCall, Turn};
use crate::id::ToolCallId;
use crate::message::cap_text;
use crate::model::{ChatMessage, ModelError, ToolRequest};
use crate::outcome::{FailureKind, LimitKind, StopClass, StopReason, SubAgentOutcome};
use crate::tool::{MAX_NAME, Schema, ToolReply, is_tool_name, take_message};

/// The longest label of a call that is kept, in bytes: several times those of the providers.
const MAX_ID: usize = 256;

/// What a structured run without a value is told.
const REMINDER: &str = "The task is not done before you answer with a JSON value that satisfies the required schema. Answer with that JSON value alone, without any other text.";

/// What the driver has to do next. Exhaustive on purpose: a driver that leaves one out hangs.
#[derive(Debug)]
pub enum Action {
    /// Ask the model, with [`Machine::history`].
    CallModel,
    /// Announce these calls, then run them at the same time, and bring their results in this order.
    RunCalls(Vec<PlannedCall>),
    /// Wait, visibly, then ask the model again.
    BackOff {
        /// The attempt that comes, from 2.
        attempt: u32,
        /// The provider's wish, or the bound of a random delay.
        delay: Delay,
        /// Why, for people.
        reason: String,
    },
    /// The run is over.
    Finish(SubAgentOutcome),
}

/// How long to wait before a repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delay {
    /// At least as long as the provider asked.
    Asked(Duration),
    /// Anything from nothing to this (full jitter).
    UpTo(Duration),
}

/// A call that is to be made: its id is unique in the conversation.
#[derive(Debug, Clone)]
pub struct PlannedCall {
    /// The label.
    pub id: ToolCallId,
    /// The tool.
    pub name: Arc<str>,
    /// What is announced, and what the history says: always an object.
    pub announced: Arc<Map<String, Value>>,
    /// Status text that the model wrote.
    pub message: Option<String>,
    /// The arguments, or what the model reads instead of a result because they are not usable.
    pub args: Result<Map<String, Value>, ToolReply>,
}

/// The bounds of a loop.
#[derive(Debug, Clone)]
pub struct LoopConfig {
    /// Model turns, where neither the job nor the limits of the run say how many. Default 20, as in the original core.
    pub max_turns: u64,
    /// Tool calls of this loop: of a turn that would need more none is made, and the run is stopped. Default: no bound but the run's.
    pub max_calls: Option<u64>,
    /// How often a model call is tried that fails before it says anything. Default 3.
    pub max_attempts: u32,
    /// The bound of the first delay; it doubles with each attempt. Default 500 ms.
    pub first_delay: Duration,
    /// How often a structured run that ends without a value is reminded. Default 2, as in the original core.
    pub max_nudges: u32,
    /// With one, the result is a value that satisfies it.
    pub schema: Option<Schema>,
    /// Tools whose first successful result is the run's result.
    pub stop_on: Vec<String>,
    /// The names of the tools that the model is offered, of those that the run has: the others are called by those. None: all.
    pub direct: Option<Vec<String>>,
    /// What a structured run reads that ended a turn without a value. Default: to answer with the JSON value alone.
    pub reminder: Arc<str>,
}

impl Default for LoopConfig {
    fn default() -> Self {
        Self {
            max_turns: 20,
            max_calls: None,
            max_attempts: 3,
            first_delay: Duration::from_millis(500),
            max_nudges: 2,
            schema: None,
            stop_on: Vec::new(),
            direct: None,
            reminder: REMINDER.into(),
        }
    }
}

/// The state of one run's loop.
#[derive(Debug)]
pub struct Machine {
    config: LoopConfig,
    history: Arc<Vec<ChatMessage>>,
    used_ids: HashSet<ToolCallId>,
    pending: Vec<(ToolCallId, Arc<str>)>,
    /// Set when the turn that made the pending calls was cut: they get their results, and then the run ends.
    cut: Option<SubAgentOutcome>,
    /// The latest text that was not blank.
    last_text: String,
    turns: u64,
    calls: u64,
    attempt: u32,
    nudges: u32,
    repaired: bool,
}

impl Machine {
    /// The loop on one brief.
    #[must_use]
    pub fn new(instructions: &str, config: LoopConfig) -> Self {
        Self {
            config,
            history: Arc::new(vec![ChatMessage::User { text: instructions.to_owned() }]),
            used_ids: HashSet::new(),
            pending: Vec::new(),
            cut: None,
            last_text: String::new(),
            turns: 0,
            calls: 0,
            attempt: 1,
            nudges: 0,
            repaired: false,
        }
    }

    /// The conversation: every call in it has one result, except those that run now.
    #[must_use]
    pub fn history(&self) -> &Arc<Vec<ChatMessage>> {
        &self.history
    }

    /// Turns that have ended.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Which attempt of the turn comes or is under way, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The first thing to do.
    pub fn start(&mut self) -> Action {
        self.call_model()
    }

    fn call_model(&mut self) -> Action {
        if self.turns >= self.config.max_turns {
            let text = format!(
                "the limit of {} model turns was reached before there was an answer",
                self.config.max_turns
            );
            return self.stop(LimitKind::Turns, text);
        }
        Action::CallModel
    }

    /// A limit outside the loop is used up: nothing new begins.
    pub fn exhausted(&mut self, limit: LimitKind) -> Action {
        self.stop(limit, format!("the limit on {} is used up", limit.as_str().replace('_', " ")))
    }

    fn stop(&mut self, limit: LimitKind, message: String) -> Action {
        let outcome = SubAgentOutcome::stopped_by(limit, message).with_partial(self.partial());
        Action::Finish(outcome)
    }

    fn partial(&self) -> Option<Value> {
        (!self.last_text.is_empty()).then(|| json!(self.last_text))
    }

    fn fail(&self, kind: FailureKind, message: String) -> Action {
        Action::Finish(SubAgentOutcome::failed(kind, message).with_partial(self.partial()))
    }

    /// The model's turn has ended.
    pub fn turn_ended(&mut self, turn: Turn) -> Action {
        self.turns += 1;
        self.attempt = 1;
        if !turn.text.trim().is_empty() {
            self.last_text.clone_from(&turn.text);
        }
        let has_calls = !turn.calls.is_empty();
        match turn.stop_reason.unwrap_or(StopReason::Missing) {
            StopReason::EndTurn | StopReason::ToolCalls if has_calls => self.plan(turn, None),
            StopReason::EndTurn | StopReason::ToolCalls => self.final_turn(turn),
            StopReason::Length if has_calls => self.plan(turn, Some("length")),
            StopReason::Length => {
                let outcome = SubAgentOutcome::Stopped {
                    stop_class: StopClass::Truncated,
                    limit: Some(LimitKind::Output),
                    message: "the answer reached the output limit of a turn".to_owned(),
                    partial: self.partial(),
                };
                Action::Finish(outcome)
            }
            StopReason::Missing => {
                let outcome = SubAgentOutcome::Stopped {
                    stop_class: StopClass::Truncated,
                    limit: None,
                    message: "the model's answer ended without a stop reason: it was cut off".to_owned(),
                    partial: self.partial(),
                };
                if !has_calls {
                    return Action::Finish(outcome);
                }
                self.cut = Some(outcome);
                self.plan(turn, Some("missing"))
            }
            StopReason::ContentFilter => {
                self.fail(FailureKind::Provider, "the provider withheld the rest of the answer".to_owned())
            }
            StopReason::Error => {
                self.fail(FailureKind::Provider, "the provider ended the turn with an error".to_owned())
            }
        }
    }

    /// The model call failed. `has_content` says whether anything of the turn was seen already: then it is not repeated.
    pub fn turn_failed(&mut self, error: &ModelError, has_content: bool, text: &str) -> Action {
        if !text.trim().is_empty() {
            text.clone_into(&mut self.last_text);
        }
        if has_content || !error.kind.is_retryable() || self.attempt >= self.config.max_attempts {
            return self
                .fail(FailureKind::Provider, format!("the model call failed ({}): {error}", error.kind));
        }
        let doubled = 1_u32.checked_shl(self.attempt - 1).unwrap_or(u32::MAX);
        let bound = self.config.first_delay.saturating_mul(doubled);
        self.attempt += 1;
        let delay = error.retry_after.map_or(Delay::UpTo(bound), Delay::Asked);
        Action::BackOff { attempt: self.attempt, delay, reason: format!("{}: {error}", error.kind) }
    }

    /// The wait is over.
    pub fn backed_off(&mut self) -> Action {
        self.call_model()
    }

    fn plan(&mut self, turn: Turn, cut: Option<&str>) -> Action {
        self.calls = self.calls.saturating_add(turn.calls.len() as u64);
        if let Some(max) = self.config.max_calls.filter(|max| self.calls > *max) {
            return self.stop(
                LimitKind::ToolCalls,
                format!("the limit of {max} tool calls was reached before there was an answer"),
            );
        }
        let last = turn.calls.len().saturating_sub(1);
        let mut planned = Vec::with_capacity(turn.calls.len());
        for (place, call) in turn.calls.iter().enumerate() {
            // Only the last call can be cut by the output limit; where the stream broke off, none is known to be whole.
            let is_cut = cut.is_some_and(|reason| reason == "missing" || place == last);
            planned.push(self.plan_call(call, is_cut));
        }
        let requests = planned.iter().map(|call| ToolRequest {
            id: call.id.clone(),
            name: sendable_name(&call.name),
            arguments: Value::Object(Map::clone(&call.announced)),
        });
        let message = ChatMessage::Assistant { text: turn.text, tool_calls: requests.collect() };
        self.pending = planned.iter().map(|call| (call.id.clone(), Arc::clone(&call.name))).collect();
        Arc::make_mut(&mut self.history).push(message);
        Action::RunCalls(planned)
    }

    fn plan_call(&mut self, call: &RawCall, is_cut: bool) -> PlannedCall {
        // A label that no provider sends, for its length, is none.
        let label = if call.id.len() <= MAX_ID { call.id.as_str() } else { "" };
        let mut id = ToolCallId::new(label);
        let mut number = self.used_ids.len();
        while id.as_str().is_empty() || !self.used_ids.insert(id.clone()) {
            let base = if label.is_empty() { "call" } else { label };
            id = ToolCallId::new(format!("{base}_{number}"));
            number += 1;
        }
        let mut args = if is_cut { Err(cut_arguments(call)) } else { parse_raw(&call.arguments) };
        let message = args.as_mut().ok().and_then(take_message);
        let announced = Arc::new(args.as_ref().cloned().unwrap_or_default());
        let name = match call.name.as_str() {
            "" => "(no name)".into(),
            name => cap_text(name, MAX_NAME).into(),
        };
        PlannedCall { id, name, announced, message, args }
    }

    /// The calls have ended, with these results in their order.
    pub fn calls_ended(&mut self, results: Vec<ToolReply>) -> Action {
        let mut result_of_run = None;
        let has_images = results.iter().any(|reply| !reply.images.is_empty());
        let history = Arc::make_mut(&mut self.history);
        for ((id, name), reply) in self.pending.drain(..).zip(results) {
            let is_error = reply.is_error;
            history.push(ChatMessage::ToolResult {
                id,
                name: sendable_name(&name),
                content: reply.model_text(),
                images: reply.images,
                is_error,
            });
            if !is_error && result_of_run.is_none() {
                let stops = self.config.stop_on.iter().any(|stop| **stop == *name);
                result_of_run =
                    reply.finishes_with.map(|result| *result).or_else(|| stops.then_some(reply.for_model));
            }
        }
        if has_images {
            images::shed(history);
        }
        if let Some(outcome) = self.cut.take() {
            return Action::Finish(outcome);
        }
        match result_of_run {
            Some(result) => Action::Finish(SubAgentOutcome::completed(result)),
            None => self.call_model(),
        }
    }

    fn final_turn(&mut self, turn: Turn) -> Action {
        let Some(schema) = self.config.schema.clone() else {
            // An empty last turn means: what was said before the calls was the answer.
            if self.last_text.is_empty() {
                return self.fail(FailureKind::Empty, "the answer was blank".to_owned());
            }
            let text = if turn.text.trim().is_empty() { self.last_text.clone() } else { turn.text };
            return Action::Finish(SubAgentOutcome::completed(text));
        };
        match read_answer(&turn.text, &schema) {
            Answer::Valid(value) => Action::Finish(SubAgentOutcome::completed(value)),
            Answer::Violates(violations) => {
                let violations = violations.join("; ");
                if std::mem::replace(&mut self.repaired, true) {
                    return self.fail(
                        FailureKind::Schema,
                        format!("the result does not satisfy the schema: {violations}"),
                    );
                }
                self.again(turn, format!(
                    "Your answer does not satisfy the required JSON schema: {violations}. Answer again with the corrected JSON value alone."
                ))
            }
            Answer::NotJson if self.nudges < self.config.max_nudges => {
                self.nudges += 1;
                let reminder = self.config.reminder.to_string();
                self.again(turn, reminder)
            }
            Answer::NotJson if self.last_text.is_empty() => {
                self.fail(FailureKind::Empty, "the answer was blank".to_owned())
            }
            Answer::NotJson => self.fail(
                FailureKind::Schema,
                format!("no JSON value in the answer, after {} reminders", self.nudges),
            ),
        }
    }

    fn again(&mut self, turn: Turn, reminder: String) -> Action {
        let history = Arc::make_mut(&mut self.history);
        // An assistant message without text and calls is none: some providers refuse it.
        if !turn.text.trim().is_empty() {
            history.push(ChatMessage::Assistant { text: turn.text, tool_calls: Vec::new() });
        }
        history.push(ChatMessage::User { text: reminder });
        self.call_model()
    }
}

/// The name as a history may say it: a model can call anything anything, but no provider takes a history with a name that is
/// none. What runs goes by the name as it was called, so this makes no tool of what was none.
fn sendable_name(name: &Arc<str>) -> Arc<str> {
    if is_tool_name(name) {
        return Arc::clone(name);
    }
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    let name: String = name.chars().take(MAX_NAME).map(plain).collect();
    if name.is_empty() { "unknown".into() } else { name.into() }
}

/// Reads raw arguments: nothing and null are no arguments; what is no object is told to the model.
fn parse_raw(raw: &str) -> Result<Map<String, Value>, ToolReply> {
    if raw.trim().is_empty() {
        return Ok(Map::new());
    }
    let refuse = |problem: String| {
        let shown = cap_text(raw, 200);
        let message = format!("The arguments are {problem}: {shown}. Call again with a JSON object.");
        ToolReply::error("invalid_tool_arguments", message)
    };
    match serde_json::from_str(raw) {
        Ok(Value::Object(args)) => Ok(args),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err(refuse("no JSON object".to_owned())),
        Err(error) => Err(refuse(format!("not valid JSON ({error})"))),
    }
}

fn cut_arguments(call: &RawCall) -> ToolReply {
    let bytes = call.arguments.len();
    let text = format!(
        "The call was cut off: its arguments were truncated at {bytes} bytes, so it was not made. Call again, with shorter arguments."
    );
    ToolReply::error("truncated", text)
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
