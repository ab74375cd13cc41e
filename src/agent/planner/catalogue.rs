//! What the nodes of a graph can be: agents and tools, by name.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::agent::search::RunSearch;
use crate::model::ToolSpec;
use crate::tool::{Caller, Effect, Policy, Producer, SubAgentRun, SubAgentTool, Toolset};

/// An agent that a node can be: how a prompt becomes a run, and which tools that run has.
///
/// # Examples
///
/// ```
/// use anabranch::agent::planner::AgentKind;
/// use anabranch::tool::SubAgentRun;
///
/// let reviewer = AgentKind::new("reviewer", "Reads code and lists its defects.")
///     .brief(|prompt| SubAgentRun::new("reviewer", format!("Review this.\n\n{prompt}")))
///     .tools(|parent| parent.only(&["read_file", "grep"]));
/// assert_eq!(reviewer.name(), "reviewer");
/// ```
#[derive(Clone)]
pub struct AgentKind {
    name: Arc<str>,
    description: Arc<str>,
    brief: Arc<dyn Fn(&str) -> SubAgentRun + Send + Sync>,
    tools: Arc<dyn Fn(&Toolset) -> Toolset + Send + Sync>,
    producer: Option<Arc<dyn Producer>>,
    prepare: Option<Prepare>,
}

type Prepare = Arc<dyn for<'a> Fn(SubAgentRun, &'a Caller) -> BoxFuture<'a, SubAgentRun> + Send + Sync>;

impl AgentKind {
    /// An agent of this name with the prompt as its brief, all tools that may be inherited, and the host's producer.
    #[must_use]
    pub fn new(name: &str, description: &str) -> Self {
        let agent = name.to_owned();
        Self {
            name: name.into(),
            description: description.into(),
            brief: Arc::new(move |prompt| SubAgentRun::new(&agent, prompt)),
            tools: Arc::new(Toolset::clone),
            producer: None,
            prepare: None,
        }
    }

    /// How a prompt, with what the edges brought, becomes a run. Default: it is the brief.
    #[must_use]
    pub fn brief(mut self, brief: impl Fn(&str) -> SubAgentRun + Send + Sync + 'static) -> Self {
        self.brief = Arc::new(brief);
        self
    }

    /// Which of the tools that may be inherited it has. Default: all.
    #[must_use]
    pub fn tools(mut self, tools: impl Fn(&Toolset) -> Toolset + Send + Sync + 'static) -> Self {
        self.tools = Arc::new(tools);
        self
    }

    /// What runs it. Default: the host's producer.
    #[must_use]
    pub fn produced_by(mut self, producer: Arc<dyn Producer>) -> Self {
        self.producer = Some(producer);
        self
    }

    /// What becomes of its run when a node begins, in the run of the graph that the caller is of: for what depends on that run, such as a
    /// model that may not be had, and for what is to be said in its log. Default: the run is as it was briefed.
    #[must_use]
    pub fn prepared(
        mut self,
        prepare: impl for<'a> Fn(SubAgentRun, &'a Caller) -> BoxFuture<'a, SubAgentRun> + Send + Sync + 'static,
    ) -> Self {
        self.prepare = Some(Arc::new(prepare));
        self
    }

    /// Its name in the catalogue.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) async fn run(&self, prompt: &str, caller: &Caller) -> SubAgentRun {
        let run = (self.brief)(prompt);
        match &self.prepare {
            Some(prepare) => prepare(run, caller).await,
            None => run,
        }
    }

    pub(super) fn child_tools(&self, parent: &Toolset) -> Toolset {
        (self.tools)(&parent.inheritable())
    }

    pub(super) fn producer(&self) -> Option<&Arc<dyn Producer>> {
        self.producer.as_ref()
    }

    /// An ordinary agent with the tools of whoever runs the graph.
    fn ordinary() -> Self {
        Self::new(
            "agent",
            "An ordinary agent with all tools. It sees its prompt and what its edges bring, and answers in prose, or with a value where there is an output_schema.",
        )
    }

    /// The child of `run_search`.
    fn search() -> Self {
        let brief = |prompt: &str| {
            let params = serde_json::from_value(json!({ "query": prompt })).ok();
            let run = params.and_then(|params| RunSearch::default().build_run(params).ok());
            run.unwrap_or_else(|| SubAgentRun::new("search", prompt))
        };
        let description = "A read-only agent that looks in the workspace for what its prompt asks, and reports what it found with the places.";
        Self::new("search", description).brief(brief).tools(|parent| RunSearch::default().child_tools(parent))
    }
}

