//! The producer of CodeAct: the tool loop with one more tool, told as one step of one task.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::catalogue::direct;
use super::execute_code::{ActionLimits, ExecuteCode};
use super::prompt;
use crate::agent::EXECUTE_CODE;
use crate::agent::sandbox::{InProcess, Sandbox};
use crate::agent::tool_loop::{LoopConfig, ToolLoop};
use crate::context::{RunContext, RunSpec};
use crate::message::{Extra, StepRef, StepResult, TaskRef, TaskUpdate, cap_text};
use crate::outcome::{FailureKind, SubAgentOutcome};
use crate::stream::SubAgentStream;
use crate::tool::{Job, Producer, Schema};

/// The producer that lets a model act by writing code, besides calling tools.
///
/// # Examples
///
/// ```
/// use anabranch::agent::Agent;
/// use anabranch::agent::codeact::CodeAct;
/// use anabranch::context::Root;
/// use anabranch::model::{Script, ScriptModel};
/// use std::sync::Arc;
///
/// # tokio_test::block_on(async {
/// let script = r#"{"anabranch_script": 1, "agents": [{"turns": [{"code": "return 6 * 7"}, {"text": "It is 42."}]}]}"#;
/// let model = ScriptModel::new(Script::parse(script, "example")?);
/// let agent = Agent::with_producer(Arc::new(model), Arc::new(CodeAct::default()));
/// let outcome = agent.run(&Root::new(), "what is 6 times 7?").settle().await;
/// assert_eq!(outcome.result().unwrap(), "It is 42.");
/// # Ok::<(), anabranch::error::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct CodeAct {
    sandbox: Arc<dyn Sandbox>,
    limits: ActionLimits,
    config: LoopConfig,
}

impl Default for CodeAct {
    /// In this process, with every default.
    fn default() -> Self {
        Self::new(Arc::new(InProcess))
    }
}

impl CodeAct {
    /// With this sandbox, and every default.
    #[must_use]
    pub fn new(sandbox: Arc<dyn Sandbox>) -> Self {
        let config = LoopConfig { reminder: prompt::REMINDER.trim_end().into(), ..LoopConfig::default() };
        Self { sandbox, limits: ActionLimits::default(), config }
    }

    /// With these bounds of each action.
    #[must_use]
    pub fn with_limits(mut self, limits: ActionLimits) -> Self {
        self.limits = limits;
        self
    }

    /// With these bounds of the loop. Its reminder and its choice of tools are CodeAct's own.
    #[must_use]
    pub fn with_loop(mut self, config: LoopConfig) -> Self {
        self.config = LoopConfig { reminder: self.config.reminder, ..config };
        self
    }

    /// The job as the loop does it.
    fn prepare(&self, mut job: Job, cx: &RunContext) -> crate::error::Result<(ToolLoop, Job)> {
        let schema =
            job.output_schema.clone().map(|schema| Schema::compile(schema, "the result")).transpose()?;
        job.tools = job.tools.without(&[EXECUTE_CODE]);
        // A tool that is of no use now may be so in a later turn.
        let admitted = crate::tool::admitted(&job.tools, cx, &job.runtime.policy);
        let mut names = direct(&admitted);
        let system = prompt::system(
            job.system_prompt.as_deref(),
            &admitted.without_idle(),
            &names,
            job.output_schema.as_deref(),
            &self.limits,
        );
        names.push(EXECUTE_CODE.to_owned());
        job.system_prompt = Some(system.into());
        let tool = ExecuteCode::new(Arc::clone(&self.sandbox), self.limits, schema);
        job.tools = job.tools.with(tool)?;
        let config = LoopConfig { direct: Some(names), ..self.config.clone() };
        Ok((ToolLoop::new(config), job))
    }
}

impl Producer for CodeAct {
    fn kind(&self) -> &str {
        "codeact"
    }

    fn produce(&self, job: Job, cx: RunContext) -> SubAgentStream {
        let instructions = job.instructions.to_string();
        let (producer, job) = match self.prepare(job, &cx) {
            Ok(prepared) => prepared,
            Err(error) => {
                return SubAgentStream::settled(SubAgentOutcome::failed(
                    FailureKind::Construction,
                    error.to_string(),
                ));
            }
        };
        let mut step = Step::of(&cx, cap_text(&instructions, RunSpec::TASK_BYTES));
        let started = step.update("step_started");
        // Said once: they may be long.
        step.step.instructions = None;
        producer.produce(job, cx).between(started, move |outcome| {
            let (update, result) = step.end(outcome);
            vec![update.into(), result.into()]
        })
    }
}

/// The one step of the run, as the original core tells it.
struct Step {
    task: TaskRef,
    step: StepRef,
}

impl Step {
    fn of(cx: &RunContext, instructions: String) -> Self {
        let id = cx.run_id().to_string();
        Self {
            task: TaskRef {
                id: Some(format!("task_{id}")),
                title: Some(cx.title().to_string()),
                other: Map::new(),
            },
            step: StepRef { id: Some(id), instructions: Some(instructions), other: Map::new() },
        }
    }

    fn update(&self, event: &str) -> TaskUpdate {
        TaskUpdate {
            event: event.to_owned(),
            task: self.task.clone(),
            step: Some(self.step.clone()),
            node_id: self.step.id.clone(),
            extra: Extra::default(),
        }
    }

    fn end(&self, outcome: &SubAgentOutcome) -> (TaskUpdate, StepResult) {
        let error = outcome.error_text().map(|text| format!("Step failed: {text}"));
        let event = if error.is_none() { "step_completed" } else { "step_failed" };
        let result = outcome.result().cloned().unwrap_or(Value::Null);
        let result = StepResult {
            step: self.step.clone(),
            result,
            error,
            is_task_result: None,
            extra: Extra::default(),
        };
        (self.update(event), result)
    }
}
