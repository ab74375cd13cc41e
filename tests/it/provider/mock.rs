use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anabranch::SubAgentOutcome;
use anabranch::agent::ToolLoop;
use anabranch::agent::tool_loop::LoopConfig;
use anabranch::message::ProcessingMessage;
use anabranch::model::{ChatEvent, ChatMessage, ChatModel, ChatRequest, ProviderModel, RunLabel, ToolChoice};
use anabranch::testing::{TestRoot, timeline};
use anabranch::tool::Toolset;
use anabranch::{Agent, id::IdMint};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What one request is answered.
#[derive(Debug, Clone)]
pub struct Answer {
    head: String,
    /// Written one by one.
    pieces: Vec<Vec<u8>>,
    end: End,
}

/// What comes after the pieces.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    /// The connection ends in order.
    Close,
    /// It ends in the middle of a body whose end was announced.
    Break,
    /// Nothing more, until the client leaves.
    Stall,
    /// This again and again, until the client leaves.
    Drip(&'static str),
    /// The same as fast as it is taken.
    Flood(&'static str),
    /// The same before the head has ended.
    FloodHead(&'static str),
}

impl Answer {
    /// A stream of events.
    pub fn sse(body: impl AsRef<[u8]>) -> Self {
        Self::with("200 OK", "content-type: text/event-stream\r\n", body)
    }

    /// Any status, with headers.
    pub fn with(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Self {
        let head = format!("HTTP/1.1 {status}\r\n{headers}connection: close\r\n");
        Self { head, pieces: vec![body.as_ref().to_vec()], end: End::Close }
    }

    pub fn stalls(mut self) -> Self {
        self.end = End::Stall;
        self
    }

    /// Goes on with this for ever, every few milliseconds.
    pub fn drips(mut self, piece: &'static str) -> Self {
        self.end = End::Drip(piece);
        self
    }

    /// Goes on with this for ever, as fast as it is taken.
    pub fn floods(mut self, piece: &'static str) -> Self {
        self.end = End::Flood(piece);
        self
    }

    /// Goes on with this header for ever.
    pub fn floods_head(mut self, piece: &'static str) -> Self {
        self.end = End::FloodHead(piece);
        self
    }

    pub fn breaks(mut self) -> Self {
        self.end = End::Break;
        self
    }

    /// In pieces of so many bytes.
    pub fn split(mut self, bytes: usize) -> Self {
        self.pieces = self.pieces.concat().chunks(bytes).map(<[u8]>::to_vec).collect();
        self
    }
}

/// The server. It answers the requests in the order in which they come, and repeats its last answer.
pub struct Mock {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Value>>>,
    heads: Arc<Mutex<Vec<String>>>,
    flooded: Arc<AtomicUsize>,
    closed: watch::Receiver<usize>,
}

impl Mock {
    pub async fn new(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let heads = Arc::new(Mutex::new(Vec::new()));
        let flooded = Arc::new(AtomicUsize::new(0));
        let (left, closed) = watch::channel(0);
        let seen = Seen {
            requests: Arc::clone(&requests),
            heads: Arc::clone(&heads),
            flooded: Arc::clone(&flooded),
        };
        let left = Arc::new(left);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (answers, seen, left) = (answers.clone(), seen.clone(), Arc::clone(&left));
                tokio::spawn(async move {
                    let _ = serve(socket, &answers, &seen).await;
                    left.send_modify(|left| *left += 1);
                });
            }
        });
        Self { address, requests, heads, flooded, closed }
    }

    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// A model of this provider, here.
    pub fn model(&self, name: &str) -> ProviderModel {
        self.builder(name).build_with(|_| None).unwrap()
    }

    pub fn builder(&self, name: &str) -> anabranch::model::provider::ProviderBuilder {
        let builder = ProviderModel::builder(name.parse().unwrap()).base_url(self.url());
        builder.idle_timeout(Duration::from_secs(20))
    }

    /// The bodies of the requests.
    pub fn requests(&self) -> Vec<Value> {
        self.requests.lock().unwrap().clone()
    }

    /// What the requests were before their bodies.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// How many bytes were taken of what has no end.
    pub fn flooded(&self) -> usize {
        self.flooded.load(Ordering::Relaxed)
    }

    /// Waits until so many connections have ended.
    pub async fn closed(&mut self, connections: usize) {
        let closed = self.closed.wait_for(|closed| *closed >= connections);
        tokio::time::timeout(Duration::from_secs(60), closed)
            .await
            .expect("a connection stays open")
            .unwrap();
    }
}

/// What came and went.
#[derive(Clone)]
struct Seen {
    requests: Arc<Mutex<Vec<Value>>>,
    heads: Arc<Mutex<Vec<String>>>,
    flooded: Arc<AtomicUsize>,
}

