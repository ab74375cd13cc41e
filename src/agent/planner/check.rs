//! Whether a graph can run: everything that is wrong with it at once, each with its place and how to mend it.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

use super::catalogue::{AgentKind, NodeCatalogue};
use super::graph::{GraphEdge, GraphNode, WorkflowGraph};
use super::inputs;
use super::order::{Order, circle_text, order};
use crate::message::cap_text;
use crate::outcome::words;
use crate::tool::Schema;

/// The longest id, in bytes, as for the name of a tool.
const ID_BYTES: usize = 64;

words! {
    /// What is wrong with a graph.
    ViolationKind {
        /// It has no node.
        Empty = "empty",
        /// More nodes, edges or text than a graph may have.
        TooLarge = "too_large",
        /// An id or a name that is none.
        Id = "id",
        /// An id, an edge or an input that is there twice.
        Duplicate = "duplicate",
        /// A node that is neither an agent with a prompt nor a tool with arguments.
        Node = "node",
        /// An agent or a tool that the catalogue does not have.
        UnknownNode = "unknown_node",
        /// A schema that does not compile.
        Schema = "schema",
        /// A value that is not what its place takes.
        Type = "type",
        /// An argument that the tool needs and nothing brings.
        MissingInput = "missing_input",
        /// An argument that the tool does not have.
        UnknownInput = "unknown_input",
        /// An edge from or to a node that is not there.
        DanglingEdge = "dangling_edge",
        /// Nodes that wait for one another.
        Cycle = "cycle",
        /// A node that could never begin, because it waits for a cycle.
        Unreachable = "unreachable",
    }
}

/// One thing that is wrong with a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// What kind of thing.
    pub kind: ViolationKind,
    /// Where: `the graph`, `node a` or `edge a -> b`.
    pub at: String,
    /// What is wrong, and how to mend it.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: {}", self.kind, self.at, self.message)
    }
}

/// A graph that can run: its nodes have unique ids, are known, have what they need, and can be put in an order.
#[derive(Debug, Clone)]
pub struct CheckedGraph {
    graph: WorkflowGraph,
    nodes: Vec<CheckedNode>,
}

/// A node of a checked graph. Positions are those of the graph.
#[derive(Debug, Clone)]
pub(super) struct CheckedNode {
    pub(super) id: Arc<str>,
    pub(super) work: Work,
    pub(super) schema: Option<Schema>,
    /// What it waits for, in the order of the edges.
    pub(super) inputs: Vec<Input>,
    /// Who waits for it, each once.
    pub(super) next: Vec<usize>,
}

/// What a node does.
#[derive(Debug, Clone)]
pub(super) enum Work {
    Agent { kind: AgentKind, prompt: Arc<str> },
    Tool { name: Arc<str>, args: Map<String, Value> },
}

/// Where an input comes from, and as what.
#[derive(Debug, Clone)]
pub(super) struct Input {
    pub(super) from: usize,
    /// None only into a tool: then it brings nothing.
    pub(super) name: Option<Arc<str>>,
}

impl CheckedGraph {
    /// The most nodes of a graph. A graph that needs more is rather a program.
    pub const MAX_NODES: usize = 64;
    /// The most edges of a graph: four for each node.
    pub const MAX_EDGES: usize = 256;
    /// The longest prompt of a node, in bytes: about 8,000 tokens.
    pub const PROMPT_BYTES: usize = 32 * 1024;

    /// Checks a graph against a catalogue.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it; but of a graph that is too large only that.
    pub fn check(graph: WorkflowGraph, catalogue: &NodeCatalogue) -> Result<Self, Vec<Violation>> {
        let mut check = Check { catalogue, graph: &graph, violations: Vec::new() };
        let nodes = check.all();
        let violations = check.violations;
        if violations.is_empty() { Ok(Self { graph, nodes }) } else { Err(violations) }
    }

    /// The graph as it was written.
    #[must_use]
    pub fn graph(&self) -> &WorkflowGraph {
        &self.graph
    }

    pub(super) fn nodes(&self) -> &[CheckedNode] {
        &self.nodes
    }
}

struct Check<'a> {
    catalogue: &'a NodeCatalogue,
    graph: &'a WorkflowGraph,
    violations: Vec<Violation>,
}

impl<'a> Check<'a> {
    fn blame(&mut self, kind: ViolationKind, at: impl Into<String>, message: impl Into<String>) {
        self.violations.push(Violation { kind, at: at.into(), message: message.into() });
    }

