//! The wire form: one flat JSON object a message.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;

use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::body::MessageBody;
use super::nesting::{Nesting, Origin, Timestamp};
use super::parts::{Chunk, ChunkMeta, Extra, OtherBody};
use super::processing::{ProcessingMessage, Stamp};
use super::tag::Tag;
use crate::error::{ErrorKind, Result};
use crate::id::{RunId, Seq, ToolCallId};

const ENVELOPE: [&str; 9] = [
    "type",
    "seq",
    "run_seq",
    "time",
    "root_run_id",
    "run_id",
    "parent_run_id",
    "parent_tool_call_id",
    "subtask_depth",
];

impl ProcessingMessage {
    /// Reads one JSON object.
    ///
    /// Unknown kinds and keys are kept: [`Self::to_json`] gives back the same bytes, without white space around them
    /// and line breaks between them. A message without any key of the envelope is one that is not stamped yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Message`] if it is not a JSON object, has no `type`, or an incomplete envelope.
    pub fn from_json(line: &str) -> Result<Self> {
        let fail = |reason: String| ErrorKind::Message { reason };
        let line = &*on_one_line(line);
        let fields: Fields<'_> = serde_json::from_str(line).map_err(|error| fail(error.to_string()))?;
        let kind: Cow<'_, str> =
            fields.get("type").map_err(fail)?.ok_or_else(|| fail("no key \"type\"".into()))?;
        let stamp = read_stamp(&fields).map_err(fail)?;
        let body_fields = fields.without(&ENVELOPE);
        let other = |problem| {
            let fields = body_fields.extra(&[]);
            MessageBody::Other(Arc::new(OtherBody { kind: kind.clone().into_owned(), fields, problem }))
        };
        let body = match MessageBody::read(&kind, &body_fields) {
            Some(Ok(body)) => body,
            Some(Err(problem)) => other(Some(problem)),
            None => other(None),
        };
        let message = Self::from_parts(body, stamp);
        let mut rest = Expected(line.as_bytes());
        if serde_json::to_writer(&mut rest, &message).is_ok() && rest.0.is_empty() {
            return Ok(message);
        }
        Ok(message.read_from(line))
    }

    /// Its JSON object, on one line, without the line's end.
    #[must_use]
    pub fn to_json(&self) -> String {
        if let Some(line) = self.verbatim() {
            return line.to_owned();
        }
        // Only a value whose own serialisation fails could fail here, and no body has one.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A line of a log must be one line. JSON has line breaks only between its tokens, where they say nothing.
fn on_one_line(text: &str) -> Cow<'_, str> {
    let text = text.trim_ascii();
    if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], "").into() } else { text.into() }
}

/// A writer that takes only the bytes that it expects: compares without a copy.
struct Expected<'a>(&'a [u8]);

impl io::Write for Expected<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.strip_prefix(bytes).ok_or(io::ErrorKind::InvalidData)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Serialize for ProcessingMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(line) = self.verbatim()
            && let Ok(raw) = serde_json::from_str::<&RawValue>(line)
        {
            return raw.serialize(serializer);
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", self.body().kind())?;
        match self.stamp() {
            Stamp::None => {}
            Stamp::Tag(tag) => {
                if let Some(call) = &tag.parent_tool_call_id {
                    map.serialize_entry("parent_tool_call_id", call)?;
                }
                if let Some(depth) = tag.depth {
                    map.serialize_entry("subtask_depth", &depth)?;
                }
            }
            Stamp::Full(Nesting { origin, seq, run_seq, time }) => {
                map.serialize_entry("seq", seq)?;
                map.serialize_entry("run_seq", run_seq)?;
                map.serialize_entry("time", time)?;
                map.serialize_entry("root_run_id", &origin.root_run_id)?;
                map.serialize_entry("run_id", &origin.run_id)?;
                map.serialize_entry("parent_run_id", &origin.parent_run_id)?;
                map.serialize_entry("parent_tool_call_id", &origin.parent_tool_call_id)?;
                map.serialize_entry("subtask_depth", &origin.subtask_depth)?;
            }
        }
        self.body().write(&mut map)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for ProcessingMessage {
    /// From JSON only: the exact text of what is not known has to be kept.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::from_json(raw.get()).map_err(D::Error::custom)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is not a time in RFC 3339, UTC")))
    }
}

