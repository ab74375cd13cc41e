//! What every planner here does: a tool loop with tools that build a draft, at most three times, until the draft is finished.

use std::sync::Arc;

use serde_json::Value;

use crate::agent::inside::Inside;
use crate::agent::tool_loop::{LoopConfig, ToolLoop};
use crate::context::RunContext;
use crate::error::Result;
use crate::message::{Extra, MessageBody, PlanningUpdate};
use crate::outcome::{FailureKind, SubAgentOutcome};
use crate::stream::Emitter;
use crate::tool::{Job, Toolset};

/// How often a planner begins, as in the original core.
const MAX_ATTEMPTS: u32 = 3;

/// Tool calls of one attempt, as in the original core. No attempt has more turns either.
const MAX_CALLS: u64 = 50;

/// What is planned.
pub(in crate::agent) trait Draft: Send + Sync + 'static {
    /// The tools that build it.
    fn tools(&self) -> Result<Toolset>;

    /// What the model is to do, and, after an attempt that failed, why it did.
    fn brief(&self, failed: Option<&str>) -> String;

    /// The finished plan.
    fn finished(&self) -> Option<Value>;

    /// What there is of it, for whoever gets no more.
    fn so_far(&self) -> Option<Value>;

    /// The name of the tool that finishes it.
    fn finisher(&self) -> &'static str;

    /// The size of a finished plan, for people.
    fn size(&self, plan: &Value) -> String;

    /// What is done with a finished plan before the run settles with it. Default: nothing.
    fn hand_over(&self) -> Option<HandOver> {
        None
    }

    /// What the log says of a finished plan beside its size. Default: nothing.
    fn announce(&self, plan: &Value) -> Vec<MessageBody> {
        let _ = plan;
        Vec::new()
    }
}

/// What is done with a finished plan, on a thread where it may block.
pub(in crate::agent) type HandOver = Box<dyn FnOnce() -> std::result::Result<(), String> + Send>;

/// One planner at work: the messages of its attempts are its own.
pub(in crate::agent) struct Planning {
    /// What a watcher knows it as.
    pub(in crate::agent) who: &'static str,
    pub(in crate::agent) system_prompt: &'static str,
    pub(in crate::agent) job: Job,
    pub(in crate::agent) cx: RunContext,
    pub(in crate::agent) emit: Emitter,
}

impl Planning {
    /// Plans until the draft is finished, or no attempt is left.
    pub(in crate::agent) async fn run(self, draft: impl Draft) -> SubAgentOutcome {
        self.say("initialization", "started", None).await;
        let tools = match draft.tools() {
            Ok(tools) => tools,
            Err(error) => {
                self.say("complete", "failed", Some(error.to_string())).await;
                return SubAgentOutcome::failed(FailureKind::Construction, error.to_string());
            }
        };
        let config = LoopConfig { max_calls: Some(MAX_CALLS), ..LoopConfig::default() };
        let tool_loop = ToolLoop::new(config);
        let mut inside = Inside::new(self.cx.clone(), self.emit.clone(), &self.job.runtime);
        let mut problem: Option<String> = None;
        for attempt in 1..=MAX_ATTEMPTS {
            self.say("generation", "running", Some(format!("attempt {attempt} of {MAX_ATTEMPTS}"))).await;
            let job = Job {
                instructions: draft.brief(problem.as_deref()).into(),
                // The caller's words cannot replace the planner's own.
                system_prompt: Some(match &self.job.system_prompt {
                    Some(preamble) => format!("{preamble}\n\n{}", self.system_prompt).into(),
                    None => self.system_prompt.into(),
                }),
                output_schema: None,
                max_turns: Some(self.job.max_turns.unwrap_or(MAX_CALLS)),
                max_output_tokens: self.job.max_output_tokens,
                tools: tools.clone(),
                runtime: Arc::clone(&self.job.runtime),
            };
            let turns = inside.turns();
            let outcome = inside.run(&tool_loop, job).await;
            let has_begun = inside.turns() > turns;
            if let (true, Some(plan)) = (outcome.is_ok(), draft.finished()) {
                if let Some(act) = draft.hand_over() {
                    match self.cx.blocking(act).await {
                        Ok(Ok(())) => {}
                        Ok(Err(text)) => {
                            self.say("complete", "failed", Some(text.clone())).await;
                            return SubAgentOutcome::failed(FailureKind::Step, text).with_partial(Some(plan));
                        }
                        Err(cancelled) => return SubAgentOutcome::cancelled(cancelled.by),
                    }
                }
                for message in draft.announce(&plan) {
                    self.emit.send(message).await;
                }
                self.say("complete", "success", Some(draft.size(&plan))).await;
                return SubAgentOutcome::completed(plan);
            }
            if matches!(outcome, SubAgentOutcome::Cancelled { .. }) {
                return outcome.with_partial(draft.so_far());
            }
            let text = match outcome.error_text() {
                Some(text) => text,
                None => format!("the model ended its work without {}", draft.finisher()),
            };
            self.say("validation", "failed", Some(text.clone())).await;
            if !has_begun || !may_begin_again(&outcome) || self.cx.exhausted().is_some() {
                self.say("complete", "failed", Some(text)).await;
                return outcome.with_partial(draft.so_far());
            }
            problem = Some(text);
        }
        let text = format!("no plan after {MAX_ATTEMPTS} attempts: {}", problem.unwrap_or_default());
        self.say("complete", "failed", Some(text.clone())).await;
        SubAgentOutcome::failed(FailureKind::Step, text).with_partial(draft.so_far())
    }

    async fn say(&self, phase: &str, status: &str, content: Option<String>) {
        let update = PlanningUpdate {
            phase: phase.to_owned(),
            status: status.to_owned(),
            content,
            node_id: Some(self.who.to_owned()),
            extra: Extra::default(),
        };
        self.emit.send(update).await;
    }
}

/// Whether another attempt can do better: where the model did something wrong or ran out of an attempt's bounds, not where it cannot
/// be reached or somebody ended the run.
fn may_begin_again(outcome: &SubAgentOutcome) -> bool {
    match outcome {
        SubAgentOutcome::Completed { .. } | SubAgentOutcome::Stopped { .. } => true,
        SubAgentOutcome::Failed { kind, .. } => *kind == FailureKind::Empty,
        SubAgentOutcome::Cancelled { .. } => false,
    }
}
