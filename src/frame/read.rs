//! Reading an agent's last message as what the contract asks for, or saying which class of failure it is.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::exact::inexact_number;
use super::result::FrameResult;
use crate::agent::tool_loop::whole_fence;
use crate::message::cap_text;
use crate::tool::Schema;

/// How much of a parser's words is kept, in bytes: some quote the whole text.
const REASON_BYTES: usize = 300;

/// Why an answer is none. Exhaustive on purpose: whoever acts on one has to know all three.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "class", rename_all = "snake_case")]
pub enum Rejection {
    /// There is no text, or only blanks.
    Empty,
    /// It is not one JSON value.
    NotJson {
        /// What the parser says, with the place.
        reason: String,
    },
    /// It is JSON that violates the schema, a number that cannot be kept as it is included.
    NotSchema {
        /// Where, as a JSON pointer; empty is the whole value.
        path: String,
        /// What is wrong there.
        reason: String,
    },
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the answer is empty"),
            Self::NotJson { reason } => write!(f, "the answer is not one JSON value: {reason}"),
            Self::NotSchema { path, reason } if path.is_empty() => {
                write!(f, "the answer does not satisfy the schema: {reason}")
            }
            Self::NotSchema { path, reason } => {
                write!(f, "the answer does not satisfy the schema at {path}: {reason}")
            }
        }
    }
}

/// Whether findings are what they have to be, or why not.
pub(super) type Fits = fn(&FrameResult) -> Result<(), String>;

/// What an answer is held against.
#[derive(Clone, Debug)]
pub(super) struct Contract {
    pub(super) schema: Schema,
    /// A check beyond the schema, by the type of the findings.
    pub(super) fits: Option<Fits>,
    /// Whether one fence around the whole answer is taken off.
    pub(super) unwraps_fence: bool,
}

impl Contract {
    /// Reads what an agent settled with: its text, or a value that it handed over as one.
    pub(super) fn read(&self, answer: &Value) -> Result<FrameResult, Rejection> {
        match answer {
            Value::Null => Err(Rejection::Empty),
            Value::String(text) => self.read_text(text),
            value => self.read_value(value),
        }
    }

    fn read_text(&self, text: &str) -> Result<FrameResult, Rejection> {
        if text.trim().is_empty() {
            return Err(Rejection::Empty);
        }
        let fence = if self.unwraps_fence { whole_fence(text.trim()) } else { None };
        let text = fence.unwrap_or(text);
        let value: Value = serde_json::from_str(text)
            .map_err(|error| Rejection::NotJson { reason: cap_text(&error.to_string(), REASON_BYTES) })?;
        let result = self.read_value(&value)?;
        match inexact_number(text) {
            None => Ok(result),
            Some((path, number)) => {
                let number = cap_text(&number, 80);
                let reason = format!(
                    "the number {number} has more digits than a number can keep: write it as a string"
                );
                Err(Rejection::NotSchema { path, reason })
            }
        }
    }

    fn read_value(&self, value: &Value) -> Result<FrameResult, Rejection> {
        if let Some((path, reason)) = self.schema.first_violation(value) {
            return Err(Rejection::NotSchema { path, reason });
        }
        let result: FrameResult = FrameResult::deserialize(value).map_err(|error| Rejection::NotSchema {
            path: String::new(),
            reason: cap_text(&error.to_string(), REASON_BYTES),
        })?;
        let fits = self.fits.map_or(Ok(()), |fits| fits(&result));
        fits.map_err(|reason| Rejection::NotSchema {
            path: "/findings".to_owned(),
            reason: cap_text(&reason, REASON_BYTES),
        })?;
        Ok(result)
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
