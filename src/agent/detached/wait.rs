//! `wait_subtasks`: waits for background runs and hands over what they came to.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::runtime::Handle;

use super::registry::{Asker, Registry};
use super::start::unavailable;
use super::subtask::{Room, Subtask};
use crate::message::map_bytes;
use crate::model::ToolSpec;
use crate::tool::{Tool, ToolContext, ToolReply};

/// How long a wait lasts without a word on it, as in the original core.
const DEFAULT_MS: u64 = 300_000;

/// The longest wait, as in the original core: after it the model looks around again.
const MAX_MS: u64 = 900_000;

/// What a reply says besides its rows, in bytes.
const BESIDE_ROWS: usize = 2048;

/// The tool `wait_subtasks`.
#[derive(Debug)]
pub(super) struct WaitSubtasks {
    spec: ToolSpec,
}

#[derive(Debug, Deserialize)]
struct Args {
    #[serde(default)]
    ids: Vec<String>,
    timeout_ms: Option<f64>,
}

/// What was asked for.
struct Asked {
    /// In the order of their starts.
    known: Vec<Arc<Subtask>>,
    /// In the order in which they were named.
    unknown: Vec<String>,
}

impl WaitSubtasks {
    pub(super) const NAME: &'static str = "wait_subtasks";

    pub(super) fn new() -> Self {
        let description = "Waits for subtasks that start_subtask began and returns one row for each: its status (running, completed, failed, stopped, cancelled, or unknown), and its result or error. Without ids it waits for all that you, or runs below you, started; others only if you name them. A result is handed over once: the rows of later waits say delivered. Results that do not fit into one reply are held_back for the next call. Call it before you finish: what you never wait for is lost with the end of the run.";
        let parameters = json!({
            "type": "object",
            "properties": {
                "ids": {
                    "type": "array", "items": { "type": "string" },
                    "description": "The subtask_ids to wait for. Absent or empty: all that you, or runs below you, started.",
                },
                "timeout_ms": {
                    "type": "number", "minimum": 0, "default": DEFAULT_MS,
                    "description": format!("How long to wait at most, in milliseconds. 0 looks and returns at once. At most {MAX_MS}."),
                },
            },
            "additionalProperties": false,
        });
        let spec = ToolSpec { name: Self::NAME.to_owned(), description: description.to_owned(), parameters };
        Self { spec }
    }
}

impl Tool for WaitSubtasks {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: Map<String, Value>, cx: ToolContext) -> BoxFuture<'a, ToolReply> {
        Box::pin(async move {
            match serde_json::from_value(Value::Object(args)) {
                Ok(args) => wait(args, &cx).await,
                // The schema says the same, so this is not reached.
                Err(error) => ToolReply::error("invalid_tool_arguments", error.to_string()),
            }
        })
    }

    fn status_text(&self, args: &Map<String, Value>) -> Option<String> {
        let ids = args.get("ids").and_then(Value::as_array).map_or(0, Vec::len);
        Some(match ids {
            0 => "Waiting for all subtasks".to_owned(),
            1 => "Waiting for a subtask".to_owned(),
            ids => format!("Waiting for {ids} subtasks"),
        })
    }
}

async fn wait(args: Args, cx: &ToolContext) -> ToolReply {
    // Neither tasks nor timers without one.
    if Handle::try_current().is_err() {
        return unavailable();
    }
    let (registry, asker) = (Registry::of(cx.run()), Asker::of(cx.run()));
    let asked = match Asked::of(&args.ids, &registry, &asker) {
        Ok(asked) => asked,
        Err(refusal) => return refusal,
    };
    let (timeout, notice) = timeout(args.timeout_ms);
    if !timeout.is_zero() && asked.known.iter().any(|subtask| subtask.is_running()) {
        let waiting = match registry.begin_wait(&asker, &asked.known) {
            Ok(waiting) => waiting,
            Err(circle) => return wait_cycle(&circle),
        };
        let settled = async {
            let _ = tokio::time::timeout(timeout, registry.all_settled(&asked.known)).await;
            drop(waiting);
        };
        // Those that are waited for may need the permit.
        cx.run().without_permit(settled).await;
    }
    // The last step, in one poll with the end of the call: a wait that is dropped before has taken no result.
    asked.reply(notice, cx.runtime().result_bytes)
}

