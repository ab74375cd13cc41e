//! Tools: what a model may call.

mod reply;
#[cfg(feature = "workspace")]
pub mod workspace;

pub use reply::ToolReply;
