//! One call of one tool inside a run, for the tests of this room.

use std::sync::{Arc, Mutex};

use serde_json::{Map, Value};

use super::{AgentRuntime, Caller, Invoked, Job, Policy, Producer, ToolContext, ToolReply, Toolset, invoke};
use crate::budget::TreeLimits;
use crate::context::{Root, RunContext, RunSpec};
use crate::message::{Chunk, Extra, MessageBody, ProcessingMessage, ToolCallUpdate};
use crate::model::{ChatModel, ChatRequest, ChatStream};
use crate::outcome::SubAgentOutcome;
use crate::stream::SubAgentStream;
use crate::testing::TestRoot;

/// A model that nobody asks.
pub(super) struct NoModel;

impl ChatModel for NoModel {
    fn name(&self) -> &str {
        "none"
    }

    fn chat(&self, _: ChatRequest) -> ChatStream {
        Box::pin(futures::stream::empty())
    }
}

/// A producer that says which tools its run has, and is done.
pub(super) struct Lists;

impl Producer for Lists {
    fn kind(&self) -> &str {
        "lists"
    }

    fn produce(&self, job: Job, _: RunContext) -> SubAgentStream {
        SubAgentStream::generate(|emit| async move {
            emit.send(Chunk::text("listing")).await;
            let names: Vec<&str> = job.tools.names().collect();
            SubAgentOutcome::completed(format!("{}: {}", job.instructions, names.join(" ")))
        })
    }
}

/// What a call is made with.
pub(super) struct Bench {
    pub(super) tools: Toolset,
    pub(super) policy: Policy,
    pub(super) limits: TreeLimits,
    pub(super) cap: usize,
    pub(super) producer: Arc<dyn Producer>,
}

impl Bench {
    pub(super) fn new(tools: Toolset) -> Self {
        Self {
            tools,
            policy: Policy::default(),
            limits: TreeLimits::default(),
            cap: AgentRuntime::RESULT_BYTES,
            producer: Arc::new(Lists),
        }
    }

    /// Calls a tool with arguments that are JSON. Everything in it ends in verification.
    pub(super) async fn call(&self, name: &str, args: Value) -> Invoked {
        let Value::Object(args) = args else { panic!("not an object: {args}") };
        self.call_with(name, Ok(args)).await.0
    }

    pub(super) async fn call_with(
        &self,
        name: &str,
        args: Result<Map<String, Value>, ToolReply>,
    ) -> (Invoked, Vec<ProcessingMessage>) {
        let test = TestRoot::of(Root::builder().tree_limits(self.limits));
        let mut runtime = AgentRuntime::new(Arc::new(NoModel), Arc::clone(&self.producer));
        runtime.policy = self.policy.clone();
        runtime.result_bytes = self.cap;
        let (tools, place) = (self.tools.clone(), Arc::new(Mutex::new(None)));
        let (slot, name) = (Arc::clone(&place), name.to_owned());
        let run = test.root().run(RunSpec::new("root", "work"), |cx| {
            SubAgentStream::generate(move |emit| async move {
                let announced = Arc::new(ToolCallUpdate {
                    tool_call_id: "call_0".into(),
                    call_index: cx.mint_call_index(),
                    name: name.as_str().into(),
                    args: Arc::default(),
                    message: None,
                    via: None,
                    extra: Extra::default(),
                });
                emit.send(MessageBody::ToolCallUpdate(Arc::clone(&announced))).await;
                let cx = ToolContext::new(Caller::new(cx, emit, tools, Arc::new(runtime)), announced);
                let invoked = invoke(name.as_str().into(), args, cx).await;
                *slot.lock().unwrap() = Some(invoked);
                SubAgentOutcome::completed("called")
            })
        });
        assert!(run.settle().await.is_ok());
        let invoked = place.lock().unwrap().take().unwrap();
        (invoked, test.finish())
    }
}

/// The code and the message of an error.
pub(super) fn error_of(reply: &ToolReply) -> (&str, &str) {
    assert!(reply.is_error, "{reply:?}");
    let text = |key| reply.for_model[key].as_str().unwrap();
    (text("error"), text("message"))
}
