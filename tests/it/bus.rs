//! The log and its readers: I15 to I17, and the situations about them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use anabranch::bus::{From, Retain, Subscription};
use anabranch::context::{Root, RunContext};
use anabranch::message::{MessageBody, ProcessingMessage};
use anabranch::outcome::{CancelledBy, OutcomeKind};
use anabranch::testing::{TestRoot, timeline};
use anabranch::tree::{Delivery, RunTree};
use anabranch::{Chunk, SubAgentOutcome, SubAgentStream};
use futures::StreamExt;
use futures::future::join_all;
use serde_json::json;

use crate::kit::{body, call, child, does, hangs, limited, says, spec, wide};

fn ring(messages: usize) -> TestRoot {
    TestRoot::of(Root::builder().retain(Retain { messages, ..Retain::default() }))
}

fn seq_of(delivery: &Delivery) -> u64 {
    delivery.message().unwrap().nesting().unwrap().seq
}

/// Reads to the end: the tree, and each delivery as a range of positions.
async fn read(mut events: Subscription) -> (RunTree, Vec<(u64, u64)>) {
    let (mut tree, mut ranges) = (RunTree::new(), Vec::new());
    while let Some(delivery) = events.next().await {
        ranges.push(match &delivery {
            Delivery::Message(message) => {
                let seq = message.nesting().unwrap().seq;
                (seq, seq)
            }
            Delivery::Gap(gap) => {
                assert_eq!(gap.snapshot.next_seq(), gap.to_seq + 1, "the snapshot is the tree at to_seq");
                (gap.from_seq, gap.to_seq)
            }
        });
        tree.apply(&delivery);
    }
    (tree, ranges)
}

/// No position is missing, and none comes twice.
fn assert_gapless(ranges: &[(u64, u64)], from: u64, next: u64) {
    let mut expected = from;
    for (first, last) in ranges {
        assert_eq!(*first, expected);
        expected = last + 1;
    }
    assert_eq!(expected, next);
}

/// Ten deltas with a look around between them.
fn slow_talk() -> SubAgentStream {
    does(|emit| async move {
        for _ in 0..10 {
            emit.send(Chunk::text("x")).await;
            tokio::task::yield_now().await;
        }
        SubAgentOutcome::completed("talked")
    })
}

