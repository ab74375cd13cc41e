//! What comes back of a run that was delegated.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::finish::Report;
use crate::id::RunId;
use crate::message::FinalCounters;
use crate::outcome::{LimitKind, StopClass, SubAgentOutcome, Usage, words};
use crate::tool::ToolReply;

words! {
    /// How a run that was delegated ended.
    RunStatus {
        /// It says with `finish` that the task is done; or it gave the value that its schema asks for.
        Completed = "completed",
        /// It says with `finish` that something keeps it from the task.
        Blocked = "blocked",
        /// It ended without a word on how: its last text is the summary. With an error: a limit or an operator stopped it.
        Stopped = "stopped",
        /// It failed.
        Failed = "failed",
        /// It was cancelled.
        Cancelled = "cancelled",
        /// Its time was over.
        TimedOut = "timed_out",
    }
}

/// Everything that comes back of one run: an error and what there was of a result are one value.
///
/// | outcome of the run | without `finish` | after `finish` |
/// |---|---|---|
/// | completed, with a text | `stopped`, the text is the summary | `completed` or `blocked` as it said, with its summary |
/// | completed, with a value that its schema asked for | `completed`, the value is `value` | the same |
/// | completed, with nothing | `stopped` and `agent_no_result` | as it said |
/// | stopped by its time | `timed_out` and `agent_timed_out`, the summary is what it had written | the same, with the summary that it gave |
/// | stopped otherwise | `stopped` and `agent_stopped`, likewise | likewise |
/// | failed, cancelled | `failed` and `agent_failed`, `cancelled` and `agent_cancelled`, likewise | likewise |
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    /// The name of the definition, as its file has it.
    pub agent: Arc<str>,
    /// The run: its whole log is [`session_log`](super::session_log)'s.
    pub session: RunId,
    /// How it ended.
    pub status: RunStatus,
    /// What it has to say: of `finish`, or its last text; empty if there is neither.
    pub summary: String,
    /// Model turns, failed ones included.
    pub steps: u64,
    /// From its start to its end.
    pub duration_ms: u64,
    /// What it and the runs below it used.
    pub usage: Usage,
    /// The result, where its definition has a schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Why it did not do what it was asked: a code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Arc<str>>,
    /// The same as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The same as a class, beside the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_class: Option<StopClass>,
}

impl Record {
    pub(super) fn new(
        agent: Arc<str>,
        session: RunId,
        outcome: &SubAgentOutcome,
        counters: FinalCounters,
        said: Option<Report>,
        has_schema: bool,
    ) -> Self {
        let mut record = Self {
            agent,
            session,
            status: RunStatus::Stopped,
            summary: String::new(),
            steps: counters.turns,
            duration_ms: counters.duration_ms,
            usage: counters.subtree_usage,
            value: None,
            error: None,
            message: None,
            stop_class: None,
        };
        let (said_status, said_summary) = match said {
            Some(Report { status, summary, value }) => {
                record.value = value;
                (Some(status), Some(summary))
            }
            None => (None, None),
        };
        match outcome {
            SubAgentOutcome::Completed { result, .. } => {
                match (result, said_status) {
                    (_, Some(status)) => record.status = status,
                    (Value::Null, None) => {
                        record.fails(
                            RunStatus::Stopped,
                            "agent_no_result",
                            "The agent ended without a result.".to_owned(),
                        );
                    }
                    (_, None) if has_schema => record.status = RunStatus::Completed,
                    (_, None) => {}
                }
                if has_schema && !result.is_null() {
                    record.value = Some(result.clone());
                }
                record.summary =
                    said_summary.unwrap_or_else(|| if has_schema { String::new() } else { text_of(result) });
                return record;
            }
            SubAgentOutcome::Stopped { limit: Some(LimitKind::Wall | LimitKind::Idle), message, .. } => {
                record.fails(RunStatus::TimedOut, "agent_timed_out", message.clone());
            }
            SubAgentOutcome::Stopped { message, .. } => {
                record.fails(RunStatus::Stopped, "agent_stopped", message.clone());
            }
            SubAgentOutcome::Failed { message, .. } => {
                record.fails(RunStatus::Failed, "agent_failed", message.clone());
            }
            SubAgentOutcome::Cancelled { .. } => {
                let text = outcome.error_text().unwrap_or_default();
                record.fails(RunStatus::Cancelled, "agent_cancelled", text);
            }
        }
        record.stop_class = Some(outcome.stop_class());
        record.summary = said_summary.unwrap_or_else(|| outcome.partial().map(text_of).unwrap_or_default());
        record
    }

    fn fails(&mut self, status: RunStatus, code: &str, message: String) {
        self.status = status;
        self.error = Some(code.into());
        self.message = Some(message);
    }

    /// What the parent's model reads. A record with an error is an error, with everything that there is beside it.
    #[must_use]
    pub fn to_reply(&self) -> ToolReply {
        let mut shown = format!("{} {}", self.agent, self.status);
        if let Some(message) = &self.message {
            shown.push_str(": ");
            shown.push_str(message);
        }
        let mut reply = ToolReply::ok(json!(self)).shown_as(shown);
        reply.is_error = self.error.is_some();
        reply
    }
}

/// A text as it is, another value as JSON.
fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.trim().to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
