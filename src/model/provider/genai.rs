//! The adapter over genai: every protocol that is not read here.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::StreamExt;
use genai::adapter::AdapterKind;
use genai::chat::{
    ChatFrameSink, ChatMessage as Message, ChatOptions, ChatRequest as Request, ChatStream as Events,
    ChatStreamEvent, ContentPart, FrameCtx, JsonSpec, MessageContent, RawFrameRef, StopReason as Stop,
    StreamEnd, Tool, ToolCall, ToolChoice as Choice, ToolResponse, Usage as Tokens,
};
use genai::resolver::{AuthData, Endpoint};
use genai::webc::StreamTimeout;
use genai::{Client, ModelIden, ServiceTarget};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use super::fault;
use super::loose::Loose;
use super::request::{native_schema, system};
use super::server::Shared;
use super::tap::Tap;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{
    ChatEvent, ChatMessage, ChatModel, ChatRequest, ChatStream, ModelError, ModelErrorKind, StopReason,
    ToolChoice,
};
use crate::outcome::Usage;

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
        let client = Client::builder().with_reqwest(server.client.clone()).build().map_err(|error| {
            Error::new(ErrorKind::Client { provider: name.clone(), reason: error.to_string() })
        })?;
        Ok(Self { name, kind, client, server })
    }
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
    has_tools: bool,
    events: Events,
    tap: Arc<Tap>,
    calls: Vec<Sent>,
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