impl fmt::Debug for AgentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentKind").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The agents and tools of which a graph can be made. Agents: `agent`, `search` where there is something to search with, and those
/// that a host adds. Tools: those of the run that its policy allows, without those that start runs or belong to one run.
#[derive(Debug, Clone, Default)]
pub struct NodeCatalogue {
    agents: Vec<AgentKind>,
    tools: Vec<Arc<ToolSpec>>,
}

/// One entry of the catalogue.
#[derive(Debug, Clone, Copy)]
pub(super) enum Entry<'a> {
    Agent(&'a AgentKind),
    Tool(&'a ToolSpec),
}

impl NodeCatalogue {
    /// The catalogue of a run with these tools.
    #[must_use]
    pub fn new(tools: &Toolset, policy: &Policy) -> Self {
        let tools = tools
            .inheritable()
            .without_spawning()
            .filter(|tool| policy.at_best(tool, &[&tool.spec().name]) == Effect::Allow);
        let mut agents = vec![AgentKind::ordinary(), AgentKind::search()];
        agents.retain(|agent| &*agent.name != "search" || !agent.child_tools(&tools).is_empty());
        Self { agents, tools: tools.specs().to_vec() }
    }

    /// With one more agent. It replaces one of the same name.
    #[must_use]
    pub fn with_agent(mut self, agent: AgentKind) -> Self {
        match self.agents.iter_mut().find(|known| known.name == agent.name) {
            Some(known) => *known = agent,
            None => self.agents.push(agent),
        }
        self
    }

    pub(super) fn agent(&self, name: &str) -> Option<&AgentKind> {
        self.agents.iter().find(|agent| &*agent.name == name)
    }

    pub(super) fn tool(&self, name: &str) -> Option<&ToolSpec> {
        self.tools.iter().find(|tool| tool.name == name).map(Arc::as_ref)
    }

    /// Agents first, each kind in its order.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let tools = self.tools.iter().map(|tool| Entry::Tool(tool));
        self.agents.iter().map(Entry::Agent).chain(tools)
    }

    /// The names of the agents, for whoever named another.
    pub(super) fn agent_names(&self) -> String {
        listed(self.agents.iter().map(|agent| &*agent.name))
    }

    /// The names of the tools.
    pub(super) fn tool_names(&self) -> String {
        listed(self.tools.iter().map(|tool| tool.name.as_str()))
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl Entry<'_> {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Agent(agent) => &agent.name,
            Self::Tool(tool) => &tool.name,
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Agent(_) => "agent",
            Self::Tool(_) => "tool",
        }
    }

    pub(super) fn description(&self) -> &str {
        match self {
            Self::Agent(agent) => &agent.description,
            Self::Tool(tool) => &tool.description,
        }
    }

    /// What it is, in one line.
    pub(super) fn summary(&self) -> Value {
        let first = self.description().split_inclusive(". ").next().unwrap_or_default();
        json!({ "name": self.name(), "kind": self.kind(), "description": first.trim_end() })
    }

    /// All that there is to know of it.
    pub(super) fn whole(&self) -> Value {
        let input = match self {
            Self::Agent(_) => {
                json!({ "prompt": "string, required", "edges": "any number; each adds a block to the prompt" })
            }
            Self::Tool(tool) => tool.parameters.clone(),
        };
        json!({ "name": self.name(), "kind": self.kind(), "description": self.description(), "input": input })
    }
}
