//! The waiting of the tool loop.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::machine::{Action, Delay, LoopConfig, Machine, PlannedCall};
use super::turn::{Turn, TurnBuilder, passed_on};
use crate::context::RunContext;
use crate::message::{Extra, Retrying, TurnFinished};
use crate::model::{ChatEvent, ChatRequest, ModelError, RunLabel, ToolChoice, ToolSpec};
use crate::outcome::{FailureKind, StopReason, SubAgentOutcome, Usage};
use crate::stream::{Emitter, SubAgentStream};
use crate::tool::{Announced, Caller, Job, Made, NewCall, Producer, Schema, ToolReply, Toolset};

/// The longest wait before a repetition, whatever a provider asks for: longer than the windows of their rate limits, and short
/// enough that a person is still there.
const MAX_DELAY: Duration = Duration::from_mins(2);

/// How often a run waits for a gate that others keep shut, before it asks all the same.
const MAX_PAUSES: u32 = 10;

/// A delay that a provider asked for is made longer by up to this part of it, at random.
const ASKED_SPREAD: u32 = 4;

/// The producer that lets a model call tools until it answers.
#[derive(Debug, Clone, Default)]
pub struct ToolLoop {
    config: LoopConfig,
}

impl ToolLoop {
    /// A loop with these bounds.
    #[must_use]
    pub fn new(config: LoopConfig) -> Self {
        Self { config }
    }
}

impl Producer for ToolLoop {
    fn kind(&self) -> &str {
        "tool_loop"
    }

    fn produce(&self, job: Job, cx: RunContext) -> SubAgentStream {
        let mut config = self.config.clone();
        let said = [job.max_turns, cx.limits().turns.bound()];
        config.max_turns = said.into_iter().flatten().min().unwrap_or(config.max_turns);
        if let Some(schema) = &job.output_schema {
            match Schema::compile(Arc::clone(schema), "the result") {
                Ok(schema) => config.schema = Some(schema),
                Err(error) => {
                    let outcome = SubAgentOutcome::failed(FailureKind::Construction, error.to_string());
                    return SubAgentStream::settled(outcome);
                }
            }
        }
        SubAgentStream::generate(|emit| async move {
            Driver::new(job, cx, emit, config.direct.as_deref()).run(config).await
        })
    }
}

struct Driver {
    job: Job,
    cx: RunContext,
    emit: Emitter,
    caller: Caller,
    label: Arc<RunLabel>,
    /// What the model is offered in the next turn.
    offered: Arc<[Arc<ToolSpec>]>,
    /// Everything of which the model may be offered something.
    direct: Toolset,
    /// Everything that the run may call: also what is called from code alone has a section.
    callable: Toolset,
    /// What the sections of the tools said before the last turn, and the system prompt that it made.
    sections: String,
    system: Option<Arc<str>>,
    /// Model calls made, failed ones included.
    calls: u32,
    /// Waits for the provider's gate since the last call.
    pauses: u32,
    /// What failed attempts of the turn under way used.
    carried: Usage,
}

enum TurnEnd {
    Ended(Turn),
    Failed { error: ModelError, has_content: bool, text: String },
    Cancelled(SubAgentOutcome),
}

impl Driver {
    fn new(job: Job, cx: RunContext, emit: Emitter, direct: Option<&[String]>) -> Self {
        let label = RunLabel {
            run_id: cx.run_id().clone(),
            depth: cx.depth(),
            agent: Arc::clone(cx.agent()),
            title: Arc::clone(cx.title()),
            prompt: Arc::clone(&job.instructions),
        };
        let caller = Caller::new(cx.clone(), emit.clone(), job.tools.clone(), Arc::clone(&job.runtime));
        let callable = caller.admitted();
        let direct = match direct {
            Some(names) => callable.filter(|tool| names.contains(&tool.spec().name)),
            None => callable.clone(),
        };
        let system = job.system_prompt.clone();
        Self {
            label: Arc::new(label),
            offered: Arc::default(),
            direct,
            callable,
            sections: String::new(),
            system,
            job,
            cx,
            emit,
            caller,
            calls: 0,
            pauses: 0,
            carried: Usage::default(),
        }
    }

