//! Planning: a graph of agents and tools that a model puts together, and its execution. Proof that a producer need not be an
//! agent that answers.
//!
//! A **graph** has nodes, each an agent with a prompt or a tool with arguments, and edges along which results go
//! ([`WorkflowGraph`]). It is checked against the [`NodeCatalogue`] of the run ([`CheckedGraph::check`]): what is wrong is told all at once,
//! each [`Violation`] with its place and its remedy. [`GraphPlanner`] is the producer that makes one, [`GraphExecutor`] the one that runs
//! one, [`FinishedNodes`] what of an earlier execution need not run again. [`PlanWorkflowGraph`] is the planner as a tool, [`CreatePlan`] one that plans tasks.
//!
//! | what | where |
//! |---|---|
//! | a graph as it is written | `graph.rs` |
//! | of what it is made | `catalogue.rs` |
//! | what can be wrong with it | `check.rs`, `inputs.rs`, `order.rs` |
//! | the planners | `attempts.rs`, `draft.rs`, `graph_planner.rs`, `plan_tool.rs`, `create_plan.rs` |
//! | the execution | `schedule.rs` decides, `execute.rs` waits, `node_run.rs` is one node, `report.rs` the end, `resume.rs` the log |

mod attempts;
mod catalogue;
mod check;
mod create_plan;
mod digest;
mod draft;
mod execute;
mod fence;
mod graph;
mod graph_planner;
mod inputs;
mod node_run;
mod order;
mod plan_tool;
mod report;
mod resume;
mod schedule;

pub use catalogue::{AgentKind, NodeCatalogue};
pub use check::{CheckedGraph, Violation, ViolationKind};
pub use create_plan::{CreatePlan, PlannedStep, PlannedTask, TaskPlan, TaskPlanner};
pub use execute::GraphExecutor;
pub(crate) use fence::fenced;
pub use graph::{GraphEdge, GraphNode, WorkflowGraph};
pub use graph_planner::GraphPlanner;
pub use plan_tool::PlanWorkflowGraph;
pub use resume::FinishedNodes;
#[cfg(feature = "codeact")]
pub(super) use {
    attempts::{Draft, Planning},
    draft::OfOneRun,
    plan_tool::{objective, planner_run},
};
