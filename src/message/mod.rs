//! Messages: an envelope that says where in the tree, and a body that says what.
//!
//! A [`ProcessingMessage`] is cheap to clone: what is large in it is shared. Stamping puts an envelope around the
//! body and never copies or changes it.

#[cfg(test)]
mod any_message_tests;
mod body;
mod nesting;
mod parts;
mod processing;
mod size;
mod tag;
mod wire;

pub use body::{
    Alert, Ask, AskAnswered, ErrorNotice, LogUpdate, MessageBody, PlanningUpdate, Queued, Retrying,
    RunFinished, RunStarted, StepResult, TaskUpdate, TodoUpdate, ToolCallUpdate, ToolResultUpdate,
    TurnFinished,
};
pub use nesting::{Nesting, Origin, Timestamp};
pub use parts::{Chunk, ChunkMeta, Extra, FinalCounters, OtherBody, Scope, Severity, StepRef, TaskRef, Todo};
pub use processing::ProcessingMessage;
#[cfg(feature = "codeact")]
pub(crate) use size::MAX_LEVELS;
pub(crate) use size::{cap_map, cap_text, cap_value, map_bytes, nests_within, value_bytes};
pub use tag::Tag;
