//! The producer that runs a script.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::hands::ScriptHands;
use crate::agent::sandbox::{
    Bridge, Ended, GuestErrorKind, GuestLimits, InProcess, Played, Program, Sandbox, Surface, read_json,
};
use crate::context::RunContext;
use crate::message::{MessageBody, Severity};
use crate::outcome::{FailureKind, LimitKind, SubAgentOutcome};
use crate::stream::SubAgentStream;
use crate::tool::shared::{Author, Namespace, SharedResults};
use crate::tool::{Caller, Job, Producer, Schema, Toolset};

/// Who says what a script says.
const LABEL: &str = "script_runner";

/// The bounds of one script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptLimits {
    /// How long it may take, its agents included. Default 60 min, as in the original core.
    pub wall: Duration,
    /// How many agents run at once; others wait. Default 8, as in the original core; 0 is taken for 1.
    pub max_concurrent_agents: u32,
    /// How many agents it may start. Default 100, as in the original core.
    pub max_agent_calls: u32,
    /// How many tools it may call itself. Default 1,000: ten for each agent.
    pub max_tool_calls: u32,
    /// The bounds of the sandbox; its time is `wall`.
    pub guest: GuestLimits,
}

impl Default for ScriptLimits {
    fn default() -> Self {
        Self {
            wall: Duration::from_mins(60),
            max_concurrent_agents: 8,
            max_agent_calls: 100,
            max_tool_calls: 1_000,
            guest: GuestLimits::default(),
        }
    }
}

/// The producer that runs a script. Its agents are children of its run, made by the default producer of the runtime, with the
/// tools of the job.
///
/// # Examples
///
/// ```
/// use anabranch::agent::Agent;
/// use anabranch::agent::script::ScriptRun;
/// use anabranch::context::Root;
/// use anabranch::model::OfflineModel;
/// use serde_json::json;
/// use std::sync::Arc;
///
/// # tokio_test::block_on(async {
/// let script = ScriptRun::new("return inputs.numbers.map(n => n * n)").with_inputs(json!({ "numbers": [1, 2, 3] }));
/// let agent = Agent::new(OfflineModel::new());
/// let outcome = agent.run_with(Arc::new(script), &Root::new(), "square them").settle().await;
/// assert_eq!(outcome.result().unwrap(), &json!([1, 4, 9]));
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct ScriptRun {
    code: Arc<str>,
    inputs: Value,
    limits: ScriptLimits,
    sandbox: Arc<dyn Sandbox>,
}

impl ScriptRun {
    /// A script without inputs, in this process, with every default.
    #[must_use]
    pub fn new(code: impl Into<Arc<str>>) -> Self {
        let inputs = Value::Object(serde_json::Map::new());
        Self { code: code.into(), inputs, limits: ScriptLimits::default(), sandbox: Arc::new(InProcess) }
    }

    /// What `inputs` is in it. Default `{}`.
    #[must_use]
    pub fn with_inputs(mut self, inputs: Value) -> Self {
        self.inputs = inputs;
        self
    }

    /// With these bounds.
    #[must_use]
    pub fn with_limits(mut self, limits: ScriptLimits) -> Self {
        self.limits = limits;
        self
    }

    /// In this sandbox.
    #[must_use]
    pub fn in_sandbox(mut self, sandbox: Arc<dyn Sandbox>) -> Self {
        self.sandbox = sandbox;
        self
    }

    /// The same with other code.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<Arc<str>>) -> Self {
        self.code = code.into();
        self
    }

    pub(super) fn max_agent_calls(&self) -> u32 {
        self.limits.max_agent_calls
    }

    /// Puts the inputs among the tree's shared results. Where there is no room they are left out, which a list of them says.
    fn share_inputs(&self, cx: &RunContext) {
        let (shared, author) = (SharedResults::of(cx.root()), Author::from(cx));
        for (name, value) in self.inputs.as_object().into_iter().flatten() {
            let _ = shared.put(Namespace::Input, name, "", Ok(value.clone()), &author);
        }
    }

    fn program(&self, tools: Vec<String>, agent_tools: Vec<String>) -> Program {
        Program {
            code: self.code.to_string(),
            tools,
            surface: Surface::Script {
                inputs: self.inputs.clone(),
                max_agent_calls: self.limits.max_agent_calls,
                agent_tools,
            },
            limits: GuestLimits { wall: self.limits.wall, ..self.limits.guest },
        }
    }
}

