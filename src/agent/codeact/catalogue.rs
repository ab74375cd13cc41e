//! What an agent that writes code knows of its tools: a signature each, or, of many, their names and a search. What those do that it is
//! offered by themselves it reads there, and not here again.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::model::ToolSpec;
use crate::tool::Toolset;

/// Up to so many tools are all described; of more only [`DIRECT_TOOLS`] are, and the others are named. From the original core.
pub(super) const ALL_DESCRIBED: usize = 16;

/// The tools that an agent is always offered by themselves, if it has them: those that nearly every task needs.
pub(super) const DIRECT_TOOLS: [&str; 15] = [
    "read_file",
    "list_directory",
    "glob",
    "grep",
    "write_file",
    "edit_file",
    "run_subtask",
    "run_search",
    "start_subtask",
    "wait_subtasks",
    "delegate",
    "finish",
    "create_plan",
    "plan_workflow_graph",
    "plan_orchestration_script",
];

/// How many tools a search gives when it is not told, and at most. From the original core.
const DEFAULT_HITS: usize = 5;
const MAX_HITS: u64 = 25;

/// How many properties of an argument a signature shows.
const MAX_PROPERTIES: usize = 12;

/// Which of the tools the model is offered by themselves.
pub(super) fn direct(tools: &Toolset) -> Vec<String> {
    let all = tools.len() <= ALL_DESCRIBED;
    tools.names().filter(|name| all || DIRECT_TOOLS.contains(name)).map(str::to_owned).collect()
}

/// The tools as the prompt has them.
pub(super) fn describe(tools: &Toolset, direct: &[String]) -> String {
    let mut text = String::new();
    for spec in tools.specs().iter().filter(|spec| direct.contains(&spec.name)) {
        let _ = writeln!(text, "{}", signature(spec));
    }
    let mut others = tools.names().filter(|name| !direct.iter().any(|one| one == name)).peekable();
    if others.peek().is_some() {
        let names: Vec<&str> = others.collect();
        let _ = writeln!(
            text,
            "\nThere are more, which code calls in the same way: {}. `await search_tools(\"what you need\")` gives their signatures.",
            names.join(", ")
        );
    }
    if text.is_empty() {
        text.push_str("(none)\n");
    }
    text
}

/// A tool as code calls it.
pub(super) fn signature(spec: &ToolSpec) -> String {
    let name = &spec.name;
    // A name that is no identifier is called by its key.
    let is_identifier = !name.contains('-') && !name.starts_with(|first: char| first.is_ascii_digit());
    let callee = if is_identifier { format!("tools.{name}") } else { format!("tools[{name:?}]") };
    let args = match type_of(&spec.parameters, 0) {
        none if none == "{}" => String::new(),
        args => args,
    };
    format!("{callee}({args})")
}

/// A JSON schema in the words of the language.
fn type_of(schema: &Value, depth: usize) -> String {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let values: Vec<String> = values.iter().take(MAX_PROPERTIES).map(Value::to_string).collect();
        return values.join(" | ");
    }
    if let Some(value) = schema.get("const") {
        return value.to_string();
    }
    if let Some(any) = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(key)?.as_array()) {
        let mut kinds: Vec<String> =
            any.iter().take(MAX_PROPERTIES).map(|one| type_of(one, depth + 1)).collect();
        kinds.dedup();
        return kinds.join(" | ");
    }
    match schema.get("type") {
        Some(Value::Array(kinds)) => {
            let kinds = kinds.iter().filter_map(Value::as_str).map(|kind| match kind {
                "integer" => "number",
                kind => kind,
            });
            kinds.collect::<Vec<_>>().join(" | ")
        }
        Some(Value::String(kind)) => match kind.as_str() {
            "integer" | "number" => "number".to_owned(),
            "array" => {
                let items =
                    schema.get("items").map_or_else(|| "any".to_owned(), |items| type_of(items, depth + 1));
                if items.contains(' ') { format!("({items})[]") } else { format!("{items}[]") }
            }
            "object" => object_type(schema, depth),
            other => other.to_owned(),
        },
        _ => "any".to_owned(),
    }
}

