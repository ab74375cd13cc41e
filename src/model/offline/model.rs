//! The model: reads the conversation, lets a role decide, and plays the turn.

use std::sync::Arc;

use futures::{StreamExt, future, stream};
use serde_json::Value;

use super::{answer, delegate, inputs, planner, root, searcher, terms};
use crate::model::{
    ChatEvent, ChatMessage, ChatModel, ChatRequest, ChatStream, StopReason, ToolChoice, ToolRequest, ToolSpec,
};
use crate::outcome::Usage;

/// The tool that delegates a search.
pub(super) const RUN_SEARCH: &str = "run_search";

/// A model without a language model: it answers questions about a source tree by keyword search.
///
/// Deterministic, stateless, offline. It needs `grep`, better with `read_file`, best with `run_search`.
#[derive(Debug, Clone, Copy, Default)]
pub struct OfflineModel {
    _private: (),
}

impl OfflineModel {
    /// The model. All of them are equal.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl ChatModel for OfflineModel {
    fn name(&self) -> &'static str {
        "offline"
    }

    fn chat(&self, request: ChatRequest) -> ChatStream {
        // Lazy: the work is done by the first poll, and the request is dropped with it.
        let events = future::lazy(move |_| stream::iter(events(&request).into_iter().map(Ok)));
        stream::once(events).flatten().boxed()
    }
}

fn events(request: &ChatRequest) -> Vec<ChatEvent> {
    let turn = decide(request);
    let mut events: Vec<ChatEvent> = turn.text.into_iter().map(|text| ChatEvent::Text(text.into())).collect();
    let stop_reason = if turn.calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolCalls };
    for ((name, arguments), index) in turn.calls.into_iter().zip(0..) {
        events.push(ChatEvent::ToolCallStart { index, id: format!("call_{}_{index}", request.call), name });
        events.push(ChatEvent::ToolCallArgs { index, delta: arguments.to_string() });
    }
    events.push(ChatEvent::End { stop_reason, usage: Some(Usage::of_call(0, 0)) });
    events
}

fn decide(request: &ChatRequest) -> Turn {
    let conversation = Conversation::new(request);
    // Only what a person asks for: an agent that is asked for its own name would ask itself.
    if request.run.depth == 0
        && let Some(turn) = delegate::next(&conversation, request.system.as_deref())
    {
        return turn;
    }
    delegate::reported(work(request, &conversation), &conversation)
}

fn work(request: &ChatRequest, conversation: &Conversation<'_>) -> Turn {
    if let Some(turn) = planner::next(conversation) {
        return turn;
    }
    if request.output_schema.is_some() {
        return Turn::say(answer::no_schema());
    }
    if let Some(answer) = inputs::answer(conversation.task) {
        return Turn::say(answer);
    }
    if conversation.offers(RUN_SEARCH) {
        return root::next(conversation);
    }
    if !conversation.offers("grep") {
        return Turn::say(answer::no_tools());
    }
    // A search that was delegated reports to the run that did; any other run answers a person.
    if let Some(query) = query(conversation.task) {
        let terms = terms::of_query(query);
        return match searcher::next(conversation, &terms) {
            searcher::Search::Go(turn) => turn,
            searcher::Search::Done(report) => {
                Turn::say(report.write().split_inclusive('\n').map(str::to_owned))
            }
        };
    }
    root::search_alone(conversation, &terms::of_task(conversation.task), Vec::new())
}

/// The query of a delegated search: what stands between the first `<query>` and the last `</query>`, so that a
/// query that has such a tag in it stays whole.
pub(super) fn query(prompt: &str) -> Option<&str> {
    tagged(prompt, "<query>", "</query>")
}

/// What stands between the first `open` and the last `close`.
pub(super) fn tagged<'a>(prompt: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let (_, rest) = prompt.split_once(open)?;
    let (inside, _) = rest.rsplit_once(close)?;
    Some(inside.trim())
}

/// What to say and which tools to call.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Pieces, each one delta.
    pub(super) text: Vec<String>,
    /// Tool and arguments.
    pub(super) calls: Vec<(String, Value)>,
}

