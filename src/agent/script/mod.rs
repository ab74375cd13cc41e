//! Orchestration scripts: JavaScript that decides which agents run, and agents that do the work.
//!
//! A script is a program in a [sandbox](super::sandbox) whose run is the parent of the runs that it starts: [`ScriptRun`].

mod hands;
mod producer;
mod validate;

pub use producer::{ScriptLimits, ScriptRun};
pub use validate::check_script;
