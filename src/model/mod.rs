//! Language models behind one port, and the adapters that need no network.
//!
//! A model knows messages and tool *descriptions*; it knows nothing of agents, trees or the tools' code.

mod chat;
mod offline;
mod script;

pub use chat::{
    ChatEvent, ChatMessage, ChatModel, ChatRequest, ChatStream, ModelError, ModelErrorKind, RunLabel,
    StopReason, ToolChoice, ToolRequest, ToolSpec,
};
pub use offline::OfflineModel;
pub use script::{Script, ScriptModel};