    async fn run(mut self, config: LoopConfig) -> SubAgentOutcome {
        let mut machine = Machine::new(&self.job.instructions, config);
        let mut action = machine.start();
        loop {
            // After a cancel nothing new begins, also where a tool is still given time to end.
            if let Some(cancelled) = self.cx.token().cancelled() {
                return SubAgentOutcome::cancelled(cancelled.by);
            }
            action = match action {
                Action::CallModel => match self.cx.exhausted() {
                    Some(limit) => machine.exhausted(limit),
                    None => match self.pause() {
                        Some(pause) => {
                            let reason = "rate_limit: the provider asked all runs to wait".to_owned();
                            self.back_off(machine.attempt(), Delay::Asked(pause), reason).await;
                            Action::CallModel
                        }
                        None => self.turn(&mut machine).await,
                    },
                },
                Action::RunCalls(calls) => match self.run_calls(calls).await {
                    Ok(results) => {
                        let next = machine.calls_ended(results);
                        // What was handed in during the turn and did not end the run is over.
                        if !matches!(next, Action::Finish(_)) {
                            self.cx.accept_result(None);
                        }
                        next
                    }
                    Err(outcome) => return outcome,
                },
                Action::BackOff { attempt, delay, reason } => {
                    self.back_off(attempt, delay, reason).await;
                    machine.backed_off()
                }
                Action::Finish(outcome) => return outcome,
            };
        }
    }

    /// How long the provider asked everybody to wait, unless this run has waited often enough: then it is refused instead.
    fn pause(&mut self) -> Option<Duration> {
        let pause = self.job.runtime.model.pause().filter(|_| self.pauses < MAX_PAUSES)?;
        self.pauses += 1;
        Some(pause)
    }

    /// Brings the tools and the system prompt up to date. Unchanged, they stay the same, which providers keep in their caches.
    async fn look_around(&mut self) {
        let offered = self.direct.without_idle();
        if !offered.names().eq(self.offered.iter().map(|spec| spec.name.as_str())) {
            self.offered = offered.specs();
        }
        let sections = self.callable.sections(&self.caller).await;
        if sections != self.sections {
            self.system = match &self.job.system_prompt {
                Some(prompt) if !sections.is_empty() => Some(format!("{prompt}\n\n{sections}").into()),
                None if !sections.is_empty() => Some(sections.as_str().into()),
                prompt => prompt.clone(),
            };
            self.sections = sections;
        }
    }

    async fn turn(&mut self, machine: &mut Machine) -> Action {
        self.pauses = 0;
        self.look_around().await;
        let request = ChatRequest {
            run: Arc::clone(&self.label),
            call: self.calls,
            system: self.system.clone(),
            messages: Arc::clone(machine.history()),
            tools: Arc::clone(&self.offered),
            tool_choice: ToolChoice::Auto,
            output_schema: self.job.output_schema.clone(),
            max_output_tokens: self.job.max_output_tokens,
        };
        self.calls += 1;
        let end = self.listen(request).await;
        match end {
            TurnEnd::Ended(turn) => {
                let stop_reason = turn.stop_reason.unwrap_or(StopReason::Missing);
                self.say_turn_finished(machine.turns() + 1, stop_reason, turn.usage).await;
                machine.turn_ended(turn)
            }
            TurnEnd::Failed { error, has_content, text } => {
                let action = machine.turn_failed(&error, has_content, &text);
                if matches!(action, Action::Finish(_)) {
                    let used = std::mem::take(&mut self.carried);
                    self.say_turn_finished(machine.turns() + 1, StopReason::Error, used).await;
                }
                action
            }
            TurnEnd::Cancelled(outcome) => Action::Finish(outcome),
        }
    }

    /// One call of the model, live, until it ends or the run is cancelled.
    async fn listen(&mut self, request: ChatRequest) -> TurnEnd {
        let cx = self.cx.clone();
        match cx.or_cancel(self.listen_to_end(request)).await {
            Ok(end) => end,
            Err(cancelled) => TurnEnd::Cancelled(SubAgentOutcome::cancelled(cancelled.by)),
        }
    }

