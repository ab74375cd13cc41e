//! What a tool may know and do while it runs.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::caller::Caller;
use super::policy::Reach;
use super::runtime::AgentRuntime;
use super::toolset::{Entry, Toolset};
use crate::cancel::Cancelled;
use crate::context::RunContext;
use crate::id::ToolCallId;
use crate::message::{Extra, MessageBody, Severity, ToolCallUpdate};

/// The context of one call. The call's identity travels here, out of band: nothing in the arguments can change it.
#[derive(Debug, Clone)]
pub struct ToolContext {
    caller: Caller,
    /// As it was announced.
    call: Arc<ToolCallUpdate>,
    /// What is called, once that is known: the hooks may have chosen another tool than the one that was announced.
    called: Option<Arc<Entry>>,
}

impl ToolContext {
    /// The context of the call that `announced` announces.
    #[must_use]
    pub fn new(caller: Caller, announced: Arc<ToolCallUpdate>) -> Self {
        Self { caller, call: announced, called: None }
    }

    /// The same context, for a call of this tool.
    pub(super) fn calling(self, entry: &Arc<Entry>) -> Self {
        Self { called: Some(Arc::clone(entry)), ..self }
    }

    /// The run that calls.
    #[must_use]
    pub fn run(&self) -> &RunContext {
        self.caller.run()
    }

    /// For a tool that calls other tools of its run.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The tools of the run that calls.
    #[must_use]
    pub fn tools(&self) -> &Toolset {
        self.caller.tools()
    }

    /// Those of the tools that the run may call, as far as that is known beforehand: what could only be refused is not among them.
    #[must_use]
    pub fn offered(&self) -> Toolset {
        self.caller.offered()
    }

    /// What children inherit: the model, the default producer, the policy.
    #[must_use]
    pub fn runtime(&self) -> &Arc<AgentRuntime> {
        self.caller.runtime()
    }

    /// What the rules let this call, with these arguments, show of what it comes upon: for a tool that goes through many places, of
    /// which its argument `key` names but the first. What it does not cover a tool leaves out, and says how many there were. None if
    /// no rule looks at that argument: then there is nothing to leave out.
    #[must_use]
    pub fn reach(&self, args: &Map<String, Value>, key: &'static str) -> Option<Reach> {
        Reach::of(&self.called.as_ref()?.tool, args, key, self.run(), self.runtime())
    }

    /// The provider's label of the call.
    #[must_use]
    pub fn call_id(&self) -> &ToolCallId {
        &self.call.tool_call_id
    }

    /// The call's key within its run.
    #[must_use]
    pub fn call_index(&self) -> u32 {
        self.call.call_index
    }

    /// Says how the call goes on, for people: the status text of the call.
    ///
    /// # Cancel safety
    ///
    /// As [`crate::stream::Emitter::send`].
    pub async fn progress(&self, text: impl Into<String>) {
        let update = ToolCallUpdate {
            tool_call_id: self.call.tool_call_id.clone(),
            call_index: self.call.call_index,
            name: Arc::clone(&self.call.name),
            args: Arc::clone(&self.call.args),
            message: Some(text.into()),
            via: None,
            extra: Extra::default(),
        };
        self.caller.emitter().send(update).await;
    }

    /// Says a line for the record, under the tool's name.
    ///
    /// # Cancel safety
    ///
    /// As [`crate::stream::Emitter::send`].
    pub async fn log(&self, severity: Severity, text: impl Into<String>) {
        self.caller.emitter().send(MessageBody::log(&self.call.name, severity, text)).await;
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
        self.run().or_cancel(work).await
    }
}
