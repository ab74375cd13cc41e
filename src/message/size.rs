//! How large a body is, and the cap that keeps one message from filling the memory of a tree.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::body::MessageBody;
use super::parts::{Chunk, ChunkMeta, Extra, Scope, Severity, StepRef, TaskRef, Todo};
use crate::id::ToolCallId;
use crate::outcome::{CancelledBy, FailureKind, LimitKind, OutcomeKind, StopClass, StopReason, Usage};

/// What a list or an object costs besides what is in it, in bytes.
const LEVEL: usize = 24;

/// What a message costs besides its texts, in bytes: the message, its pointers and their counters.
const OVERHEAD: usize = 160;

/// How deep a value nests in a log, itself counted: what is deeper stands there as its text. Readers of JSON give up at 128 levels, and
/// whoever puts a message into one of its own needs some.
pub(crate) const MAX_LEVELS: usize = 100;

/// Parts up to this size are left whole: names, labels, titles.
const SMALL: usize = 64;

impl MessageBody {
    /// About how many bytes of memory it holds.
    #[must_use]
    #[inline]
    pub fn approx_bytes(&self) -> usize {
        // Nearly every message, and asked twice for each.
        if let Self::Chunk(Chunk { content, meta: None, .. }) = self {
            return OVERHEAD + content.len();
        }
        OVERHEAD + self.parts_bytes()
    }

    fn parts_bytes(&self) -> usize {
        self.weigh(|parts| parts.iter().sum())
    }

    /// Whether a body of this many bytes holds a value that nests deeper than a log may hold. Each level weighs something, so of most the
    /// size tells.
    #[inline]
    pub(crate) fn is_too_deep(&self, bytes: usize) -> bool {
        bytes > OVERHEAD + LEVEL * MAX_LEVELS && !self.nests_within(MAX_LEVELS)
    }

    /// The same body with the texts of what nests too deep in its place.
    #[must_use]
    #[cold]
    pub(crate) fn flattened(self) -> Self {
        self.cut(usize::MAX)
    }

    /// The same body, or, if it is larger than `max` bytes, one whose long texts are cut at a marker that names both
    /// sizes. The largest parts are cut first. What comes out is at most a kibibyte or two larger than `max`.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn capped(self, max: usize) -> Self {
        let size = self.approx_bytes();
        if size <= max { self } else { self.capped_from(size, max) }
    }

    /// As `capped`, of a body that is known to be larger: it is `size` bytes.
    #[must_use]
    #[cold]
    pub(crate) fn capped_from(self, size: usize, max: usize) -> Self {
        if let Self::Other(body) = &self {
            let kind = cap_text(&body.kind, SMALL);
            let line = format!("a {kind} message of {size} bytes was left out: the cap is {max} bytes");
            return Self::log("anabranch", Severity::Warning, line);
        }
        let level = self.weigh(|parts| level(parts, max));
        self.cut(level)
    }
}

/// The size to which all parts have to be cut so that together they weigh `max`: as water in a vessel, what the small
/// ones leave free is the large ones'.
fn level(parts: &[usize], max: usize) -> usize {
    let mut large: Vec<usize> = parts.iter().copied().filter(|part| *part > SMALL).collect();
    large.sort_unstable();
    let (mut room, mut count) = (max, large.len());
    for part in large {
        if part > room / count {
            return room / count;
        }
        (room, count) = (room - part, count - 1);
    }
    max.max(SMALL)
}

/// A part of a body: how large it is, and how it is cut.
pub(super) trait Weigh {
    /// About how many bytes it holds beside its own.
    fn weight(&self) -> usize;

    /// Cuts it to `max` bytes and a marker, and to [`MAX_LEVELS`].
    fn cut(&mut self, max: usize);

    /// Whether it is at most so many levels deep.
    fn nests_within(&self, _: usize) -> bool {
        true
    }
}