impl Producer for ScriptRun {
    fn kind(&self) -> &str {
        "script"
    }

    fn produce(&self, mut job: Job, cx: RunContext) -> SubAgentStream {
        let schema = job.output_schema.take().map(|schema| Schema::compile(schema, "the result")).transpose();
        let schema = match schema {
            Ok(schema) => schema,
            Err(error) => {
                return SubAgentStream::settled(SubAgentOutcome::failed(
                    FailureKind::Construction,
                    error.to_string(),
                ));
            }
        };
        let script = self.clone();
        SubAgentStream::generate(|emit| async move {
            // A program is told to end and waited for.
            let _grace = cx.hold_grace();
            let caller =
                Caller::new(cx.clone(), emit.clone(), job.tools.inheritable(), Arc::clone(&job.runtime));
            script.share_inputs(&cx);
            job.tools = job.tools.inheritable();
            let names = |tools: &Toolset| tools.names().map(str::to_owned).collect();
            let program = script.program(names(&caller.offered()), names(&job.tools));
            let begins = format!("the script begins: {} lines", script.code.lines().count());
            emit.send(MessageBody::log(LABEL, Severity::Info, begins)).await;
            let bridge = Bridge {
                caller: &caller,
                via: None,
                label: LABEL,
                max_calls: script.limits.max_tool_calls,
                wall: script.limits.wall,
            };
            let hands = ScriptHands::new(cx.clone(), job, script.limits);
            let played = bridge.play(script.sandbox.start(program), &hands).await;
            let ends = format!("the script ends, after {} agent calls", hands.agent_calls());
            emit.send(MessageBody::log(LABEL, Severity::Info, ends)).await;
            if !played.images.is_empty() {
                let text =
                    "images that the script's tools returned were seen by nobody: a script has no model";
                emit.send(MessageBody::log(LABEL, Severity::Warning, text)).await;
            }
            if let Some(cancelled) = cx.token().cancelled() {
                return SubAgentOutcome::cancelled(cancelled.by);
            }
            outcome(&played, schema.as_ref())
        })
    }
}

fn outcome(played: &Played, schema: Option<&Schema>) -> SubAgentOutcome {
    if let Some(result) = &played.finishes_with {
        return SubAgentOutcome::completed(Value::clone(result));
    }
    if let Some(reason) = &played.aborted {
        return SubAgentOutcome::failed(
            FailureKind::Aborted,
            format!("aborted at a call of the script: {reason}"),
        );
    }
    let Ended { result, .. } = &played.ended;
    let error = match result {
        Ok(text) => {
            let value = read_json(text).unwrap_or_else(|_| Value::String(text.clone()));
            let violations = schema.map(|schema| schema.violations(&value)).unwrap_or_default();
            if violations.is_empty() {
                return SubAgentOutcome::completed(value);
            }
            let text = format!("the script's result does not satisfy the schema: {}", violations.join("; "));
            return SubAgentOutcome::failed(FailureKind::Schema, text);
        }
        Err(error) => error,
    };
    let mut text = format!("Orchestration script failed: {}", error.message);
    if !error.stack.is_empty() {
        text.push('\n');
        text.push_str(&error.stack);
    }
    match error.kind {
        GuestErrorKind::TimedOut => SubAgentOutcome::stopped_by(LimitKind::Wall, text),
        GuestErrorKind::Syntax => SubAgentOutcome::failed(FailureKind::Construction, text),
        _ => SubAgentOutcome::failed(FailureKind::Step, text),
    }
}
