//! The adapter over genai: every protocol that is not read here.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures::StreamExt;
use genai::adapter::AdapterKind;
use genai::chat::{
    ChatFrameSink, ChatOptions, ChatRequest as Request, ChatStream as Events, ChatStreamEvent, FrameCtx,
    JsonSpec, RawFrameRef, StreamEnd, Tool, ToolCall, ToolChoice as Choice,
};
use genai::resolver::{AuthData, Endpoint};
use genai::{Client, ModelIden, ServiceTarget};
use reqwest::redirect::Policy;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use super::fault::{self, Holds};
use super::genai_words::{messages, of_genai, stop_of, usage_of};
use super::loose::Loose;
use super::relay::Relay;
use super::request::{native_schema, system};
use super::server::{Shared, TAIL};
use super::speech::Speech;
use super::tap::Tap;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{
    ChatEvent, ChatModel, ChatRequest, ChatStream, ModelError, ModelErrorKind, StopReason, ToolChoice,
};

/// More calls than this in one turn are the fault of a server.
const MAX_CALLS: usize = 1024;

/// And so are more bytes of arguments. Fewer than where chat completions are read: genai copies all of a call with each piece of it.
const MAX_ARGUMENTS: usize = 4 << 20;

/// A model that is spoken to through genai.
#[derive(Debug)]
pub(super) struct GenaiModel {
    name: String,
    kind: AdapterKind,
    client: Client,
    server: Shared,
}

impl GenaiModel {
    pub(super) fn new(name: String, kind: AdapterKind, server: Shared) -> Result<Self> {
        let refuse = |reason| Error::new(ErrorKind::Client { provider: name.clone(), reason });
        let relayed = relayed().map_err(|error| refuse(fault::chain(&error)))?;
        let client = Client::builder().with_reqwest(relayed).build();
        let client = client.map_err(|error| refuse(error.to_string()))?;
        Ok(Self { name, kind, client, server })
    }
}

/// The client that genai has: it asks relays, each of them once.
fn relayed() -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder().no_proxy().redirect(Policy::none()).pool_max_idle_per_host(0).build()
}

impl ChatModel for GenaiModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn chat(&self, request: ChatRequest) -> ChatStream {
        let cold =
            Cold { kind: self.kind, client: self.client.clone(), server: Arc::clone(&self.server), request };
        futures::stream::unfold(State::Cold(cold), step).boxed()
    }
}

enum State {
    /// Not polled yet: nothing was sent.
    Cold(Cold),
    /// Boxed, since it is moved in and out of each step.
    Open(Box<Open>),
    Ended,
}

struct Cold {
    kind: AdapterKind,
    client: Client,
    server: Shared,
    request: ChatRequest,
}

struct Open {
    server: Shared,
    holds: Holds,
    relay: Relay,
    events: Events,
    tap: Arc<Tap>,
    calls: Vec<Sent>,
    /// Of all of them, in bytes.
    arguments: usize,
    out: VecDeque<Result<ChatEvent, ModelError>>,
    has_content: bool,
    /// When something of the answer came last.
    heard: Instant,
    is_over: bool,
}

/// A call, and how much of its arguments went out.
struct Sent {
    id: String,
    arguments: String,
}

/// What came while the next event was waited for.
enum Heard {
    Item(Option<Result<ChatStreamEvent, genai::Error>>),
    Seen,
    Late,
}

async fn step(state: State) -> Option<(Result<ChatEvent, ModelError>, State)> {
    let mut open = match state {
        State::Open(open) => open,
        State::Ended => return None,
        State::Cold(cold) => {
            let server = Arc::clone(&cold.server);
            match cold.open().await {
                Ok(open) => Box::new(open),
                Err(error) => return Some((Err(server.cleaned(error)), State::Ended)),
            }
        }
    };
    let event = open.next().await?;
    let event = open.server.finished(event);
    let state = if event.is_err() { State::Ended } else { State::Open(open) };
    Some((event, state))
}

