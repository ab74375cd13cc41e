//! Tools: what a model may call.

mod reply;

pub use reply::ToolReply;
