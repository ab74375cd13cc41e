//! What a subscriber receives: messages, and marks for what it missed.

use std::sync::Arc;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::reducer::RunTree;
use crate::id::Seq;
use crate::message::ProcessingMessage;

/// One item of a subscription. Exhaustive on purpose: a watcher that ignores gaps shows a wrong tree.
#[derive(Debug, Clone)]
pub enum Delivery {
    /// A message of the log.
    Message(ProcessingMessage),
    /// Messages that the subscriber was too slow for, with the tree that they made.
    Gap(Gap),
}

/// A range of the log that is no longer retained.
#[derive(Debug, Clone)]
pub struct Gap {
    /// The first message that is missing.
    pub from_seq: Seq,
    /// The last message that is missing.
    pub to_seq: Seq,
    /// The tree after `to_seq`.
    pub snapshot: Arc<RunTree>,
}

impl Delivery {
    /// The message, if it is one.
    #[must_use]
    pub fn message(&self) -> Option<&ProcessingMessage> {
        match self {
            Self::Message(message) => Some(message),
            Self::Gap(_) => None,
        }
    }
}

impl Serialize for Delivery {
    /// The wire form: a message as it is, a gap as `{"type":"gap",…}` with the folded tree.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Message(message) => message.serialize(serializer),
            Self::Gap(gap) => {
                let mut map = serializer.serialize_map(Some(4))?;
                map.serialize_entry("type", "gap")?;
                map.serialize_entry("from_seq", &gap.from_seq)?;
                map.serialize_entry("to_seq", &gap.to_seq)?;
                map.serialize_entry("snapshot", &gap.snapshot.to_json())?;
                map.end()
            }
        }
    }
}
