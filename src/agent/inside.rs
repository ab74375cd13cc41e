//! A producer inside another one's run: what it says, that run says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::StreamExt;

use crate::context::RunContext;
use crate::id::RunId;
use crate::message::{MessageBody, ProcessingMessage, TurnFinished};
use crate::model::{ChatModel, ChatRequest, ChatStream};
use crate::outcome::SubAgentOutcome;
use crate::stream::Emitter;
use crate::tool::{AgentRuntime, Job, Producer};

/// Producers that work inside one run, one after the other. To a watcher they are that run: its turns and its model calls are
/// counted through all of them.
pub(crate) struct Inside {
    cx: RunContext,
    emit: Emitter,
    runtime: Arc<AgentRuntime>,
    turns: u64,
}

impl Inside {
    /// Inside the run of `cx`, with the model of this runtime.
    pub(crate) fn new(cx: RunContext, emit: Emitter, runtime: &AgentRuntime) -> Self {
        let (model, run) = (Arc::clone(&runtime.model), cx.run_id().clone());
        let model = Arc::new(Continued { model, run, calls: AtomicU32::new(0) });
        let runtime = Arc::new(AgentRuntime { model, ..runtime.clone() });
        Self { cx, emit, runtime, turns: 0 }
    }

    /// How many turns have ended.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    /// Runs a job to its end. Of its runtime only the model is not asked directly.
    ///
    /// # Cancel safety
    ///
    /// Dropping it ends the producer.
    pub(crate) async fn run(&mut self, producer: &dyn Producer, job: Job) -> SubAgentOutcome {
        let _inside = self.cx.work_inside();
        let job = Job { runtime: Arc::clone(&self.runtime), ..job };
        let mut stream = producer.produce(job, self.cx.clone());
        while let Some(message) = stream.next().await {
            let message = match message.body() {
                MessageBody::TurnFinished(turn) => {
                    self.turns += 1;
                    ProcessingMessage::from(TurnFinished { turn: self.turns, ..TurnFinished::clone(turn) })
                }
                _ => message,
            };
            self.emit.send(message).await;
        }
        stream.into_outcome()
    }
}

/// The model with the number of the run's calls counted through all producers in it. The runs below count their own.
struct Continued {
    model: Arc<dyn ChatModel>,
    run: RunId,
    calls: AtomicU32,
}

impl ChatModel for Continued {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn pause(&self) -> Option<Duration> {
        self.model.pause()
    }

    fn chat(&self, request: ChatRequest) -> ChatStream {
        if request.run.run_id != self.run {
            return self.model.chat(request);
        }
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        self.model.chat(ChatRequest { call, ..request })
    }
}
