//! The message itself: a body, and what is known of where it belongs.

use std::sync::Arc;

use super::body::MessageBody;
use super::nesting::Nesting;
use super::tag::Tag;

/// The element of every sub-agent's stream.
///
/// A producer makes it from a body (`Chunk::text("hi").into()`); the pipe stamps it. Cloning copies a few words.
#[derive(Debug, Clone)]
pub struct ProcessingMessage {
    body: MessageBody,
    stamp: Stamp,
    /// The line it was read from, where writing it back would give other bytes. Void once it is stamped anew.
    verbatim: Option<Arc<Box<str>>>,
}

/// What a message knows of its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Stamp {
    None,
    Tag(Arc<Tag>),
    Full(Nesting),
}

impl ProcessingMessage {
    /// A message that is not stamped yet.
    #[must_use]
    #[inline]
    pub fn new(body: impl Into<MessageBody>) -> Self {
        Self { body: body.into(), stamp: Stamp::None, verbatim: None }
    }

    pub(super) fn from_parts(body: MessageBody, stamp: Stamp) -> Self {
        Self { body, stamp, verbatim: None }
    }

    pub(super) fn read_from(self, line: &str) -> Self {
        Self { verbatim: Some(Arc::new(line.into())), ..self }
    }

    /// What it says.
    #[must_use]
    #[inline]
    pub fn body(&self) -> &MessageBody {
        &self.body
    }

    /// Takes what it says.
    #[must_use]
    #[inline]
    pub fn into_body(self) -> MessageBody {
        self.body
    }

    /// Its envelope; none before it entered a bus.
    #[must_use]
    #[inline]
    pub fn nesting(&self) -> Option<&Nesting> {
        match &self.stamp {
            Stamp::Full(nesting) => Some(nesting),
            Stamp::None | Stamp::Tag(_) => None,
        }
    }

    pub(super) fn stamp(&self) -> &Stamp {
        &self.stamp
    }

    pub(super) fn verbatim(&self) -> Option<&str> {
        self.verbatim.as_ref().map(|line| &***line)
    }

    /// The same body in that envelope. An envelope or tag that was there is replaced.
    #[must_use]
    #[inline]
    pub fn stamped(self, nesting: Nesting) -> Self {
        Self { body: self.body, stamp: Stamp::Full(nesting), verbatim: None }
    }

    /// The same message, tagged with what `tag` says; see [`Tag`]. This one is left as it is.
    #[must_use]
    pub fn tagged(&self, tag: &Tag) -> Self {
        if tag.is_empty() {
            return self.clone();
        }
        match &self.stamp {
            // A stamp is complete and is never overwritten: re-tagging would lose the inner nesting.
            Stamp::Full(_) => self.clone(),
            Stamp::None => Self::from_parts(self.body.clone(), Stamp::Tag(Arc::new(tag.clone()))),
            Stamp::Tag(inner) => {
                Self::from_parts(self.body.clone(), Stamp::Tag(Arc::new(inner.completed_by(tag))))
            }
        }
    }

    /// What it is tagged with, if it is tagged and not stamped.
    #[must_use]
    pub fn tag(&self) -> Option<&Tag> {
        match &self.stamp {
            Stamp::Tag(tag) => Some(tag),
            Stamp::None | Stamp::Full(_) => None,
        }
    }
}

impl PartialEq for ProcessingMessage {
    /// Equal in what they say and where they belong; the bytes that they were read from do not count.
    fn eq(&self, other: &Self) -> bool {
        self.stamp == other.stamp && self.body == other.body
    }
}

impl<B: Into<MessageBody>> From<B> for ProcessingMessage {
    fn from(body: B) -> Self {
        Self::new(body)
    }
}
