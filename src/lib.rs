//! Sub-agents that stream.
//!
//! A parent agent delegates to child agents. Every child is a stream of [`ProcessingMessage`]s that settles into one
//! [`SubAgentOutcome`]; its messages, stamped with where they belong in the tree, appear live in one ordered event log, however deep
//! the nesting; user interfaces fold that log into a tree.
//!
//! The modules below stand in the order in which they build on one another: a module uses those above it and none below.
//!
//! # Features
//!
//! | feature | brings | default |
//! |---|---|---|
//! | – | the core: messages, tree, bus, pipe, models, tools, agents; no HTTP, no database, no JavaScript engine | always |
//! | `workspace` | the tools that read and change a directory, on ripgrep's own crates | through `cli` |
//! | `catalogue` | agents that are files (`agents/<name>.md`), and the tool that delegates to them by name | through `cli` |
//! | `codeact` | agents that act by writing JavaScript, and scripts: QuickJS, in this process or in one of its own | through `cli` |
//! | `providers` | models of providers over HTTP: OpenAI and compatible servers, Anthropic, Gemini, Ollama and others | through `cli` |
//! | `cli` | the program `anabranch`: flags, the live tree in the terminal | yes |

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

pub mod agent;

pub mod frame;

#[cfg(feature = "catalogue")]
pub mod catalogue;

#[cfg(feature = "cli")]
pub mod cli;

pub use agent::Agent;
pub use context::{Root, RunContext, RunSpec};
pub use forward::forward_subagent_stream;
pub use message::{Chunk, MessageBody, ProcessingMessage};
pub use outcome::SubAgentOutcome;
pub use stream::SubAgentStream;
pub use tree::{Delivery, RunTree};

/// The README's example, kept true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