impl Cold {
    /// Makes the stream of genai; it sends nothing before it is polled.
    async fn open(self) -> Result<Open, ModelError> {
        let Self { kind, client, server, request } = self;
        let speech = Speech::of(kind, &server.model);
        let relay = Relay::listen(Arc::clone(&server), speech.framing()).await?;
        let key = server.key.as_ref().map_or("", |key| key.expose());
        let target = ServiceTarget {
            endpoint: Endpoint::from_owned(relay.base()),
            // No key is an empty one: `None` fails at some protocols.
            auth: AuthData::from_single(key),
            model: ModelIden::new(kind, server.model.as_str()),
        };
        let tap = Arc::new(Tap::new(speech));
        let mut options = ChatOptions::default()
            .with_capture_usage(true)
            .with_capture_tool_calls(true)
            .with_raw_frame_sink_arc(Arc::<Tap>::clone(&tap));
        let schema = native_schema(false, !speech.takes_any_schema(), &request);
        if let Some(schema) = schema {
            options = options.with_response_format(JsonSpec::new("result", schema.clone()));
        }
        if let Some(most) = request.max_output_tokens {
            options = options.with_max_tokens(u32::try_from(most).unwrap_or(u32::MAX));
        }
        let holds = Holds::of(&request);
        let has_tools = !request.tools.is_empty();
        if has_tools && request.tool_choice != ToolChoice::Auto {
            let required = request.tool_choice == ToolChoice::Required;
            options = options.with_tool_choice(if required { Choice::Required } else { Choice::None });
        }
        let mut chat = Request::new(messages(&request.messages));
        chat.system = system(&request, schema.is_some());
        if has_tools {
            let tools = request.tools.iter().map(|tool| {
                let spec = Tool::new(tool.name.as_str()).with_description(tool.description.as_str());
                spec.with_schema(tool.parameters.clone())
            });
            chat = chat.with_tools(tools.collect::<Vec<_>>());
        }
        drop(request);
        let opened = client.exec_chat_stream(target, chat, Some(&options)).await;
        let events = opened.map_err(|error| of_genai(&error))?.stream;
        Ok(Open {
            server,
            holds,
            relay,
            events,
            tap,
            calls: Vec::new(),
            arguments: 0,
            out: VecDeque::new(),
            has_content: false,
            heard: Instant::now(),
            is_over: false,
        })
    }
}

impl Open {
    async fn next(&mut self) -> Option<Result<ChatEvent, ModelError>> {
        loop {
            if let Some(event) = self.out.pop_front() {
                return Some(event);
            }
            if self.is_over {
                return None;
            }
            let stalled = self.heard + self.server.stall();
            let finished = self.tap.finished().map(|since| since + TAIL.min(self.server.idle));
            let until = finished.unwrap_or(stalled);
            let item = match self.item(until).await {
                Heard::Item(item) => item,
                Heard::Late if finished.is_some() => {
                    self.over();
                    continue;
                }
                Heard::Late => {
                    self.fail(self.server.stalled());
                    continue;
                }
                // Nothing of genai's own: what the tap has is looked at below.
                Heard::Seen => Some(Ok(ChatStreamEvent::Heartbeat)),
            };
            self.tapped();
            // An error in a frame that genai passes over.
            if let Some(error) = self.tap.error() {
                self.fail(fault::of_event(&Loose::Other(error)));
                continue;
            }
            match item {
                Some(Ok(ChatStreamEvent::End(end))) => match self.relay.fault() {
                    Some(fault) if end.captured_stop_reason.is_none() && !self.tap.is_done() => {
                        self.broke(fault)
                    }
                    _ => self.end(&end),
                },
                Some(Ok(event)) => self.take(event),
                // What genai stumbles over is passed on as it came.
                Some(Err(_)) if self.tap.is_unknown() => {}
                Some(Err(error)) => match self.relay.fault() {
                    Some(fault) => self.broke(fault),
                    None => self.stumbled(of_genai(&error)),
                },
                None => match self.relay.fault() {
                    Some(fault) => self.broke(fault),
                    None => self.over(),
                },
            }
            // What is not known may be one more way to keep a connection alive.
            if self.out.iter().any(|event| !matches!(event, Ok(ChatEvent::Other { .. }))) {
                self.heard = Instant::now();
                self.tap.heard();
            } else if self.tap.is_too_much() && !self.is_over {
                let text = "the server sent more than 32 MiB of events that say nothing of the answer";
                self.fail(ModelError::new(ModelErrorKind::Protocol, text));
            }
        }
    }