async fn serve(mut socket: TcpStream, answers: &[Answer], seen: &Seen) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut bytes = Vec::new();
    let (body, length) = loop {
        socket.read_buf(&mut bytes).await?;
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        let Some(at) = text.find("\r\n\r\n") else { continue };
        let length =
            text.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok());
        break (at + 4, length.unwrap_or(0));
    };
    while bytes.len() < body + length {
        socket.read_buf(&mut bytes).await?;
    }
    let number = {
        seen.heads.lock().unwrap().push(String::from_utf8_lossy(&bytes[..body]).into_owned());
        let mut requests = seen.requests.lock().unwrap();
        requests.push(serde_json::from_slice(&bytes[body..]).unwrap_or_default());
        requests.len() - 1
    };
    let answer = &answers[number.min(answers.len() - 1)];
    let announced = if answer.end == End::Break { "content-length: 99999999\r\n" } else { "" };
    if let End::FloodHead(piece) = answer.end {
        socket.write_all(answer.head.as_bytes()).await?;
        flood(&mut socket, piece, seen).await?;
    }
    socket.write_all(format!("{}{announced}\r\n", answer.head).as_bytes()).await?;
    for piece in &answer.pieces {
        socket.write_all(piece).await?;
    }
    if let End::Flood(piece) = answer.end {
        flood(&mut socket, piece, seen).await?;
    }
    if let End::Drip(piece) = answer.end {
        loop {
            socket.write_all(piece.as_bytes()).await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    if answer.end == End::Stall {
        // The client's side ends, and nothing else: it sends no more.
        while socket.read(&mut [0; 64]).await? > 0 {}
    }
    socket.shutdown().await
}

/// Ends with the connection.
async fn flood(socket: &mut TcpStream, piece: &str, seen: &Seen) -> std::io::Result<()> {
    let much = piece.repeat((64 << 10) / piece.len());
    loop {
        socket.write_all(much.as_bytes()).await?;
        seen.flooded.fetch_add(much.len(), Ordering::Relaxed);
    }
}

/// A request of one message, or of more.
pub fn request(messages: Vec<ChatMessage>) -> ChatRequest {
    let label = RunLabel {
        run_id: IdMint::seeded(1).mint(0),
        depth: 0,
        agent: "agent".into(),
        title: "test".into(),
        prompt: "test".into(),
    };
    ChatRequest {
        run: Arc::new(label),
        call: 0,
        system: None,
        messages: Arc::new(messages),
        tools: [].into(),
        tool_choice: ToolChoice::Auto,
        output_schema: None,
        max_output_tokens: None,
    }
}

pub fn hello() -> ChatRequest {
    request(vec![ChatMessage::User { text: "hello".to_owned() }])
}

/// A turn as one line: its text, its calls, its usage, and how it ended.
#[derive(Debug, Default)]
pub struct Told {
    pub text: String,
    pub thinking: String,
    pub calls: Vec<(String, String, String)>,
    pub usage: String,
    pub end: String,
    /// What this version does not know.
    pub others: Vec<(String, Value)>,
}

impl Told {
    pub fn take(&mut self, event: Result<ChatEvent, anabranch::model::ModelError>) {
        match event {
            Ok(ChatEvent::Text(text)) => self.text.push_str(&text),
            Ok(ChatEvent::Thinking(text)) => self.thinking.push_str(&text),
            Ok(ChatEvent::ToolCallStart { index, id, name }) => {
                self.calls.resize_with(self.calls.len().max(index as usize + 1), Default::default);
                self.calls[index as usize].0 = id;
                self.calls[index as usize].1 = name;
            }
            Ok(ChatEvent::ToolCallArgs { index, delta }) => self.calls[index as usize].2.push_str(&delta),
            Ok(ChatEvent::Usage(usage)) => {
                self.usage =
                    format!("{}/{}/{:?}", usage.input_tokens, usage.output_tokens, usage.cached_tokens);
            }
            Ok(ChatEvent::End { stop_reason, usage }) => {
                assert_eq!(self.end, "", "a second end");
                self.end = stop_reason.to_string();
                usage.into_iter().for_each(|usage| self.take(Ok(ChatEvent::Usage(usage))));
            }
            Ok(ChatEvent::Other { kind, event }) => self.others.push((kind.to_string(), event)),
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                assert_eq!(self.end, "", "a second end");
                self.end = format!("{}: {error}", error.kind);
            }
        }
    }

    pub fn line(&self) -> String {
        let calls: Vec<String> =
            self.calls.iter().map(|(id, name, args)| format!("{id} {name} {args}")).collect();
        let end = if self.end.is_empty() { "cut" } else { &self.end };
        format!("{end} | {} | {:?} | {}", self.usage, self.text, calls.join(" ; "))
    }
}

/// One turn of a model.
pub async fn ask(model: &impl ChatModel, request: ChatRequest) -> Told {
    let mut told = Told::default();
    let mut events = model.chat(request);
    while let Some(event) = events.next().await {
        told.take(event);
    }
    told
}

/// What came of a run, verified.
pub struct Ran {
    pub outcome: SubAgentOutcome,
    pub log: Vec<ProcessingMessage>,
}

impl Ran {
    pub fn timeline(&self) -> String {
        timeline(&self.log)
    }
}

/// The tool loop, whose first repetition waits a millisecond or two.
pub fn quick_loop() -> Arc<ToolLoop> {
    Arc::new(ToolLoop::new(LoopConfig { first_delay: Duration::from_millis(2), ..LoopConfig::default() }))
}

/// A run of the tool loop on this model.
pub async fn run(model: impl ChatModel, tools: Toolset) -> Ran {
    let test = TestRoot::new();
    let agent = Agent::with_producer(Arc::new(model), quick_loop()).tools(tools);
    let outcome = agent.run(test.root(), "work").settle().await;
    Ran { outcome, log: test.finish() }
}

/// An event with one choice.
pub fn event(delta: Value, finish: Option<&str>) -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))
}

/// A whole answer of text.
pub fn says(text: &str) -> String {
    format!("{}{}data: [DONE]\n\n", event(json!({"content": text}), None), event(json!({}), Some("stop")))
}

/// The beginning of a call.
pub fn call(index: u64, id: &str, name: &str, arguments: Value) -> String {
    let function = json!({"name": name, "arguments": arguments});
    event(json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}), None)
}
