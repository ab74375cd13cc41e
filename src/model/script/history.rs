//! The strict protocol check: refuses a conversation that a provider would refuse.

use std::collections::HashMap;

use serde_json::Value;

use crate::id::ToolCallId;
use crate::model::ChatMessage;

/// Checks that calls and results pair up: each call has exactly one result, directly after its message (other
/// results may stand between), ids are unique in the conversation, and arguments are objects.
///
/// # Errors
///
/// One sentence that names the ids.
pub(super) fn check(messages: &[ChatMessage]) -> Result<(), String> {
    // Once for each turn over all that was said: one map, and what only an error names is looked for when there is one.
    let mut calls: HashMap<&ToolCallId, Call> = HashMap::with_capacity(messages.len() / 2);
    let mut open: Vec<&ToolCallId> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        match message {
            ChatMessage::ToolResult { id, .. } => {
                let Some(call) = calls.get_mut(id) else {
                    return Err(match called_at(messages, id) {
                        Some(called_at) => format!(
                            "the result of {id} (messages[{at}]) stands before its call (messages[{called_at}])"
                        ),
                        None => format!("the result of {id} (messages[{at}]) answers no call"),
                    });
                };
                if let Some(before) = call.answered_at.replace(at) {
                    return Err(format!("{id} has two results (messages[{before}] and messages[{at}])"));
                }
                open.retain(|open| *open != id);
            }
            ChatMessage::Assistant { tool_calls, .. } => {
                all_answered(&open, Some(at))?;
                for call in tool_calls {
                    if calls.insert(&call.id, Call::default()).is_some() {
                        return Err(format!(
                            "two calls have the id {} (the second in messages[{at}])",
                            call.id
                        ));
                    }
                    if !matches!(call.arguments, Value::Object(_)) {
                        return Err(format!(
                            "the arguments of {} (messages[{at}]) are not an object",
                            call.id
                        ));
                    }
                    open.push(&call.id);
                }
            }
            ChatMessage::User { .. } => all_answered(&open, Some(at))?,
        }
    }
    all_answered(&open, None)
}

#[derive(Default)]
struct Call {
    answered_at: Option<usize>,
}

/// Where an id is called.
fn called_at(messages: &[ChatMessage], id: &ToolCallId) -> Option<usize> {
    messages.iter().position(|message| {
        matches!(message, ChatMessage::Assistant { tool_calls, .. } if tool_calls.iter().any(|call| call.id == *id))
    })
}

fn all_answered(open: &[&ToolCallId], before: Option<usize>) -> Result<(), String> {
    if open.is_empty() {
        return Ok(());
    }
    let ids = open.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(", ");
    Err(match before {
        Some(at) => format!("no result before messages[{at}] for the calls: {ids}"),
        None => format!("no result for the calls: {ids}"),
    })
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
