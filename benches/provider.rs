//! What the adapter of chat completions costs: CPU time of one thread for a megabyte of a provider's stream.
//!
//! `cargo bench --bench provider` prints the figures of BENCHMARKS.md: the decoder alone, and the whole adapter over a
//! loopback connection, whose server is a thread of its own that is not counted. The larger stream is 100 MB; the memory
//! that it costs is printed beside it.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot run says why and ends; its report goes to standard output"
)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use anabranch::id::IdMint;
use anabranch::model::provider::ChatCompletions;
use anabranch::model::{ChatEvent, ChatMessage, ChatModel, ChatRequest, ProviderModel, RunLabel, ToolChoice};
use futures::StreamExt;

/// An event as a server writes it: some 280 bytes around a token.
const EVENT: &str = "data: {\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":{\"content\":\" token\"}}],\"created\":1796047619,\"id\":\"chatcmpl-DOh6SP1j6H3R7y7p8bNNwfs6N80tOQqA\",\"model\":\"a-model-of-some-provider\",\"system_fingerprint\":\"b1-571d0d5\",\"object\":\"chat.completion.chunk\"}\n\n";
const END: &str =
    "data: {\"choices\":[{\"finish_reason\":\"stop\",\"index\":0,\"delta\":{}}]}\n\ndata: [DONE]\n\n";

/// Odd, so that the median is a round that was measured.
const ROUNDS: usize = 5;

#[cfg(target_os = "linux")]
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Where the system has no such clock: wall time.
#[cfg(not(target_os = "linux"))]
fn thread_time() -> Duration {
    use std::sync::LazyLock;
    use std::time::Instant;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

/// The most memory that this process has had, in kB; none where the system does not say.
fn peak_kb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn main() {
    // `cargo test` runs benches too: once, and small.
    let is_test = std::env::args().any(|arg| arg == "--test");
    let megabytes: &[usize] = if is_test { &[1] } else { &[10, 100] };
    for &size in megabytes {
        let events = size * 1_000_000 / EVENT.len();
        let rounds = if is_test { 1 } else { ROUNDS };
        report("decoder alone", size, rounds, || decode(events));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        report("adapter over loopback", size, rounds, || runtime.block_on(receive(events)));
    }
}

fn report(what: &str, size: usize, rounds: usize, run: impl Fn() -> (Duration, usize)) {
    let mut times: Vec<Duration> = (0..rounds).map(|_| run().0).collect();
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let speed = size as f64 / median.as_secs_f64();
    let peak = peak_kb()
        .map_or_else(String::new, |peak| format!(", peak memory so far {:.1} MB", peak as f64 / 1e3));
    println!("{what:24} {size:4} MB {speed:8.1} MB/s{peak}");
}

/// The decoder, fed in pieces of 16 kB as they come from a socket.
fn decode(events: usize) -> (Duration, usize) {
    // 58 events to the piece; the boundary of a piece is in the middle of an event.
    let block = EVENT.repeat(64).into_bytes();
    let (start, rest) = block.split_at(131);
    let before = thread_time();
    let mut decoder = ChatCompletions::new();
    let mut texts = 0;
    decoder.push(start);
    for _ in 0..events / 64 {
        decoder.push(rest);
        decoder.push(start);
        texts += drain(&mut decoder);
    }
    (thread_time() - before, texts)
}

fn drain(decoder: &mut ChatCompletions) -> usize {
    let mut texts = 0;
    while let Some(event) = decoder.next_event() {
        texts += usize::from(matches!(event, Ok(ChatEvent::Text(_))));
    }
    texts
}

/// The whole adapter, from a server in a thread of its own.
async fn receive(events: usize) -> (Duration, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let _ = socket.read(&mut [0; 4096]).unwrap();
        let block = EVENT.repeat(64);
        socket
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            .unwrap();
        for _ in 0..events / 64 {
            socket.write_all(block.as_bytes()).unwrap();
        }
        socket.write_all(END.as_bytes()).unwrap();
    });
    let model = ProviderModel::builder("openai:m".parse().unwrap()).base_url(url).build().unwrap();
    let before = thread_time();
    let mut stream = model.chat(request());
    let mut texts = 0;
    while let Some(event) = stream.next().await {
        texts += usize::from(matches!(event.unwrap(), ChatEvent::Text(_)));
    }
    let time = thread_time() - before;
    server.join().unwrap();
    assert_eq!(texts, events / 64 * 64);
    (time, texts)
}

fn request() -> ChatRequest {
    let label = RunLabel {
        run_id: IdMint::seeded(1).mint(0),
        depth: 0,
        agent: "bench".into(),
        title: "bench".into(),
        prompt: "bench".into(),
    };
    ChatRequest {
        run: Arc::new(label),
        call: 0,
        system: None,
        messages: Arc::new(vec![ChatMessage::User { text: "go on".to_owned() }]),
        tools: [].into(),
        tool_choice: ToolChoice::Auto,
        output_schema: None,
        max_output_tokens: None,
    }
}
