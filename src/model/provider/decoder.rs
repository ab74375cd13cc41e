//! Chat completions out of bytes: decides, never waits.

use std::collections::VecDeque;

use serde_json::Value;

use super::calls::{Calls, Piece};
use super::chunk::{CallDelta, Choice, Chunk, Content, stop_reason};
use super::fault;
use super::halves::Halves;
use super::lines::{Event, EventReader, MAX_EVENT};
use super::loose::Loose;
use crate::model::{ChatEvent, ModelError, ModelErrorKind, StopReason};
use crate::outcome::Usage;

/// The decoder of a streamed chat completion, as OpenAI and the servers compatible with it send it.
///
/// Bytes go in as they come from the network, split anywhere; events come out. For whoever has a transport of their own; the
/// models of this module have theirs.
///
/// # Ordering
///
/// Deltas, then exactly one [`ChatEvent::End`] or one error, then nothing, as [`ChatModel`](crate::model::ChatModel) says. A
/// stream that ends without a finish reason has neither: it was cut.
#[derive(Debug, Clone, Default)]
pub struct ChatCompletions {
    reader: EventReader,
    out: VecDeque<Result<ChatEvent, ModelError>>,
    state: State,
}

#[derive(Debug, Clone, Default)]
struct State {
    calls: Calls,
    finish: Option<StopReason>,
    usage: Option<Usage>,
    /// Something of a chat completion came.
    is_chat: bool,
    /// Something of the answer came.
    has_content: bool,
    /// How many events said something of it.
    words: u64,
    /// Of letters that were cut in two.
    halves: Halves,
    /// The first data that was none of it, to be quoted.
    strange: Option<String>,
    /// Nothing that comes now counts any more.
    is_over: bool,
}

impl ChatCompletions {
    /// A decoder at the beginning of a body.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.state.is_over {
            return;
        }
        let (state, out) = (&mut self.state, &mut self.out);
        let pushed = self.reader.push(bytes, |event| state.event(&event, false, out));
        if pushed.is_err() {
            let text = format!("the server sent an event of more than {} MiB", MAX_EVENT >> 20);
            self.state.fail(ModelError::new(ModelErrorKind::Protocol, text), &mut self.out);
        }
    }

    /// The body has ended, with an error of the connection if it broke.
    pub fn close(&mut self, broken: Option<ModelError>) {
        if self.state.is_over {
            return;
        }
        let (state, out) = (&mut self.state, &mut self.out);
        self.reader.end(|event| state.event(&event, true, out));
        if self.state.is_over {
            return;
        }
        // The server said that the answer is whole: what it would have added is at most a counter.
        if self.state.finish.is_some() {
            return self.state.end(&mut self.out);
        }
        match broken {
            // No end: that is what a cut stream looks like, however it was cut. Silence is told apart: it is a bound of ours.
            _ if self.state.has_content
                && broken.as_ref().is_none_or(|error| error.kind == ModelErrorKind::Network) =>
            {
                self.state.is_over = true;
                self.state.calls.end(|event| self.out.push_back(Ok(event)));
            }
            Some(error) => self.state.fail(error, &mut self.out),
            None if self.state.is_chat => {
                let text = "the server closed the stream before the answer began";
                self.state.fail(ModelError::new(ModelErrorKind::Network, text), &mut self.out);
            }
            None => {
                let strange = self.state.strange.as_deref();
                let error = fault::no_stream(self.reader.bytes(), self.reader.bare(), strange);
                self.state.fail(error, &mut self.out);
            }
        }
    }

    /// The next event, if one is there.
    pub fn next_event(&mut self) -> Option<Result<ChatEvent, ModelError>> {
        self.out.pop_front()
    }

    /// Whether the answer has ended: bytes that come now are passed over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state.is_over
    }

    /// Whether the server has said why the answer ends: what may still come is a counter.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.state.finish.is_some()
    }

    /// How many events said something of the answer: comments, counters and empty deltas do not.
    #[must_use]
    pub(super) fn words(&self) -> u64 {
        self.state.words
    }

    /// Whether the body is larger than what an error would be, and none of it is an event.
    #[must_use]
    pub fn is_no_stream(&self) -> bool {
        self.reader.events() == 0 && self.reader.bare().len() >= 64 * 1024
    }
}

type Out = VecDeque<Result<ChatEvent, ModelError>>;

impl State {
    fn fail(&mut self, error: ModelError, out: &mut Out) {
        self.is_over = true;
        self.calls.end(|event| out.push_back(Ok(event)));
        out.push_back(Err(error));
    }

    fn end(&mut self, out: &mut Out) {
        self.is_over = true;
        self.calls.end(|event| out.push_back(Ok(event)));
        let stop_reason = self.finish.unwrap_or(StopReason::Missing);
        out.push_back(Ok(ChatEvent::End { stop_reason, usage: self.usage }));
    }

