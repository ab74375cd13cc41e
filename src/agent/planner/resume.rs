//! What an earlier execution left in its log: the graph, and the nodes that completed.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::digest::digest;
use super::execute::GraphExecutor;
use super::graph::WorkflowGraph;
use crate::id::RunId;
use crate::message::{MessageBody, ProcessingMessage};

/// The nodes that completed in an earlier execution, read from its log.
///
/// A node is known by the digest of its definition and its inputs: one that was changed, or that gets something else, is not the node that
/// completed, and runs again. What a node read from the workspace is not part of it. A result that the log holds only in part, because
/// it was larger than a message may be, is left out.
///
/// # Examples
///
/// ```
/// use anabranch::agent::planner::FinishedNodes;
///
/// let log: Vec<anabranch::ProcessingMessage> = Vec::new();
/// let mut finished = FinishedNodes::default();
/// for message in &log {
///     finished.observe(message);
/// }
/// assert!(finished.is_empty());
/// ```
#[derive(Debug, Clone, Default)]
pub struct FinishedNodes {
    executions: HashSet<RunId>,
    /// The runs at and below those. An execution among them is a node's own affair.
    inside: HashSet<RunId>,
    /// By digest.
    results: HashMap<String, Value>,
    graph: Option<WorkflowGraph>,
    title: Option<String>,
}

impl FinishedNodes {
    /// Takes the next message of the log. Only what an execution itself says counts: nothing that a node's run said does.
    pub fn observe(&mut self, message: &ProcessingMessage) {
        let Some(origin) = message.nesting().map(|nesting| &nesting.origin) else { return };
        let (run, parent) = (&origin.run_id, origin.parent_run_id.as_ref());
        let is_below = parent.is_some_and(|parent| self.inside.contains(parent));
        match message.body() {
            MessageBody::RunStarted(started) => {
                let executes = &*started.producer == GraphExecutor::KIND;
                if executes {
                    self.executions.insert(run.clone());
                }
                if executes || is_below {
                    self.inside.insert(run.clone());
                }
            }
            MessageBody::TaskUpdate(update) if self.executions.contains(run) && !is_below => {
                // Whole, or it does not give its own digest.
                let other = &update.task.other;
                let graph = other.get("graph").filter(|graph| is_whole(graph, other.get("digest")));
                if let Some(graph) = graph.and_then(|graph| serde_json::from_value(graph.clone()).ok()) {
                    self.graph = Some(graph);
                    self.title.clone_from(&update.task.title);
                }
            }
            MessageBody::StepResult(step) if self.executions.contains(run) && step.error.is_none() => {
                let other = &step.step.other;
                if let Some(digest) = other.get("digest").and_then(Value::as_str)
                    && is_whole(&step.result, other.get("result_digest"))
                {
                    self.results.insert(digest.to_owned(), step.result.clone());
                }
            }
            _ => {}
        }
    }

    /// The graph that was executed, if the log has one whole.
    #[must_use]
    pub fn graph(&self) -> Option<&WorkflowGraph> {
        self.graph.as_ref()
    }

    /// What that execution was called.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// Whether the log has an execution at all; one that was cut off early has no graph and no nodes.
    #[must_use]
    pub fn has_execution(&self) -> bool {
        !self.executions.is_empty()
    }

    /// How many nodes completed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.results.len()
    }

    /// True if no node did.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// The result of the node with this digest.
    pub(super) fn result(&self, digest: &str) -> Option<&Value> {
        self.results.get(digest)
    }
}

fn is_whole(value: &Value, claimed: Option<&Value>) -> bool {
    claimed.and_then(Value::as_str) == Some(digest(value).as_str())
}
