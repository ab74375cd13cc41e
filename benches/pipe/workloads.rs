//! The workloads: each runs once and says what one unit of it cost.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use anabranch::budget::{Limit, TreeLimits};
use anabranch::bus::From;
use anabranch::context::{Root, RunContext, RunSpec};
use anabranch::forward::{RootRun, forward_subagent_stream};
use anabranch::outcome::CancelledBy;
use anabranch::tree::Delivery;
use anabranch::{Chunk, MessageBody, SubAgentOutcome, SubAgentStream};
use futures::StreamExt;
use futures::future::{join, pending, poll_immediate};
use futures::stream::FuturesUnordered;

use super::cpu_time;

/// One workload.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    pub(crate) run: fn() -> f64,
}

/// What the figure is the cost of.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Unit {
    Message,
    Child,
    Cancel,
}

const fn figure(name: &'static str, unit: Unit, run: fn() -> f64) -> Figure {
    Figure { name, unit, run }
}

const W1: &str = "W1 one child, time per message";
const W2: &str = "W2 chain of 16, time per message";
const W3: &str = "W3 1,000 children of 100, time per message";
const W3_WIDE: &str = "W3 10,000 children of 100, time per message";
const W5: &str = "W5 cancel of 1,000 waiting children, time per cancel";
const W5_WIDE: &str = "W5 cancel of 100,000 waiting children, time per cancel";
const ONE: &str = "publish, 1 subscriber, publisher's time per message";
const MANY: &str = "publish, 64 subscribers, publisher's time per message";
const ONE_ASLEEP: &str = "publish to 1 sleeping subscriber, publisher's time per message";
const MANY_ASLEEP: &str = "publish to 64 sleeping subscribers, publisher's time per message";

pub(crate) const ALL: &[Figure] = &[
    figure(W1, Unit::Message, || messages_through_chain(1, 100_000)),
    figure(W2, Unit::Message, || messages_through_chain(16, 100_000)),
    figure("W1 as JSON Lines, time per message", Unit::Message, || json_lines(100_000)),
    figure(W3, Unit::Message, || messages_of_fan(1_000, 100)),
    figure(W3_WIDE, Unit::Message, || messages_of_fan(10_000, 100)),
    figure("W4 from call to first message, time per child", Unit::Child, || first_message(20_000)),
    figure("W4 whole child of one message, time per child", Unit::Child, || whole_child(20_000)),
    figure(W5, Unit::Cancel, || cancel_waiting(1_000).cost),
    figure(W5_WIDE, Unit::Cancel, || cancel_waiting(100_000).cost),
    figure(ONE, Unit::Message, || publish_bursts(1, 100_000)),
    figure(MANY, Unit::Message, || publish_bursts(64, 100_000)),
    figure(ONE_ASLEEP, Unit::Message, || publish_singly(1, 10_000)),
    figure(MANY_ASLEEP, Unit::Message, || publish_singly(64, 10_000)),
];

/// What, divided by what.
pub(crate) const RATIOS: &[(&str, &str, &str)] = &[
    ("W2 depth 16 / depth 1", W2, W1),
    ("W3 10,000 children / 1,000 children", W3_WIDE, W3),
    ("W5 100,000 children / 1,000 children (100: linear)", W5_WIDE, W5),
    ("publish 64 / 1 subscribers", MANY, ONE),
    ("publish 64 / 1 sleeping subscribers", MANY_ASLEEP, ONE_ASLEEP),
];