/// I16: before the start, at each message, at the terminal, after the end; with a window that holds all and one that does not.
#[tokio::test(start_paused = true)]
async fn i16_replay_then_live_at_every_join_point() {
    for messages in [65_536, 4] {
        for join in 0..=13 {
            let test = ring(messages);
            let root = test.root().clone();
            let mut readers: Vec<(u64, bool, Subscription)> = Vec::new();
            let mut subscribe = |at: u64| {
                readers.push((0, true, root.subscribe(From::Start)));
                readers.push((0, true, root.subscribe(From::Now)));
                readers.push((at, false, root.subscribe(From::Seq(at))));
                readers.push((at / 2, false, root.subscribe(From::Seq(at / 2))));
            };
            let mut run = tokio_test::task::spawn(root.run(spec(), |_| slow_talk()).settle());
            let mut polls = 0;
            loop {
                if polls == join {
                    subscribe(root.bus().next_seq());
                }
                polls += 1;
                if run.poll().is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            if join >= polls {
                subscribe(root.bus().next_seq());
            }
            drop(run);
            let (whole, next) = (root.snapshot(), root.bus().next_seq());
            for (from, is_whole, reader) in readers {
                let (tree, ranges) = read(reader).await;
                assert_gapless(&ranges, from, next);
                if is_whole {
                    assert_eq!(tree, whole);
                }
            }
            test.finish();
        }
    }
}

/// I16: the window moves on between subscribing and the first read.
#[tokio::test(start_paused = true)]
async fn i16_a_window_that_moves_on_before_the_first_read() {
    let test = ring(16);
    let root = test.root().clone();
    let mut readers = Vec::new();
    let run = root.run(spec(), |cx| {
        does(|emit| async move {
            emit.send(Chunk::text("first")).await;
            readers.extend([cx.root().subscribe(From::Now), cx.root().subscribe(From::Start)]);
            for _ in 0..100 {
                emit.send(Chunk::text("x")).await;
            }
            for reader in readers {
                tokio::spawn(async move { assert_gapless(&read(reader).await.1, 0, 104) });
            }
            SubAgentOutcome::completed("done")
        })
    });
    run.settle().await;
    let (tree, ranges) = read(root.subscribe(From::Now)).await;
    assert_eq!((tree, ranges), (root.snapshot(), vec![(0, 103)]));
    tokio::task::yield_now().await;
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn c43_a_sleeper_gets_a_gap_then_the_ask_and_the_terminal() {
    let test = ring(16);
    let root = test.root().clone();
    let mut sleeper = root.subscribe(From::Start);
    let run = root.run(spec(), |_| {
        does(|emit| async move {
            for _ in 0..100 {
                emit.send(Chunk::text("x")).await;
            }
            emit.send(body(json!({
                "type": "ask", "request_id": "q", "kind": "permission", "title": "may I?", "deadline_ms": 1000
            })))
            .await;
            SubAgentOutcome::completed("done")
        })
    });
    assert!(sleeper.try_next().is_none());
    run.settle().await;
    let all: Vec<Delivery> = sleeper.collect().await;
    let Delivery::Gap(gap) = &all[0] else { panic!("a gap comes first") };
    assert_eq!(gap.from_seq, 0);
    assert_eq!(gap.snapshot.root().unwrap().text.len() as u64, gap.to_seq);
    let kinds: Vec<&str> = all[1..].iter().map(|d| d.message().unwrap().body().kind()).collect();
    assert_eq!(
        kinds.iter().filter(|kind| **kind != "chunk").collect::<Vec<_>>(),
        [&"ask", &"ask_answered", &"run_finished"]
    );
    assert!(all.len() <= 17);
    let json: serde_json::Value = serde_json::from_str(&serde_json::to_string(&all[0]).unwrap()).unwrap();
    assert_eq!((&json["type"], &json["to_seq"]), (&json!("gap"), &json!(gap.to_seq)));
    assert_eq!(json["snapshot"]["seq"], json!(gap.to_seq));
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn c44_a_reader_that_never_reads_again_costs_bounded_memory_and_no_time() {
    let retain = Retain { messages: 1000, bytes: 100_000, message_bytes: 10_000 };
    let test = TestRoot::of(Root::builder().retain(retain));
    let root = test.root().clone();
    let mut stuck = root.subscribe(From::Start);
    let mut run = root.run(spec(), |_| {
        does(|emit| async move {
            for _ in 0..5_000 {
                emit.send(Chunk::text("y".repeat(1000))).await;
            }
            std::future::pending().await
        })
    });
    for _ in 0..3 {
        run.next().await.unwrap();
        stuck.next().await.unwrap();
    }
    let task = tokio::spawn(run.settle());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(root.bus().next_seq(), 5_001);
    root.cancel_all(CancelledBy::User).await;
    assert_eq!(task.await.unwrap().kind(), OutcomeKind::Cancelled);
    let left: Vec<Delivery> = stuck.collect().await;
    let bytes: usize = left.iter().filter_map(|d| Some(d.message()?.body().approx_bytes())).sum();
    assert!(bytes <= 170_000, "what it had copied and the window: {bytes}");
    assert!(matches!(left.last().unwrap().message().unwrap().body(), MessageBody::RunFinished(_)));
    test.finish();
}

/// An observer that panics in its own task, one in the host's own loop, and one whose waker panics.
#[tokio::test(start_paused = true)]
async fn c44_an_observer_that_panics_harms_only_itself() {
    let test = TestRoot::new();
    let root = test.root().clone();
    let mut events = root.subscribe(From::Start);
    let observer = tokio::spawn(async move {
        events.next().await.unwrap();
        panic!("cannot draw this");
    });
    let outcome = root.run(spec(), |_| slow_talk()).settle().await;
    assert_eq!(outcome, SubAgentOutcome::completed("talked"));
    assert!(observer.await.unwrap_err().is_panic());
    test.finish();

    struct Bomb;
    impl std::task::Wake for Bomb {
        fn wake(self: Arc<Self>) {
            panic!("cannot be woken");
        }
    }
    let test = TestRoot::new();
    let mut events = test.root().subscribe(From::Start);
    let waker = std::task::Waker::from(Arc::new(Bomb));
    let mut cx = std::task::Context::from_waker(&waker);
    assert!(events.poll_next_unpin(&mut cx).is_pending());
    let outcome = test.root().run(spec(), |_| slow_talk()).settle().await;
    assert_eq!(outcome, SubAgentOutcome::completed("talked"));
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn c45_one_of_two_readers_leaves_and_the_other_sees_all() {
    let test = TestRoot::new();
    let root = test.root().clone();
    let (mut leaves, stays) = (root.subscribe(From::Start), root.subscribe(From::Start));
    let stays = tokio::spawn(read(stays));
    let run = tokio::spawn(
        root.run(spec(), |_| {
            does(|emit| async move {
                emit.send(call(0, "c", "slow")).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
                emit.send(crate::kit::result(0, "c", "slow")).await;
                SubAgentOutcome::completed("done")
            })
        })
        .settle(),
    );
    leaves.next().await.unwrap();
    drop(leaves);
    assert_eq!(run.await.unwrap(), SubAgentOutcome::completed("done"));
    assert_eq!(stays.await.unwrap().1.len(), 4);
    test.finish();
}

/// Dropping the host's own stream is the cancel: the policy "cancel on disconnect" is a drop, "detach" a task.
#[tokio::test(start_paused = true)]
async fn c45_a_host_that_leaves_in_the_middle_of_a_tool() {
    let test = TestRoot::new();
    let mut run = test.root().run(spec(), |_| {
        does(|emit| async move {
            emit.send(call(0, "c", "slow")).await;
            std::future::pending().await
        })
    });
    run.next().await.unwrap();
    run.next().await.unwrap();
    drop(run);
    assert_eq!(
        timeline(&test.finish()),
        "root started\nroot call 0 slow {}\n\
         root result 0 error {\"error\":\"cancelled\",\"message\":\"the run was cancelled before this call ended\"}\n\
         root cancelled by user\n"
    );
}

/// Eight runs on tasks of their own, several threads, several readers: order holds for each of them, and no wake-up is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c46_order_and_wake_ups_across_threads() {
    let test = TestRoot::of(limited(wide()).retain(Retain { messages: 2000, ..Retain::default() }));
    let root = test.root().clone();
    let readers: Vec<_> = (0..8).map(|_| tokio::spawn(read_in_order(root.subscribe(From::Start)))).collect();
    let run = root.run(spec(), |cx| {
        does(|_| async move {
            let talk = |_: RunContext| {
                does(|emit| async move {
                    for n in 0..1000 {
                        emit.send(Chunk::text("x")).await;
                        if n % 100 == 0 {
                            tokio::task::yield_now().await;
                        }
                    }
                    SubAgentOutcome::completed("talked")
                })
            };
            let tasks: Vec<_> = (0..8).map(|_| tokio::spawn(child(&cx, "kid", talk))).collect();
            join_all(tasks).await;
            SubAgentOutcome::completed("done")
        })
    });
    run.settle().await;
    let whole = root.snapshot();
    for reader in readers {
        let tree = tokio::time::timeout(Duration::from_secs(120), reader).await.expect("no wake-up is lost");
        assert_eq!(tree.unwrap(), whole);
    }
    let log = test.finish();
    let count = |wanted: &str| log.iter().filter(|message| message.body().kind() == wanted).count();
    assert_eq!((count("run_started"), count("run_finished"), count("chunk")), (9, 9, 8 * 1001));
}

async fn read_in_order(mut events: Subscription) -> RunTree {
    let (mut tree, mut next) = (RunTree::new(), 0);
    let mut run_seqs = std::collections::HashMap::new();
    while let Some(delivery) = events.next().await {
        match &delivery {
            Delivery::Message(message) => {
                let nesting = message.nesting().unwrap();
                assert_eq!(nesting.seq, next);
                next += 1;
                let run_seq = run_seqs.entry(nesting.origin.run_id.clone()).or_insert(nesting.run_seq);
                assert!(nesting.run_seq >= *run_seq);
                *run_seq = nesting.run_seq + 1;
            }
            Delivery::Gap(gap) => next = gap.to_seq + 1,
        }
        tree.apply(&delivery);
    }
    tree
}

#[tokio::test(start_paused = true)]
async fn i15_64_readers_and_one_see_the_same() {
    let test = TestRoot::new();
    let root = test.root().clone();
    let readers: Vec<_> = (0..64).map(|_| tokio::spawn(read(root.subscribe(From::Start)))).collect();
    let outcome = root.run(spec(), |_| slow_talk()).settle().await;
    assert_eq!(outcome, SubAgentOutcome::completed("talked"));
    for reader in readers {
        let (tree, ranges) = reader.await.unwrap();
        assert_eq!(tree, root.snapshot());
        assert_gapless(&ranges, 0, 13);
    }
    test.finish();
}

/// Each append wakes each waiting reader once, and only those.
#[tokio::test(start_paused = true)]
async fn i15_a_reader_is_woken_once_for_each_wait() {
    let test = TestRoot::new();
    let mut reader = tokio_test::task::spawn(test.root().subscribe(From::Start));
    assert!(reader.poll_next().is_pending());
    let mut run = tokio_test::task::spawn(test.root().run(spec(), |_| slow_talk()).settle());
    assert_eq!(run.poll(), Poll::Pending);
    assert!(reader.is_woken());
    assert_eq!((seq_of(&ready(reader.poll_next())), seq_of(&ready(reader.poll_next()))), (0, 1));
    assert!(reader.poll_next().is_pending() && !reader.is_woken());
    assert_eq!(run.poll(), Poll::Pending);
    assert!(reader.is_woken());
    while run.poll().is_pending() {
        tokio::task::yield_now().await;
    }
    while !matches!(reader.poll_next(), Poll::Ready(None)) {}
    drop(run);
    test.finish();
}

fn ready(polled: Poll<Option<Delivery>>) -> Delivery {
    match polled {
        Poll::Ready(Some(delivery)) => delivery,
        other => panic!("nothing there: {other:?}"),
    }
}

/// I17: bytes are bounded as well as messages, and one huge message is cut with its sizes named.
#[tokio::test(start_paused = true)]
async fn i17_a_huge_message_is_cut_and_says_so() {
    let retain = Retain { message_bytes: 1000, ..Retain::default() };
    let test = TestRoot::of(Root::builder().retain(retain));
    let huge = "z".repeat(100_000);
    let run = test.root().run(spec(), |_| {
        does(|emit| async move {
            emit.send(Chunk::text(huge.as_str())).await;
            emit.send(call(0, "c", "read")).await;
            emit.send(body(json!({
                "type": "tool_result_update", "tool_call_id": "c", "call_index": 0, "name": "read",
                "is_error": false, "result": {"path": "x", "text": huge}, "duration_ms": 0
            })))
            .await;
            emit.send(body(json!({"type": "alert", "from": "x", "kind": "alert", "text": huge}))).await;
            SubAgentOutcome::completed(huge)
        })
    });
    // The caller has the whole result; the log has what fits.
    assert_eq!(run.settle().await.result().unwrap().as_str().unwrap().len(), 100_000);
    let log = test.finish();
    assert!(log.iter().all(|message| message.to_json().len() < 3000));
    let text: Vec<String> = log.iter().map(ProcessingMessage::to_json).collect();
    let text = text.join("\n");
    assert_eq!(text.matches("of 100000 bytes]").count(), 4, "{text}");
    assert!(text.contains("\"path\":\"x\""));
}

/// I17: a settled run keeps its outcome and its calls, not its text; a hanging run is small.
#[tokio::test(start_paused = true)]
async fn i17_a_settled_run_is_its_outcome() {
    let test = TestRoot::new();
    let run = test.root().run(spec(), |cx| {
        does(|_| async move {
            child(&cx, "a", |_| says(["some", "text"])).await;
            SubAgentOutcome::completed("done")
        })
    });
    run.settle().await;
    let tree = test.root().snapshot();
    assert!(tree.nodes().all(|node| node.text.is_empty()));
    test.finish();
}

/// A burst inside one poll may outrun the window: then gap and snapshot, never a lost terminal in the tree.
#[tokio::test(start_paused = true)]
async fn i15_a_burst_that_outruns_the_window_loses_no_terminal() {
    let test = TestRoot::of(limited(wide()).retain(Retain { messages: 64, ..Retain::default() }));
    let root = test.root().clone();
    let mut watcher = root.subscribe(From::Start);
    let mut tree = RunTree::new();
    let mut run = root.run(spec(), |cx| {
        does(|_| async move {
            join_all((0..1000).map(|_| child(&cx, "kid", |_| hangs()))).await;
            SubAgentOutcome::completed("done")
        })
    });
    while root.live_runs() < 1001 {
        tokio_test::task::spawn(run.next()).poll().is_ready();
    }
    while let Some(delivery) = watcher.try_next() {
        tree.apply(&delivery);
    }
    let ended = root.cancel_all(CancelledBy::User);
    run.settle().await;
    assert_eq!(ended.await, 1001);
    let gaps = AtomicUsize::new(0);
    while let Some(delivery) = watcher.next().await {
        gaps.fetch_add(usize::from(matches!(delivery, Delivery::Gap(_))), Ordering::Relaxed);
        tree.apply(&delivery);
    }
    assert!(gaps.into_inner() > 0);
    assert_eq!((tree.settled(), tree.len()), (1001, 1001));
    test.finish();
}