    /// The next of genai's events, while the relay goes on, or that the tap saw something meanwhile.
    async fn item(&mut self, until: Instant) -> Heard {
        // A server that always has something to say does not let a timer have its turn.
        if Instant::now() >= until {
            return Heard::Late;
        }
        let was_finished = self.tap.finished().is_some();
        let Self { relay, events, tap, .. } = self;
        let item = poll_fn(|cx| {
            relay.poll(cx);
            match events.poll_next_unpin(cx) {
                Poll::Ready(item) => Poll::Ready(Heard::Item(item)),
                // genai takes any number of frames that it has nothing to say of.
                Poll::Pending if tap.has_news(was_finished) => Poll::Ready(Heard::Seen),
                Poll::Pending => Poll::Pending,
            }
        });
        // genai logs what a server answered, and a server may quote the key: its log goes nowhere.
        timeout_at(until, item.with_subscriber(NoSubscriber::default())).await.unwrap_or(Heard::Late)
    }

    /// What came that genai passes over.
    fn tapped(&mut self) {
        if let Some(refusal) = self.tap.refusal() {
            self.has_content = true;
            self.out.push_back(Ok(ChatEvent::Text(refusal.into())));
        }
        while let Some((kind, event)) = self.tap.unknown() {
            self.out.push_back(Ok(ChatEvent::Other { kind: kind.into(), event }));
        }
    }

    /// The body has ended, or what else comes is nothing of the answer.
    fn over(&mut self) {
        self.is_over = true;
        match self.tap.finish() {
            Some((stop_reason, usage)) => self.out.push_back(Ok(ChatEvent::End { stop_reason, usage })),
            None if !self.has_content => self.fail(self.nothing()),
            None => {}
        }
    }

    /// The connection is no more. One that breaks within an answer is a cut, as one that just ends is; behind the reason of the end there
    /// is nothing that would be missed.
    fn broke(&mut self, fault: ModelError) {
        let is_cut = fault.kind == ModelErrorKind::Network && self.has_content;
        match is_cut || self.tap.finished().is_some() {
            true => self.over(),
            false => self.fail(fault),
        }
    }

    fn stumbled(&mut self, mut error: ModelError) {
        if error.kind == ModelErrorKind::Protocol
            && let Some(first) = self.tap.first()
        {
            error.message = format!("{}; the answer begins with: {first}", error.message);
        }
        self.broke(error);
    }

    fn fail(&mut self, mut error: ModelError) {
        self.holds.explain(&mut error);
        self.is_over = true;
        self.out.push_back(Err(error));
    }

    /// Why there was nothing in an answer, and whose it is where it may be no provider's at all.
    fn nothing(&self) -> ModelError {
        let mut error = self.tap.nothing();
        if error.kind == ModelErrorKind::Protocol {
            error.message = format!("{} (asked at {})", error.message, self.server.shown);
        }
        error
    }