/// How long to wait, and what to say about it.
fn timeout(asked_ms: Option<f64>) -> (Duration, Option<String>) {
    let Some(asked_ms) = asked_ms else { return (Duration::from_millis(DEFAULT_MS), None) };
    // Fractions are cut off; what is too large, or no number, saturates.
    let ms = asked_ms as u64;
    let notice = (ms > MAX_MS).then(|| format!("timeout_ms was cut to {MAX_MS}, the longest wait."));
    (Duration::from_millis(ms.min(MAX_MS)), notice)
}

impl Asked {
    fn of(ids: &[String], registry: &Registry, asker: &Asker) -> Result<Self, ToolReply> {
        let mut known = registry.all();
        if ids.is_empty() {
            known.retain(|subtask| asker.has_started(subtask));
            return Ok(Self { known, unknown: Vec::new() });
        }
        let mut missing: HashSet<&str> = ids.iter().map(String::as_str).collect();
        known.retain(|subtask| missing.remove(subtask.id()));
        let own: Vec<String> = known
            .iter()
            .filter(|subtask| asker.is_or_works_for(subtask.run_id()))
            .map(|subtask| subtask.name())
            .collect();
        if !own.is_empty() {
            return Err(wait_on_self(&own.join(", ")));
        }
        let unknown = ids.iter().filter(|id| missing.remove(id.as_str())).cloned().collect();
        Ok(Self { known, unknown })
    }

    fn reply(self, notice: Option<String>, cap: usize) -> ToolReply {
        let mut notices: Vec<String> = notice.into_iter().collect();
        if self.known.is_empty() && self.unknown.is_empty() {
            notices.push("No background subtasks to wait for: start_subtask begins one.".to_owned());
        }
        let mut rows: Vec<_> = self.known.iter().map(|subtask| (subtask, subtask.row())).collect();
        let unknown = self.unknown.into_iter().map(|id| {
            let entries = [("subtask_id", json!(id)), ("status", json!("unknown"))];
            entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>()
        });
        let unknown: Vec<_> = unknown.collect();
        let beside: usize = rows.iter().map(|(_, (row, _))| row).chain(&unknown).map(map_bytes).sum();
        let mut room = Room::new(cap.saturating_sub(beside + BESIDE_ROWS));
        for (subtask, (row, has_settled)) in &mut rows {
            if *has_settled {
                subtask.hand_over(row, &mut room);
            }
        }
        let running = rows.iter().filter(|(_, (_, has_settled))| !has_settled).count();
        if running > 0 {
            notices.push(format!("{running} still work: wait again, or go on without them."));
        }
        if room.holds_back {
            let text =
                "The results of rows that say held_back did not fit: call wait_subtasks again for them.";
            notices.push(text.to_owned());
        }
        let count = rows.len();
        let rows: Vec<_> = rows.into_iter().map(|(_, (row, _))| row).chain(unknown).collect();
        let mut reply = json!({ "subtasks": rows, "all_settled": running == 0 });
        if let Value::Object(reply) = &mut reply
            && !notices.is_empty()
        {
            reply.insert("message".into(), json!(notices.join(" ")));
        }
        ToolReply::ok(reply).shown_as(format!("{} of {count} subtasks have ended", count - running))
    }
}

fn wait_on_self(who: &str) -> ToolReply {
    let text = format!(
        "This run cannot wait for {who}: it is that subtask, or works for it, so that one cannot end before this call does. Wait for others, or answer now."
    );
    ToolReply::error("wait_on_self", text)
}

fn wait_cycle(circle: &str) -> ToolReply {
    let text = format!(
        "This wait would never end: {circle}. Name the ids of others, look with timeout_ms 0, or answer without it."
    );
    ToolReply::error("wait_cycle", text)
}

#[cfg(test)]
#[path = "wait_tests.rs"]
mod tests;