macro_rules! weightless {
    ($($type:ty)*) => { $(impl Weigh for $type {
        fn weight(&self) -> usize {
            0
        }

        fn cut(&mut self, _: usize) {}
    })* };
}

weightless! { bool u32 u64 Usage Scope Severity OutcomeKind StopClass LimitKind CancelledBy FailureKind StopReason }

impl Weigh for String {
    fn weight(&self) -> usize {
        self.len()
    }

    fn cut(&mut self, max: usize) {
        if self.len() > max.max(SMALL) {
            *self = cap_text(self, max);
        }
    }
}

impl Weigh for Arc<str> {
    fn weight(&self) -> usize {
        self.len()
    }

    fn cut(&mut self, max: usize) {
        if self.len() > max.max(SMALL) {
            *self = cap_text(self, max).into();
        }
    }
}

impl Weigh for ToolCallId {
    fn weight(&self) -> usize {
        self.as_str().len()
    }

    fn cut(&mut self, max: usize) {
        if self.as_str().len() > max.max(SMALL) {
            *self = Self::new(cap_text(self.as_str(), max));
        }
    }
}

impl Weigh for Value {
    fn weight(&self) -> usize {
        value_bytes(self)
    }

    fn cut(&mut self, max: usize) {
        flatten(self, MAX_LEVELS);
        *self = cap_value(std::mem::take(self), max.max(SMALL));
    }

    fn nests_within(&self, levels: usize) -> bool {
        nests_within(self, levels)
    }
}

impl Weigh for Map<String, Value> {
    fn weight(&self) -> usize {
        map_bytes(self)
    }

    fn cut(&mut self, max: usize) {
        self.values_mut().for_each(|value| flatten(value, MAX_LEVELS - 1));
        *self = cap_map(std::mem::take(self), max.max(SMALL));
    }

    fn nests_within(&self, levels: usize) -> bool {
        self.values().all(|value| nests_within(value, levels.saturating_sub(1)))
    }
}

impl Weigh for Arc<Map<String, Value>> {
    fn weight(&self) -> usize {
        map_bytes(self)
    }

    fn cut(&mut self, max: usize) {
        if self.weight() > max.max(SMALL) || !self.nests_within(MAX_LEVELS) {
            Arc::make_mut(self).cut(max);
        }
    }

    fn nests_within(&self, levels: usize) -> bool {
        Weigh::nests_within(&**self, levels)
    }
}

impl<T: Weigh> Weigh for Option<T> {
    fn weight(&self) -> usize {
        self.as_ref().map_or(0, Weigh::weight)
    }

    fn cut(&mut self, max: usize) {
        if let Some(part) = self {
            part.cut(max);
        }
    }

    fn nests_within(&self, levels: usize) -> bool {
        self.as_ref().is_none_or(|part| part.nests_within(levels))
    }
}

impl Weigh for TaskRef {
    fn weight(&self) -> usize {
        self.id.weight() + self.title.weight() + self.other.weight()
    }

    fn cut(&mut self, max: usize) {
        if self.weight() > max || !self.nests_within(MAX_LEVELS) {
            self.id.cut(max / 4);
            self.title.cut(max / 4);
            self.other.cut(max / 2);
        }
    }

    fn nests_within(&self, levels: usize) -> bool {
        self.other.nests_within(levels)
    }
}

impl Weigh for StepRef {
    fn weight(&self) -> usize {
        self.id.weight() + self.instructions.weight() + self.other.weight()
    }

    fn cut(&mut self, max: usize) {
        if self.weight() > max || !self.nests_within(MAX_LEVELS) {
            self.id.cut(max / 4);
            self.instructions.cut(max / 4);
            self.other.cut(max / 2);
        }
    }

    fn nests_within(&self, levels: usize) -> bool {
        self.other.nests_within(levels)
    }
}

impl Weigh for Vec<Todo> {
    fn weight(&self) -> usize {
        self.iter().map(todo_bytes).sum()
    }

