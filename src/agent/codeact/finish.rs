//! Whether a value may be the result of a run: what code made of it by accident is found before the caller reads it.

use serde_json::Value;

use crate::agent::sandbox::{HostError, read_json};
use crate::tool::Schema;

/// How deep a value is looked through. From the original core.
const SCAN_DEPTH: usize = 6;

/// How many places are named.
const MAX_PLACES: usize = 5;

/// Checks what was passed to `finish`.
pub(super) fn check(text: &str, schema: Option<&Schema>) -> Result<Value, HostError> {
    let refuse = |code: &str, message: String| Err(HostError::new(code, format!("finish: {message}")));
    if text.is_empty() {
        return refuse("missing_value", "pass the result as a value that JSON has".to_owned());
    }
    let value = match read_json(text) {
        Ok(Value::Null) => {
            return refuse("missing_value", "the result is null: pass what the task asks for".to_owned());
        }
        // An answer in prose that is blank is none. A schema says itself whether it takes one.
        Ok(Value::String(text)) if schema.is_none() && text.trim().is_empty() => {
            return refuse("missing_value", "the result is blank: pass what the task asks for".to_owned());
        }
        Ok(value) => value,
        Err(error) => return refuse("missing_value", format!("the result is no JSON: {error}")),
    };
    let violations = schema.map(|schema| schema.violations(&value)).unwrap_or_default();
    if !violations.is_empty() {
        let message = format!(
            "the result does not satisfy the schema: {}. Mend it and finish again",
            violations.join("; ")
        );
        return refuse("schema", message);
    }
    let places = artefacts(&value);
    if !places.is_empty() {
        let message = format!(
            "at {} the result has the text of an object where its content belongs (such as \"[object Object]\"): pass the part of it that is meant",
            places.join(", ")
        );
        return refuse("coerced", message);
    }
    Ok(value)
}

/// Places where an object was made a text by accident.
pub(super) fn artefacts(value: &Value) -> Vec<String> {
    let mut places = Vec::new();
    scan(value, "result", None, 0, &mut places);
    places
}

fn scan(value: &Value, path: &str, key: Option<&str>, depth: usize, places: &mut Vec<String>) {
    if depth > SCAN_DEPTH || places.len() >= MAX_PLACES {
        return;
    }
    match value {
        Value::String(text) if is_artefact(text, key) => places.push(path.to_owned()),
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                scan(item, &format!("{path}[{place}]"), None, depth + 1, places);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                scan(member, &format!("{path}.{name}"), Some(name), depth + 1, places);
            }
        }
        _ => {}
    }
}

/// A text that was an object, or that is a tool's whole answer put into a field.
fn is_artefact(text: &str, key: Option<&str>) -> bool {
    if text.contains("[object Object]") {
        return true;
    }
    if !text.trim_start().starts_with('{') {
        return false;
    }
    let Ok(Value::Object(inner)) = serde_json::from_str(text) else { return false };
    ["status", "outputs", "result", "error"].iter().any(|name| inner.contains_key(*name))
        || key.is_some_and(|key| inner.contains_key(key))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn ac69_ac70_only_what_was_an_object_is_found() {
        let value = json!({ "shout": "is [object Object]!", "nested": { "list": ["ok", "[object Object]"] }, "fine": "an object" });
        assert_eq!(artefacts(&value), ["result.shout", "result.nested.list[1]"]);
        let envelopes = json!({ "a": "{\"status\":\"ok\"}", "title": "{\"title\":\"x\"}", "json": "{\"unrelated\":1}", "text": "{ not json" });
        assert_eq!(artefacts(&envelopes), ["result.a", "result.title"]);
        assert_eq!(artefacts(&json!(["{\"error\":1}", 5, null])), ["result[0]"]);
        assert!(artefacts(&json!({ "a": { "b": { "c": "clean" } } })).is_empty());
    }

    #[test]
    fn ac60_values_are_held_against_the_schema() {
        let schema =
            Schema::compile(Arc::new(json!({ "type": "object", "required": ["n"] })), "test").unwrap();
        let code = |text: &str| check(text, Some(&schema)).map_err(|error| error.code.unwrap());
        assert_eq!(code(r#"{"n":1}"#), Ok(json!({ "n": 1 })));
        assert_eq!(code("{}"), Err("schema".into()));
        for missing in ["", "null", "{"] {
            assert_eq!(code(missing), Err("missing_value".into()), "{missing}");
        }
        assert_eq!(check("\"[object Object]\"", None).unwrap_err().code.unwrap(), "coerced");
        assert_eq!(check("0", None).unwrap(), json!(0));
        assert_eq!(check("\" \\n\"", None).unwrap_err().code.unwrap(), "missing_value");
        let text = Schema::compile(Arc::new(json!({ "type": "string" })), "test").unwrap();
        assert_eq!(check("\"\"", Some(&text)).unwrap(), json!(""));
    }
}