fn root() -> Root {
    let limits = TreeLimits { depth: Limit::At(64), total: Limit::Unlimited, ..TreeLimits::default() };
    Root::builder().tree_limits(limits).build()
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

fn spec() -> RunSpec {
    RunSpec::new("agent", "task")
}

/// A child that says so many pieces of text.
fn talker(messages: usize) -> SubAgentStream {
    SubAgentStream::generate(move |emit| async move {
        for _ in 0..messages {
            emit.send(Chunk::text("tok ")).await;
        }
        SubAgentOutcome::completed("done")
    })
}

/// A run that waits for one child that waits for one child, and so on to a talker.
fn chain(cx: RunContext, depth: usize, messages: usize) -> SubAgentStream {
    if depth == 0 {
        return talker(messages);
    }
    SubAgentStream::generate(move |_| async move {
        let child = cx.enter(spec()).unwrap();
        let stream = chain(child.context(), depth - 1, messages);
        forward_subagent_stream(stream, child).await
    })
}

/// A run with many children at once.
fn fan(
    cx: RunContext,
    children: usize,
    child: impl Fn() -> SubAgentStream + Send + 'static,
) -> SubAgentStream {
    SubAgentStream::generate(move |_| async move {
        let start = |_| forward_subagent_stream(child(), cx.enter(spec()).unwrap());
        let mut running = (0..children).map(start).collect::<FuturesUnordered<_>>();
        while running.next().await.is_some() {}
        SubAgentOutcome::completed("done")
    })
}

fn silent() -> SubAgentStream {
    SubAgentStream::generate(|_| pending::<SubAgentOutcome>())
}

/// Reads a whole run at its root, the way a host does. The CPU time per message.
fn read_all(
    messages: usize,
    producer: impl FnOnce(RunContext) -> SubAgentStream,
    mut look: impl FnMut(&anabranch::ProcessingMessage),
) -> f64 {
    block_on(async {
        let start = cpu_time();
        let mut run = pin!(root().run(spec(), producer));
        let mut read = 0;
        while let Some(delivery) = run.next().await {
            let Some(message) = delivery.message() else { panic!("read too slowly") };
            read += usize::from(message.nesting().is_some());
            look(message);
        }
        assert!(read > messages && run.outcome().is_some_and(SubAgentOutcome::is_ok));
        (cpu_time() - start).as_secs_f64() * 1e9 / messages as f64
    })
}

fn messages_through_chain(depth: usize, messages: usize) -> f64 {
    read_all(messages, |cx| chain(cx, depth, messages), |_| {})
}

fn json_lines(messages: usize) -> f64 {
    let mut bytes = 0;
    let mut line = Vec::new();
    read_all(
        messages,
        |cx| chain(cx, 1, messages),
        |message| {
            line.clear();
            serde_json::to_writer(&mut line, message).unwrap();
            line.push(b'\n');
            bytes += line.len();
        },
    )
}

fn messages_of_fan(children: usize, messages: usize) -> f64 {
    read_all(children * messages, |cx| fan(cx, children, move || talker(messages)), |_| {})
}

/// Runs children one after the other inside one run; `look` gets when each was called and when its first message was taken.
fn children_in_turn(children: usize, mut look: impl FnMut(Instant, Instant) + Send + 'static) {
    let outcome = block_on(
        root()
            .run(spec(), |cx| {
                SubAgentStream::generate(move |_| async move {
                    let (send, mut first) = tokio::sync::mpsc::channel(1);
                    for _ in 0..children {
                        let call = Instant::now();
                        let child = cx.enter(spec()).unwrap();
                        let send = send.clone();
                        let stream = SubAgentStream::generate(|emit| async move {
                            emit.send(Chunk::text("x")).await;
                            let _ = send.try_send(Instant::now());
                            SubAgentOutcome::completed("ok")
                        });
                        forward_subagent_stream(stream, child).await;
                        look(call, first.recv().await.unwrap());
                    }
                    SubAgentOutcome::completed("done")
                })
            })
            .settle(),
    );
    assert!(outcome.is_ok());
}

/// The median of single calls, so wall time does: whoever interrupts one does not move it.
fn first_message(children: usize) -> f64 {
    let (send, receive) = std::sync::mpsc::channel();
    children_in_turn(children, move |call, first| send.send((first - call).as_nanos() as f64).unwrap());
    super::median(receive.iter().collect())
}

fn whole_child(children: usize) -> f64 {
    let start = cpu_time();
    let outcome = block_on(
        root()
            .run(spec(), |cx| {
                SubAgentStream::generate(move |_| async move {
                    for _ in 0..children {
                        let child = cx.enter(spec()).unwrap();
                        forward_subagent_stream(talker(1), child).await;
                    }
                    SubAgentOutcome::completed("done")
                })
            })
            .settle(),
    );
    assert!(outcome.is_ok());
    (cpu_time() - start).as_secs_f64() * 1e9 / children as f64
}

/// Runs a fan of silent children until all of them are live.
async fn until_all_wait(root: &Root, mut run: Pin<&mut RootRun>, children: usize) {
    while root.live_runs() <= children {
        while let Some(Some(_)) = poll_immediate(run.next()).await {}
        // The children begin by portions, since each takes from the scheduler's budget.
        tokio::task::yield_now().await;
    }
}

struct Cancelled {
    cost: f64,
    gaps: usize,
    terminals: usize,
}

/// Cancels a tree whose children wait: to the end of the root, all terminals delivered to one subscriber.
fn cancel_waiting(children: usize) -> Cancelled {
    block_on(async {
        let root = root();
        let mut run = pin!(root.run(spec(), |cx| fan(cx, children, silent)));
        let mut events = root.subscribe(From::Start);
        until_all_wait(&root, run.as_mut(), children).await;
        while events.try_next().is_some() {}
        let start = cpu_time();
        let ended = root.cancel_all(CancelledBy::User);
        let (live, ()) = join(ended, async { while run.next().await.is_some() {} }).await;
        let (mut gaps, mut terminals) = (0, 0);
        while let Some(delivery) = events.next().await {
            match delivery {
                Delivery::Message(message) => {
                    terminals += usize::from(matches!(message.body(), MessageBody::RunFinished(_)));
                }
                Delivery::Gap(gap) => {
                    gaps += 1;
                    terminals += gap.snapshot.settled();
                }
            }
        }
        let cost = (cpu_time() - start).as_secs_f64() * 1e9;
        assert_eq!((live, terminals), (children + 1, children + 1));
        Cancelled { cost, gaps, terminals }
    })
}

/// A burst inside one poll that outruns the window: what the subscriber gets instead of what fell off it.
pub(crate) fn burst() -> String {
    let Cancelled { gaps, terminals, .. } = cancel_waiting(100_000);
    format!("{gaps} gap with its snapshot, {terminals} of 100001 terminals")
}

/// The CPU time inside the polls of a run that says all it can in each.
fn publish_bursts(subscribers: usize, messages: usize) -> f64 {
    let mut spent = 0.0;
    publish(subscribers, messages, usize::MAX, |run, cx| {
        let start = cpu_time();
        let polled = run.poll(cx);
        spent += (cpu_time() - start).as_secs_f64() * 1e9;
        polled
    });
    spent / messages as f64
}

/// The median time of a poll in which a run says one message to subscribers that all sleep, and so wakes each of them.
fn publish_singly(subscribers: usize, messages: usize) -> f64 {
    let mut polls = Vec::with_capacity(messages);
    publish(subscribers, messages, 1, |run, cx| {
        let start = Instant::now();
        let polled = run.poll(cx);
        polls.push(start.elapsed().as_nanos() as f64);
        polled
    });
    super::median(polls)
}

/// Subscribers on tasks of their own. After `pace` messages the run lets them read until they sleep again.
fn publish(
    subscribers: usize,
    messages: usize,
    pace: usize,
    mut poll: impl FnMut(
        Pin<&mut dyn Future<Output = SubAgentOutcome>>,
        &mut Context<'_>,
    ) -> Poll<SubAgentOutcome>,
) {
    block_on(async {
        let root = root();
        let run = root.run(spec(), move |_| {
            SubAgentStream::generate(move |emit| async move {
                for message in 1..=messages {
                    emit.send(Chunk::text("tok ")).await;
                    if message % pace == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                SubAgentOutcome::completed("done")
            })
        });
        let read = Arc::new(AtomicU64::new(0));
        let readers: Vec<_> = (0..subscribers)
            .map(|_| {
                let (mut events, read) = (root.subscribe(From::Start), Arc::clone(&read));
                tokio::spawn(async move {
                    while let Some(delivery) = events.next().await {
                        read.fetch_add(u64::from(delivery.message().is_some()), Ordering::Relaxed);
                    }
                })
            })
            .collect();
        tokio::task::yield_now().await;
        let mut run = pin!(run.settle());
        let outcome = std::future::poll_fn(|cx| poll(run.as_mut(), cx)).await;
        for reader in readers {
            reader.await.unwrap();
        }
        assert!(outcome.is_ok() && read.load(Ordering::Relaxed) > (subscribers * messages) as u64);
    });
}

/// The growth of the resident memory while so many children wait, their first messages in the log included: of a process that
/// has not freed any yet. Zero where the system does not say it in `/proc`.
pub(crate) fn bytes_per_child(children: usize) -> f64 {
    block_on(async {
        let root = root();
        let mut run = pin!(root.run(spec(), |cx| fan(cx, children, silent)));
        let before = resident_bytes();
        until_all_wait(&root, run.as_mut(), children).await;
        (resident_bytes() - before) / children as f64
    })
}

fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<f64>().ok());
    kib.unwrap_or(0.0) * 1024.0
}
