//! The tool calls of a turn, however a server numbers and labels them.

use std::sync::Arc;

use serde_json::Value;

use super::loose::Loose;
use crate::model::ChatEvent;

/// More calls than this in one turn are the fault of a server.
const MAX_CALLS: usize = 1024;

/// And so are more bytes of arguments: they are kept until the turn ends.
const MAX_ARGUMENTS: usize = 16 << 20;

/// A piece of a call as it came.
#[derive(Debug, Default)]
pub(super) struct Piece {
    /// The place that the server says.
    pub(super) index: Option<u64>,
    /// The label.
    pub(super) id: Option<Arc<str>>,
    /// The tool.
    pub(super) name: Option<Arc<str>>,
    /// The arguments: a piece of JSON text, or against the protocol a value.
    pub(super) arguments: Loose,
}

/// The calls of one turn. They go out with places of our own, in the order in which they began.
#[derive(Debug, Clone, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    /// The arguments of all of them, in bytes.
    bytes: usize,
}

#[derive(Debug, Clone, Default)]
struct Call {
    index: Option<u64>,
    id: Option<Arc<str>>,
    has_name: bool,
    /// The arguments so far, as joined pieces.
    joined: String,
    /// How much of them went out.
    sent: usize,
    /// Set while every piece since could as well be the whole arguments so far: then nothing goes out until the end tells
    /// which of the two they were.
    snapshot: Option<Arc<str>>,
}

impl Calls {
    /// Whether there is any.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Takes a piece, and hands over what it means. False if that is too much for one turn.
    pub(super) fn push(&mut self, piece: Piece, mut each: impl FnMut(ChatEvent)) -> bool {
        let at = match self.find(&piece) {
            Some(at) => at,
            None if self.calls.len() >= MAX_CALLS => return false,
            None => {
                self.calls.push(Call { index: piece.index, ..Call::default() });
                self.calls.len() - 1
            }
        };
        let Some(call) = self.calls.get_mut(at) else { return false };
        let index = u32::try_from(at).unwrap_or(u32::MAX);
        let is_news = call.id.is_none() && piece.id.is_some() || !call.has_name && piece.name.is_some();
        if is_news || (call.id.is_none() && !call.has_name && call.joined.is_empty()) {
            let text = |text: &Option<Arc<str>>| text.as_deref().unwrap_or_default().to_owned();
            each(ChatEvent::ToolCallStart { index, id: text(&piece.id), name: text(&piece.name) });
        }
        call.has_name |= piece.name.is_some();
        call.id = call.id.take().or(piece.id);
        let before = call.joined.len();
        if let Some(delta) = call.take(&piece.arguments) {
            each(ChatEvent::ToolCallArgs { index, delta });
        }
        self.bytes += call.joined.len() - before;
        self.bytes <= MAX_ARGUMENTS
    }

    /// Which call a piece belongs to; none begins one.
    fn find(&self, piece: &Piece) -> Option<usize> {
        let is_other = |call: &Call| matches!((&call.id, &piece.id), (Some(one), Some(two)) if one != two);
        match (piece.index, &piece.id) {
            // A server that numbers every call 0 tells them apart by the label alone.
            (Some(_), _) => self
                .calls
                .iter()
                .rposition(|call| call.index == piece.index)
                .filter(|at| !(piece.name.is_some() && self.calls.get(*at).is_some_and(is_other))),
            (None, Some(id)) => self.calls.iter().rposition(|call| call.id.as_ref() == Some(id)),
            (None, None) if piece.name.is_some() => None,
            (None, None) => self.calls.len().checked_sub(1),
        }
    }

    /// The turn is over: what was held back goes out.
    pub(super) fn end(&mut self, mut each: impl FnMut(ChatEvent)) {
        for (at, call) in self.calls.iter_mut().enumerate() {
            if let Some(delta) = call.end() {
                each(ChatEvent::ToolCallArgs { index: u32::try_from(at).unwrap_or(u32::MAX), delta });
            }
        }
    }
}

impl Call {
    fn take(&mut self, arguments: &Loose) -> Option<String> {
        let piece: Arc<str> = match arguments {
            Loose::Nothing => return None,
            Loose::Text(text) if text.is_empty() => return None,
            Loose::Text(text) => Arc::clone(text),
            // Not text: a server that sends the value itself, whole. An object that repeats itself is a snapshot like others.
            Loose::Other(value) => value_text(value).into(),
        };
        let before = self.snapshot.as_deref().unwrap_or(&self.joined);
        let may_be_whole = !before.is_empty() && piece.starts_with(before);
        self.joined.push_str(&piece);
        self.snapshot = may_be_whole.then_some(piece);
        if may_be_whole { None } else { self.unsent() }
    }

    fn unsent(&mut self) -> Option<String> {
        let rest = self.joined.get(self.sent..).filter(|rest| !rest.is_empty())?.to_owned();
        self.sent = self.joined.len();
        Some(rest)
    }

    fn end(&mut self) -> Option<String> {
        let is_json = |text: &str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        if let Some(whole) = self.snapshot.take()
            && !is_json(&self.joined)
            && is_json(&whole)
        {
            // What went out is the beginning of it.
            return whole.get(self.sent..).filter(|rest| !rest.is_empty()).map(str::to_owned);
        }
        self.unsent()
    }
}

fn value_text(value: &Value) -> String {
    value.to_string()
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
