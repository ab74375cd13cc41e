//! The tool `execute_code`: one action.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::catalogue::search;
use super::finish::check;
use super::observation::Observation;
use super::prompt;
use crate::agent::EXECUTE_CODE;
use crate::agent::sandbox::{
    Ask, Bridge, GuestLimits, Hands, HostError, Played, Program, Sandbox, Surface, read_json,
};
use crate::context::RunContext;
use crate::message::cap_text;
use crate::model::{Images, ToolSpec};
use crate::tool::{OnCancel, Risk, Schema, Tool, ToolContext, ToolReply, Toolset};

/// How often the same code may fail in the same way before the model is told to stop. From the original core.
const REPEATED_FAILURES: u32 = 2;

/// The bounds of one action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionLimits {
    /// How long it may take, waiting included. Default 600 s, as in the original core.
    pub wall: Duration,
    /// How many tools its code may call. Default 50, as in the original core.
    pub max_calls: u32,
    /// The bounds of the sandbox; its time is `wall`.
    pub guest: GuestLimits,
}

impl Default for ActionLimits {
    fn default() -> Self {
        let guest = GuestLimits::default();
        Self { wall: guest.wall, max_calls: 50, guest }
    }
}

/// The tool of one run.
pub(super) struct ExecuteCode {
    spec: ToolSpec,
    sandbox: Arc<dyn Sandbox>,
    limits: ActionLimits,
    schema: Option<Schema>,
    /// The last failure and how often it came in a row. Locked for a look, when an action has ended.
    last_failure: Mutex<Option<Failure>>,
}

#[derive(PartialEq, Eq)]
struct Failure {
    code: String,
    error: String,
    times: u32,
}

impl ExecuteCode {
    pub(super) fn new(sandbox: Arc<dyn Sandbox>, limits: ActionLimits, schema: Option<Schema>) -> Self {
        let spec = ToolSpec {
            name: EXECUTE_CODE.to_owned(),
            description: prompt::EXECUTE_CODE.trim_end().to_owned(),
            parameters: parameters(),
        };
        Self { spec, sandbox, limits, schema, last_failure: Mutex::new(None) }
    }

    async fn act(&self, args: Map<String, Value>, cx: ToolContext) -> ToolReply {
        let code = args.get("code").and_then(Value::as_str).unwrap_or_default();
        if code.trim().is_empty() {
            let text = "`code` is missing: give the JavaScript to run, the body of an async function.";
            return reply(&Observation { refusal: Some(text.to_owned()), ..Observation::default() });
        }
        if code.trim_start().starts_with("```") {
            let text =
                "`code` begins with a fence (```): give the JavaScript alone, without anything around it.";
            return reply(&Observation { refusal: Some(text.to_owned()), ..Observation::default() });
        }
        // Code runs no code: an action in an action would have its own time and its own calls.
        let tools = cx.tools().without(&[EXECUTE_CODE]);
        let caller = cx.caller().with_tools(tools);
        let offered = caller.offered();
        let program = Program {
            code: code.to_owned(),
            tools: offered.names().map(str::to_owned).collect(),
            surface: Surface::Action,
            limits: GuestLimits { wall: self.limits.wall, ..self.limits.guest },
        };
        let hands = Action {
            run: cx.run(),
            tools: offered,
            schema: self.schema.as_ref(),
            finished: Mutex::new(None),
            refused: Mutex::new(None),
        };
        let bridge = Bridge {
            caller: &caller,
            via: Some(cx.call_index()),
            label: EXECUTE_CODE,
            max_calls: self.limits.max_calls,
            wall: self.limits.wall,
        };
        let played = bridge.play(self.sandbox.start(program), &hands).await;
        if let Some(reason) = &played.aborted {
            return ToolReply::aborting(reason.clone());
        }
        let finished = hands.finished.into_inner().unwrap_or_else(PoisonError::into_inner);
        let refused = hands.refused.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.observe(code, &played, finished, refused.as_deref())
    }

    fn observe(
        &self,
        code: &str,
        played: &Played,
        finished: Option<Value>,
        refused: Option<&str>,
    ) -> ToolReply {
        let ended = &played.ended;
        let repeated = match &ended.result {
            Err(error) if finished.is_none() => {
                self.count_failure(code.trim(), &error.message) >= REPEATED_FAILURES
            }
            _ => {
                *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = None;
                false
            }
        };
        let returned =
            ended.result.as_ref().ok().and_then(|text| read_json(text).ok()).filter(|value| !value.is_null());
        let refused = refused.map(|refused| format!("The task is not finished: {refused}"));
        let note = match (&finished, &self.schema, &returned) {
            // A program that did not await the answer has not heard it.
            (None, _, _) if ended.result.is_ok() && refused.is_some() => refused.as_deref(),
            (None, Some(schema), Some(value)) if schema.violations(value).is_empty() => Some(
                "The returned value would satisfy the schema, but returning it does not end the task: pass it to finish(value).",
            ),
            (None, Some(_), Some(_)) => Some(
                "The task is not finished: only finish(value) with a value that satisfies the schema ends it.",
            ),
            _ if repeated => Some(
                "The same code failed in the same way before. Do not send it again: change it, or go another way.",
            ),
            _ => None,
        };
        let is_unfinished = self.schema.is_some() && returned.is_some() && finished.is_none();
        let observation = Observation {
            ended: Some(ended),
            finished: finished.is_some().then_some(true).or(is_unfinished.then_some(false)),
            note,
            repeated,
            images_dropped: played.images.left_out(),
            calls: played.calls,
            logs: &played.logs,
            ..Observation::default()
        };
        let mut reply = reply(&observation);
        // What is missing of them, the observation says.
        reply.images = played.images.shown().iter().cloned().collect();
        reply.finishes_with = finished.map(Box::new).or_else(|| played.finishes_with.clone());
        // An action that finished and then threw has finished.
        reply.is_error &= reply.finishes_with.is_none();
        reply
    }