    /// Keeps the lines that fit; the last one says how many there were.
    fn cut(&mut self, max: usize) {
        if self.weight() <= max.max(SMALL) {
            return;
        }
        let (mut size, count) = (0, self.len());
        let fits = |todo: &Todo| {
            size += todo_bytes(todo);
            size <= max
        };
        let kept = self.iter().map(fits).take_while(|fits| *fits).count();
        self.truncate(kept);
        let content = format!("…[cut: {kept} of {count} lines]");
        self.push(Todo { content, status: "pending".to_owned() });
        self.shrink_to_fit();
    }
}

impl Weigh for Extra {
    fn weight(&self) -> usize {
        self.iter().map(|(key, value)| 48 + key.len() + value.get().len()).sum()
    }

    /// Leaves all of it out: half a value is none, and a key without its neighbours may say something else.
    fn cut(&mut self, max: usize) {
        let size = self.weight();
        if size > max.max(SMALL) {
            let marker = json!(format!("…[cut: 0 of {size} bytes]")).to_string();
            let entry = RawValue::from_string(marker).map(|marker| ("unknown_keys".into(), marker));
            *self = Self::new(entry.into_iter().collect());
        }
    }
}

impl Weigh for ChunkMeta {
    fn weight(&self) -> usize {
        self.content_type.weight() + self.node_id.weight() + self.extra.weight()
    }

    fn cut(&mut self, max: usize) {
        if self.weight() > max {
            self.content_type.cut(max / 4);
            self.node_id.cut(max / 4);
            self.extra.cut(max / 2);
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

/// The object with its largest member cut, or, if that does not do, the beginning of its text with a marker.
pub(crate) fn cap_map(mut map: Map<String, Value>, max: usize) -> Map<String, Value> {
    if map_bytes(&map) <= max {
        return map;
    }
    // The largest member is nearly always the one that matters: cut it alone, so that the others stay readable.
    if let Some((_, largest)) = map.iter_mut().max_by_key(|(_, value)| value_bytes(value)) {
        *largest = cap_value(std::mem::take(largest), max / 2);
    }
    if map_bytes(&map) <= max {
        return map;
    }
    let text = cap_text(&Value::Object(map).to_string(), max);
    Map::from_iter([("result".to_owned(), json!(text))])
}

/// Whether what it holds is at most so many levels deep.
pub(crate) fn nests_within(value: &Value, levels: usize) -> bool {
    let Some(below) = levels.checked_sub(1) else { return false };
    match value {
        Value::Array(items) => items.iter().all(|item| nests_within(item, below)),
        Value::Object(members) => members.values().all(|member| nests_within(member, below)),
        _ => true,
    }
}

/// Puts their texts in the place of lists and objects that are deeper than this.
fn flatten(value: &mut Value, levels: usize) {
    match value {
        Value::Array(_) | Value::Object(_) if levels <= 1 => *value = Value::String(value.to_string()),
        Value::Array(items) => items.iter_mut().for_each(|item| flatten(item, levels - 1)),
        Value::Object(members) => members.values_mut().for_each(|member| flatten(member, levels - 1)),
        _ => {}
    }
}

/// About how many bytes of memory a value holds: what [`cap_value`] goes by.
pub(crate) fn value_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 16,
        Value::String(text) => 24 + text.len(),
        Value::Array(items) => LEVEL + items.iter().map(value_bytes).sum::<usize>(),
        Value::Object(map) => map_bytes(map),
    }
}

/// About how many bytes of memory an object holds: what [`cap_map`] goes by.
pub(crate) fn map_bytes(map: &Map<String, Value>) -> usize {
    LEVEL + map.iter().map(|(key, value)| 24 + key.len() + value_bytes(value)).sum::<usize>()
}

fn todo_bytes(todo: &Todo) -> usize {
    48 + todo.content.len() + todo.status.len()
}
