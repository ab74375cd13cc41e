//! Language models behind one port.
//!
//! A model knows messages and tool *descriptions*; it knows nothing of agents, trees or the tools' code.

mod chat;
mod gate;
mod image;
mod offline;
#[cfg(feature = "providers")]
pub mod provider;
mod script;

pub use crate::outcome::StopReason;
pub use chat::{
    ChatEvent, ChatMessage, ChatModel, ChatRequest, ChatStream, ModelError, ModelErrorKind, RunLabel,
    ToolChoice, ToolRequest, ToolSpec,
};
pub use gate::{Gate, Gated, Gates};
pub use image::{Image, ImageError, Images};
pub use offline::OfflineModel;
#[cfg(feature = "providers")]
pub use provider::{ProviderModel, ProviderName};
pub use script::{Script, ScriptModel};
