//! Plays one turn as a stream.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use tokio::time::{Sleep, sleep};

use super::format::{Ending, Entry, Script, Text, Then, Turn};
use super::history;
use crate::model::{ChatEvent, ChatModel, ChatRequest, ChatStream, ModelError, ModelErrorKind, RunLabel};
use crate::outcome::Usage;

/// The model that plays a [`Script`].
///
/// Stateless: the turn it plays is `request.call`, the number of calls that the run made before, within the first
/// entry that matches the run.
///
/// It refuses ([`ModelErrorKind::BadRequest`]) a history that a strict provider refuses: a call without a result, a
/// result without a call or before it, an id used twice, arguments that are not an object. A run that no entry
/// matches, or whose turns are used up, fails with [`ModelErrorKind::Exhausted`].
#[derive(Debug, Clone)]
pub struct ScriptModel {
    name: Arc<str>,
    script: Script,
}

impl ScriptModel {
    /// A model that plays `script`. Its name is `script:` and where the script came from.
    #[must_use]
    pub fn new(script: Script) -> Self {
        Self { name: format!("script:{}", script.path().display()).into(), script }
    }
}

impl ChatModel for ScriptModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn chat(&self, request: ChatRequest) -> ChatStream {
        Box::pin(Player { state: State::Cold { script: self.script.clone(), request }, pause: None })
    }
}

/// The stream of one turn. Written by hand: a delta costs one clone of a shared string, no generator in between.
struct Player {
    state: State,
    /// Boxed, since most turns never wait and a timer is far larger than the rest.
    pause: Option<Pin<Box<Sleep>>>,
}

enum State {
    /// Not polled yet. The request is dropped with this state: a run that goes on may append to its history
    /// without a copy.
    Cold {
        script: Script,
        request: ChatRequest,
    },
    Playing(Play),
    Ended,
}

impl Stream for Player {
    type Item = Result<ChatEvent, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(pause) = &mut this.pause {
                ready!(pause.as_mut().poll(cx));
                this.pause = None;
            }
            let step = match &mut this.state {
                State::Playing(play) => play.next(),
                State::Cold { script, request } => match begin(script, request) {
                    Ok(play) => {
                        this.state = State::Playing(play);
                        continue;
                    }
                    Err(error) => Step::Fail(error),
                },
                State::Ended => return Poll::Ready(None),
            };
            return Poll::Ready(match step {
                Step::Emit(event) => Some(Ok(event)),
                Step::Wait(duration) => {
                    this.pause = Some(Box::pin(sleep(duration)));
                    continue;
                }
                // No waker is kept: only dropping the stream ends it.
                Step::Hang => return Poll::Pending,
                Step::End(event) => {
                    this.state = State::Ended;
                    event.map(Ok)
                }
                Step::Fail(error) => {
                    this.state = State::Ended;
                    Some(Err(error))
                }
            });
        }
    }
}

/// Chooses the turn that answers this request.
fn begin(script: &Script, request: &ChatRequest) -> Result<Play, ModelError> {
    history::check(&request.messages).map_err(|fault| {
        ModelError::new(ModelErrorKind::BadRequest, format!("the history is wrong: {fault}"))
    })?;
    let run = &request.run;
    let path = script.path().display();
    let Some((number, entry)) = script.entry_for(run) else {
        let message = format!("no entry of script {path} matches the run with {}", description(run));
        return Err(ModelError::new(ModelErrorKind::Exhausted, message));
    };
    let turn = turn_of(entry, request.call).ok_or_else(|| {
        let message = format!(
            "script exhausted: agents[{number}] of {path} has {} turns, this is call {} of the run with {}",
            entry.turns.len(),
            u64::from(request.call) + 1,
            description(run)
        );
        ModelError::new(ModelErrorKind::Exhausted, message)
    })?;
    Ok(Play { turn, call: request.call, at: At::Delay })
}

