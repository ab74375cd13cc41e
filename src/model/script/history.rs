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
    let calls = first_calls(messages);
    let mut answered = HashMap::new();
    let mut open: Vec<&ToolCallId> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        match message {
            ChatMessage::ToolResult { id, .. } => {
                let Some(called_at) = calls.get(id) else {
                    return Err(format!("the result of {id} (messages[{at}]) answers no call"));
                };
                if *called_at > at {
                    return Err(format!(
                        "the result of {id} (messages[{at}]) stands before its call (messages[{called_at}])"
                    ));
                }
                if let Some(before) = answered.insert(id, at) {
                    return Err(format!("{id} has two results (messages[{before}] and messages[{at}])"));
                }
                open.retain(|open| *open != id);
            }
            ChatMessage::Assistant { tool_calls, .. } => {
                all_answered(&open, Some(at))?;
                for call in tool_calls {
                    if calls.get(&call.id) != Some(&at) || open.contains(&&call.id) {
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

/// Where each id is called first.
fn first_calls(messages: &[ChatMessage]) -> HashMap<&ToolCallId, usize> {
    let mut first = HashMap::new();
    for (at, message) in messages.iter().enumerate() {
        if let ChatMessage::Assistant { tool_calls, .. } = message {
            for call in tool_calls {
                first.entry(&call.id).or_insert(at);
            }
        }
    }
    first
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
