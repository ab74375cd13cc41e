//! The calls of one run: announced, made, answered.

use std::sync::Arc;

use futures::FutureExt;
use serde_json::{Map, Value, json};

use super::context::ToolContext;
use super::invoke::{Invoked, invoke};
use super::policy::{admitted, offered};
use super::reply::ToolReply;
use super::runtime::AgentRuntime;
use super::toolset::Toolset;
use crate::context::RunContext;
use crate::id::ToolCallId;
use crate::message::{Extra, MessageBody, Timestamp, ToolCallUpdate, ToolResultUpdate};
use crate::model::Images;
use crate::stream::Emitter;

/// What a run needs to call its tools. Every producer that calls tools does it through this, so that each call is in the log
/// before its tool starts, and has one result.
#[derive(Debug, Clone)]
pub struct Caller(Arc<Inner>);

/// Shared, since each call has it.
#[derive(Debug, Clone)]
struct Inner {
    run: RunContext,
    emit: Emitter,
    tools: Toolset,
    runtime: Arc<AgentRuntime>,
    /// What the labels that it makes begin with.
    id_prefix: Arc<str>,
}

/// A call that is to be announced.
#[derive(Debug, Clone)]
pub struct NewCall {
    /// The label of it. None: one that is unique among all trees is made.
    pub id: Option<ToolCallId>,
    /// The tool.
    pub name: Arc<str>,
    /// What the log says of the arguments.
    pub args: Arc<Map<String, Value>>,
    /// Status text. None: the tool's own.
    pub message: Option<String>,
    /// The `call_index` of the call from which this one comes, if one does.
    pub via: Option<u32>,
}

/// Takes the status text out of the arguments of a call, where whoever calls puts it beside them as `_message`: no tool sees it, and the
/// log says it. None if it is blank or no text.
pub(crate) fn take_message(args: &mut Map<String, Value>) -> Option<String> {
    match args.remove("_message") {
        Some(Value::String(text)) if !text.trim().is_empty() => Some(text),
        _ => None,
    }
}

/// A call that is in the log and has no result yet.
#[derive(Debug, Clone)]
pub struct Announced {
    /// As it is in the log.
    update: Arc<ToolCallUpdate>,
    since: Timestamp,
}

impl Announced {
    /// Its key within the run.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.update.call_index
    }

    /// The call as it ends that is not made after all.
    #[must_use]
    pub fn unmade(self, reply: ToolReply) -> Made {
        Made { call: self, invoked: Invoked::of(reply) }
    }
}

/// A call that has ended, and whose result is not in the log yet.
#[derive(Debug, Clone)]
pub struct Made {
    call: Announced,
    /// What it came to.
    pub invoked: Invoked,
}

impl Made {
    /// The call's key within the run.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.call.index()
    }

    /// The tool's name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.call.update.name
    }
}

impl Caller {
    /// The calls of `run` to `tools`.
    #[must_use]
    pub fn new(run: RunContext, emit: Emitter, tools: Toolset, runtime: Arc<AgentRuntime>) -> Self {
        let id_prefix = format!("call_{}_", run.run_id().short()).into();
        Self(Arc::new(Inner { run, emit, tools, runtime, id_prefix }))
    }

    /// The same run's calls to these tools.
    #[must_use]
    pub fn with_tools(&self, tools: Toolset) -> Self {
        Self(Arc::new(Inner { tools, ..Inner::clone(&self.0) }))
    }

    /// The run that calls.
    #[must_use]
    pub fn run(&self) -> &RunContext {
        &self.0.run
    }

    /// Where its messages go.
    #[must_use]
    pub fn emitter(&self) -> &Emitter {
        &self.0.emit
    }

    /// Its tools.
    #[must_use]
    pub fn tools(&self) -> &Toolset {
        &self.0.tools
    }

    /// Those of the tools that the run may call, as far as that is known beforehand: what could only be refused is not among them.
    #[must_use]
    pub fn offered(&self) -> Toolset {
        offered(&self.0.tools, &self.0.run, &self.0.runtime.policy)
    }

