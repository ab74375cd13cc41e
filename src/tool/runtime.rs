//! What the runs of a tree inherit from their host.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::policy::{Hooks, Policy};
use super::toolset::Toolset;
use crate::context::{Question, RunContext};
use crate::model::ChatModel;
use crate::stream::SubAgentStream;

/// What every child inherits: the model, what runs it unless its tool says otherwise, what it may do, and how large a result may be.
#[derive(Clone)]
pub struct AgentRuntime {
    /// The model.
    pub model: Arc<dyn ChatModel>,
    /// The default producer.
    pub producer: Arc<dyn Producer>,
    /// What tools may do.
    pub policy: Policy,
    /// What looks at each call, and may change or stop it.
    pub hooks: Hooks,
    /// How long a person has for an answer. Default [`Question::DEADLINE`].
    pub ask_deadline: Duration,
    /// The cap of one tool result, in bytes; the same at each depth.
    pub result_bytes: usize,
}

impl AgentRuntime {
    /// The default cap of a result: more than the largest page of a file that the workspace tools read, and at about 16,000
    /// tokens still a part of any model's context.
    pub const RESULT_BYTES: usize = 64 * 1024;

    /// A runtime with the default policy and cap.
    #[must_use]
    pub fn new(model: Arc<dyn ChatModel>, producer: Arc<dyn Producer>) -> Self {
        Self {
            model,
            producer,
            policy: Policy::default(),
            hooks: Hooks::new(),
            ask_deadline: Question::DEADLINE,
            result_bytes: Self::RESULT_BYTES,
        }
    }

    /// With this policy.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }
}

impl fmt::Debug for AgentRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentRuntime")
            .field("model", &self.model.name())
            .field("producer", &self.producer.kind())
            .finish_non_exhaustive()
    }
}

/// Makes the stream of a run from what it is to do: the tool loop is one, a planner may be another.
pub trait Producer: Send + Sync + 'static {
    /// The word for it in `run_started`.
    fn kind(&self) -> &str;

    /// The run's stream. Called once per run, after `enter` and before its first message.
    fn produce(&self, job: Job, cx: RunContext) -> SubAgentStream;
}

/// What a run is to do.
#[derive(Debug, Clone)]
pub struct Job {
    /// The brief: a child sees nothing of its parent's conversation.
    pub instructions: Arc<str>,
    /// What stands before the conversation.
    pub system_prompt: Option<Arc<str>>,
    /// With one, the result is a value that satisfies it; without, it is the text of the last answer.
    pub output_schema: Option<Arc<Value>>,
    /// Model turns; none is the producer's default.
    pub max_turns: Option<u64>,
    /// Output tokens of one turn; none leaves it to the provider.
    pub max_output_tokens: Option<u64>,
    /// The tools, in order.
    pub tools: Toolset,
    /// What it inherits.
    pub runtime: Arc<AgentRuntime>,
}

impl Job {
    /// A prose job with every default.
    #[must_use]
    pub fn new(instructions: impl Into<Arc<str>>, tools: Toolset, runtime: Arc<AgentRuntime>) -> Self {
        Self {
            instructions: instructions.into(),
            system_prompt: None,
            output_schema: None,
            max_turns: None,
            max_output_tokens: None,
            tools,
            runtime,
        }
    }
}
