//! What went wrong, in the words of the port: a kind that decides whether it is tried again, and a sentence for people.

use std::time::{Duration, SystemTime};

use reqwest::StatusCode;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use serde_json::Value;

use super::loose::Loose;
use crate::message::cap_text;
use crate::model::{ChatMessage, ChatRequest, ModelError, ModelErrorKind};

/// How much of a server's words is passed on, in bytes.
const MAX_WORDS: usize = 1000;

/// How much of a strange answer is quoted, in bytes.
const MAX_QUOTE: usize = 200;

/// The beginning of what a server sent, on one line.
pub(super) fn quote(bytes: &[u8]) -> String {
    let start = bytes.get(..MAX_QUOTE).unwrap_or(bytes);
    let mut text = String::from_utf8_lossy(start).split_whitespace().collect::<Vec<_>>().join(" ");
    if start.len() < bytes.len() {
        text.push('…');
    }
    text
}

/// A 200 whose body is no event stream.
pub(super) fn no_stream(bytes: u64, bare: &[u8], strange: Option<&str>) -> ModelError {
    if bytes == 0 {
        // An overloaded gateway does that: the next attempt may be answered.
        return ModelError::new(ModelErrorKind::Network, "the server's answer was empty (0 bytes)");
    }
    if let Some(event) = strange {
        let text = format!("the answer is no chat completion; its first event is: {event}");
        return ModelError::new(ModelErrorKind::Protocol, text);
    }
    if bare.is_empty() {
        return ModelError::new(
            ModelErrorKind::Network,
            "the server closed the stream before the answer began",
        );
    }
    if let Some(error) = serde_json::from_slice::<Value>(bare).ok().as_ref().and_then(error_of) {
        return of_value(error, None);
    }
    let text = format!("the answer is no event stream; it begins with: {}", quote(bare));
    ModelError::new(ModelErrorKind::Protocol, text)
}

/// An event that is not what the protocol says.
pub(super) fn strange_event(data: &[u8], error: &serde_json::Error) -> ModelError {
    let text = format!("an event of the answer is not of a chat completion ({error}): {}", quote(data));
    ModelError::new(ModelErrorKind::Protocol, text)
}

/// An error inside a stream.
pub(super) fn of_event(error: &Loose) -> ModelError {
    match error {
        Loose::Text(text) => of_value(&Value::String((**text).to_owned()), None),
        Loose::Other(value) => of_value(error_of(value).unwrap_or(value), None),
        Loose::Nothing => {
            ModelError::new(ModelErrorKind::Server, "the server reported an error without words")
        }
    }
}

/// An answer with another status than 200.
pub(super) fn of_status(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ModelError {
    let value = serde_json::from_slice::<Value>(body).ok();
    let said = value.as_ref().and_then(error_of).or(value.as_ref());
    let mut error = match said {
        Some(value) => of_value(value, Some(status)),
        None => {
            let words = quote(body);
            let kind = kind_of(Some(status.as_u16()), "", &words);
            ModelError::new(kind, words)
        }
    };
    let reason = status.canonical_reason().unwrap_or("unknown status");
    error.message = match error.message.is_empty() {
        true => format!("the server answered {} {reason}", status.as_u16()),
        false => format!("the server answered {} {reason}: {}", status.as_u16(), error.message),
    };
    error.retry_after = retry_after(headers);
    error
}

/// When the server wants to be asked again: `retry-after-ms`, or `retry-after` in seconds or as a date.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |name: &str| text(name)?.parse::<f64>().ok();
    let date = |name: &str| httpdate::parse_http_date(text(name)?).ok();
    let until_date = || {
        let then = date(RETRY_AFTER.as_str())?;
        // By the server's own clock, where it says what that shows.
        let now = date(DATE.as_str()).unwrap_or_else(SystemTime::now);
        Some(then.duration_since(now).unwrap_or_default().as_secs_f64())
    };
    let millis = number("retry-after-ms").map(|millis| millis / 1000.0);
    let seconds = millis.or_else(|| number(RETRY_AFTER.as_str())).or_else(until_date)?;
    // A day is more than anybody waits; it keeps nonsense out of the arithmetic.
    Duration::try_from_secs_f64(seconds.clamp(0.0, 86_400.0)).ok()
}

/// The error of an answer, in the forms that providers give it.
fn error_of(value: &Value) -> Option<&Value> {
    if let Value::Array(list) = value {
        return list.iter().find_map(error_of);
    }
    match value.get("error") {
        Some(Value::Null) | None => None,
        Some(error) => Some(error),
    }
}

