//! Whether a tool node gets the arguments that its tool takes: those it has, and those that edges bring.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::check::{Violation, ViolationKind, at_edge, at_node};
use super::graph::{GraphEdge, GraphNode};
use crate::message::cap_text;
use crate::tool::Schema;

/// Keywords by which an argument can depend on another one: with one of these, arguments are only checked when all are there.
const WHOLE: [&str; 9] = [
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "dependentRequired",
    "dependentSchemas",
    "minProperties",
    "$ref",
];

/// What is wrong with the inputs of a tool node. `brings` are its incoming edges with their nodes.
pub(super) fn of_tool(
    node: &GraphNode,
    parameters: &Value,
    args: &Map<String, Value>,
    brings: &[(&GraphEdge, Option<&GraphNode>)],
) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut blame = |kind, at: String, message: String| {
        found.push(Violation { kind, at, message: cap_text(&message, 600) });
    };
    let properties = parameters.get("properties").and_then(Value::as_object);
    let mut brought: BTreeSet<&str> = BTreeSet::new();
    for (edge, source) in brings {
        let Some(name) = edge.name.as_deref() else { continue };
        let property = properties.and_then(|properties| properties.get(name));
        if property.is_none() && !takes_others(parameters) {
            let text =
                format!("{} has no argument {name:?}; its arguments are: {}", tool(node), names(properties));
            blame(ViolationKind::UnknownInput, at_edge(edge), text);
        } else if args.contains_key(name) {
            let text = format!(
                "`args` of node {} has {name:?} already; leave it out there, or take `as` away here",
                node.id
            );
            blame(ViolationKind::Duplicate, at_edge(edge), text);
        } else if !brought.insert(name) {
            let text = format!("another edge brings {name:?} to node {} already", node.id);
            blame(ViolationKind::Duplicate, at_edge(edge), text);
        }
        let (gives, takes) = (source.and_then(gives), property.and_then(types));
        if let (Some(gives), Some(takes)) = (gives, takes)
            && !fits(&gives, &takes)
        {
            let text = format!(
                "node {} gives {}, and {name:?} of {} takes {}; give node {} a fitting output_schema, or put a node between",
                edge.from,
                listed(&gives),
                tool(node),
                listed(&takes),
                edge.from
            );
            blame(ViolationKind::Type, at_edge(edge), text);
        }
    }
    let required = parameters.get("required").and_then(Value::as_array).into_iter().flatten();
    for name in required.filter_map(Value::as_str) {
        if !args.contains_key(name) && !brought.contains(name) {
            let text = format!(
                "{} needs the argument {name:?}; give it in `args`, or by an edge with `as`",
                tool(node)
            );
            blame(ViolationKind::MissingInput, at_node(node), text);
        }
    }
    let checkable = brought.is_empty() || !WHOLE.iter().any(|keyword| parameters.get(keyword).is_some());
    if checkable {
        let mut schema = parameters.clone();
        if let Some(schema) = schema.as_object_mut() {
            // What is missing is told above, with its remedy.
            schema.remove("required");
        }
        if let Ok(schema) = Schema::compile(Arc::new(schema), &tool(node)) {
            for violation in schema.violations(&Value::Object(args.clone())) {
                blame(
                    ViolationKind::Type,
                    at_node(node),
                    format!("the arguments do not fit {}: {violation}", tool(node)),
                );
            }
        }
    }
    found
}

fn tool(node: &GraphNode) -> String {
    format!("the tool {}", node.tool.as_deref().unwrap_or_default())
}

/// Whether a schema takes properties that it does not name.
fn takes_others(parameters: &Value) -> bool {
    let says = parameters.get("additionalProperties").is_some_and(|others| *others != Value::Bool(false));
    let has_none = parameters.get("properties").and_then(Value::as_object).is_none_or(Map::is_empty);
    let closed = parameters.get("additionalProperties") == Some(&Value::Bool(false));
    says || parameters.get("patternProperties").is_some() || has_none && !closed
}

fn names(properties: Option<&Map<String, Value>>) -> String {
    let names: Vec<&str> = properties.into_iter().flat_map(Map::keys).map(String::as_str).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The types of what a node gives, if they are known: of a tool without an output schema they are not.
fn gives(node: &GraphNode) -> Option<BTreeSet<&str>> {
    match &node.output_schema {
        Some(schema) => types(schema),
        None => node.agent.is_some().then(|| BTreeSet::from(["string"])),
    }
}

/// The types that a schema allows, if it names them.
fn types(schema: &Value) -> Option<BTreeSet<&str>> {
    match schema.get("type")? {
        Value::String(name) => Some(BTreeSet::from([name.as_str()])),
        Value::Array(names) => Some(names.iter().filter_map(Value::as_str).collect()),
        _ => None,
    }
}

fn fits(gives: &BTreeSet<&str>, takes: &BTreeSet<&str>) -> bool {
    // A number may happen to be whole, and a whole number is one.
    let is_number = |name: &&&str| matches!(**name, "number" | "integer");
    !gives.is_disjoint(takes)
        || gives.iter().any(|name| is_number(&name)) && takes.iter().any(|name| is_number(&name))
}

fn listed(types: &BTreeSet<&str>) -> String {
    types.iter().copied().collect::<Vec<_>>().join(" or ")
}
