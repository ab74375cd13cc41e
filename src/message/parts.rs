//! What bodies are made of: text pieces, references, and what a reader does not know but keeps.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use crate::outcome::{Usage, words};

/// A piece of text as it streams. The one body that is not behind a pointer of its own: most messages are this.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chunk {
    /// The text.
    pub content: Arc<str>,
    /// Whether it closes the text that the run has open.
    pub done: bool,
    /// Whether it is what the model thinks before it answers.
    pub thinking: bool,
    /// What chunks seldom say.
    pub meta: Option<Arc<ChunkMeta>>,
}

/// What a chunk seldom says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ChunkMeta {
    /// The kind of content, if it is not text.
    pub content_type: Option<String>,
    /// The original's label of the step that says it.
    pub node_id: Option<String>,
    /// Keys that this version does not know.
    pub extra: Extra,
}

impl Chunk {
    /// A piece of the answer.
    #[must_use]
    pub fn text(content: impl Into<Arc<str>>) -> Self {
        // Not filled up from the default, whose empty text would be counted up and down for each message.
        Self { content: content.into(), done: false, thinking: false, meta: None }
    }

    /// A piece of thinking.
    #[must_use]
    pub fn thinking(content: impl Into<Arc<str>>) -> Self {
        Self { content: content.into(), done: false, thinking: true, meta: None }
    }

    /// The end of the open text or thinking.
    #[must_use]
    pub fn end(thinking: bool) -> Self {
        Self { done: true, thinking, ..Self::default() }
    }
}

words! {
    /// How long a run lives, declared at its spawn.
    Scope {
        /// It ends with its parent's turn.
        Foreground = "foreground",
        /// It ends with the root.
        Background = "background",
    }
}

words! {
    /// How much a log line matters.
    Severity {
        /// For the record.
        Info = "info",
        /// Something is off.
        Warning = "warning",
        /// Something failed.
        Error = "error",
    }
}

/// A task, as the originals name it. What else they say of it is kept.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TaskRef {
    /// Its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A step of a task, as the originals name it. What else they say of it is kept.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StepRef {
    /// Its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What it is to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// One line of a to-do list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Todo {
    /// What is to be done.
    pub content: String,
    /// `pending`, `in_progress` or `completed`; other words are kept.
    pub status: String,
}

/// The counters of a run at its end.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FinalCounters {
    /// What it used.
    pub usage: Usage,
    /// What it and its descendants used.
    pub subtree_usage: Usage,
    /// Model turns.
    pub turns: u64,
    /// Tool calls.
    pub tool_calls: u64,
    /// From its first message to its last.
    pub duration_ms: u64,
    /// Messages that were discarded because they came too late.
    pub late: u64,
}

/// Keys that this version does not know, in their order and byte for byte.
#[derive(Clone, Default)]
pub struct Extra(Option<Arc<[Member]>>);

type Member = (Box<str>, Box<RawValue>);

impl Extra {
    pub(super) fn new(entries: Vec<Member>) -> Self {
        Self(if entries.is_empty() { None } else { Some(entries.into()) })
    }

    /// Keys that this version knows to say, though no type has a field for them. They must be none of the message's own.
    pub(crate) fn of<'a>(members: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let member = |(key, value): (&str, Value)| Some((key.into(), to_raw_value(&value).ok()?));
        Self::new(members.into_iter().filter_map(member).collect())
    }

    /// The keys with their JSON text.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().flat_map(|entries| entries.iter()).map(|(key, value)| (&**key, &**value))
    }

    /// The JSON text of one key; of a key that is there twice the last one, as for every reader that builds a map.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().filter(|(name, _)| *name == key).last().map(|(_, value)| value.get())
    }

    /// True if there is nothing unknown.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl PartialEq for Extra {
    fn eq(&self, other: &Self) -> bool {
        // Raw values have no equality of their own; their texts do.
        let mut pairs = self.iter().zip(other.iter());
        self.iter().count() == other.iter().count()
            && pairs.all(|((key, value), (name, text))| key == name && value.get() == text.get())
    }
}

impl fmt::Debug for Extra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(key, value)| (key, value.get()))).finish()
    }
}

/// A body whose kind this version does not know, or which is not what its kind says: kept as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct OtherBody {
    /// The kind.
    pub kind: String,
    /// All of its keys.
    pub fields: Extra,
    /// If the kind is known: why the body is not one.
    pub problem: Option<String>,
}

impl OtherBody {
    /// A body of a kind that has no type of its own. Its keys must be none of the envelope's.
    pub(crate) fn new<'a>(kind: &str, members: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        Self { kind: kind.to_owned(), fields: Extra::of(members), problem: None }
    }
}