    /// `is_last` says that the event had no end of its own: then it may be cut.
    fn event(&mut self, event: &Event<'_>, is_last: bool, out: &mut Out) {
        if self.is_over {
            return;
        }
        let data = event.data.trim_ascii();
        if data == b"[DONE]" {
            if self.finish.is_none() && !self.is_chat {
                let text = "the server ended the answer before it began".to_owned();
                return self.fail(ModelError::new(ModelErrorKind::Protocol, text), out);
            }
            return self.end(out);
        }
        if data.is_empty() {
            return;
        }
        let mut parsed: serde_json::Result<Chunk> = serde_json::from_slice(data);
        if parsed.as_ref().is_err_and(|error| !error.is_data())
            && let Some(mended) = self.halves.mend(data)
        {
            parsed = serde_json::from_slice(&mended);
        }
        let chunk = match parsed {
            Ok(chunk) => chunk,
            Err(_) if is_last => return,
            // Broken counters are no reason to lose a whole answer.
            Err(_) if self.finish.is_some() && event.name != b"error" => return self.end(out),
            Err(error) if event.name == b"error" || error.is_data() => {
                let failure = match event.name == b"error" {
                    true => fault::of_event(&Loose::Text(String::from_utf8_lossy(data).into())),
                    false => fault::strange_event(data, &error),
                };
                return self.fail(failure, out);
            }
            Err(error) => return self.fail(fault::strange_event(data, &error), out),
        };
        if !chunk.error.says_nothing() {
            return self.fail(fault::of_event(&chunk.error), out);
        }
        if event.name == b"error" {
            let value = serde_json::from_slice(data).map_or(Loose::Nothing, Loose::Other);
            return self.fail(fault::of_event(&value), out);
        }
        if chunk.choices.is_none() && chunk.usage.is_none() {
            self.strange(event.name, data, out);
        }
        for choice in chunk.choices.unwrap_or_default() {
            // One answer was asked for: a second one is not mixed into it.
            if choice.index.0.unwrap_or(0) == 0
                && let Err(error) = self.choice(choice, out)
            {
                return self.fail(error, out);
            }
        }
        if let Some(usage) = chunk.usage.and_then(|tokens| tokens.usage())
            && self.usage != Some(usage)
        {
            self.usage = Some(usage);
            out.push_back(Ok(ChatEvent::Usage(usage)));
        }
    }

    /// An event that is nothing of a chat completion: within one it is passed on, if it has a name.
    fn strange(&mut self, name: &[u8], data: &[u8], out: &mut Out) {
        if !self.is_chat {
            self.strange.get_or_insert_with(|| fault::quote(data));
            return;
        }
        let Ok(event) = serde_json::from_slice::<Value>(data) else { return };
        let said = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
        let name = String::from_utf8_lossy(name);
        let kind = [&*name, said("type"), said("object")].into_iter().find(|kind| !kind.is_empty());
        let known = ["message", "ping", "chat.completion.chunk"];
        if let Some(kind) = kind.filter(|kind| !known.contains(kind)) {
            let kind = kind.into();
            out.push_back(Ok(ChatEvent::Other { kind, event }));
        }
    }

    fn choice(&mut self, choice: Choice, out: &mut Out) -> Result<(), ModelError> {
        let before = out.len();
        let taken = self.take(choice, out);
        let said = out.iter().skip(before).any(|event| !matches!(event, Ok(ChatEvent::Other { .. })));
        self.words += u64::from(said);
        taken
    }

    fn take(&mut self, choice: Choice, out: &mut Out) -> Result<(), ModelError> {
        let Some(delta) = choice.delta else {
            if choice.text != Loose::Nothing {
                let text = "the server speaks the protocol of plain completions, not of chat completions";
                return Err(ModelError::new(ModelErrorKind::Protocol, text));
            }
            self.finish(&choice.finish_reason);
            return Ok(());
        };
        self.is_chat = true;
        let Content { text, thinking, others } = Content::of(delta.content);
        let thoughts =
            [delta.reasoning_content, delta.reasoning].into_iter().find_map(|text| text.text().cloned());
        if let Some(piece) = thoughts.or(thinking) {
            self.has_content = true;
            out.push_back(Ok(ChatEvent::Thinking(piece)));
        }
        // A refusal is what the model says instead of an answer.
        for piece in
            [text.filter(|text| !text.is_empty()), delta.refusal.text().cloned()].into_iter().flatten()
        {
            self.has_content = true;
            out.push_back(Ok(ChatEvent::Text(piece)));
        }
        for part in others {
            let kind = part.get("type").and_then(Value::as_str).unwrap_or("part").into();
            out.push_back(Ok(ChatEvent::Other { kind, event: part }));
        }
        let mut pieces: Vec<Piece> =
            delta.tool_calls.unwrap_or_default().into_iter().map(CallDelta::piece).collect();
        if pieces.is_empty() {
            pieces.extend(delta.function_call.map(|function| function.piece(Some(0), None)));
        }
        for piece in pieces {
            if !self.calls.push(piece, |event| out.push_back(Ok(event))) {
                return Err(ModelError::new(
                    ModelErrorKind::Protocol,
                    "the server sent more than 1024 calls, or more than 16 MiB of arguments, in one turn",
                ));
            }
        }
        self.has_content |= !self.calls.is_empty();
        self.finish(&choice.finish_reason);
        Ok(())
    }

    fn finish(&mut self, reason: &Loose) {
        if let Some(word) = reason.text() {
            self.is_chat = true;
            self.finish = Some(stop_reason(word));
        }
    }
}

#[cfg(test)]
#[path = "decoder_tests.rs"]
mod tests;