    async fn listen_to_end(&mut self, request: ChatRequest) -> TurnEnd {
        // The call counts also if the run is cancelled before it says anything.
        self.cx.report_turn_usage(self.used(Usage::default()));
        let mut builder = TurnBuilder::default();
        let mut events = self.job.runtime.model.chat(request);
        let mut failure = None;
        while let Some(event) = events.next().await {
            match event {
                Ok(ChatEvent::Other { kind, event }) => self.emit.send(passed_on(&kind, &event)).await,
                Ok(event) => {
                    let before = builder.usage();
                    let ended = matches!(event, ChatEvent::End { .. });
                    if let Some(chunk) = builder.push(event) {
                        self.emit.send(chunk).await;
                    }
                    if builder.usage() != before {
                        self.cx.report_turn_usage(self.used(builder.usage()));
                    }
                    if ended {
                        break;
                    }
                }
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        drop(events);
        for end in builder.ends() {
            self.emit.send(end).await;
        }
        let has_content = builder.has_content();
        let mut turn = builder.finish();
        let used = self.used(turn.usage);
        match failure {
            None => {
                self.carried = Usage::default();
                turn.usage = used;
                TurnEnd::Ended(turn)
            }
            Some(error) => {
                self.carried = used;
                self.cx.report_turn_usage(used);
                TurnEnd::Failed { error, has_content, text: turn.text }
            }
        }
    }

    /// What the turn used so far: this call, of which a provider may not have said that it is one, and failed ones before.
    fn used(&self, call: Usage) -> Usage {
        self.carried.plus(&Usage { model_calls: call.model_calls.max(1), ..call })
    }

    async fn say_turn_finished(&self, turn: u64, stop_reason: StopReason, usage: Usage) {
        self.emit.send(TurnFinished { turn, stop_reason, usage, extra: Extra::default() }).await;
    }

    async fn back_off(&self, attempt: u32, delay: Delay, reason: String) {
        let delay = match delay {
            // Siblings that were told the same time are not to come back at the same time.
            Delay::Asked(delay) => delay.min(MAX_DELAY) + self.up_to(delay.min(MAX_DELAY) / ASKED_SPREAD),
            Delay::UpTo(bound) => self.up_to(bound.min(MAX_DELAY)),
        };
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.emit.send(Retrying { attempt, delay_ms, reason, extra: Extra::default() }).await;
        // A cancel ends the wait: the pipe drops it, or the loop sees the token next.
        let _ = self.cx.or_cancel(tokio::time::sleep(delay)).await;
    }

    fn up_to(&self, bound: Duration) -> Duration {
        let hash = |hash: u64, byte: u8| hash.wrapping_mul(31).wrapping_add(u64::from(byte));
        let salt = u64::from(self.calls) ^ self.label.run_id.to_string().bytes().fold(0, hash);
        let millis = u64::try_from(bound.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.cx.root().jitter(salt, millis.saturating_add(1)))
    }

    /// Announces the calls of a turn, runs them at the same time, says each result when it is there, and brings them in order.
    async fn run_calls(&mut self, calls: Vec<PlannedCall>) -> Result<Vec<ToolReply>, SubAgentOutcome> {
        let mut announced = Vec::with_capacity(calls.len());
        for PlannedCall { id, name, announced: args, message, args: usable } in calls {
            let call = NewCall { id: Some(id), name, args, message, via: None };
            announced.push((self.caller.announce(call).await, usable));
        }
        let caller = &self.caller;
        // One call alone needs no set: in it the call would have a waker of its own, and what it says would go the way of messages
        // from other tasks.
        if announced.len() == 1
            && let Some((call, args)) = announced.pop()
        {
            let reply = Self::answer(caller, caller.make(call, args).await, true).await?;
            return Ok(vec![reply]);
        }
        let make = |(place, (call, args)): (usize, (Announced, _))| async move {
            (place, caller.make(call, args).await)
        };
        let mut running: FuturesUnordered<_> = announced.into_iter().enumerate().map(make).collect();
        let mut results: Vec<Option<ToolReply>> = Vec::new();
        results.resize_with(running.len(), || None);
        while let Some((place, made)) = running.next().await {
            // Said before any other call goes on: it follows what the call itself said.
            // Of several that hand in a result, the first one's counts, as where all have ended.
            let is_first = !results.iter().take(place).flatten().any(hands_in);
            let reply = Self::answer(caller, made, is_first).await?;
            if let Some(result) = results.get_mut(place) {
                *result = Some(reply);
            }
        }
        Ok(results.into_iter().flatten().collect())
    }

    /// Says the result of a call, or how the run ends with it.
    async fn answer(caller: &Caller, made: Made, is_first: bool) -> Result<ToolReply, SubAgentOutcome> {
        let name = Arc::clone(made.name());
        let reply = &made.invoked.reply;
        if let Some(result) = reply.finishes_with.as_ref().filter(|_| is_first && hands_in(reply)) {
            // Other calls of the turn may go on for long.
            caller.run().accept_result(Some(serde_json::Value::clone(result)));
        }
        let invoked = caller.answer(made).await;
        match invoked.fatal {
            Some(fatal) => Err(fatal.outcome(&name)),
            None => Ok(invoked.reply),
        }
    }
}

/// Whether the run ends with this reply.
fn hands_in(reply: &ToolReply) -> bool {
    reply.finishes_with.is_some() && !reply.is_error
}