async fn step(state: State) -> Option<(Result<ChatEvent, ModelError>, State)> {
    let mut open = match state {
        State::Open(open) => open,
        State::Ended => return None,
        State::Cold(cold) => {
            let server = Arc::clone(&cold.server);
            match cold.open().await {
                Ok(open) => Box::new(open),
                Err(error) => return Some((Err(server.cleaned(of_genai(&error, &server))), State::Ended)),
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
    async fn open(self) -> Result<Open, genai::Error> {
        let Self { kind, client, server, request } = self;
        let key = server.key.as_ref().map_or("", |key| key.expose());
        let target = ServiceTarget {
            endpoint: Endpoint::from_owned(server.base.as_str()),
            // No key is an empty one: `None` fails at some protocols.
            auth: AuthData::from_single(key),
            model: ModelIden::new(kind, server.model.as_str()),
        };
        let tap = Arc::new(Tap::new(kind == AdapterKind::OpenAIResp));
        let mut options = ChatOptions::default()
            .with_capture_usage(true)
            .with_capture_tool_calls(true)
            .with_stream_header_timeout(server.idle)
            .with_stream_read_timeout(server.idle)
            .with_raw_frame_sink_arc(Arc::<Tap>::clone(&tap));
        // Ollama and Gemini enforce any schema.
        let only_objects =
            !matches!(kind, AdapterKind::Ollama | AdapterKind::OllamaCloud | AdapterKind::Gemini);
        let schema = native_schema(false, only_objects, &request);
        if let Some(schema) = schema {
            options = options.with_response_format(JsonSpec::new("result", schema.clone()));
        }
        if let Some(most) = request.max_output_tokens {
            options = options.with_max_tokens(u32::try_from(most).unwrap_or(u32::MAX));
        }
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
        let events = client.exec_chat_stream(target, chat, Some(&options)).await?.stream;
        Ok(Open {
            server,
            has_tools,
            events,
            tap,
            calls: Vec::new(),
            out: VecDeque::new(),
            has_content: false,
            heard: Instant::now(),
            is_over: false,
        })
    }
}

/// The conversation; the results of one turn together, as the strictest protocol wants them.
fn messages(conversation: &[ChatMessage]) -> Vec<Message> {
    let mut messages = Vec::with_capacity(conversation.len());
    let mut results: Vec<ToolResponse> = Vec::new();
    for message in conversation {
        if !matches!(message, ChatMessage::ToolResult { .. }) && !results.is_empty() {
            messages.push(Message::from(std::mem::take(&mut results)));
        }
        match message {
            ChatMessage::User { text } => messages.push(Message::user(text.as_str())),
            ChatMessage::Assistant { text, tool_calls } => {
                let calls = tool_calls.iter().map(|call| {
                    ContentPart::ToolCall(ToolCall {
                        call_id: call.id.as_str().to_owned(),
                        fn_name: call.name.to_string(),
                        fn_arguments: call.arguments.clone(),
                        thought_signatures: None,
                    })
                });
                let said = (!text.is_empty()).then(|| ContentPart::Text(text.clone()));
                messages.push(Message::assistant(MessageContent::from_parts(
                    said.into_iter().chain(calls).collect::<Vec<_>>(),
                )));
            }
            ChatMessage::ToolResult { id, name, content, .. } => {
                results.push(ToolResponse::new(id.as_str(), content.as_str()).with_fn_name(name.to_string()));
            }
        }
    }
    if !results.is_empty() {
        messages.push(Message::from(results));
    }
    messages
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
            // genai logs what a server answered, and a server may quote the key: its log goes nowhere.
            let item = self.events.next().with_subscriber(NoSubscriber::default());
            let Ok(item) = timeout_at(self.heard + self.server.stall(), item).await else {
                self.fail(self.server.stalled());
                continue;
            };
            if let Some(refusal) = self.tap.refusal() {
                self.has_content = true;
                self.out.push_back(Ok(ChatEvent::Text(refusal.into())));
            }
            // An error in a frame that genai passes over.
            if let Some(error) = self.tap.error() {
                self.fail(fault::of_event(&Loose::Other(error)));
                continue;
            }
            match item {
                Some(Ok(event)) => {
                    self.take(event);
                    if !self.out.is_empty() {
                        self.heard = Instant::now();
                    }
                }
                Some(Err(error)) => {
                    let mut error = of_genai(&error, &self.server);
                    if error.kind == ModelErrorKind::Protocol
                        && let Some(first) = self.tap.first()
                    {
                        error.message = format!("{}; the answer begins with: {first}", error.message);
                    }
                    // A connection that breaks within an answer is a cut, as one that just ends is.
                    if self.has_content && error.kind == ModelErrorKind::Network {
                        self.is_over = true;
                    } else {
                        self.fail(error);
                    }
                }
                None => {
                    self.is_over = true;
                    if !self.has_content {
                        self.fail(self.nothing());
                    }
                }
            }
        }
    }

    fn fail(&mut self, mut error: ModelError) {
        if self.has_tools && fault::refuses_tools(&error) {
            error.message = format!("{} (the model takes no tools: choose another one)", error.message);
        }
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
            ChatStreamEvent::End(end) => self.end(&end),
            ChatStreamEvent::Start
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

fn stop_of(stop: &Stop) -> StopReason {
    match stop {
        Stop::MaxTokens(_) => StopReason::Length,
        Stop::ToolCall(_) => StopReason::ToolCalls,
        Stop::ContentFilter(_) => StopReason::ContentFilter,
        Stop::Completed(_) | Stop::StopSequence(_) => StopReason::EndTurn,
        Stop::Other(word) => super::chunk::stop_reason(&word.to_ascii_lowercase()),
    }
}

fn usage_of(tokens: &Tokens) -> Usage {
    let count = |count: Option<i32>| count.and_then(|count| u64::try_from(count).ok());
    let cached = tokens.prompt_tokens_details.as_ref().and_then(|details| count(details.cached_tokens));
    Usage {
        input_tokens: count(tokens.prompt_tokens).unwrap_or(0),
        output_tokens: count(tokens.completion_tokens).unwrap_or(0),
        cached_tokens: cached,
        cost_usd: None,
        model_calls: 1,
    }
}

/// What an error of genai means. Its own text is not passed on where it holds a request.
fn of_genai(error: &genai::Error, server: &Shared) -> ModelError {
    match error {
        genai::Error::WebStream { error, .. } => {
            let error: &(dyn std::error::Error + 'static) = error.as_ref();
            if let Some(genai::Error::HttpError { status, body, headers, .. }) = error.downcast_ref() {
                return server.refused(*status, headers, body.as_bytes());
            }
            if error.downcast_ref::<StreamTimeout>().is_some() {
                return server.silent(server.idle);
            }
            if let Some(error) = error.downcast_ref::<reqwest::Error>() {
                return server.transport(error);
            }
            if error.downcast_ref::<std::string::FromUtf8Error>().is_some() {
                return ModelError::new(ModelErrorKind::Protocol, "the answer is not UTF-8");
            }
            ModelError::new(ModelErrorKind::Network, fault::chain(error))
        }
        genai::Error::ChatResponse { body, .. } => fault::of_event(&Loose::Other(body.clone())),
        genai::Error::StreamParse { serde_error, .. } => ModelError::new(
            ModelErrorKind::Protocol,
            format!("an event of the answer is not JSON: {serde_error}"),
        ),
        genai::Error::HttpError { status, body, headers, .. } => {
            server.refused(*status, headers, body.as_bytes())
        }
        other => {
            let words = fault::quote(other.to_string().as_bytes());
            ModelError::new(
                ModelErrorKind::Protocol,
                format!("the answer is not what the protocol says: {words}"),
            )
        }
    }
}

impl ChatFrameSink for Tap {
    fn on_frame(&self, _: &FrameCtx, frame: RawFrameRef<'_>) {
        self.see(frame.data);
    }
}