fn of_value(error: &Value, status: Option<StatusCode>) -> ModelError {
    let text = |key: &str| error.get(key).and_then(Value::as_str);
    let words = match error {
        Value::String(text) => text,
        _ => text("message").or_else(|| text("detail")).or_else(|| text("error")).unwrap_or_default(),
    };
    let code = error.get("code").and_then(|code| match code {
        Value::Number(number) => number.as_u64().and_then(|code| u16::try_from(code).ok()),
        Value::String(text) => text.parse().ok(),
        _ => None,
    });
    let code = status.map(|status| status.as_u16()).or(code);
    let labels = ["type", "code", "status"].map(|key| text(key).unwrap_or_default()).join(" ");
    let kind = kind_of(code, &labels, words);
    let words =
        if words.is_empty() { quote(error.to_string().as_bytes()) } else { cap_text(words, MAX_WORDS) };
    ModelError::new(kind, words)
}

/// The kind of a failure: the provider's label where it has one, its number, and its words where both are too coarse.
fn kind_of(code: Option<u16>, labels: &str, words: &str) -> ModelErrorKind {
    let labels = labels.to_ascii_lowercase();
    let words = words.to_ascii_lowercase();
    let labelled = |list: &[&str]| list.iter().any(|label| labels.contains(label));
    let says = |list: &[&str]| list.iter().any(|part| words.contains(part));
    if labelled(&["context_length", "exceed_context_size"])
        || says(&["maximum context length", "context window", "context size", "prompt is too long"])
    {
        return ModelErrorKind::ContextLength;
    }
    // A quota that is used up does not come back by waiting.
    if labelled(&["insufficient_quota", "billing"]) {
        return ModelErrorKind::Auth;
    }
    if labelled(&["rate_limit", "resource_exhausted", "too_many_requests"]) {
        return ModelErrorKind::RateLimit;
    }
    match code {
        Some(401..=403) => ModelErrorKind::Auth,
        Some(408) => ModelErrorKind::Timeout,
        Some(429) => ModelErrorKind::RateLimit,
        Some(409 | 425) => ModelErrorKind::Server,
        // A fault that names the request comes again with the same request.
        Some(500)
            if says(&[
                "failed to parse",
                "parse error",
                "parse_error",
                "is not supported",
                "is required",
                "unsupported",
            ]) =>
        {
            ModelErrorKind::BadRequest
        }
        Some(501 | 505) => ModelErrorKind::BadRequest,
        Some(500..) => ModelErrorKind::Server,
        Some(300..500) => ModelErrorKind::BadRequest,
        _ if labelled(&["authentication", "permission", "invalid_api_key"]) => ModelErrorKind::Auth,
        _ if labelled(&["invalid_request", "not_found", "invalid_argument", "unsupported"]) => {
            ModelErrorKind::BadRequest
        }
        _ => ModelErrorKind::Server,
    }
}

/// What a request holds that some models do not take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holds {
    tools: bool,
    images: bool,
}

impl Holds {
    pub(super) fn of(request: &ChatRequest) -> Self {
        let has_images = |message: &ChatMessage| match message {
            ChatMessage::ToolResult { images, .. } => !images.shown().is_empty(),
            ChatMessage::User { .. } | ChatMessage::Assistant { .. } => false,
        };
        Self { tools: !request.tools.is_empty(), images: request.messages.iter().any(has_images) }
    }

    /// Says what to do where a server refused a request because its model does not take what it holds.
    pub(super) fn explain(self, error: &mut ModelError) {
        let words = error.message.to_ascii_lowercase();
        let has = |some: &[&str]| some.iter().any(|part| words.contains(part));
        let refuses = |what: &[&str]| {
            error.kind == ModelErrorKind::BadRequest
                && has(what)
                && has(&["support", "not allowed", "not enabled"])
        };
        if self.images && refuses(&["image", "vision", "multimodal"]) {
            let advice = "the model takes no images: choose another one, or tools that return none";
            error.message = format!("{} ({advice})", error.message);
        } else if self.tools && refuses(&["tool"]) {
            error.message = format!("{} (the model takes no tools: choose another one)", error.message);
        }
    }
}

/// The words of an error and of what caused it, without an address: it may hold a key.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        // Wrappers often repeat what they wrap.
        if !words.iter().any(|before| before.contains(&text)) {
            words.push(text);
        }
        next = error.source();
    }
    words.join(": ")
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
