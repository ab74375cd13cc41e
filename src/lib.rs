//! Sub-agents that stream.
pub mod id;

pub mod error;

pub mod outcome;

pub mod message;

pub mod tree;

pub mod clock;

pub mod cancel;

pub mod budget;

pub mod bus;

pub mod stream;

pub mod context;

pub mod forward;

pub mod testing;

pub mod model;

pub mod tool;

pub use message::{Chunk, MessageBody, ProcessingMessage};
pub use outcome::SubAgentOutcome;
pub use stream::SubAgentStream;
