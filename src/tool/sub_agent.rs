//! A sub-agent as a tool: its author says what it is; the gate, the birth, the pipe and the settlement are provided.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::caller::Caller;
use super::context::ToolContext;
use super::policy::Policy;
use super::reply::ToolReply;
use super::runtime::{AgentRuntime, Job, Producer};
use super::toolset::Toolset;
use super::traits::{Access, Risk, Tool};
use super::typed::{parameters_of, parse_arguments};
use crate::budget::{Refusal, RunLimits};
use crate::context::{EnterError, Entered, RunContext, RunSpec, enter_subagent_depth};
use crate::error::Result;
use crate::forward::forward_subagent_stream;
use crate::id::ToolCallId;
use crate::message::Scope;
use crate::model::{ChatModel, Images, ToolSpec};
use crate::outcome::SubAgentOutcome;
use crate::stream::SubAgentStream;

/// A tool that delegates. Implement this and register it with [`Toolset::with_sub_agent`].
///
/// # Examples
///
/// ```
/// use anabranch::tool::{SubAgentRun, SubAgentTool, ToolReply, Toolset};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Review {
///     /// The file to review.
///     path: String,
/// }
///
/// struct Reviewer;
///
/// impl SubAgentTool for Reviewer {
///     type Params = Review;
///
///     fn name(&self) -> &str {
///         "review"
///     }
///
///     fn description(&self) -> &str {
///         "Has a file reviewed by a sub-agent that can only read."
///     }
///
///     fn build_run(&self, params: Review) -> Result<SubAgentRun, ToolReply> {
///         Ok(SubAgentRun::new("review", format!("Review {} and list its defects.", params.path)))
///     }
///
///     fn child_tools(&self, parent: &Toolset) -> Toolset {
///         parent.only(&["read_file", "grep"])
///     }
/// }
///
/// let tools = Toolset::new().with_sub_agent(Reviewer)?;
/// # Ok::<(), anabranch::error::Error>(())
/// ```
pub trait SubAgentTool: Send + Sync + 'static {
    /// What the model passes.
    type Params: DeserializeOwned + JsonSchema + Send;

    /// The tool's name.
    fn name(&self) -> &str;

    /// What a model reads of it.
    fn description(&self) -> &str;

    /// Translates the parameters into a run, or refuses with what the model reads.
    ///
    /// # Errors
    ///
    /// The refusal, such as `missing_prompt`.
    fn build_run(&self, params: Self::Params) -> std::result::Result<SubAgentRun, ToolReply>;

    /// Which of the parent's tools the child has.
    fn child_tools(&self, parent: &Toolset) -> Toolset;

    /// What a refusal calls the run. Default `subtask`.
    fn noun(&self) -> &str {
        "subtask"
    }

    /// What a person reads while it runs. Default: the arguments.
    fn status_text(&self, args: &Map<String, Value>) -> Option<String> {
        let _ = args;
        None
    }

    /// How much a call may harm beside what the child's own calls do, each of which is checked. A policy goes by it. Default: low.
    fn risk(&self, args: &Map<String, Value>) -> Risk {
        let _ = args;
        Risk::Low
    }

    /// Whether a child has this tool too, even where its parent's set lacks it. Default no.
    fn offers_itself(&self) -> bool {
        false
    }

    /// Whether `build_run` checks the parameters itself, with codes of its own. Default: they are held against the schema first.
    fn checks_arguments(&self) -> bool {
        false
    }

    /// What runs the child. Default: the host's producer.
    fn producer(&self) -> Option<Arc<dyn Producer>> {
        None
    }

    /// Whether the child ends with the run that calls (the default) or with the root. A tool whose children are background runs
    /// drives them itself: see [`SubAgentTool::drive`].
    fn scope(&self) -> Scope {
        Scope::Foreground
    }

    /// Drives the child, and answers the call. Default: waits for it and replies with its result.
    ///
    /// # Cancel safety
    ///
    /// Dropping it ends a child that it holds.
    fn drive(&self, child: Delegated, cx: &ToolContext) -> impl Future<Output = ToolReply> + Send {
        let _ = cx;
        child.settle()
    }
}

/// A child that may begin: what a sub-agent tool made of its call. Dropped, it never existed.
#[derive(Debug)]
pub struct Delegated {
    run: SubAgentRun,
    entered: Entered,
    stream: SubAgentStream,
}

impl Delegated {
    /// What the tool asked for.
    #[must_use]
    pub fn run(&self) -> &SubAgentRun {
        &self.run
    }

    /// The context of the child.
    #[must_use]
    pub fn context(&self) -> RunContext {
        self.entered.context()
    }

    /// Runs it to its end, and says it as the parent's model reads it.
    ///
    /// # Cancel safety
    ///
    /// Dropping it cancels the child.
    pub async fn settle(self) -> ToolReply {
        let run_id = self.context().run_id().to_string();
        let outcome = forward_subagent_stream(self.stream, self.entered).await;
        self.run.settle(&outcome, &run_id)
    }

