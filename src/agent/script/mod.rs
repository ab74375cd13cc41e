//! Orchestration scripts: JavaScript that decides which agents run, and agents that do the work.
//!
//! A script is a program in a [sandbox](super::sandbox) whose run is the parent of the runs that it starts: [`ScriptRun`].
//! [`ScriptPlanner`] has a model write one, and [`PlanOrchestrationScript`] is that as a tool.

mod hands;
mod plan;
mod plan_tool;
mod producer;
mod validate;

pub use plan::ScriptPlanner;
pub use plan_tool::PlanOrchestrationScript;
pub use producer::{ScriptLimits, ScriptRun};
pub use validate::check_script;