fn turn_of(entry: &Entry, call: u32) -> Option<Arc<Turn>> {
    let call = usize::try_from(call).unwrap_or(usize::MAX);
    if let Some(turn) = entry.turns.get(call) {
        return Some(Arc::clone(turn));
    }
    match entry.then {
        Then::Error => None,
        Then::Repeat => entry.turns.get(call.checked_rem(entry.turns.len())?).map(Arc::clone),
        Then::Stop => Some(Arc::new(Turn::empty())),
    }
}

fn description(run: &RunLabel) -> String {
    format!("depth {}, agent {:?}, title {:?}", run.depth, run.agent, run.title)
}

/// A turn and how far it has been played: decides, never waits.
struct Play {
    turn: Arc<Turn>,
    call: u32,
    at: At,
}

/// What comes next.
enum At {
    Delay,
    Thinking,
    /// This delta, after its delay.
    BeforeChunk(u64),
    Chunk(u64),
    CallStart(usize),
    CallArguments(usize),
    Usage,
    End,
}

/// What the stream has to do.
enum Step {
    Emit(ChatEvent),
    Wait(Duration),
    Hang,
    /// The last event, if there is one.
    End(Option<ChatEvent>),
    Fail(ModelError),
}

impl Play {
    fn next(&mut self) -> Step {
        loop {
            match self.at {
                At::Delay => {
                    self.at = At::Thinking;
                    if !self.turn.delay.is_zero() {
                        return Step::Wait(self.turn.delay);
                    }
                }
                At::Thinking => {
                    self.at = At::BeforeChunk(0);
                    if let Some(thinking) = &self.turn.thinking {
                        return Step::Emit(ChatEvent::Thinking(Arc::clone(thinking)));
                    }
                }
                At::BeforeChunk(number) => {
                    self.at = At::Chunk(number);
                    if !self.turn.chunk_delay.is_zero() && chunk(&self.turn.text, number).is_some() {
                        return Step::Wait(self.turn.chunk_delay);
                    }
                }
                At::Chunk(number) => match chunk(&self.turn.text, number) {
                    Some(text) => {
                        self.at = At::BeforeChunk(number + 1);
                        return Step::Emit(ChatEvent::Text(Arc::clone(text)));
                    }
                    None => self.at = At::CallStart(0),
                },
                At::CallStart(number) => match self.turn.calls.get(number) {
                    Some(call) => {
                        self.at = At::CallArguments(number);
                        let id = call.id.clone().unwrap_or_else(|| format!("call_{}_{number}", self.call));
                        return Step::Emit(ChatEvent::ToolCallStart {
                            index: index(number),
                            id,
                            name: call.name.clone(),
                        });
                    }
                    None => self.at = At::Usage,
                },
                At::CallArguments(number) => {
                    self.at = At::CallStart(number + 1);
                    if let Some(call) = self.turn.calls.get(number) {
                        let delta = call.arguments.clone();
                        return Step::Emit(ChatEvent::ToolCallArgs { index: index(number), delta });
                    }
                }
                At::Usage => {
                    self.at = At::End;
                    // An end carries the usage itself; before any other ending it has to come alone.
                    if let (Some(usage), false) =
                        (self.turn.usage, matches!(self.turn.ending, Ending::Stop(_)))
                    {
                        return Step::Emit(ChatEvent::Usage(usage));
                    }
                }
                At::End => return self.end(),
            }
        }
    }

    fn end(&self) -> Step {
        match &self.turn.ending {
            Ending::Stop(stop_reason) => {
                let usage = self.turn.usage.unwrap_or_else(|| Usage::of_call(0, 0));
                Step::End(Some(ChatEvent::End { stop_reason: *stop_reason, usage: Some(usage) }))
            }
            Ending::Cut => Step::End(None),
            Ending::Hang => Step::Hang,
            Ending::Fail(error) => Step::Fail(error.clone()),
        }
    }
}

fn chunk(text: &Text, number: u64) -> Option<&Arc<str>> {
    match text {
        Text::Chunks(chunks) => chunks.get(usize::try_from(number).ok()?),
        Text::Same { count, text } => (number < *count).then_some(text),
    }
}

fn index(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "player_tests.rs"]
mod tests;