    /// Runs it to its end, for who says it otherwise.
    #[cfg(feature = "catalogue")]
    pub(crate) async fn outcome(self) -> SubAgentOutcome {
        forward_subagent_stream(self.stream, self.entered).await
    }

    /// Its parts, for who drives it on a task.
    pub(crate) fn into_parts(self) -> (SubAgentRun, Entered, SubAgentStream) {
        (self.run, self.entered, self.stream)
    }
}

/// What a sub-agent tool asks for.
#[derive(Clone)]
pub struct SubAgentRun {
    /// The child's agent name.
    pub agent: Arc<str>,
    /// A few words for a person.
    pub title: Arc<str>,
    /// The brief: the child sees nothing of the parent's conversation.
    pub instructions: Arc<str>,
    /// What stands before the conversation.
    pub system_prompt: Option<Arc<str>>,
    /// With one, the result is a value that satisfies it.
    pub output_schema: Option<Arc<Value>>,
    /// What runs it, where that depends on the parameters. None: the tool's [`SubAgentTool::producer`].
    pub producer: Option<Arc<dyn Producer>>,
    /// Its model, which the runs below it have too. None: its parent's.
    pub model: Option<Arc<dyn ChatModel>>,
    /// What it, and the runs below it, may do less than its parent: it [narrows](Policy::narrowed_by) the parent's. None: nothing less.
    pub policy: Option<Policy>,
    /// Tools of this run alone, besides those of [`SubAgentTool::child_tools`]; they win over others of their names.
    pub own_tools: Toolset,
    /// Model turns; none is the producer's default.
    pub max_turns: Option<u64>,
    /// Further limits; the parent's narrow them.
    pub limits: RunLimits,
    /// The code of a child that did not complete.
    pub error_code: Arc<str>,
    /// The code of a child that completed without a value.
    pub no_result_code: Arc<str>,
    /// The sentence that goes with it.
    pub no_result_message: Arc<str>,
    /// Keys that both errors carry.
    pub error_extras: Map<String, Value>,
}

impl fmt::Debug for SubAgentRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubAgentRun")
            .field("agent", &self.agent)
            .field("title", &self.title)
            .field("producer", &self.producer.as_ref().map(|producer| producer.kind()))
            .finish_non_exhaustive()
    }
}

impl SubAgentRun {
    /// A run of `agent` with these instructions; its codes are `<agent>_failed` and `<agent>_no_result`.
    #[must_use]
    pub fn new(agent: &str, instructions: impl Into<Arc<str>>) -> Self {
        Self {
            agent: agent.into(),
            title: agent.into(),
            instructions: instructions.into(),
            system_prompt: None,
            output_schema: None,
            producer: None,
            model: None,
            policy: None,
            own_tools: Toolset::new(),
            max_turns: None,
            limits: RunLimits::default(),
            error_code: format!("{agent}_failed").into(),
            no_result_code: format!("{agent}_no_result").into(),
            no_result_message: "The sub-agent ended without a result.".into(),
            error_extras: Map::new(),
        }
    }

    /// What it inherits of what its parent has: with its own model, and narrowed by its own policy.
    pub(crate) fn runtime(&self, parent: &Arc<AgentRuntime>) -> Arc<AgentRuntime> {
        let mut runtime = Arc::clone(parent);
        if self.model.is_some() || self.policy.is_some() {
            let own = Arc::make_mut(&mut runtime);
            own.model = self.model.clone().unwrap_or_else(|| Arc::clone(&own.model));
            if let Some(policy) = &self.policy {
                own.policy = own.policy.narrowed_by(policy);
            }
        }
        runtime
    }

    /// What the parent's model reads of the settled child. A failure is never turned into a success; what there was of a result
    /// goes along with the reason.
    pub(crate) fn settle(&self, outcome: &SubAgentOutcome, run_id: &str) -> ToolReply {
        let shown = outcome.error_text();
        let reply = match outcome {
            SubAgentOutcome::Completed { result: Value::Null, .. } => {
                ToolReply::error(&self.no_result_code, &*self.no_result_message)
            }
            SubAgentOutcome::Completed { result, .. } => return ToolReply::ok(result.clone()),
            SubAgentOutcome::Stopped { .. }
            | SubAgentOutcome::Cancelled { .. }
            | SubAgentOutcome::Failed { .. } => ToolReply::error(&self.error_code, shown.unwrap_or_default()),
        };
        let mut extras = self.error_extras.clone();
        if !outcome.is_ok() {
            extras.insert("outcome".into(), json!(outcome.kind()));
            extras.insert("stop_class".into(), json!(outcome.stop_class()));
            if let Some(partial) = outcome.partial() {
                extras.insert("partial".into(), partial.clone());
            }
        }
        extras.insert("run_id".into(), json!(run_id));
        reply.with(extras)
    }
}