    fn all(&mut self) -> Vec<CheckedNode> {
        let graph = self.graph;
        let (nodes, edges) = (graph.nodes.len(), graph.edges.len());
        if nodes == 0 {
            self.blame(ViolationKind::Empty, "the graph", "it has no node; add at least one");
        }
        for (count, max, noun) in
            [(nodes, CheckedGraph::MAX_NODES, "nodes"), (edges, CheckedGraph::MAX_EDGES, "edges")]
        {
            if count > max {
                let text = format!("{count} {noun} are too many; make do with {max}");
                self.blame(ViolationKind::TooLarge, "the graph", text);
            }
        }
        if !self.violations.is_empty() {
            return Vec::new();
        }
        self.ids();
        let position: HashMap<&str, usize> =
            graph.nodes.iter().enumerate().rev().map(|(at, node)| (node.id.as_str(), at)).collect();
        let edges = self.edges(&position);
        let mut checked = Vec::with_capacity(nodes);
        for (at, node) in graph.nodes.iter().enumerate() {
            let incoming: Vec<&GraphEdge> =
                edges.iter().filter(|(_, to, _)| *to == at).map(|(.., edge)| *edge).collect();
            checked.extend(self.node(at, node, &incoming, &edges));
        }
        let pairs: Vec<(usize, usize)> = edges.iter().map(|(from, to, _)| (*from, *to)).collect();
        self.order(&order(nodes, &pairs));
        checked
    }

    fn ids(&mut self) {
        let mut seen = HashSet::new();
        for node in &self.graph.nodes {
            if !is_id(&node.id) {
                let text = format!(
                    "{:?} is no id; use 1 to {ID_BYTES} of a-z, A-Z, 0-9, _ and -",
                    cap_text(&node.id, ID_BYTES)
                );
                self.blame(ViolationKind::Id, at_node(node), text);
            } else if !seen.insert(node.id.as_str()) {
                self.blame(
                    ViolationKind::Duplicate,
                    at_node(node),
                    "another node has this id; give each its own",
                );
            }
        }
    }