    /// As [`Caller::offered`], with the tools that are of no use now, but may be later.
    pub(crate) fn admitted(&self) -> Toolset {
        admitted(&self.0.tools, &self.0.run, &self.0.runtime.policy)
    }

    /// What children inherit.
    #[must_use]
    pub fn runtime(&self) -> &Arc<AgentRuntime> {
        &self.0.runtime
    }

    /// Says that the call comes.
    ///
    /// # Cancel safety
    ///
    /// As [`Emitter::send`].
    pub async fn announce(&self, call: NewCall) -> Announced {
        let (call, message) = self.announcement(call);
        self.0.emit.send(message).await;
        call
    }

    /// As [`Caller::announce`], with what is to be said: for those who say it themselves.
    pub(crate) fn announcement(&self, call: NewCall) -> (Announced, MessageBody) {
        let NewCall { id, name, args, message, via } = call;
        let message = message.or_else(|| self.0.tools.get(&name)?.status_text(&args));
        let call_index = self.0.run.mint_call_index();
        let id = id.unwrap_or_else(|| self.label(call_index));
        let update = Arc::new(ToolCallUpdate {
            tool_call_id: id,
            call_index,
            name,
            args,
            message,
            via,
            extra: Extra::default(),
        });
        let message = MessageBody::ToolCallUpdate(Arc::clone(&update));
        (Announced { update, since: self.0.run.root().clock().now() }, message)
    }

    fn label(&self, call_index: u32) -> ToolCallId {
        let digits = call_index.to_string();
        let mut label = String::with_capacity(self.0.id_prefix.len() + digits.len());
        label.push_str(&self.0.id_prefix);
        label.push_str(&digits);
        ToolCallId::new(label)
    }

    /// Makes the call that was announced, with these arguments or with the reply to unusable ones. The caller then says its
    /// result, with [`Caller::answer`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it ends the call as [`super::OnCancel::Drop`] says.
    pub fn make(
        &self,
        call: Announced,
        args: Result<Map<String, Value>, ToolReply>,
    ) -> impl Future<Output = Made> + Send + 'static {
        let cx = ToolContext::new(self.clone(), Arc::clone(&call.update));
        invoke(Arc::clone(&call.update.name), args, cx).map(|invoked| Made { call, invoked })
    }

    /// Says the result of a call.
    ///
    /// # Cancel safety
    ///
    /// As [`Emitter::send`].
    pub async fn answer(&self, made: Made) -> Invoked {
        let (invoked, message) = self.result(made);
        self.0.emit.send(message).await;
        invoked
    }

    /// As [`Caller::answer`], with what is to be said: for those who say it themselves.
    pub(crate) fn result(&self, made: Made) -> (Invoked, MessageBody) {
        let Made { call: Announced { update, since }, invoked } = made;
        let result = match &invoked.reply.for_model {
            Value::Object(object) => object.clone(),
            other => Map::from_iter([("result".to_owned(), other.clone())]),
        };
        let result = ToolResultUpdate {
            tool_call_id: update.tool_call_id.clone(),
            call_index: update.call_index,
            name: Arc::clone(&update.name),
            is_error: invoked.reply.is_error,
            result: Arc::new(result),
            duration_ms: self.0.run.root().clock().now().millis_since(since),
            message: invoked.reply.for_person.as_deref().map(str::to_owned),
            extra: said_of(&invoked.reply.images),
        };
        (invoked, result.into())
    }
}

/// What the log says of images: their kinds and sizes, since their bytes would be most of it.
fn said_of(images: &Images) -> Extra {
    if images.is_empty() {
        return Extra::default();
    }
    let shown = images.shown().iter();
    let shown = shown.map(|image| json!({"media_type": image.media_type(), "bytes": image.bytes().len()}));
    let left_out = (images.left_out() > 0).then(|| ("images_left_out", json!(images.left_out())));
    Extra::of(std::iter::once(("images", shown.collect())).chain(left_out))
}
