//! Sub-agents that stream.
pub mod id;

pub mod error;

pub mod outcome;

pub mod message;

pub mod tree;

pub mod model;

pub mod tool;

#[cfg(feature = "cli")]
pub mod cli;
