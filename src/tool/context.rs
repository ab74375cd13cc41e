//! What a tool may know and do while it runs.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::policy::offered;
use super::runtime::AgentRuntime;
use super::toolset::Toolset;
use crate::cancel::Cancelled;
use crate::context::RunContext;
use crate::id::ToolCallId;
use crate::message::{Extra, MessageBody, Severity, ToolCallUpdate};
use crate::stream::Emitter;

/// The context of one call. The call's identity travels here, out of band: nothing in the arguments can change it.
#[derive(Debug, Clone)]
pub struct ToolContext {
    run: RunContext,
    emit: Emitter,
    tools: Toolset,
    runtime: Arc<AgentRuntime>,
    call: Arc<Call>,
}

/// The call itself, as it was announced.
#[derive(Debug)]
struct Call {
    index: u32,
    id: ToolCallId,
    name: Arc<str>,
    args: Arc<Map<String, Value>>,
}

impl ToolContext {
    /// The context of the call that `announced` announces.
    #[must_use]
    pub fn new(
        run: RunContext,
        emit: Emitter,
        tools: Toolset,
        runtime: Arc<AgentRuntime>,
        announced: &ToolCallUpdate,
    ) -> Self {
        let call = Call {
            index: announced.call_index,
            id: announced.tool_call_id.clone(),
            name: Arc::clone(&announced.name),
            args: Arc::clone(&announced.args),
        };
        Self { run, emit, tools, runtime, call: Arc::new(call) }
    }

    /// The run that calls.
    #[must_use]
    pub fn run(&self) -> &RunContext {
        &self.run
    }

    /// The tools of the run that calls.
    #[must_use]
    pub fn tools(&self) -> &Toolset {
        &self.tools
    }

    /// Those of the tools that the run may call, as far as that is known beforehand: what could only be refused is not among them.
    #[must_use]
    pub fn offered(&self) -> Toolset {
        offered(&self.tools, &self.run, &self.runtime.policy)
    }

    /// What children inherit: the model, the default producer, the policy.
    #[must_use]
    pub fn runtime(&self) -> &Arc<AgentRuntime> {
        &self.runtime
    }

    /// The provider's label of the call.
    #[must_use]
    pub fn call_id(&self) -> &ToolCallId {
        &self.call.id
    }

    /// The call's key within its run.
    #[must_use]
    pub fn call_index(&self) -> u32 {
        self.call.index
    }

    /// Says how the call goes on, for people: the status text of the call.
    ///
    /// # Cancel safety
    ///
    /// As [`Emitter::send`].
    pub async fn progress(&self, text: impl Into<String>) {
        let update = ToolCallUpdate {
            tool_call_id: self.call.id.clone(),
            call_index: self.call.index,
            name: Arc::clone(&self.call.name),
            args: Arc::clone(&self.call.args),
            message: Some(text.into()),
            via: None,
            extra: Extra::default(),
        };
        self.emit.send(update).await;
    }

    /// Says a line for the record, under the tool's name.
    ///
    /// # Cancel safety
    ///
    /// As [`Emitter::send`].
    pub async fn log(&self, severity: Severity, text: impl Into<String>) {
        self.emit.send(MessageBody::log(&self.call.name, severity, text)).await;
    }

    /// Waits for `work` or for the cancel of the run.
    ///
    /// # Errors
    ///
    /// [`Cancelled`], and `work` is dropped.
    ///
    /// # Cancel safety
    ///
    /// As that of `work`.
    pub async fn or_cancel<F: Future>(&self, work: F) -> Result<F::Output, Cancelled> {
        self.run.or_cancel(work).await
    }
}
