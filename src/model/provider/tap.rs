//! What an adapter sees of a stream beside what genai makes of it: errors and reasons that it passes over, what it does not know, and
//! the beginning, to quote.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::fault;
use super::lines::MAX_EVENT;
use super::speech::Speech;
use crate::model::{ModelError, ModelErrorKind, StopReason};
use crate::outcome::Usage;

/// Sees each frame as it came, also those that genai passes over. Locked for one step.
#[derive(Debug)]
pub(super) struct Tap {
    speech: Speech,
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
    has_known: bool,
    /// What is not known, and was not told yet.
    unknown: VecDeque<(String, Value)>,
    /// The last frame was not known: what genai makes of it is no fault of the answer.
    is_unknown: bool,
    /// The block under way is none that is known, and so is what comes of it.
    in_unknown_block: bool,
    /// How many bytes came since the answer said something.
    unheard: usize,
    finish: Option<(StopReason, Instant)>,
    /// Of a protocol whose counters come in parts.
    input_tokens: Option<u64>,
    cached_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

impl Tap {
    pub(super) fn new(speech: Speech) -> Self {
        Self { speech, seen: Mutex::default() }
    }

    /// Takes the next frame, with the name that it came under.
    pub(super) fn see(&self, name: Option<&str>, data: &str) {
        let mut seen = self.seen();
        if data.trim().is_empty() {
            seen.has_other = true;
            return;
        }
        if seen.first.is_none() {
            seen.first = Some(fault::quote(data.as_bytes()));
        }
        seen.unheard = seen.unheard.saturating_add(data.len());
        seen.is_done |= data.contains("\"done\":true");
        seen.is_unknown = false;
        // What is no JSON is genai's to complain of.
        let Ok(event) = serde_json::from_str::<Value>(data) else { return };
        if event.get("error").is_some_and(|error| !error.is_null()) {
            seen.error = Some(event.clone());
        }
        if let Some(reason) = event.pointer("/promptFeedback/blockReason").and_then(Value::as_str) {
            let message = format!("the provider does not answer this prompt: {reason}");
            // Not again: the same prompt is refused for the same reason.
            seen.error = Some(json!({ "error": { "message": message, "type": "invalid_request" } }));
        }
        match self.speech {
            Speech::Messages => seen.take_message(&event),
            Speech::Responses => seen.take_response(&event),
            Speech::Converse => {
                if let Some(word) = event.get("stopReason").and_then(Value::as_str) {
                    seen.finished(word);
                }
            }
            Speech::Gemini | Speech::Interactions | Speech::Ollama => {}
        }
        match seen.kind_of_block(&event, self.speech.unknown(name, &event)) {
            // Where nothing was known yet, it is another protocol altogether.
            Some(kind) if seen.has_known => {
                seen.is_unknown = true;
                seen.unknown.push_back((kind, event));
            }
            Some(_) => {}
            None => seen.has_known = true,
        }
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

    /// What came that is not known: its kind, and itself.
    pub(super) fn unknown(&self) -> Option<(String, Value)> {
        self.seen().unknown.pop_front()
    }

    /// Whether the last frame was not known.
    pub(super) fn is_unknown(&self) -> bool {
        self.seen().is_unknown
    }

    /// Whether a protocol that ends with a flag said so.
    pub(super) fn is_done(&self) -> bool {
        self.seen().is_done
    }

    /// The answer said something.
    pub(super) fn heard(&self) {
        self.seen().unheard = 0;
    }

    /// Whether there is anything to look at, for whoever knew so much of the end.
    pub(super) fn has_news(&self, was_finished: bool) -> bool {
        let seen = self.seen();
        let has_end = seen.finish.is_some() && !was_finished;
        let has_words = !seen.refusal.is_empty() || !seen.unknown.is_empty() || seen.error.is_some();
        has_end || has_words || seen.is_too_much()
    }

    /// Whether more came since the answer said something than genai may keep: it puts calls together before it tells of them.
    pub(super) fn is_too_much(&self) -> bool {
        self.seen().is_too_much()
    }

    /// Since when it is known that the answer is whole, in a protocol that says more after it.
    pub(super) fn finished(&self) -> Option<Instant> {
        self.seen().finish.map(|(_, since)| since)
    }

    /// Why the answer ended and what it used, as far as the server said.
    pub(super) fn finish(&self) -> Option<(StopReason, Option<Usage>)> {
        let seen = self.seen();
        let (reason, _) = seen.finish?;
        let usage = (seen.input_tokens.is_some() || seen.output_tokens.is_some()).then(|| Usage {
            input_tokens: seen.input_tokens.unwrap_or(0),
            output_tokens: seen.output_tokens.unwrap_or(0),
            cached_tokens: seen.cached_tokens,
            cost_usd: None,
            model_calls: 1,
        });
        Some((reason, usage))
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
    fn is_too_much(&self) -> bool {
        self.unheard > 2 * MAX_EVENT
    }

    /// The kind of an event that is not known, or that belongs to a block that is not.
    fn kind_of_block(&mut self, event: &Value, unknown: Option<String>) -> Option<String> {
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
        match kind {
            "content_block_start" => self.in_unknown_block = unknown.is_some(),
            "content_block_stop" => self.in_unknown_block = false,
            "content_block_delta" if self.in_unknown_block => {
                let delta = event.pointer("/delta/type").and_then(Value::as_str);
                return unknown.or_else(|| Some(delta.unwrap_or(kind).to_owned()));
            }
            _ => {}
        }
        unknown
    }

    fn finished(&mut self, word: &str) {
        self.finish = Some((super::chunk::stop_reason(&word.to_ascii_lowercase()), Instant::now()));
    }

    /// An event of Anthropic's messages: `message_stop` comes behind the reason, or pings do.
    fn take_message(&mut self, event: &Value) {
        if let Some(word) = event.pointer("/delta/stop_reason").and_then(Value::as_str) {
            self.finished(word);
        }
        let Some(usage) = event.pointer("/message/usage").or_else(|| event.get("usage")) else { return };
        let count = |key: &str| usage.get(key).and_then(Value::as_u64);
        // What was read from a cache, or written to it, is no part of what Anthropic calls the input.
        let beside = |key: &str| count(key).unwrap_or(0);
        let input = count("input_tokens").map(|tokens| {
            tokens
                .saturating_add(beside("cache_creation_input_tokens"))
                .saturating_add(beside("cache_read_input_tokens"))
        });
        self.input_tokens = input.or(self.input_tokens);
        self.output_tokens = count("output_tokens").or(self.output_tokens);
        self.cached_tokens = count("cache_read_input_tokens").or(self.cached_tokens);
    }

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
