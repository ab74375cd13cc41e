//! One turn of a model, put together from its deltas.

use std::sync::Arc;

use serde_json::Value;

use crate::message::{Chunk, MessageBody, OtherBody, cap_value};
use crate::model::ChatEvent;
use crate::outcome::{StopReason, Usage};

/// A turn as it came.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Turn {
    /// Its text: the snapshot if one came, the joined deltas otherwise.
    pub text: String,
    /// Its calls in order, unchecked.
    pub calls: Vec<RawCall>,
    /// Why it ended; [`StopReason::Missing`] if the stream just ended.
    pub stop_reason: Option<StopReason>,
    /// What it used.
    pub usage: Usage,
}

/// A call as the provider sent it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RawCall {
    /// The provider's place for it.
    pub index: u32,
    /// The provider's label; empty if it sent none.
    pub id: String,
    /// The tool's name; empty if the turn was cut before it.
    pub name: String,
    /// The arguments as text, whole or cut.
    pub arguments: String,
}

/// Puts a turn together.
#[derive(Debug, Default)]
pub struct TurnBuilder {
    turn: Turn,
    has_text: bool,
    has_thinking: bool,
    has_snapshot: bool,
}

impl TurnBuilder {
    /// Takes the next event. What a watcher should see of it comes back.
    pub fn push(&mut self, event: ChatEvent) -> Option<Chunk> {
        match event {
            ChatEvent::Text(piece) => {
                if piece.is_empty() {
                    return None;
                }
                self.has_text = true;
                if !self.has_snapshot {
                    self.turn.text.push_str(&piece);
                }
                Some(Chunk::text(piece))
            }
            ChatEvent::Thinking(piece) => {
                self.has_thinking |= !piece.is_empty();
                (!piece.is_empty()).then(|| Chunk::thinking(piece))
            }
            // A snapshot without text says nothing: it does not take back what was said.
            ChatEvent::Snapshot(text) if text.is_empty() => None,
            ChatEvent::Snapshot(text) => {
                let unseen = !std::mem::replace(&mut self.has_text, true);
                self.has_snapshot = true;
                let shown = unseen.then(|| Chunk::text(Arc::from(text.as_str())));
                self.turn.text = text;
                shown
            }
            ChatEvent::ToolCallStart { index, id, name } => {
                let call = self.call(index);
                // A provider may repeat the start with every delta, or send the parts one by one.
                if !id.is_empty() {
                    call.id = id;
                }
                if !name.is_empty() {
                    call.name = name;
                }
                None
            }
            ChatEvent::ToolCallArgs { index, delta } => {
                self.call(index).arguments.push_str(&delta);
                None
            }
            ChatEvent::Usage(usage) => {
                self.turn.usage = usage;
                None
            }
            // No part of the turn: see `passed_on`.
            ChatEvent::Other { .. } => None,
            ChatEvent::End { stop_reason, usage } => {
                self.turn.stop_reason = Some(stop_reason);
                self.turn.usage = usage.unwrap_or(self.turn.usage);
                None
            }
        }
    }

    fn call(&mut self, index: u32) -> &mut RawCall {
        let at = match self.turn.calls.iter().position(|call| call.index == index) {
            Some(at) => at,
            None => {
                self.turn.calls.push(RawCall { index, ..RawCall::default() });
                self.turn.calls.len() - 1
            }
        };
        // The position was just found or made.
        #[expect(clippy::indexing_slicing, reason = "the index is the position of an element")]
        &mut self.turn.calls[at]
    }

    /// Whether the model has said or begun anything: then a failed turn is not repeated.
    #[must_use]
    pub fn has_content(&self) -> bool {
        self.has_text || self.has_thinking || !self.turn.calls.is_empty()
    }

    /// What the turn used so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.turn.usage
    }

    /// The ends of the texts that were shown.
    pub fn ends(&self) -> impl Iterator<Item = Chunk> + use<> {
        let thinking = self.has_thinking.then(|| Chunk::end(true));
        let text = self.has_text.then(|| Chunk::end(false));
        thinking.into_iter().chain(text)
    }

    /// The turn.
    #[must_use]
    pub fn finish(self) -> Turn {
        self.turn
    }
}

/// The most of an event that is passed on, in bytes: what is not known may be large, such as a picture.
const MAX_OTHER: usize = 64 * 1024;

/// What a watcher is told of something that is not known: a message of the kind `provider_event`, with the provider's word for it in
/// `kind` and the whole of it in `event`. A larger one is cut to a text with a marker.
pub(super) fn passed_on(kind: &str, event: &Value) -> MessageBody {
    let event = cap_value(event.clone(), MAX_OTHER);
    let body = OtherBody::new("provider_event", [("kind", Value::from(kind)), ("event", event)]);
    MessageBody::Other(Arc::new(body))
}

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