impl Toolset {
    /// These and a tool that delegates, at the end.
    ///
    /// # Errors
    ///
    /// As [`Toolset::with`].
    pub fn with_sub_agent<T: SubAgentTool>(&self, tool: T) -> Result<Self> {
        let (name, description) = (tool.name().to_owned(), tool.description().to_owned());
        let spec = ToolSpec { name, description, parameters: parameters_of::<T::Params>() };
        self.with(Delegation { tool, spec })
    }
}

/// The tool that a [`SubAgentTool`] becomes.
struct Delegation<T> {
    tool: T,
    spec: ToolSpec,
}

impl<T: SubAgentTool> Tool for Delegation<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: Map<String, Value>, cx: ToolContext) -> BoxFuture<'a, ToolReply> {
        Box::pin(self.delegate(args, cx))
    }

    fn access(&self) -> Access {
        Access::Spawn
    }

    fn risk(&self, args: &Map<String, Value>) -> Risk {
        self.tool.risk(args)
    }

    /// The gate comes before the parameters, so they are checked here.
    fn checks_arguments(&self) -> bool {
        true
    }

    fn status_text(&self, args: &Map<String, Value>) -> Option<String> {
        self.tool.status_text(args)
    }
}

impl<T: SubAgentTool> Delegation<T> {
    async fn delegate(&self, args: Map<String, Value>, cx: ToolContext) -> ToolReply {
        if let Err(refusal) = enter_subagent_depth(cx.run(), self.tool.noun()) {
            return refused(&refusal);
        }
        let args = match cx.tools().entry(&self.spec.name) {
            Some(entry) if !self.tool.checks_arguments() => entry.fitting(args),
            _ => Ok(args),
        };
        let run = args.and_then(parse_arguments).and_then(|params| self.tool.build_run(params));
        let mut run = match run {
            Ok(run) => run,
            Err(reply) => return reply,
        };
        run.producer = run.producer.or_else(|| self.tool.producer());
        let birth =
            Birth { noun: self.tool.noun(), scope: self.tool.scope(), call: Some(cx.call_id().clone()) };
        let tools = || {
            let tools = self.tool.child_tools(&cx.tools().inheritable());
            match cx.tools().entry(&self.spec.name).filter(|_| self.tool.offers_itself()) {
                Some(own) => tools.with_first(own),
                None => tools,
            }
        };
        match Delegated::enter(run, cx.caller(), birth, tools) {
            Ok(child) => self.tool.drive(child, &cx).await,
            Err(reply) => reply,
        }
    }
}

/// How a child comes into being, besides what it is.
#[derive(Debug)]
pub(crate) struct Birth<'a> {
    /// What a refusal calls it.
    pub(crate) noun: &'a str,
    /// Whether it ends with the run that asks or with the root.
    pub(crate) scope: Scope,
    /// The call that asks for it, if one does.
    pub(crate) call: Option<ToolCallId>,
}

impl Delegated {
    /// A child of the run that `parent` is of, through the one choke point. `tools` says what it has besides tools of its own;
    /// if that panics, the child's construction has failed.
    pub(crate) fn enter(
        run: SubAgentRun,
        parent: &Caller,
        birth: Birth<'_>,
        tools: impl FnOnce() -> Toolset,
    ) -> std::result::Result<Self, ToolReply> {
        let runtime = run.runtime(parent.runtime());
        let producer = run.producer.clone().unwrap_or_else(|| Arc::clone(&runtime.producer));
        let spec = RunSpec {
            agent: Arc::clone(&run.agent),
            title: Arc::clone(&run.title),
            task: Arc::clone(&run.instructions),
            scope: birth.scope,
            producer: producer.kind().into(),
            model: Some(runtime.model.name().into()),
            tool_call_id: birth.call,
            attempt: None,
            branch: None,
            limits: run.limits,
            noun: birth.noun.into(),
        };
        let entered = match parent.run().enter(spec) {
            Ok(entered) => entered,
            Err(EnterError::Refused(refusal)) => return Err(refused(&refusal)),
            // The run that calls is cancelled: nobody reads this.
            Err(EnterError::Cancelled(_)) => {
                return Err(ToolReply::error("cancelled", "The run was cancelled."));
            }
        };
        let stream = SubAgentStream::build(|| {
            let job = Job {
                instructions: Arc::clone(&run.instructions),
                system_prompt: run.system_prompt.clone(),
                output_schema: run.output_schema.clone(),
                max_turns: run.max_turns,
                max_output_tokens: None,
                tools: run.own_tools.with_missing(&tools()),
                runtime,
            };
            Ok::<_, std::convert::Infallible>(producer.produce(job, entered.context()))
        });
        Ok(Self { run, entered, stream })
    }
}

/// The refusal of the choke point, as the model reads it.
pub(crate) fn refused(refusal: &Refusal) -> ToolReply {
    let value = refusal.to_value();
    ToolReply {
        for_person: value.get("message").and_then(Value::as_str).map(Into::into),
        for_model: value,
        images: Images::default(),
        is_error: true,
        finishes_with: None,
        aborts_with: None,
    }
}

#[cfg(test)]
#[path = "sub_agent_tests.rs"]
mod tests;
