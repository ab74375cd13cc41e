//! What an adapter sees of a stream beside what genai makes of it: errors and reasons that it passes over, and the beginning, to quote.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::fault;
use crate::model::{ModelError, ModelErrorKind};

/// Sees each frame as it came, also those that genai passes over. Locked for one step.
#[derive(Debug, Default)]
pub(super) struct Tap {
    /// The frames are of OpenAI's responses: genai passes over how they end, and what a model says instead of an answer.
    is_responses: bool,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The beginning of the first frame with data.
    first: Option<String>,
    /// Something came that is no frame.
    has_other: bool,
    error: Option<Value>,
    is_done: bool,
    is_filtered: bool,
    /// What a model said instead of an answer, and was not told yet.
    refusal: String,
}

impl Tap {
    /// `is_responses`: the frames are of OpenAI's responses.
    pub(super) fn new(is_responses: bool) -> Self {
        Self { is_responses, ..Self::default() }
    }

    /// Takes the next frame.
    pub(super) fn see(&self, data: &str) {
        let mut seen = self.seen();
        if data.trim().is_empty() {
            seen.has_other = true;
            return;
        }
        if seen.first.is_none() {
            seen.first = Some(fault::quote(data.as_bytes()));
        }
        if data.contains("\"error\"") && !data.contains("\"error\":null") {
            let value = serde_json::from_str::<Value>(data).unwrap_or_default();
            seen.error = value.get("error").filter(|error| !error.is_null()).map(|_| value.clone());
        }
        if data.contains("\"blockReason\"") {
            let value = serde_json::from_str::<Value>(data).unwrap_or_default();
            if let Some(reason) = value.pointer("/promptFeedback/blockReason").and_then(Value::as_str) {
                let message = format!("the provider does not answer this prompt: {reason}");
                // Not again: the same prompt is refused for the same reason.
                seen.error = Some(json!({ "error": { "message": message, "type": "invalid_request" } }));
            }
        }
        if self.is_responses && ["failed", "incomplete", "refusal"].iter().any(|word| data.contains(word)) {
            seen.take_response(&serde_json::from_str(data).unwrap_or_default());
        }
        seen.is_done |= data.contains("\"done\":true");
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn error(&self) -> Option<Value> {
        self.seen().error.take()
    }

    /// The beginning of the first frame.
    pub(super) fn first(&self) -> Option<String> {
        self.seen().first.clone()
    }

    pub(super) fn is_filtered(&self) -> bool {
        self.seen().is_filtered
    }

    pub(super) fn refusal(&self) -> Option<String> {
        Some(std::mem::take(&mut self.seen().refusal)).filter(|refusal| !refusal.is_empty())
    }

    /// Whether a protocol that ends with a flag said so.
    pub(super) fn is_done(&self) -> bool {
        self.seen().is_done
    }

    /// Why there was nothing in an answer.
    pub(super) fn nothing(&self) -> ModelError {
        let seen = self.seen();
        match &seen.first {
            Some(first) => {
                let text = format!("the answer is not of this provider's protocol; it begins with: {first}");
                ModelError::new(ModelErrorKind::Protocol, text)
            }
            None if seen.has_other => {
                ModelError::new(ModelErrorKind::Protocol, "the answer is no event stream")
            }
            None => fault::no_stream(0, b"", None),
        }
    }
}

impl Seen {
    /// An event of OpenAI's responses that genai passes over, or does not tell apart.
    fn take_response(&mut self, event: &Value) {
        let text = |path: &str| event.pointer(path).and_then(Value::as_str);
        match text("/type") {
            Some("response.failed") => {
                let error = event.pointer("/response/error").filter(|error| !error.is_null()).cloned();
                let unknown = || json!({ "message": "the provider does not say why it failed" });
                self.error = Some(json!({ "error": error.unwrap_or_else(unknown) }));
            }
            Some("response.incomplete") => {
                self.is_filtered = text("/response/incomplete_details/reason") == Some("content_filter");
            }
            Some("response.refusal.delta") => self.refusal.push_str(text("/delta").unwrap_or_default()),
            _ => {}
        }
    }
}
