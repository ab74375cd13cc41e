//! Sub-agents as contracts, and loops that hold them to it.
//!
//! A [`Frame`] is a stack frame: each call is a fresh agent with a fresh conversation, as a child run of the run that calls, and both
//! are gone when it has answered, with `{status, summary, findings}` or a named failure. [`as_tool`] makes one from a factory of agents.
//!
//! A [`compound::Compound`] binds an agent, or a frame, to an executor that acts on the real world, and refines until an evaluator is
//! content. [`confidence`] finds out how sure an agent is; [`run_with_retry`] tries again what failed.

mod asking;
pub mod compound;
pub mod confidence;
mod error;
mod exact;
mod failure;
mod hooking;
mod parent;
mod read;
mod result;
mod retry;
mod run;
mod tool;
mod typed;

pub use asking::{Asking, PassAgent};
pub use error::{FrameError, FrameErrorKind};
pub use failure::{Abort, NotCompleted, Returns, StepFailure};
pub use parent::Parent;
pub use read::Rejection;
pub use result::{FrameResult, FrameStatus, result_schema, result_system_prompt};
pub use retry::{Attempt, Retry, RetryError, run_with_retry};
pub use tool::{Frame, as_tool};
pub use typed::{as_tool_typed, result_schema_of};
