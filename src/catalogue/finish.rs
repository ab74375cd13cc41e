//! `finish`: how a run that was delegated says how it ended.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::record::RunStatus;
use crate::agent::FINISH;
use crate::message::cap_text;
use crate::model::ToolSpec;
use crate::tool::{Schema, Tool, ToolContext, ToolReply};

/// The tool `finish {status, summary, value?}` of one run. It belongs to that run alone: nothing below has it, and no list of tools
/// leaves it out.
///
/// | code | when |
/// |---|---|
/// | `invalid_status` | the status is neither `completed` nor `blocked`; the case of letters does not matter |
/// | `missing_summary` | the summary is missing or blank |
/// | `missing_value` | the run has a schema, it is completed, and there is no value |
/// | `invalid_value` | the value does not satisfy the schema; the message has the violations |
///
/// Each of them leaves the run going on. Otherwise the call ends the run when the other calls of the turn have ended.
#[derive(Debug)]
pub struct Finish {
    spec: ToolSpec,
    schema: Option<Schema>,
    said: Said,
}

/// What a run said of its own end; the last word counts.
#[derive(Debug, Clone, Default)]
pub(super) struct Said(Arc<Mutex<Option<Report>>>);

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Report {
    pub(super) status: RunStatus,
    pub(super) summary: String,
    pub(super) value: Option<Value>,
}

impl Finish {
    /// The name of the tool.
    pub const NAME: &str = FINISH;

    /// Of a run whose result has to satisfy this schema, if it has one; and where its word is kept.
    pub(super) fn new(schema: Option<Schema>) -> (Self, Said) {
        let said = Said::default();
        let mut parameters = json!({
            "type": "object",
            "properties": {
                "status": {
                    "type": "string", "enum": ["completed", "blocked"],
                    "description": "`completed`: the task is done. `blocked`: something that you cannot change keeps you from it; the summary says what.",
                },
                "summary": {
                    "type": "string",
                    "description": "Everything that whoever gave you the task needs to know: they see nothing else of your work.",
                },
            },
            "required": ["status", "summary"],
        });
        if let (Some(schema), Some(properties)) = (&schema, parameters.pointer_mut("/properties")) {
            properties["value"] = value_schema(schema.value());
        }
        let description = match schema {
            Some(_) => {
                "Ends your work and reports how it ended. Call it once, when you are done: `value` is the result, `summary` what there is to say about it."
            }
            None => {
                "Ends your work and reports how it ended. Call it once, when you are done or cannot go on: only the summary is read."
            }
        };
        let spec = ToolSpec { name: Self::NAME.to_owned(), description: description.to_owned(), parameters };
        (Self { spec, schema, said: said.clone() }, said)
    }

    fn finish(&self, mut args: Map<String, Value>) -> Result<ToolReply, ToolReply> {
        let fail = |code: &str, message: String| Err(ToolReply::error(code, message));
        let status = match args.get("status") {
            Some(Value::String(text)) => match text.trim().to_ascii_lowercase().as_str() {
                "completed" => RunStatus::Completed,
                "blocked" => RunStatus::Blocked,
                _ => {
                    let said = cap_text(text, 100);
                    return fail(
                        "invalid_status",
                        format!("There is no status {said:?}. Say `completed` or `blocked`."),
                    );
                }
            },
            _ => {
                return fail(
                    "invalid_status",
                    "`status` is missing. Say `completed` or `blocked`.".to_owned(),
                );
            }
        };
        let summary = args.get("summary").and_then(Value::as_str).unwrap_or_default().trim().to_owned();
        if summary.is_empty() {
            return fail(
                "missing_summary",
                "`summary` is missing. Say what came of the task: nothing else is read.".to_owned(),
            );
        }
        let value = args.remove("value").filter(|value| !value.is_null());
        let value = match (&self.schema, value, status) {
            (None, ..) => None,
            (Some(_), None, RunStatus::Completed) => {
                return fail(
                    "missing_value",
                    "`value` is missing. Give the result, as the schema of `value` says.".to_owned(),
                );
            }
            (Some(_), None, _) => None,
            (Some(schema), Some(value), _) => {
                let violations = schema.violations(&value);
                if !violations.is_empty() {
                    let violations = violations.join("; ");
                    return fail(
                        "invalid_value",
                        format!("`value` does not satisfy the schema: {violations}. Mend it and call again."),
                    );
                }
                Some(value)
            }
        };
        let result = match &self.schema {
            // With a schema the result of a run satisfies it, or there is none.
            Some(_) => value.clone().unwrap_or_default(),
            None => json!(summary),
        };
        let mut reply = ToolReply::finishing(result).shown_as(format!("{status}: {summary}"));
        reply.for_model = json!({ "status": status, "acknowledged": true });
        self.said.say(Report { status, summary, value });
        Ok(reply)
    }
}

/// The schema as one of an argument. One that refers to its own parts cannot stand inside another one: it is told instead.
fn value_schema(schema: &Value) -> Value {
    let text = schema.to_string();
    if text.contains("\"$ref\"") || text.contains("\"$dynamicRef\"") {
        return json!({ "description": format!("The result: a value that satisfies the JSON schema {text}") });
    }
    schema.clone()
}

impl Said {
    fn say(&self, report: Report) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
    }

    pub(super) fn take(&self) -> Option<Report> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Tool for Finish {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: Map<String, Value>, _: ToolContext) -> BoxFuture<'a, ToolReply> {
        Box::pin(async move { self.finish(args).unwrap_or_else(|refusal| refusal) })
    }

    /// With codes that say what is missing.
    fn checks_arguments(&self) -> bool {
        true
    }

    /// Without it no run could say how it ended.
    fn is_answer(&self) -> bool {
        true
    }

    /// It is the word of one run.
    fn is_inheritable(&self) -> bool {
        false
    }

    fn status_text(&self, args: &Map<String, Value>) -> Option<String> {
        let status = args.get("status").and_then(Value::as_str)?;
        Some(format!("Finishing: {}", cap_text(status, 100)))
    }
}

#[cfg(test)]
#[path = "finish_tests.rs"]
mod tests;
