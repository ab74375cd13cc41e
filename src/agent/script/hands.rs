//! What a script may ask for besides tools: agents, and what all of it used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::producer::ScriptLimits;
use crate::agent::sandbox::{Ask, Hands, HostError, read_json};
use crate::context::{EnterError, RunContext, RunSpec};
use crate::forward::forward_subagent_stream;
use crate::outcome::SubAgentOutcome;
use crate::stream::SubAgentStream;
use crate::tool::shared::{Author, Namespace, SharedResults};
use crate::tool::{Job, Schema, Toolset};

/// The hands of one script.
pub(super) struct ScriptHands {
    cx: RunContext,
    /// What each agent does, but for its prompt, its schema and its choice of tools.
    job: Job,
    limits: ScriptLimits,
    /// Fair: agents begin in the order in which they were asked for.
    places: Semaphore,
    calls: AtomicU32,
}

/// The second argument of `agent`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    schema: Option<Value>,
    tools: Option<Vec<String>>,
    label: Option<String>,
}

impl ScriptHands {
    pub(super) fn new(cx: RunContext, job: Job, limits: ScriptLimits) -> Self {
        // 0 would be a script that waits for ever.
        let places = Semaphore::new(limits.max_concurrent_agents.max(1) as usize);
        Self { cx, job, limits, places, calls: AtomicU32::new(0) }
    }

    /// How many agents were asked for.
    pub(super) fn agent_calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    async fn agent(&self, prompt: String, options: String) -> Result<Value, HostError> {
        // The program counts too, and is not to be trusted.
        if self.calls.fetch_add(1, Ordering::Relaxed) >= self.limits.max_agent_calls {
            let text = format!("the script has made all of its {} agent calls", self.limits.max_agent_calls);
            return Err(HostError::new("max_agent_calls_reached", text));
        }
        let number = self.agent_calls();
        let options = read_options(&options)?;
        let label = options.label.as_deref().map(str::trim).filter(|label| !label.is_empty());
        let label = label.map_or_else(|| format!("agent {number}"), str::to_owned);
        let tools = self.chosen(options.tools.as_deref())?;
        let schema = options.schema.map(Arc::new);
        if let Some(schema) = &schema {
            Schema::compile(Arc::clone(schema), &label)
                .map_err(|error| HostError::new("invalid_schema", error.to_string()))?;
        }
        // Waiting for a place ends with the run.
        let place = self.cx.or_cancel(self.places.acquire()).await;
        let _place = place.map_err(|_| HostError::new("cancelled", "the script was cancelled"))?;
        let producer = Arc::clone(&self.job.runtime.producer);
        let mut spec =
            RunSpec::new("agent", prompt.as_str()).titled(label.as_str()).produced_by(producer.kind());
        spec.model = Some(self.job.runtime.model.name().into());
        let entered = match self.cx.enter(spec) {
            Ok(entered) => entered,
            Err(EnterError::Refused(refusal)) => {
                return Err(HostError::of_value(&label, &refusal.to_value()));
            }
            Err(EnterError::Cancelled(_)) => {
                return Err(HostError::new("cancelled", "the script was cancelled"));
            }
        };
        let run_id = entered.context().run_id().to_string();
        let stream = SubAgentStream::build(|| {
            let job = Job { instructions: prompt.into(), output_schema: schema, tools, ..self.job.clone() };
            Ok::<_, std::convert::Infallible>(producer.produce(job, entered.context()))
        });
        let outcome = forward_subagent_stream(stream, entered).await;
        self.share(&label, &outcome);
        match outcome {
            SubAgentOutcome::Completed { result: Value::Null, .. } => Err(HostError::of_value(
                &label,
                &json!({ "error": "agent_no_result", "message": "it ended without a result", "run_id": run_id }),
            )),
            SubAgentOutcome::Completed { result, .. } => Ok(result),
            outcome => Err(HostError::of_value(
                &label,
                &json!({
                    "error": "agent_failed",
                    "message": outcome.error_text().unwrap_or_default(),
                    "outcome": outcome.kind(),
                    "stop_class": outcome.stop_class(),
                    "partial": outcome.partial(),
                    "run_id": run_id,
                }),
            )),
        }
    }

    /// Puts what an agent came to among the tree's shared results. Where there is no room it is left out, which a list of them says.
    fn share(&self, label: &str, outcome: &SubAgentOutcome) {
        let result = match outcome.result() {
            Some(result) => Ok(result.clone()),
            None => Err(outcome.error_text().unwrap_or_default()),
        };
        let (shared, author) = (SharedResults::of(self.cx.root()), Author::from(&self.cx));
        let _ = shared.put(Namespace::Step, label, label, result, &author);
    }

    /// The tools with these names; all if none were named.
    fn chosen(&self, names: Option<&[String]>) -> Result<Toolset, HostError> {
        let Some(names) = names else { return Ok(self.job.tools.clone()) };
        if let Some(unknown) = names.iter().find(|name| self.job.tools.get(name).is_none()) {
            let known: Vec<&str> = self.job.tools.names().collect();
            let text = format!("there is no tool {unknown:?}; the tools are: {}", known.join(", "));
            return Err(HostError::new("unknown_tool", text));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Ok(self.job.tools.only(&names))
    }

    fn usage(&self) -> Value {
        let tree = self.cx.root().snapshot();
        let usage = tree.node(self.cx.run_id()).map(|node| tree.subtree_usage(node));
        json!(usage.unwrap_or_default())
    }
}

impl Hands for ScriptHands {
    fn answer(&self, ask: Ask) -> BoxFuture<'_, Result<Value, HostError>> {
        match ask {
            Ask::Agent { prompt, options } => Box::pin(self.agent(prompt, options)),
            Ask::Usage => Box::pin(std::future::ready(Ok(self.usage()))),
            other => {
                let text = format!("a script cannot ask for {other:?}");
                Box::pin(std::future::ready(Err(HostError::new("unknown", text))))
            }
        }
    }
}

fn read_options(text: &str) -> Result<Options, HostError> {
    if text.is_empty() {
        return Ok(Options::default());
    }
    let fail = |reason: String| {
        HostError::new("invalid_options", format!("agent(prompt, {{schema?, tools?, label?}}): {reason}"))
    };
    match read_json(text).map_err(|error| fail(error.to_string()))? {
        Value::Null => Ok(Options::default()),
        value @ Value::Object(_) => serde_json::from_value(value).map_err(|error| fail(error.to_string())),
        _ => Err(fail("the options are no object".to_owned())),
    }
}
