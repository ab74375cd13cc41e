//! What a script may ask for besides tools: agents, and what all of it used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::producer::ScriptLimits;
use crate::agent::sandbox::{AgentCall, Ask, Hands, HostError};
use crate::context::{EnterError, RunContext, RunSpec};
use crate::forward::forward_subagent_stream;
use crate::outcome::SubAgentOutcome;
use crate::stream::SubAgentStream;
use crate::tool::Job;
use crate::tool::shared::{Author, Namespace, SharedResults};

/// The hands of one script.
pub(super) struct ScriptHands {
    cx: RunContext,
    /// What each agent does, but for its prompt, its schema and its choice of tools.
    job: Job,
    limits: ScriptLimits,
    /// The tools among which an agent's may be chosen.
    tools: Vec<String>,
    /// Fair: agents begin in the order in which they were asked for.
    places: Semaphore,
    calls: AtomicU32,
}

impl ScriptHands {
    pub(super) fn new(cx: RunContext, job: Job, limits: ScriptLimits) -> Self {
        let tools = job.tools.names().map(str::to_owned).collect();
        // 0 would be a script that waits for ever.
        let places = Semaphore::new(limits.max_concurrent_agents.max(1) as usize);
        Self { cx, job, limits, tools, places, calls: AtomicU32::new(0) }
    }

    /// How many agents were asked for. A call that was refused for what it passed is none.
    pub(super) fn agent_calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Counts one more, and tells its number; none if there may be no more.
    fn count(&self) -> Option<u32> {
        let more = |calls: u32| (calls < self.limits.max_agent_calls).then_some(calls + 1);
        self.calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|before| before + 1)
    }

    async fn agent(&self, prompt: String, options: String) -> Result<Value, HostError> {
        // The program looks at what it passes too, and counts too, and is not to be trusted.
        let AgentCall { schema, tools, label } = AgentCall::read(&options, &self.tools)?;
        let Some(number) = self.count() else {
            let text = format!("the script has made all of its {} agent calls", self.limits.max_agent_calls);
            return Err(HostError::new("max_agent_calls_reached", text));
        };
        let label = label.unwrap_or_else(|| format!("agent {number}"));
        let tools = match tools {
            None => self.job.tools.clone(),
            Some(names) => self.job.tools.only(&names.iter().map(String::as_str).collect::<Vec<_>>()),
        };
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
