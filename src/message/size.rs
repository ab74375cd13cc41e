//! How large a body is, and the cap that keeps one message from filling the memory of a tree.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::body::MessageBody;
use super::parts::Chunk;

/// What a message costs besides its texts, in bytes: the message, its pointers and their counters.
const OVERHEAD: usize = 160;

impl MessageBody {
    /// About how many bytes of memory it holds.
    #[must_use]
    pub fn approx_bytes(&self) -> usize {
        OVERHEAD
            + match self {
                Self::Chunk(chunk) => chunk.content.len(),
                Self::RunStarted(body) => body.task.len() + body.title.len(),
                Self::RunFinished(body) => {
                    body.result.as_ref().map_or(0, value_bytes)
                        + body.partial.as_ref().map_or(0, value_bytes)
                        + body.error.as_ref().map_or(0, String::len)
                }
                Self::StepResult(body) => value_bytes(&body.result) + map_bytes(&body.step.other),
                Self::ToolCallUpdate(body) => map_bytes(&body.args),
                Self::ToolResultUpdate(body) => map_bytes(&body.result),
                Self::LogUpdate(body) => body.content.len(),
                Self::PlanningUpdate(body) => body.content.as_ref().map_or(0, String::len),
                Self::TodoUpdate(body) => body.todos.iter().map(|todo| todo.content.len() + 32).sum(),
                Self::Ask(body) => body.args.as_ref().map_or(0, value_bytes) + body.title.len(),
                Self::AskAnswered(body) => body.text.as_ref().map_or(0, String::len),
                Self::Alert(body) => body.text.len(),
                Self::ErrorNotice(body) => body.message.len(),
                Self::TaskUpdate(body) => map_bytes(&body.task.other),
                Self::Retrying(body) => body.reason.len(),
                Self::TurnFinished(_) | Self::Queued(_) => 0,
                Self::Other(body) => {
                    body.fields.iter().map(|(key, value)| key.len() + value.get().len()).sum()
                }
            }
    }

    /// The same body, or, if it is larger than `max` bytes, one whose long texts are cut at a marker that names both
    /// sizes.
    #[must_use]
    pub(crate) fn capped(self, max: usize) -> Self {
        let size = self.approx_bytes();
        if size <= max {
            return self;
        }
        match self {
            Self::Chunk(chunk) => Chunk { content: cap_text(&chunk.content, max).into(), ..chunk }.into(),
            Self::RunStarted(body) => {
                let mut body = Arc::unwrap_or_clone(body);
                body.task = cap_text(&body.task, max).into();
                body.title = cap_text(&body.title, max).into();
                body.into()
            }
            Self::RunFinished(body) => {
                let mut body = Arc::unwrap_or_clone(body);
                body.result = body.result.map(|value| cap_value(value, max));
                body.partial = body.partial.map(|value| cap_value(value, max));
                body.error = body.error.map(|text| cap_text(&text, max));
                body.into()
            }
            Self::StepResult(body) => {
                let mut body = Arc::unwrap_or_clone(body);
                body.result = cap_value(body.result, max);
                body.into()
            }
            Self::ToolCallUpdate(body) => {
                let mut body = Arc::unwrap_or_clone(body);
                body.args = Arc::new(cap_map(Arc::unwrap_or_clone(body.args), max));
                body.into()
            }
            Self::ToolResultUpdate(body) => {
                let mut body = Arc::unwrap_or_clone(body);
                body.result = Arc::new(cap_map(Arc::unwrap_or_clone(body.result), max));
                body.into()
            }
            other => Self::log(
                "anabranch",
                super::parts::Severity::Warning,
                format!("a {} message of {size} bytes was left out: the cap is {max} bytes", other.kind()),
            ),
        }
    }
}

/// Cuts a text to `max` bytes, at a character, with a marker that names both sizes.
#[must_use]
pub(crate) fn cap_text(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let kept = text.floor_char_boundary(max);
    format!("{}…[cut: {kept} of {} bytes]", text.get(..kept).unwrap_or_default(), text.len())
}

/// The value, or, if it is larger than `max` bytes, the beginning of its text with a marker.
#[must_use]
pub(crate) fn cap_value(value: Value, max: usize) -> Value {
    if value_bytes(&value) <= max {
        return value;
    }
    match value {
        Value::String(text) => Value::String(cap_text(&text, max)),
        other => Value::String(cap_text(&other.to_string(), max)),
    }
}

fn cap_map(mut map: Map<String, Value>, max: usize) -> Map<String, Value> {
    // The largest member is nearly always the one that matters: cut it alone, so that the others stay readable.
    if let Some((_, largest)) = map.iter_mut().max_by_key(|(_, value)| value_bytes(value)) {
        *largest = cap_value(std::mem::take(largest), max / 2);
    }
    let size = map_bytes(&map);
    if size <= max {
        return map;
    }
    let text = cap_text(&Value::Object(map).to_string(), max);
    Map::from_iter([("result".to_owned(), json!(text))])
}

pub(crate) fn value_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 16,
        Value::String(text) => 24 + text.len(),
        Value::Array(items) => 24 + items.iter().map(value_bytes).sum::<usize>(),
        Value::Object(map) => map_bytes(map),
    }
}

fn map_bytes(map: &Map<String, Value>) -> usize {
    24 + map.iter().map(|(key, value)| 24 + key.len() + value_bytes(value)).sum::<usize>()
}
