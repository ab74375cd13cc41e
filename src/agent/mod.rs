//! Agents: producers that let a model decide, and the tools by which they delegate.

#[cfg(feature = "codeact")]
pub mod codeact;
mod detached;
mod host;
mod inside;
mod names;
pub mod planner;
#[cfg(feature = "codeact")]
pub mod sandbox;
#[cfg(feature = "codeact")]
pub mod script;
mod search;
mod subtask;
pub mod tool_loop;

pub use detached::Detached;
pub use host::Agent;
pub(crate) use inside::Inside;
pub use names::EXECUTE_CODE;
#[cfg(any(feature = "catalogue", feature = "codeact"))]
pub(crate) use names::FINISH;
pub use search::{Breadth, RunSearch, SEARCH_TOOLS};
pub use subtask::RunSubtask;
pub use tool_loop::ToolLoop;
