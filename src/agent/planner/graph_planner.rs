//! The producer whose result is a graph.

use std::fmt;
use std::sync::Arc;

use super::attempts::Planning;
use super::catalogue::{AgentKind, NodeCatalogue};
use super::draft::GraphDraft;
use super::graph::WorkflowGraph;
use crate::context::RunContext;
use crate::stream::SubAgentStream;
use crate::tool::{Job, Policy, Producer, Toolset};

const PROMPT: &str = include_str!("prompts/graph_planner.md");

/// A producer that lets a model put a graph together, node by node, and settles with `{nodes, edges}`.
///
/// At most 3 attempts of at most 50 tool calls each; they share one draft, so an attempt goes on where the one before ended. A graph that
/// cannot run is never a result: without one that can, the run fails, with the draft as its partial result.
///
/// # Cancel safety
///
/// Dropping its stream ends it; nothing is left behind.
#[derive(Clone, Default)]
pub struct GraphPlanner {
    agents: Vec<AgentKind>,
    source: Option<AgentSource>,
    on_planned: Option<OnPlanned>,
}

/// What is done with a finished graph.
pub(super) type OnPlanned = Arc<dyn Fn(&WorkflowGraph) -> Result<(), String> + Send + Sync>;

/// Gives agents of which nodes can be made, where a run has these tools.
type AgentSource = Arc<dyn Fn(&Toolset) -> Vec<AgentKind> + Send + Sync>;

impl GraphPlanner {
    /// What `run_started` calls it.
    pub const KIND: &'static str = "graph_planner";

    /// A planner with the agents of every catalogue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more agent of which nodes can be made.
    #[must_use]
    pub fn with_agent(mut self, agent: AgentKind) -> Self {
        self.agents.push(agent);
        self
    }

    /// With the agents that are there when a graph is planned or checked, such as those of files. One of them takes the place of another
    /// of its name. Default: none.
    #[must_use]
    pub fn with_agents_of(
        mut self,
        source: impl Fn(&Toolset) -> Vec<AgentKind> + Send + Sync + 'static,
    ) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// What is done with a graph before the planner settles with it, such as saving it. An error fails the run, with the graph as its
    /// partial result. It is called on a thread where it may block. Default: nothing.
    #[must_use]
    pub fn on_planned(
        mut self,
        act: impl Fn(&WorkflowGraph) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.on_planned = Some(Arc::new(act));
        self
    }

    /// The catalogue that a run with these tools plans with.
    #[must_use]
    pub fn catalogue(&self, tools: &Toolset, policy: &Policy) -> NodeCatalogue {
        let found = self.source.iter().flat_map(|source| source(tools));
        let agents = self.agents.iter().cloned().chain(found);
        agents.fold(NodeCatalogue::new(tools, policy), NodeCatalogue::with_agent)
    }
}

impl fmt::Debug for GraphPlanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphPlanner").field("agents", &self.agents).finish_non_exhaustive()
    }
}

impl Producer for GraphPlanner {
    fn kind(&self) -> &str {
        Self::KIND
    }

    fn produce(&self, job: Job, cx: RunContext) -> SubAgentStream {
        let catalogue = self.catalogue(&job.tools, &job.runtime.policy);
        let draft = GraphDraft::new(Arc::clone(&job.instructions), catalogue, self.on_planned.clone());
        SubAgentStream::generate(|emit| async move {
            let planning = Planning { who: Self::KIND, system_prompt: PROMPT, job, cx, emit };
            planning.run(draft).await
        })
    }
}
