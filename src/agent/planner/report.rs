//! What came of the nodes of a graph, and what that makes of the whole.

use serde_json::{Map, Value, json};

use super::check::CheckedGraph;
use crate::outcome::{FailureKind, SubAgentOutcome};

/// So many nodes are named in one sentence.
const MOST_NAMED: usize = 8;

/// How each node ended.
pub(super) struct Report<'a> {
    graph: &'a CheckedGraph,
    ends: Vec<End>,
}

#[derive(Debug, Clone)]
enum End {
    Open,
    Completed(Value),
    Failed(Box<SubAgentOutcome>),
    Skipped { because: usize },
}

impl<'a> Report<'a> {
    pub(super) fn new(graph: &'a CheckedGraph) -> Self {
        Self { graph, ends: vec![End::Open; graph.nodes().len()] }
    }

    fn set(&mut self, at: usize, end: End) {
        if let Some(place) = self.ends.get_mut(at) {
            *place = end;
        }
    }

    pub(super) fn completed(&mut self, at: usize, result: Value) {
        self.set(at, End::Completed(result));
    }

    pub(super) fn failed(&mut self, at: usize, outcome: SubAgentOutcome) {
        self.set(at, End::Failed(Box::new(outcome)));
    }

    pub(super) fn skipped(&mut self, at: usize, because: usize) {
        self.set(at, End::Skipped { because });
    }

    /// The result of a node that completed.
    pub(super) fn output(&self, at: usize) -> Option<&Value> {
        match self.ends.get(at) {
            Some(End::Completed(result)) => Some(result),
            _ => None,
        }
    }

    fn id(&self, at: usize) -> String {
        self.graph.nodes().get(at).map(|node| node.id.to_string()).unwrap_or_default()
    }

    /// What the whole came to: completed if every node did.
    pub(super) fn into_outcome(self, answer_only: bool) -> SubAgentOutcome {
        let (mut outputs, mut last) = (Map::new(), Map::new());
        let (mut failed, mut skipped) = (Map::new(), Map::new());
        let mut sentences = Vec::new();
        // A limit that stopped a node stopped the whole, unless another node failed.
        let mut stopped = None;
        for (at, (end, node)) in self.ends.iter().zip(self.graph.nodes()).enumerate() {
            let id = self.id(at);
            match end {
                End::Completed(result) => {
                    if node.next.is_empty() {
                        last.insert(id.clone(), result.clone());
                    }
                    outputs.insert(id, result.clone());
                }
                End::Failed(outcome) => {
                    let error = outcome.error_text().unwrap_or_default();
                    sentences.push(format!("{id} {}: {error}", outcome.kind()));
                    let mut about = json!({ "outcome": outcome.kind(), "stop_class": outcome.stop_class(), "error": error });
                    if let (Some(partial), Some(about)) = (outcome.partial(), about.as_object_mut()) {
                        about.insert("partial".to_owned(), partial.clone());
                    }
                    failed.insert(id, about);
                    if let SubAgentOutcome::Stopped { stop_class, limit, .. } = &**outcome {
                        stopped.get_or_insert((*stop_class, *limit));
                    }
                }
                End::Skipped { because } => {
                    skipped.insert(id, json!(format!("it depends on {}", self.id(*because))));
                }
                // Every node begins or is skipped, as the graph has no cycle.
                End::Open => {}
            }
        }
        if outputs.len() == self.ends.len() {
            let result = match last.len() {
                1 => last.into_iter().next().map(|(_, value)| value).unwrap_or_default(),
                _ => Value::Object(last),
            };
            let whole = if answer_only { result } else { json!({ "result": result, "outputs": outputs }) };
            return SubAgentOutcome::completed(whole);
        }
        let message = sentence(self.ends.len(), &sentences, &skipped);
        let all_stopped = failed.values().all(|about| about.get("outcome") == Some(&json!("stopped")));
        let partial = Some(json!({ "outputs": outputs, "failed": failed, "skipped": skipped }));
        match stopped.filter(|_| all_stopped) {
            Some((stop_class, limit)) => SubAgentOutcome::Stopped { stop_class, limit, message, partial },
            None => SubAgentOutcome::failed(FailureKind::Step, message).with_partial(partial),
        }
    }
}

/// As `1 of 4 nodes did not complete: a failed: no key; skipped: b, c`.
fn sentence(count: usize, failed: &[String], skipped: &Map<String, Value>) -> String {
    let noun = if count == 1 { "node" } else { "nodes" };
    let mut named: Vec<&str> = failed.iter().map(String::as_str).take(MOST_NAMED).collect();
    let more = format!("and {} more", failed.len().saturating_sub(MOST_NAMED));
    if failed.len() > MOST_NAMED {
        named.push(&more);
    }
    let mut text = format!("{} of {count} {noun} did not complete: {}", failed.len(), named.join("; "));
    if !skipped.is_empty() {
        let ids: Vec<&str> = skipped.keys().map(String::as_str).collect();
        text.push_str(&format!("; skipped: {}", crate::tree::cut(&ids.join(", "), 300)));
    }
    text
}
