//! A workflow graph as it is written: in a file, in a log, in the arguments of a model.

use std::fmt;
use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// Nodes that work, and edges along which their results go.
///
/// As JSON: `{"nodes": [{"id", "agent" | "tool", "prompt" | "args", "output_schema"?}], "edges": [{"from", "to", "as"?}]}`. What is
/// here may be wrong in any way; [`super::CheckedGraph`] is a graph of which it is known that it can run.
///
/// # Examples
///
/// ```
/// use anabranch::agent::planner::WorkflowGraph;
///
/// let text = r#"{
///     "nodes": [
///         { "id": "code", "agent": "search", "prompt": "Where is retry handled?" },
///         { "id": "answer", "agent": "agent", "prompt": "Answer in three sentences." }
///     ],
///     "edges": [{ "from": "code", "to": "answer" }]
/// }"#;
/// assert_eq!(WorkflowGraph::parse(text)?.nodes.len(), 2);
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowGraph {
    /// What works.
    #[serde(deserialize_with = "named_each")]
    pub nodes: Vec<GraphNode>,
    /// What goes from where to where.
    #[serde(default, deserialize_with = "named_each")]
    pub edges: Vec<GraphEdge>,
}

/// One node: an agent with a prompt, or a tool with its arguments.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphNode {
    /// Its name in the graph: 1 to 64 of the characters a-z, A-Z, 0-9, _ and -.
    pub id: String,
    /// The agent that works, by its name in the catalogue. Either this or `tool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The tool that is called, by its name in the catalogue. Either this or `agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The whole brief of the agent: it sees this, what the edges bring, and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The arguments of the tool, as far as edges do not bring them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Map<String, Value>>,
    /// A JSON schema that the node's result has to satisfy. Without one an agent answers in prose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub output_schema: Option<Value>,
}

/// One edge: `to` begins when `from` has completed, and gets its result.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphEdge {
    /// The node whose result goes along.
    pub from: String,
    /// The node that gets it.
    pub to: String,
    /// Under which name. For a tool: the argument that gets the whole result; without it the edge brings nothing and only says that
    /// `to` comes after `from`. For an agent: the name of the block in its brief; without it that is the id of `from`.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl WorkflowGraph {
    /// The largest text that is read, in bytes: a graph of the most nodes, each with a prompt of several pages. Half of what one message of
    /// a log may hold, so that a log has its graph whole.
    pub const TEXT_BYTES: usize = 512 * 1024;

    /// Reads a graph from JSON.
    ///
    /// # Errors
    ///
    /// What is wrong, with line and column, if it is not the JSON of a graph. Whether the graph can run says
    /// [`super::CheckedGraph::check`].
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > Self::TEXT_BYTES {
            return Err(format!(
                "{} bytes are too many for a graph; at most {}",
                text.len(),
                Self::TEXT_BYTES
            ));
        }
        let graph: serde_json::Result<Named<Self>> = serde_json::from_str(text);
        graph.map(|named| named.0).map_err(|error| error.to_string())
    }

    /// The graph as a JSON value.
    #[must_use]
    pub fn to_value(&self) -> Value {
        // Strings and values alone: serialising them does not fail.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// The position of a node; of two with one id the first.
    #[must_use]
    pub fn position(&self, id: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id)
    }

    /// As `2 nodes, 1 edge`.
    #[must_use]
    pub fn size_text(&self) -> String {
        let plural =
            |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        format!("{}, {}", plural(self.nodes.len(), "node"), plural(self.edges.len(), "edge"))
    }
}

/// Something whose members are given by their names: a list, which would give them by their places, is refused.
struct Named<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ByName<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ByName<T> {
            type Value = Named<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with named members")
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Named<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members)).map(Named)
            }
        }

        deserializer.deserialize_map(ByName(PhantomData))
    }
}

fn named_each<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let each: Vec<Named<T>> = Deserialize::deserialize(deserializer)?;
    Ok(each.into_iter().map(|named| named.0).collect())
}

impl GraphEdge {
    /// As `edge a -> b`.
    #[must_use]
    pub fn text(&self) -> String {
        format!("edge {} -> {}", self.from, self.to)
    }
}
