//! A frame as a tool: descriptor and callable in one.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::error::{FrameError, FrameErrorKind, refusal_reply};
use super::parent::Parent;
use super::read::{Contract, Fits};
use super::result::{prompt_for, result_schema};
use crate::agent::Agent;
use crate::budget::RunLimits;
use crate::context::enter_subagent_depth;
use crate::error::Result;
use crate::model::ToolSpec;
use crate::stream::panic_text;
use crate::tool::{Access, Schema, Tool, ToolContext, ToolReply};

/// What a refusal calls a frame's run.
pub(super) const NOUN: &str = "sub-agent";

/// A tool whose answer is `{status, summary, findings}` or a named failure. Register it with [`crate::tool::Toolset::with`].
///
/// Each call builds a fresh agent, runs it as a child of the run that calls, and drops it; its conversation begins with the prompt
/// alone. The child streams into the log like any other, several calls of one turn run at the same time, and a frame's agent may
/// have frames of its own; depth, budgets and cancellation are those of the tree.
///
/// What the model reads:
///
/// | the agent's last message | the call's result |
/// |---|---|
/// | one JSON object of the schema | `{status, summary, findings}` |
/// | other JSON | the same with `status: failed`, the message as `summary`, and `rejection {class, path, reason}` |
/// | empty, or no JSON | an error: `frame_answer_empty`, `frame_answer_not_json` |
/// | none, since the run was stopped, failed or was cut off | an error: `frame_failed`, with what there was |
#[derive(Clone)]
pub struct Frame {
    pub(super) name: Arc<str>,
    pub(super) spec: ToolSpec,
    factory: Arc<Factory>,
    pub(super) contract: Contract,
    pub(super) prompt: Arc<str>,
    pub(super) corrects: bool,
    pub(super) limits: RunLimits,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Factory = dyn Fn() -> std::result::Result<Agent, BoxError> + Send + Sync;

/// A frame whose findings are any object.
///
/// `factory` is called once for each call that has a prompt, and builds a new agent each time: one that an earlier call had is a
/// named failure. The agent gets [`super::result_system_prompt`] below its own prompt. It may do what its own policy and that of the
/// run that calls both allow, and the hooks of both see its calls.
///
/// # Errors
///
/// None of its own: as [`super::as_tool_typed`].
///
/// # Examples
///
/// ```
/// use anabranch::Agent;
/// use anabranch::frame::as_tool;
/// use anabranch::model::OfflineModel;
/// use anabranch::tool::Toolset;
///
/// let build = || Ok::<_, std::io::Error>(Agent::new(OfflineModel::new()).named("reviewer"));
/// let tools = Toolset::new().with(as_tool(build, "review", "Has a change reviewed.")?)?;
/// # Ok::<(), anabranch::error::Error>(())
/// ```
pub fn as_tool<E: Into<BoxError>>(
    factory: impl Fn() -> std::result::Result<Agent, E> + Send + Sync + 'static,
    name: &str,
    description: &str,
) -> Result<Frame> {
    Frame::new(factory, name, description, result_schema(), None)
}

impl Frame {
    pub(super) fn new<E: Into<BoxError>>(
        factory: impl Fn() -> std::result::Result<Agent, E> + Send + Sync + 'static,
        name: &str,
        description: &str,
        schema: Value,
        fits: Option<Fits>,
    ) -> Result<Self> {
        let spec = ToolSpec {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters: prompt_parameters(),
        };
        let prompt = prompt_for(&schema).into();
        let schema = Schema::compile(Arc::new(schema), name)?;
        Ok(Self {
            name: name.into(),
            spec,
            factory: Arc::new(move || factory().map_err(Into::into)),
            contract: Contract { schema, fits, unwraps_fence: false },
            prompt,
            corrects: false,
            limits: RunLimits::default(),
        })
    }

    /// Takes one code fence off that stands around the whole answer. Default: such an answer is no JSON.
    #[must_use]
    pub fn unwrapping_a_fence(mut self) -> Self {
        self.contract.unwraps_fence = true;
        self
    }

    /// Lets an agent whose answer is rejected try once more, in the same run, with its answer and the reason in its brief. Default:
    /// the first answer counts.
    #[must_use]
    pub fn correcting_once(mut self) -> Self {
        self.corrects = true;
        self
    }

    /// With these limits for each call, narrowed by those of the run that calls. Default: those alone, and of model turns as many as
    /// the agent says.
    #[must_use]
    pub fn limited(mut self, limits: RunLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The schema of its results.
    #[must_use]
    pub fn schema(&self) -> &Arc<Value> {
        self.contract.schema.value()
    }

    /// A new agent, or why there is none.
    pub(super) fn agent(&self) -> std::result::Result<Agent, FrameErrorKind> {
        let agent = match catch_unwind(AssertUnwindSafe(|| (self.factory)())) {
            Ok(Ok(agent)) => agent,
            Ok(Err(error)) => return Err(FrameErrorKind::Factory(error)),
            Err(panic) => return Err(FrameErrorKind::FactoryPanicked(panic_text(&*panic))),
        };
        if !agent.give_out() {
            return Err(FrameErrorKind::AgentReused);
        }
        if agent.job("").output_schema.is_some() {
            return Err(FrameErrorKind::AgentHasSchema);
        }
        Ok(agent)
    }

    async fn answer(&self, args: Map<String, Value>, cx: ToolContext) -> ToolReply {
        // The gate comes first: at the limit there is nothing to correct.
        if let Err(refusal) = enter_subagent_depth(cx.run(), NOUN) {
            return refusal_reply(&refusal);
        }
        let prompt = args.get("prompt").and_then(Value::as_str).unwrap_or_default();
        match self.run(&Parent::from(&cx), prompt).await {
            Ok(result) => {
                let line =
                    format!("{}: {}", result.status, result.summary.lines().next().unwrap_or_default());
                ToolReply::ok(result.to_value()).shown_as(crate::tree::cut(&line, 200))
            }
            Err(error) => FrameError::to_reply(&error),
        }
    }
}

impl Tool for Frame {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: Map<String, Value>, cx: ToolContext) -> BoxFuture<'a, ToolReply> {
        Box::pin(self.answer(args, cx))
    }

    fn access(&self) -> Access {
        Access::Spawn
    }

    /// A call without a usable prompt has a code of its own, and keys that the schema does not name are passed over.
    fn checks_arguments(&self) -> bool {
        true
    }

    fn status_text(&self, args: &Map<String, Value>) -> Option<String> {
        Some(status_of(&self.name, args))
    }
}

/// `{prompt}`. Further keys are passed over, so the schema does not forbid them.
pub(super) fn prompt_parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "prompt": {
                "type": "string",
                "description": "The whole brief. The sub-agent sees nothing of this conversation: say what to do, where, and what to report.",
            },
        },
        "required": ["prompt"],
    })
}

/// What a person reads while a call with a prompt runs.
pub(super) fn status_of(name: &str, args: &Map<String, Value>) -> String {
    let prompt = args.get("prompt").and_then(Value::as_str).unwrap_or_default();
    let first = crate::tree::cut(prompt.trim().lines().next().unwrap_or_default(), 80);
    if first.is_empty() { format!("Asking {name}") } else { format!("Asking {name}: {first}") }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("name", &self.name).finish_non_exhaustive()
    }
}