    /// The edges that have both ends, with the positions of these.
    fn edges(&mut self, position: &HashMap<&str, usize>) -> Vec<(usize, usize, &'a GraphEdge)> {
        let graph = self.graph;
        let mut whole: Vec<(usize, usize, &'a GraphEdge)> = Vec::new();
        for edge in &graph.edges {
            let at = at_edge(edge);
            let ends = (position.get(edge.from.as_str()), position.get(edge.to.as_str()));
            for (id, end) in [(&edge.from, ends.0), (&edge.to, ends.1)] {
                if end.is_none() {
                    let text = format!(
                        "there is no node {:?}; the nodes are: {}",
                        cap_text(id, ID_BYTES),
                        self.ids_text()
                    );
                    self.blame(ViolationKind::DanglingEdge, &at, text);
                }
            }
            let (Some(from), Some(to)) = ends else { continue };
            if whole.iter().any(|(.., other)| *other == edge) {
                self.blame(ViolationKind::Duplicate, at, "the same edge is there twice; remove one");
                continue;
            }
            whole.push((*from, *to, edge));
        }
        whole
    }

    fn ids_text(&self) -> String {
        let ids: Vec<&str> = self.graph.nodes.iter().map(|node| node.id.as_str()).collect();
        cap_text(&ids.join(", "), 400)
    }

    /// The node, as far as it is one.
    fn node(
        &mut self,
        at: usize,
        node: &GraphNode,
        incoming: &[&GraphEdge],
        edges: &[(usize, usize, &GraphEdge)],
    ) -> Option<CheckedNode> {
        let schema = self.output_schema(node);
        let work = match (&node.agent, &node.tool) {
            (Some(agent), None) => self.agent(node, agent, incoming),
            (None, Some(tool)) => self.tool(node, tool, incoming),
            (Some(_), Some(_)) => {
                self.blame(ViolationKind::Node, at_node(node), "it has `agent` and `tool`; keep one of them");
                None
            }
            (None, None) => {
                let text = "it has neither `agent` nor `tool`; say which of the catalogue it is";
                self.blame(ViolationKind::Node, at_node(node), text);
                None
            }
        };
        let is_agent = matches!(work, Some(Work::Agent { .. }));
        let input = |(from, _, edge): &(usize, usize, &GraphEdge)| {
            let name = edge.name.as_deref().or(is_agent.then_some(edge.from.as_str()));
            Input { from: *from, name: name.map(Arc::from) }
        };
        let inputs = edges.iter().filter(|(_, to, _)| *to == at).map(input).collect();
        let mut next: Vec<usize> =
            edges.iter().filter(|(from, ..)| *from == at).map(|(_, to, _)| *to).collect();
        next.sort_unstable();
        next.dedup();
        Some(CheckedNode { id: node.id.as_str().into(), work: work?, schema, inputs, next })
    }

    fn output_schema(&mut self, node: &GraphNode) -> Option<Schema> {
        let schema = node.output_schema.clone()?;
        match Schema::compile(Arc::new(schema), "the result") {
            Ok(schema) => Some(schema),
            Err(error) => {
                let text = format!("{error}; give a JSON schema as output_schema, or none");
                self.blame(ViolationKind::Schema, at_node(node), cap_text(&text, 400));
                None
            }
        }
    }

    fn agent(&mut self, node: &GraphNode, agent: &str, incoming: &[&GraphEdge]) -> Option<Work> {
        if node.args.is_some() {
            let text = "it is an agent and has `args`; say what it is to do in `prompt`";
            self.blame(ViolationKind::Node, at_node(node), text);
        }
        let prompt = node.prompt.as_deref().unwrap_or_default();
        if prompt.trim().is_empty() {
            let text = "it has no `prompt`; say there what the agent is to do, in full";
            self.blame(ViolationKind::MissingInput, at_node(node), text);
        } else if prompt.len() > CheckedGraph::PROMPT_BYTES {
            let (bytes, max) = (prompt.len(), CheckedGraph::PROMPT_BYTES);
            let text = format!("its prompt has {bytes} bytes; make do with {max}");
            self.blame(ViolationKind::TooLarge, at_node(node), text);
        }
        let mut names = HashSet::new();
        for edge in incoming {
            let name = edge.name.as_deref().unwrap_or(&edge.from);
            if !is_id(name) {
                let text = format!(
                    "{:?} is no name for an input; use a-z, A-Z, 0-9, _ and -",
                    cap_text(name, ID_BYTES)
                );
                self.blame(ViolationKind::Id, at_edge(edge), text);
            } else if !names.insert(name) {
                let text =
                    format!("another input of {} is called {name}; give one another name with `as`", edge.to);
                self.blame(ViolationKind::Duplicate, at_edge(edge), text);
            }
        }
        let Some(kind) = self.catalogue.agent(agent) else {
            let mut text = format!(
                "there is no agent {:?}; the agents are: {}",
                cap_text(agent, ID_BYTES),
                self.catalogue.agent_names()
            );
            if self.catalogue.tool(agent).is_some() {
                text.push_str("; it is a tool, so write `tool` in place of `agent`");
            }
            self.blame(ViolationKind::UnknownNode, at_node(node), text);
            return None;
        };
        Some(Work::Agent { kind: kind.clone(), prompt: prompt.into() })
    }

    fn tool(&mut self, node: &GraphNode, tool: &str, incoming: &[&GraphEdge]) -> Option<Work> {
        if node.prompt.is_some() {
            let text = "it is a tool and has a `prompt`; give its arguments in `args`";
            self.blame(ViolationKind::Node, at_node(node), text);
        }
        let Some(spec) = self.catalogue.tool(tool) else {
            let mut text = format!(
                "there is no tool {:?}; the tools are: {}",
                cap_text(tool, ID_BYTES),
                self.catalogue.tool_names()
            );
            if self.catalogue.agent(tool).is_some() {
                text.push_str("; it is an agent, so write `agent` in place of `tool`");
            }
            self.blame(ViolationKind::UnknownNode, at_node(node), text);
            return None;
        };
        let args = node.args.clone().unwrap_or_default();
        let brings = incoming.iter().map(|edge| {
            let source = self.graph.position(&edge.from).and_then(|at| self.graph.nodes.get(at));
            (*edge, source)
        });
        let found = inputs::of_tool(node, &spec.parameters, &args, &brings.collect::<Vec<_>>());
        self.violations.extend(found);
        Some(Work::Tool { name: spec.name.as_str().into(), args })
    }

    fn order(&mut self, order: &Order) {
        let id = |at: usize| self.graph.nodes.get(at).map_or("?", |node| node.id.as_str());
        let mut found = Vec::new();
        for cycle in &order.cycles {
            let message =
                format!("{} wait for one another; remove one of these edges", circle_text(cycle, id));
            let at = format!("node {}", cycle.first().map_or("?", |at| id(*at)));
            found.push(Violation { kind: ViolationKind::Cycle, at, message });
        }
        for at in &order.behind {
            let message =
                "it waits for nodes that wait for one another, so it would never begin; break the cycle";
            let at = format!("node {}", id(*at));
            found.push(Violation { kind: ViolationKind::Unreachable, at, message: message.to_owned() });
        }
        self.violations.extend(found);
    }
}

/// Whether it is an id of a node, and the name of an input.
pub(super) fn is_id(id: &str) -> bool {
    (1..=ID_BYTES).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

pub(super) fn at_node(node: &GraphNode) -> String {
    format!("node {}", cap_text(&node.id, ID_BYTES))
}

pub(super) fn at_edge(edge: &GraphEdge) -> String {
    format!("edge {} -> {}", cap_text(&edge.from, ID_BYTES), cap_text(&edge.to, ID_BYTES))
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