    fn take(&mut self, event: ChatStreamEvent) {
        match event {
            ChatStreamEvent::Chunk(chunk) if !chunk.content.is_empty() => {
                self.has_content = true;
                self.out.push_back(Ok(ChatEvent::Text(chunk.content.into())));
            }
            ChatStreamEvent::ReasoningChunk(chunk) if !chunk.content.is_empty() => {
                self.has_content = true;
                self.out.push_back(Ok(ChatEvent::Thinking(chunk.content.into())));
            }
            ChatStreamEvent::ToolCallChunk(chunk) => self.call(&chunk.tool_call),
            ChatStreamEvent::End(_)
            | ChatStreamEvent::Start
            | ChatStreamEvent::Heartbeat
            | ChatStreamEvent::Chunk(_)
            | ChatStreamEvent::ReasoningChunk(_)
            | ChatStreamEvent::ThoughtSignatureChunk(_) => {}
        }
    }

    /// genai repeats a call with all of its arguments so far: what is new of them goes out. What does not go on with those before is
    /// another call, whatever its label. Arguments that are a value are whole, and a call of their own.
    fn call(&mut self, call: &ToolCall) {
        self.has_content = true;
        let text = match &call.fn_arguments {
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        let is_text = call.fn_arguments.is_string();
        let known = self.calls.iter().rposition(|sent| is_text && sent.id == call.call_id);
        let goes_on = |at: &usize| self.calls.get(*at).is_some_and(|sent| text.starts_with(&sent.arguments));
        let known = known.filter(goes_on);
        let at = known.unwrap_or_else(|| {
            self.calls.push(Sent { id: call.call_id.clone(), arguments: String::new() });
            self.calls.len() - 1
        });
        let index = u32::try_from(at).unwrap_or(u32::MAX);
        if known.is_none() {
            let (id, name) = (call.call_id.clone(), call.fn_name.clone());
            self.out.push_back(Ok(ChatEvent::ToolCallStart { index, id, name }));
        }
        let Some(sent) = self.calls.get_mut(at) else { return };
        let delta = text.strip_prefix(sent.arguments.as_str()).unwrap_or_default().to_owned();
        self.arguments += delta.len();
        if self.arguments > MAX_ARGUMENTS || at >= MAX_CALLS {
            let text = format!(
                "the server sent more than {MAX_CALLS} calls, or more than {} MiB of arguments, in one turn",
                MAX_ARGUMENTS >> 20
            );
            return self.fail(ModelError::new(ModelErrorKind::Protocol, text));
        }
        if !delta.is_empty() {
            sent.arguments.push_str(&delta);
            self.out.push_back(Ok(ChatEvent::ToolCallArgs { index, delta }));
        }
    }

    fn end(&mut self, end: &StreamEnd) {
        // Some protocols say a call, or its arguments, only at the end.
        for call in end.captured_tool_calls().unwrap_or_default() {
            let is_whole =
                self.calls.iter().any(|sent| sent.id == call.call_id && !sent.arguments.is_empty());
            if !is_whole {
                let known = self.calls.iter().any(|sent| sent.id == call.call_id);
                let is_empty =
                    call.fn_arguments.as_str().is_some_and(str::is_empty) || call.fn_arguments.is_null();
                if !(known && is_empty) {
                    let text = call
                        .fn_arguments
                        .as_str()
                        .map_or_else(|| call.fn_arguments.to_string(), str::to_owned);
                    self.call(&ToolCall { fn_arguments: Value::String(text), ..call.clone() });
                }
            }
        }
        self.is_over = true;
        let stop_reason = match &end.captured_stop_reason {
            Some(_) if self.tap.is_filtered() => StopReason::ContentFilter,
            Some(stop) => stop_of(stop),
            None if self.tap.is_done() => StopReason::EndTurn,
            // genai makes an end of its own where a stream just ended.
            None if self.has_content => StopReason::Missing,
            None => return self.fail(self.nothing()),
        };
        let usage = end.captured_usage.as_ref().map(usage_of);
        self.out.push_back(Ok(ChatEvent::End { stop_reason, usage }));
    }
}

impl ChatFrameSink for Tap {
    fn on_frame(&self, _: &FrameCtx, frame: RawFrameRef<'_>) {
        self.see(frame.event, frame.data);
    }
}