impl Turn {
    /// A turn that calls nothing.
    pub(super) fn say(text: impl IntoIterator<Item = String>) -> Self {
        Self { text: text.into_iter().collect(), calls: Vec::new() }
    }
}

/// A request, as the roles look at it.
#[derive(Debug)]
pub(super) struct Conversation<'a> {
    /// The task.
    pub(super) task: &'a str,
    /// What came after the task.
    after: &'a [ChatMessage],
    tools: &'a [Arc<ToolSpec>],
    may_call: bool,
}

/// A call that has its result.
#[derive(Debug)]
pub(super) struct Answered<'a> {
    pub(super) arguments: &'a Value,
    pub(super) content: &'a str,
    pub(super) is_error: bool,
}

impl<'a> Conversation<'a> {
    pub(super) fn new(request: &'a ChatRequest) -> Self {
        let prompt = request.run.prompt.trim();
        let user = |message: &'a ChatMessage| match message {
            ChatMessage::User { text } => Some(text.as_str()),
            ChatMessage::Assistant { .. } | ChatMessage::ToolResult { .. } => None,
        };
        let messages = request.messages.as_slice();
        // The message with the run's instructions, if there is one: a later message may only urge the run on.
        let is_task = |message: &ChatMessage| matches!(message, ChatMessage::User { text } if !prompt.is_empty() && text.contains(prompt));
        let at = messages
            .iter()
            .rposition(is_task)
            .or_else(|| messages.iter().rposition(|message| matches!(message, ChatMessage::User { .. })));
        let (task, after) = match at.and_then(|at| messages.split_at_checked(at)) {
            Some((_, [task, after @ ..])) => (user(task).unwrap_or_default(), after),
            _ => (prompt, messages),
        };
        Self { task, after, tools: &request.tools, may_call: request.tool_choice != ToolChoice::None }
    }

    fn spec(&self, tool: &str) -> Option<&'a ToolSpec> {
        self.tools.iter().find(|spec| spec.name == tool).map(Arc::as_ref)
    }

    /// Whether the tool is on offer.
    pub(super) fn offers(&self, tool: &str) -> bool {
        self.spec(tool).is_some()
    }

    /// Whether the tool is on offer and calls are allowed in this turn.
    pub(super) fn may_call(&self, tool: &str) -> bool {
        self.may_call && self.offers(tool)
    }

    /// The answered calls of a tool, in the order of the calls.
    pub(super) fn results(&self, tool: &'a str) -> impl Iterator<Item = Answered<'a>> {
        let calls = self.after.iter().flat_map(|message| match message {
            ChatMessage::Assistant { tool_calls, .. } => tool_calls.as_slice(),
            ChatMessage::User { .. } | ChatMessage::ToolResult { .. } => &[],
        });
        calls.filter(move |call| &*call.name == tool).filter_map(|call| self.answer(call))
    }

    fn answer(&self, call: &'a ToolRequest) -> Option<Answered<'a>> {
        self.after.iter().find_map(|message| match message {
            ChatMessage::ToolResult { id, content, is_error, .. } if *id == call.id => {
                Some(Answered { arguments: &call.arguments, content, is_error: *is_error })
            }
            _ => None,
        })
    }

    /// The arguments that the tool's schema knows, numbers within its bounds: another host's `grep` may have fewer.
    pub(super) fn fitting(&self, tool: &str, arguments: Value) -> Value {
        let properties =
            self.spec(tool).and_then(|spec| spec.parameters.get("properties")).and_then(Value::as_object);
        let (Some(properties), Value::Object(mut arguments)) = (properties, arguments.clone()) else {
            return arguments;
        };
        arguments.retain(|key, _| properties.contains_key(key));
        for (key, value) in &mut arguments {
            let most =
                properties.get(key).and_then(|property| property.get("maximum")).and_then(Value::as_u64);
            if let (Some(number), Some(most)) = (value.as_u64(), most) {
                *value = number.min(most).into();
            }
        }
        Value::Object(arguments)
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
