//! The folded tree as JSON: what `GET /runs/{id}/tree` and a `gap` carry.

use serde_json::{Value, json};

use super::node::{Call, CallState, Node};
use super::reducer::RunTree;

/// How deep runs nest before the JSON says so and stops: far deeper than a run may delegate. Together with
/// [`MAX_VALUE_NESTING`] it stays below a recursive JSON reader's limit of 128 nested values, of which each run takes two.
const MAX_NESTING: usize = 40;

/// How deep a result may nest before it is shown as its text.
const MAX_VALUE_NESTING: usize = 32;

impl RunTree {
    /// `{"seq", "root": {run_id, agent, title, status, outcome?, usage, subtree_usage, calls, children}}`; `seq` is the
    /// position of the latest message, null before the first.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let seq = self.next_seq().checked_sub(1);
        json!({ "seq": seq, "root": self.root().map(|root| self.node_json(root, 0)) })
    }

    fn node_json(&self, node: &Node, nesting: usize) -> Value {
        let mut json = json!({
            "run_id": node.origin.run_id,
            "agent": node.agent(),
            "title": node.title(),
            "depth": node.origin.subtask_depth,
            "status": node.status.as_str(),
            "usage": node.usage,
            "subtree_usage": self.subtree_usage(node),
            "turns": node.turns,
            "calls": node.calls.iter().map(call_json).collect::<Vec<_>>(),
        });
        let Some(object) = json.as_object_mut() else { return json };
        if let Some(finished) = &node.finished {
            object.insert("outcome".into(), json!(finished.outcome));
            let details = [("result", &finished.result), ("partial", &finished.partial)];
            object.extend(
                details.into_iter().filter_map(|(key, value)| Some((key.to_owned(), shown(value.as_ref()?)))),
            );
            object.extend(finished.error.as_ref().map(|error| ("error".to_owned(), json!(error))));
            object.extend(finished.duration_ms.map(|ms| ("duration_ms".to_owned(), json!(ms))));
        } else if !node.text.is_empty() {
            object.insert("text".into(), json!(node.text));
        }
        object.extend(node.spawned_by.map(|index| ("spawned_by".to_owned(), json!(index))));
        if nesting < MAX_NESTING {
            let children: Vec<Value> =
                self.children(node).map(|child| self.node_json(child, nesting + 1)).collect();
            object.insert("children".into(), children.into());
        } else {
            object.insert("children_left_out".into(), json!(self.children(node).count()));
        }
        json
    }
}

fn shown(value: &Value) -> Value {
    if nests_beyond(value, MAX_VALUE_NESTING) { json!(value.to_string()) } else { value.clone() }
}

fn nests_beyond(value: &Value, levels: usize) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        Value::Array(items) => levels == 0 || items.iter().any(|item| nests_beyond(item, levels - 1)),
        Value::Object(map) => levels == 0 || map.values().any(|item| nests_beyond(item, levels - 1)),
    }
}

fn call_json(call: &Call) -> Value {
    let mut json = json!({
        "call_index": call.index,
        "tool_call_id": call.id,
        "name": call.name,
        "summary": call.summary,
    });
    if let (CallState::Done { is_error, duration_ms }, Some(object)) = (call.state, json.as_object_mut()) {
        object.insert("is_error".into(), json!(is_error));
        object.insert("duration_ms".into(), json!(duration_ms));
    }
    json
}
