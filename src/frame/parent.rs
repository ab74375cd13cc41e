//! Who begins a frame: the run that its children belong to.

use std::sync::Arc;

use crate::agent::Agent;
use crate::context::{EnterError, Entered, RunContext, RunSpec};
use crate::id::ToolCallId;
use crate::tool::{AgentRuntime, Hooks, Job, ToolContext};

/// The run below which frames and compounds begin their children, and what it may do. Make one of the context of a run or of a call.
#[derive(Debug, Clone)]
pub struct Parent {
    run: RunContext,
    runtime: Option<Arc<AgentRuntime>>,
    call: Option<ToolCallId>,
}

impl Parent {
    /// This run. Children may do what their agents' policies allow; with [`Parent::within`] no more than the run itself.
    #[must_use]
    pub fn of(run: &RunContext) -> Self {
        Self { run: run.clone(), runtime: None, call: None }
    }

    /// With the rules of this runtime over those of the agents: its policy narrows theirs, and its hooks see their calls first. A
    /// producer passes the runtime of its job; of the models and producers in it nothing is used.
    #[must_use]
    pub fn within(mut self, runtime: &Arc<AgentRuntime>) -> Self {
        self.runtime = Some(Arc::clone(runtime));
        self
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> &RunContext {
        &self.run
    }

    /// The same rules over the run of `cx`, which begins children of its own.
    pub(super) fn below(&self, cx: RunContext) -> Self {
        Self { run: cx, runtime: self.runtime.clone(), call: None }
    }

    /// The hooks of the parent.
    pub(super) fn hooks(&self) -> Hooks {
        self.runtime.as_ref().map(|runtime| runtime.hooks.clone()).unwrap_or_default()
    }

    /// The job of an agent as a child's: it may do nothing that the parent may not, and nothing unseen by the parent's hooks.
    pub(super) fn job(&self, agent: &Agent, task: &str) -> Job {
        let mut job = agent.job(task);
        job.tools = job.tools.inheritable();
        if let Some(above) = &self.runtime {
            let own = &*job.runtime;
            let policy = above.policy.narrowed_by(&own.policy);
            let hooks = above.hooks.with_all(&own.hooks);
            job.runtime = Arc::new(AgentRuntime { policy, hooks, ..own.clone() });
        }
        job
    }

    /// The way of a child into the tree.
    pub(super) fn enter(&self, spec: RunSpec) -> Result<Entered, EnterError> {
        self.run.enter(spec.called_by(self.call.clone()))
    }
}

impl From<&ToolContext> for Parent {
    fn from(cx: &ToolContext) -> Self {
        Self {
            run: cx.run().clone(),
            runtime: Some(Arc::clone(cx.runtime())),
            call: Some(cx.call_id().clone()),
        }
    }
}