fn read_stamp(fields: &Fields<'_>) -> Result<Stamp, String> {
    let (seq, run_id): (Option<Seq>, Option<RunId>) = (fields.get("seq")?, fields.get("run_id")?);
    let parent_tool_call_id: Option<Option<ToolCallId>> = fields.get("parent_tool_call_id")?;
    let depth: Option<u32> = fields.get("subtask_depth")?;
    let (Some(seq), Some(run_id)) = (seq, run_id) else {
        if let Some(key) = ["seq", "run_seq", "run_id", "root_run_id"].into_iter().find(|key| fields.has(key))
        {
            let lacks = if fields.has("seq") { "run_id" } else { "seq" };
            return Err(format!("an envelope with {key:?} but no {lacks:?}"));
        }
        let tag = Tag { parent_tool_call_id, depth };
        return Ok(if tag.is_empty() { Stamp::None } else { Stamp::Tag(Arc::new(tag)) });
    };
    let lacks = |key: &str| format!("an envelope without {key:?}");
    let origin = Origin {
        root_run_id: fields.get("root_run_id")?.ok_or_else(|| lacks("root_run_id"))?,
        run_id,
        parent_run_id: fields.get::<Option<RunId>>("parent_run_id")?.flatten(),
        parent_tool_call_id: parent_tool_call_id.flatten(),
        subtask_depth: depth.ok_or_else(|| lacks("subtask_depth"))?,
    };
    Ok(Stamp::Full(Nesting {
        origin: Arc::new(origin),
        seq,
        run_seq: fields.get("run_seq")?.ok_or_else(|| lacks("run_seq"))?,
        time: fields.get("time")?.ok_or_else(|| lacks("time"))?,
    }))
}

/// The members of a JSON object in their order, values unread.
#[derive(Debug)]
pub(super) struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fields<'a> {
    fn find(&self, key: &str) -> Option<&'a RawValue> {
        // The last one counts, as it does for every reader that builds a map.
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    fn get<T: Deserialize<'a>>(&self, key: &str) -> Result<Option<T>, String> {
        self.find(key)
            .map(|value| serde_json::from_str(value.get()).map_err(|error| format!("key {key:?}: {error}")))
            .transpose()
    }

    fn without(&self, keys: &[&str]) -> Self {
        Self(self.0.iter().filter(|(name, _)| !keys.contains(&&**name)).cloned().collect())
    }

    fn extra(&self, known: &[&str]) -> Extra {
        let unknown = self.0.iter().filter(|(name, _)| !known.contains(&&**name));
        Extra::new(unknown.map(|(name, value)| (Box::from(&**name), (*value).to_owned())).collect())
    }

    /// Reads the known keys into a struct and keeps the others.
    pub(super) fn read<T: DeserializeOwned>(&self, known: &[&str]) -> Result<(T, Extra), String> {
        let members = self.0.iter().filter(|(name, _)| known.contains(&&**name));
        let map =
            MapDeserializer::<_, serde_json::Error>::new(members.map(|(name, value)| (&**name, *value)));
        T::deserialize(map).map(|body| (body, self.extra(known))).map_err(|error| error.to_string())
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::with_capacity(16);
                while let Some(key) = map.next_key::<Key<'de>>()? {
                    members.push((key.0, map.next_value::<&'de RawValue>()?));
                }
                Ok(Fields(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// A key, borrowed where the text has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// Reads a chunk: the one body that is not a plain struct.
pub(super) fn read_chunk(fields: &Fields<'_>) -> Result<Chunk, String> {
    let known = ["content", "done", "thinking", "content_type", "node_id"];
    let meta = ChunkMeta {
        content_type: fields.get::<Option<String>>("content_type")?.flatten(),
        node_id: fields.get::<Option<String>>("node_id")?.flatten(),
        extra: fields.extra(&known),
    };
    Ok(Chunk {
        content: fields.get::<Arc<str>>("content")?.ok_or_else(|| "no key \"content\"".to_owned())?,
        done: fields.get::<Option<bool>>("done")?.flatten().unwrap_or(false),
        thinking: fields.get::<Option<bool>>("thinking")?.flatten().unwrap_or(false),
        meta: (meta != ChunkMeta::default()).then(|| Arc::new(meta)),
    })
}

#[cfg(test)]
#[path = "wire_tests.rs"]
pub(super) mod tests;
