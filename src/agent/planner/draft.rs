//! The graph under construction, and the tools by which a model builds it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::attempts::{Draft, HandOver};
use super::catalogue::NodeCatalogue;
use super::check::{CheckedGraph, Violation, ViolationKind, at_node};
use super::graph::{GraphEdge, GraphNode, WorkflowGraph};
use super::graph_planner::OnPlanned;
use crate::error::Result;
use crate::model::ToolSpec;
use crate::tool::{Access, OnCancel, Tool, ToolContext, ToolReply, Toolset, tool_fn};

/// The tool that hands the graph in.
const FINISHER: &str = "finish_graph";

/// Entries that one search gives.
const MOST_FOUND: usize = 10;

/// A graph under construction. Clones are the same draft.
#[derive(Clone)]
pub(super) struct GraphDraft(Arc<Inner>);

struct Inner {
    objective: Arc<str>,
    catalogue: NodeCatalogue,
    on_planned: Option<OnPlanned>,
    /// Held for one step, never across an await.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    graph: WorkflowGraph,
    finished: Option<Value>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Search {
    /// Words to look for in names and descriptions.
    query: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Named {
    /// The name of an agent or a tool.
    name: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Id {
    /// The id of a node of the graph.
    id: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Ends {
    /// Where the edge begins.
    from: String,
    /// Where it ends.
    to: String,
}

impl GraphDraft {
    pub(super) fn new(objective: Arc<str>, catalogue: NodeCatalogue, on_planned: Option<OnPlanned>) -> Self {
        Self(Arc::new(Inner { objective, catalogue, on_planned, state: Mutex::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whole after each step.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, graph: &WorkflowGraph) -> Vec<Violation> {
        CheckedGraph::check(graph.clone(), &self.0.catalogue).err().unwrap_or_default()
    }

    fn list_nodes(&self) -> ToolReply {
        let of = |kind| self.0.catalogue.entries().filter(move |entry| entry.kind() == kind);
        let summaries = |kind| of(kind).map(|entry| entry.summary()).collect::<Vec<_>>();
        let graph = self.lock().graph.to_value();
        ToolReply::ok(json!({ "agents": summaries("agent"), "tools": summaries("tool"), "graph": graph }))
    }

    fn search_nodes(&self, search: &Search) -> ToolReply {
        let words: Vec<String> = search.query.split_whitespace().map(str::to_lowercase).collect();
        let score = |text: &str| {
            let text = text.to_lowercase();
            words.iter().filter(|word| text.contains(word.as_str())).count()
        };
        let mut found: Vec<(usize, Value)> = Vec::new();
        for entry in self.0.catalogue.entries() {
            let score = 2 * score(entry.name()) + score(entry.description());
            if score > 0 {
                found.push((score, entry.summary()));
            }
        }
        found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        found.truncate(MOST_FOUND);
        let found: Vec<Value> = found.into_iter().map(|(_, entry)| entry).collect();
        ToolReply::ok(json!({ "found": found }))
    }

    fn get_node_info(&self, named: &Named) -> ToolReply {
        let entries = self.0.catalogue.entries().filter(|entry| entry.name() == named.name);
        let mut found: Vec<Value> = entries.map(|entry| entry.whole()).collect();
        match (found.pop(), found.is_empty()) {
            (Some(entry), true) => ToolReply::ok(entry),
            (Some(entry), false) => {
                found.push(entry);
                ToolReply::ok(json!({ "found": found }))
            }
            (None, _) => {
                let catalogue = &self.0.catalogue;
                let text = format!(
                    "There is no {:?} in the catalogue. Agents: {}. Tools: {}.",
                    crate::message::cap_text(&named.name, 100),
                    catalogue.agent_names(),
                    catalogue.tool_names(),
                );
                ToolReply::error("unknown_node", text)
            }
        }
    }

    fn add_node(&self, node: GraphNode) -> ToolReply {
        let mut state = self.lock();
        if state.graph.position(&node.id).is_some() {
            let text = format!("There is a node {} already. Take another id, or remove it first.", node.id);
            return ToolReply::error("duplicate_node", text);
        }
        let (id, at) = (node.id.clone(), at_node(&node));
        let is_agent = node.agent.is_some();
        let mut graph = state.graph.clone();
        graph.nodes.push(node);
        if graph.to_value().to_string().len() > WorkflowGraph::TEXT_BYTES {
            return ToolReply::error("too_large", "The graph would be too large. Write shorter prompts.");
        }
        let found = self.check(&graph).into_iter().filter(|violation| match violation.kind {
            // Edges may still bring what a tool lacks.
            ViolationKind::MissingInput | ViolationKind::Type => violation.at == at && is_agent,
            ViolationKind::TooLarge => true,
            _ => violation.at == at,
        });
        let found: Vec<Violation> = found.collect();
        if !found.is_empty() {
            return invalid("invalid_node", "The node was not added", &found);
        }
        let size = graph.size_text();
        state.graph = graph;
        ToolReply::ok(json!({ "added": id, "graph": size }))
    }

    fn add_edge(&self, edge: GraphEdge) -> ToolReply {
        let mut state = self.lock();
        let before = self.check(&state.graph);
        let mut graph = state.graph.clone();
        let text = edge.text();
        graph.edges.push(edge);
        let found: Vec<Violation> =
            self.check(&graph).into_iter().filter(|violation| !before.contains(violation)).collect();
        if !found.is_empty() {
            return invalid("invalid_edge", "The edge was not added", &found);
        }
        let size = graph.size_text();
        state.graph = graph;
        ToolReply::ok(json!({ "added": text, "graph": size }))
    }

    fn remove_node(&self, id: &Id) -> ToolReply {
        let mut state = self.lock();
        let Id { id } = id;
        if state.graph.position(id).is_none() {
            return ToolReply::error(
                "unknown_node",
                format!("There is no node {:?} in the graph.", crate::message::cap_text(id, 100)),
            );
        }
        state.graph.nodes.retain(|node| node.id != *id);
        state.graph.edges.retain(|edge| edge.from != *id && edge.to != *id);
        ToolReply::ok(json!({ "removed": id, "graph": state.graph.size_text() }))
    }

    fn remove_edge(&self, ends: &Ends) -> ToolReply {
        let mut state = self.lock();
        let before = state.graph.edges.len();
        state.graph.edges.retain(|edge| edge.from != ends.from || edge.to != ends.to);
        let removed = before - state.graph.edges.len();
        if removed == 0 {
            return ToolReply::error(
                "unknown_edge",
                "There is no such edge in the graph; list_nodes shows it.",
            );
        }
        ToolReply::ok(json!({ "removed": removed, "graph": state.graph.size_text() }))
    }

    fn finish_graph(&self) -> ToolReply {
        let mut state = self.lock();
        let found = self.check(&state.graph);
        if !found.is_empty() {
            return invalid("invalid_graph", "The graph cannot run yet", &found);
        }
        let value = state.graph.to_value();
        state.finished = Some(value.clone());
        ToolReply::finishing(value).shown_as(state.graph.size_text())
    }

    /// A tool that does something with this draft.
    fn tool<A, F>(&self, name: &str, description: &str, act: F) -> impl Tool + use<A, F>
    where
        A: for<'de> Deserialize<'de> + JsonSchema + Send + 'static,
        F: Fn(&Self, A) -> ToolReply + Send + Sync + 'static,
    {
        let draft = self.clone();
        let tool = tool_fn(name, description, move |args: A, _| {
            let reply = act(&draft, args);
            async move { reply }
        });
        OfOneRun { tool, is_answer: name == FINISHER }
    }
}

/// The reply to something that would make the graph wrong, with everything that is.
fn invalid(code: &str, what: &str, found: &[Violation]) -> ToolReply {
    let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
    let extras = Map::from_iter([("violations".to_owned(), json!(found))]);
    ToolReply::error(code, format!("{what}: {}.", texts.join("; "))).with(extras)
}

impl Draft for GraphDraft {
    fn tools(&self) -> Result<Toolset> {
        Toolset::new()
            .with(self.tool("list_nodes", "Lists the agents and tools of which nodes can be made, and the graph as it is.", |draft, _: Nothing| draft.list_nodes()))?
            .with(self.tool("search_nodes", "Finds agents and tools by words of their names and descriptions.", |draft, args| draft.search_nodes(&args)))?
            .with(self.tool("get_node_info", "Says all of one agent or tool: what it does and which input it takes.", |draft, args| draft.get_node_info(&args)))?
            .with(self.tool("add_node", "Adds a node: an `agent` with a `prompt`, or a `tool` with its `args`.", Self::add_node))?
            .with(self.tool("add_edge", "Adds an edge: `to` begins when `from` has completed, and gets its result.", Self::add_edge))?
            .with(self.tool("remove_node", "Removes a node, with its edges.", |draft, args| draft.remove_node(&args)))?
            .with(self.tool("remove_edge", "Removes the edges between two nodes.", |draft, args| draft.remove_edge(&args)))?
            .with(self.tool(FINISHER, "Checks the graph. One that can run ends your work; otherwise you read what is wrong, mend it, and finish again.", |draft, _: Nothing| draft.finish_graph()))
    }

    fn brief(&self, failed: Option<&str>) -> String {
        let mut text = format!(
            "Plan a workflow graph for this objective.\n\n<objective>\n{}\n</objective>\n",
            self.0.objective
        );
        text.push_str("\nThe catalogue:\n");
        for entry in self.0.catalogue.entries() {
            let summary = entry.summary();
            let description = summary.get("description").and_then(Value::as_str).unwrap_or_default();
            text.push_str(&format!("- {} {}: {description}\n", entry.kind(), entry.name()));
        }
        if let Some(failed) = failed {
            let graph = self.lock().graph.to_value().to_string();
            let block = super::fence::fenced(&graph, WorkflowGraph::TEXT_BYTES);
            text.push_str(&format!("\nAn earlier attempt failed: {failed}. This is the graph that it left, and you go on with it:\n\n{block}\n"));
        }
        text
    }

    fn finished(&self) -> Option<Value> {
        self.lock().finished.clone()
    }

    fn so_far(&self) -> Option<Value> {
        let state = self.lock();
        (!state.graph.nodes.is_empty()).then(|| state.graph.to_value())
    }

    fn finisher(&self) -> &'static str {
        FINISHER
    }

    fn size(&self, plan: &Value) -> String {
        serde_json::from_value(plan.clone())
            .map_or_else(|_| String::new(), |graph: WorkflowGraph| graph.size_text())
    }

    fn hand_over(&self) -> Option<HandOver> {
        let (act, draft) = (self.0.on_planned.clone()?, self.clone());
        Some(Box::new(move || {
            let plan = draft.finished().unwrap_or_default();
            let graph = serde_json::from_value(plan).map_err(|error| error.to_string())?;
            act(&graph)
        }))
    }
}

/// A tool that has state of one run, which no child may have.
pub(in crate::agent) struct OfOneRun<T> {
    pub(in crate::agent) tool: T,
    /// Whether the run answers by it.
    pub(in crate::agent) is_answer: bool,
}

impl<T: Tool> Tool for OfOneRun<T> {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn call<'a>(&'a self, args: Map<String, Value>, cx: ToolContext) -> BoxFuture<'a, ToolReply> {
        self.tool.call(args, cx)
    }

    fn access(&self) -> Access {
        self.tool.access()
    }

    fn on_cancel(&self) -> OnCancel {
        self.tool.on_cancel()
    }

    fn checks_arguments(&self) -> bool {
        self.tool.checks_arguments()
    }

    fn is_inheritable(&self) -> bool {
        false
    }

    fn is_answer(&self) -> bool {
        self.is_answer
    }

    fn status_text(&self, args: &Map<String, Value>) -> Option<String> {
        self.tool.status_text(args)
    }
}