    /// How often this failure came in a row, with this time.
    fn count_failure(&self, code: &str, error: &str) -> u32 {
        let mut last = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner);
        let times = match &*last {
            Some(failure) if failure.code == code && failure.error == error => {
                failure.times.saturating_add(1)
            }
            _ => 1,
        };
        *last = Some(Failure { code: code.to_owned(), error: error.to_owned(), times });
        times
    }
}

impl Tool for ExecuteCode {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: Map<String, Value>, cx: ToolContext) -> BoxFuture<'a, ToolReply> {
        Box::pin(self.act(args, cx))
    }

    /// A program is told to end and waited for, and so is what it called.
    fn on_cancel(&self) -> OnCancel {
        OnCancel::Grace
    }

    /// Code without a title is run all the same.
    fn checks_arguments(&self) -> bool {
        true
    }

    /// It knows the schema of its run, and what failed in it.
    fn is_inheritable(&self) -> bool {
        false
    }

    /// High, unless the model says that it is low, or there is nothing to run.
    fn risk(&self, args: &Map<String, Value>) -> Risk {
        let text = |key: &str| args.get(key).and_then(Value::as_str).unwrap_or_default();
        if text("risk") == "low" || text("code").trim().is_empty() { Risk::Low } else { Risk::High }
    }

    fn status_text(&self, args: &Map<String, Value>) -> Option<String> {
        let title =
            args.get("title").and_then(Value::as_str).map(str::trim).filter(|title| !title.is_empty());
        Some(title.unwrap_or("Running code").to_owned())
    }
}

fn reply(observation: &Observation<'_>) -> ToolReply {
    let (value, is_ok) = observation.to_value();
    let shown = value.get("error").and_then(Value::as_str).map(str::to_owned);
    ToolReply {
        for_model: value,
        images: Images::default(),
        for_person: shown.map(Into::into),
        is_error: !is_ok,
        finishes_with: None,
        aborts_with: None,
    }
}

fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "title": { "type": "string", "description": "What the action does, in 3 to 8 words: shown to people." },
            "risk": { "type": "string", "enum": ["low", "high"], "description": "`low`, or `high` if it changes something outside that cannot be undone easily; what is not said to be `low` is `high`." },
            "description": { "type": "string", "description": "In plain words, what it changes; empty for `low`." },
            "code": { "type": "string", "description": "JavaScript, the body of an async function." },
        },
        "required": ["title", "risk", "description", "code"],
        "additionalProperties": false,
    })
}

/// What an action may ask for besides tools.
struct Action<'a> {
    run: &'a RunContext,
    tools: Toolset,
    schema: Option<&'a Schema>,
    /// The last value that `finish` took.
    finished: Mutex<Option<Value>>,
    /// Why it did not take the last one that it refused.
    refused: Mutex<Option<String>>,
}

impl Hands for Action<'_> {
    fn answer(&self, ask: Ask) -> BoxFuture<'_, Result<Value, HostError>> {
        let answer = match ask {
            Ask::SearchTools { query, limit } => {
                let limit = match limit.as_str() {
                    "" | "null" => Ok(None),
                    limit => read_json(limit).ok().and_then(|limit| limit.as_f64()).map(Some).ok_or(limit),
                };
                match (read_json(&query), limit) {
                    // It saturates, and is brought into its range.
                    (Ok(Value::String(query)), Ok(limit)) => {
                        Ok(search(&self.tools, &query, limit.map(|limit| limit as u64)))
                    }
                    (Ok(Value::String(_)), Err(limit)) => {
                        let limit = cap_text(limit, 100);
                        let text = format!(
                            "search_tools(query, limit): the limit has to be a number, and is {limit}"
                        );
                        Err(HostError::new("invalid_limit", text))
                    }
                    _ => Err(HostError::new(
                        "missing_query",
                        "search_tools(query, limit): the query must be a text",
                    )),
                }
            }
            Ask::Finish { value } => match check(&value, self.schema) {
                Ok(value) => {
                    self.run.accept_result(Some(value.clone()));
                    *self.finished.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
                    Ok(json!(true))
                }
                Err(refusal) => {
                    *self.refused.lock().unwrap_or_else(PoisonError::into_inner) =
                        Some(refusal.message.clone());
                    Err(refusal)
                }
            },
            other => Err(HostError::new("unknown", format!("an action cannot ask for {other:?}"))),
        };
        Box::pin(std::future::ready(answer))
    }
}
