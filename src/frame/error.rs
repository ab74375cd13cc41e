//! Why a frame has no result: for a host a typed error, for a model a value.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::read::Rejection;
use crate::budget::Refusal;
use crate::id::RunId;
use crate::message::cap_text;
use crate::outcome::SubAgentOutcome;
use crate::tool::ToolReply;

/// How much of an answer that is none is quoted to a model, in bytes: enough to see what it is.
const RAW_BYTES: usize = 4 * 1024;

/// Why a call of a frame has no result.
#[derive(Debug)]
pub struct FrameError {
    /// The frame's name.
    pub frame: Arc<str>,
    /// The run, if it came to one: its whole log is in that of the root.
    pub run: Option<RunId>,
    /// What went wrong.
    pub kind: FrameErrorKind,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "subagent {}: {}", self.frame, self.kind)
    }
}

impl Error for FrameError {
    /// The cause of the kind: the kind itself is part of the text.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.kind.source()
    }
}

/// The kinds of [`FrameError`]. Not exhaustive: ways to fail are added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameErrorKind {
    /// There is no prompt. No agent was built.
    #[error("prompt is required: say what the sub-agent is to do, in full, as a text that is not blank")]
    PromptMissing,
    /// The factory returned an error.
    #[error("its factory failed: {0}")]
    Factory(#[source] Box<dyn Error + Send + Sync>),
    /// The factory panicked, with this text.
    #[error("its factory panicked: {0}")]
    FactoryPanicked(String),
    /// The factory returned an agent that an earlier call had, or a clone of it.
    #[error("its factory returned an agent that an earlier call had; let it build a new one each time")]
    AgentReused,
    /// The agent has an output schema of its own.
    #[error(
        "its factory returned an agent with an output schema; leave it out, the frame's schema is its result's"
    )]
    AgentHasSchema,
    /// A limit refused the run.
    #[error("{}", refused(.0))]
    Refused(Refusal),
    /// The run ended otherwise than completed.
    #[error("it {} ({}): {}", .0.kind(), .0.stop_class(), .0.error_text().unwrap_or_default())]
    Ended(SubAgentOutcome),
    /// The answer is empty or no JSON; in a pass of a compound also one that violates the schema.
    #[error("{rejection}")]
    Rejected {
        /// Why it is none.
        rejection: Rejection,
        /// The answer, as it came.
        raw: String,
    },
}

fn refused(refusal: &Refusal) -> String {
    let value = refusal.to_value();
    value.get("message").and_then(Value::as_str).unwrap_or_default().to_owned()
}

impl FrameError {
    /// What a model reads of it: the code, the sentence, and what there is of a result.
    #[must_use]
    pub fn to_reply(&self) -> ToolReply {
        if let FrameErrorKind::Refused(refusal) = &self.kind {
            return refusal_reply(refusal);
        }
        let mut extras = Map::new();
        let code = match &self.kind {
            FrameErrorKind::PromptMissing => "missing_prompt",
            FrameErrorKind::Factory(_) => "frame_factory_failed",
            FrameErrorKind::FactoryPanicked(_) => "frame_factory_panicked",
            FrameErrorKind::AgentReused => "frame_agent_reused",
            FrameErrorKind::AgentHasSchema => "frame_agent_has_schema",
            FrameErrorKind::Rejected { rejection, raw } => {
                extras.insert("raw".to_owned(), json!(cap_text(raw, RAW_BYTES)));
                match rejection {
                    Rejection::Empty => "frame_answer_empty",
                    Rejection::NotJson { .. } | Rejection::NotSchema { .. } => "frame_answer_not_json",
                }
            }
            FrameErrorKind::Ended(outcome) => {
                extras.insert("outcome".to_owned(), json!(outcome.kind()));
                extras.insert("stop_class".to_owned(), json!(outcome.stop_class()));
                if let Some(partial) = outcome.partial() {
                    extras.insert("partial".to_owned(), partial.clone());
                }
                "frame_failed"
            }
            FrameErrorKind::Refused(_) => "refused",
        };
        if let Some(run) = &self.run {
            extras.insert("run_id".to_owned(), json!(run.to_string()));
        }
        ToolReply::error(code, format!("{self}.")).with(extras)
    }
}

/// The standard object of a refusal.
pub(super) fn refusal_reply(refusal: &Refusal) -> ToolReply {
    ToolReply { for_model: refusal.to_value(), ..ToolReply::error("refused", refused(refusal)) }
}
