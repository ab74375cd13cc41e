//! Agents: producers that let a model decide, and the tools by which they delegate.

mod host;
mod search;
mod subtask;
pub mod tool_loop;

pub use host::Agent;
pub use search::{Breadth, RunSearch, SEARCH_TOOLS};
pub use subtask::RunSubtask;
pub use tool_loop::ToolLoop;
