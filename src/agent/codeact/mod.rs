//! CodeAct: an agent that acts by writing JavaScript, beside calling its tools one by one.
//!
//! It is the tool loop with one more tool: `execute_code` runs what the model wrote in a [sandbox](super::sandbox), in which the
//! run's tools and sub-agents are functions. What the code calls is announced live, before its tool starts, and what it starts
//! ends with it.

mod catalogue;
mod execute_code;
mod finish;
mod observation;
mod producer;
mod prompt;

pub use super::names::EXECUTE_CODE;
pub use execute_code::ActionLimits;
pub use producer::CodeAct;