fn object_type(schema: &Value, depth: usize) -> String {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return "object".to_owned();
    };
    if depth > 3 {
        return "object".to_owned();
    }
    let required = |name: &str| {
        schema
            .get("required")
            .and_then(Value::as_array)
            .is_some_and(|names| names.iter().any(|one| one == name))
    };
    let mut parts: Vec<String> = Vec::new();
    for (name, schema) in properties.iter().take(MAX_PROPERTIES) {
        let kind = type_of(schema, depth + 1);
        if required(name) {
            parts.push(format!("{name}: {kind}"));
        } else {
            // What may be left out need not be null.
            parts.push(format!("{name}?: {}", kind.strip_suffix(" | null").unwrap_or(&kind)));
        }
    }
    if properties.len() > MAX_PROPERTIES {
        parts.push("…".to_owned());
    }
    if parts.is_empty() { "{}".to_owned() } else { format!("{{{}}}", parts.join(", ")) }
}

/// The tools that fit a query best, as `search_tools` gives them.
pub(super) fn search(tools: &Toolset, query: &str, limit: Option<u64>) -> Value {
    let limit =
        limit.map_or(DEFAULT_HITS, |limit| usize::try_from(limit.clamp(1, MAX_HITS)).unwrap_or(DEFAULT_HITS));
    let words: Vec<String> = query
        .split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| word.len() > 1 || word.bytes().all(|byte| byte.is_ascii_digit()))
        .map(str::to_lowercase)
        .collect();
    let score = |spec: &ToolSpec| {
        let (name, description) = (spec.name.to_lowercase(), spec.description.to_lowercase());
        let parts: Vec<&str> = name.split(['_', '-']).collect();
        let of = |word: &String| {
            // A name says what a tool is, a description what it is about.
            let whole = usize::from(parts.contains(&word.as_str()));
            let part = usize::from(name.contains(word.as_str()));
            4 * (whole + part) + usize::from(description.contains(word.as_str()))
        };
        words.iter().map(of).sum::<usize>()
    };
    let specs = tools.specs();
    let mut hits: Vec<_> =
        specs.iter().map(|spec| (score(spec), spec)).filter(|(score, _)| *score > 0).collect();
    // Stable, so that of equals the first in the set comes first.
    hits.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    let shown = hits.into_iter().take(limit).map(|(_, spec)| {
        json!({ "name": spec.name, "signature": signature(spec), "description": spec.description, "parameters": spec.parameters })
    });
    Value::Array(shown.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, description: &str, parameters: Value) -> ToolSpec {
        ToolSpec { name: name.into(), description: description.into(), parameters }
    }

    #[test]
    fn signatures_read_like_the_language() {
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string" },
                "lines": { "type": ["integer", "null"] },
                "how": { "type": "string", "enum": ["a", "b"] },
                "all": { "type": "array", "items": { "anyOf": [{ "type": "string" }, { "type": "number" }] } },
                "deep": { "type": "object", "properties": { "x": { "const": 1 } }, "required": ["x"] },
                "free": {},
            },
            "required": ["path"],
        });
        assert_eq!(
            signature(&spec("read_file", "Reads a file. All of it.", parameters)),
            "tools.read_file({path: string, lines?: number, how?: \"a\" | \"b\", all?: (string | number)[], deep?: {x: 1}, free?: any})"
        );
        let empty = json!({ "type": "object", "properties": {} });
        assert_eq!(signature(&spec("a-b", "Does it", empty)), "tools[\"a-b\"]()");
        let nothing = json!({ "type": "object", "properties": { "x": { "type": ["string", "null"] } }, "required": ["x"] });
        assert_eq!(signature(&spec("f", "Does it", nothing)), "tools.f({x: string | null})");
    }
}
