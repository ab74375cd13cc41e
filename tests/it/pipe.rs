//! The pipe by the acceptance criteria of the original's core (AC) and of the improved design (AX).

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use anabranch::budget::{Limit, RunLimits, TreeLimits};
use anabranch::bus::{From, Journal, Retain};
use anabranch::cancel::CancelToken;
use anabranch::context::{Root, enter_subagent_depth};
use anabranch::forward::forward_subagent_stream;
use anabranch::message::{MessageBody, ProcessingMessage};
use anabranch::outcome::{CancelledBy, FailureKind, LimitKind};
use anabranch::testing::{TestRoot, check_sub_agent, timeline};
use anabranch::tree::{Delivery, RunTree};
use anabranch::{Chunk, SubAgentOutcome, SubAgentStream};
use futures::StreamExt;
use serde_json::json;

use crate::kit::{call, child, does, enter, hangs, limited, result, says, spec, turn, wide};

#[tokio::test(start_paused = true)]
async fn ac11_every_message_in_order_stamped_with_one_outcome() {
    let test = TestRoot::new();
    let outcome = test.root().run(spec(), |_| says(["a", "b", "c"])).settle().await;
    assert_eq!(outcome, SubAgentOutcome::completed("said"));
    let log = test.finish();
    let stamps: Vec<_> = log.iter().map(|message| message.nesting().unwrap()).collect();
    assert!(
        stamps.iter().enumerate().all(|(at, stamp)| (stamp.seq, stamp.run_seq) == (at as u64, at as u64))
    );
    assert_eq!(timeline(&log), "root started\nroot text \"abc\"\nroot done \"said\"\n");
}

/// A journal that panics at each message: an observer inside the append.
#[derive(Debug)]
struct Panics;

impl Journal for Panics {
    fn record(&self, _: &ProcessingMessage) {
        panic!("the observer is broken");
    }
}

#[tokio::test(start_paused = true)]
async fn ac12_an_observer_that_always_panics_harms_nobody() {
    let root = Root::builder().journal(Arc::new(Panics)).build();
    let outcome = root.run(spec(), |_| says(["a", "b"])).settle().await;
    assert_eq!(outcome, SubAgentOutcome::completed("said"));
    assert_eq!(root.bus().next_seq(), 5);
}

/// A journal that cancels inside the append of one message.
#[derive(Debug)]
struct CancelsAt(u64, Mutex<Option<CancelToken>>);

impl Journal for CancelsAt {
    fn record(&self, message: &ProcessingMessage) {
        if message.nesting().unwrap().seq == self.0 {
            self.1.lock().unwrap().as_ref().unwrap().cancel(CancelledBy::User);
        }
    }
}

/// Emits for ever, and counts.
fn endless(produced: &Arc<AtomicUsize>, yields: bool) -> SubAgentStream {
    let produced = Arc::clone(produced);
    does(|emit| async move {
        loop {
            produced.fetch_add(1, Ordering::SeqCst);
            emit.send(Chunk::text("x")).await;
            if yields {
                tokio::task::yield_now().await;
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn ac13_abort_inside_message_2_of_an_endless_producer() {
    let journal = Arc::new(CancelsAt(2, Mutex::default()));
    let root = Root::builder().journal(Arc::<CancelsAt>::clone(&journal)).build();
    let produced = Arc::new(AtomicUsize::new(0));
    let run = root.run(spec(), |cx| {
        *journal.1.lock().unwrap() = Some(cx.token().clone());
        endless(&produced, false)
    });
    assert!(matches!(run.settle().await, SubAgentOutcome::Cancelled { by: CancelledBy::User, .. }));
    assert!(produced.load(Ordering::SeqCst) <= 3);
}

#[tokio::test(start_paused = true)]
async fn ac13_abort_by_a_subscriber_at_message_2_of_an_endless_producer() {
    let test = TestRoot::new();
    let produced = Arc::new(AtomicUsize::new(0));
    let mut run = test.root().run(spec(), |_| endless(&produced, true));
    let mut ended = None;
    while let Some(delivery) = run.next().await {
        if delivery.message().unwrap().nesting().unwrap().seq == 2 {
            ended = Some(test.root().cancel_all(CancelledBy::User));
        }
    }
    assert!(ended.is_some() && produced.load(Ordering::SeqCst) <= 3);
    assert!(matches!(run.outcome(), Some(SubAgentOutcome::Cancelled { by: CancelledBy::User, .. })));
    test.finish();
}

/// Without a scheduler that shares time, a producer that is always ready still lets its watcher look, and cancel.
#[test]
fn ac13_an_endless_producer_polled_by_hand_can_be_cancelled() {
    let test = TestRoot::new();
    let produced = Arc::new(AtomicUsize::new(0));
    let mut run = test.root().run(spec(), |_| endless(&produced, false));
    for _ in 0..3 {
        assert!(tokio_test::task::spawn(run.next()).poll().is_ready());
    }
    let ended = test.root().cancel_all(CancelledBy::User);
    while let Poll::Ready(Some(_)) = tokio_test::task::spawn(run.next()).poll() {}
    drop(ended);
    assert!(produced.load(Ordering::SeqCst) < 10_000);
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn a_block_goes_on_in_the_poll_in_which_its_message_came_into_the_log() {
    let test = TestRoot::new();
    let root = test.root().clone();
    let log = test.root().clone();
    let run = root.run(spec(), |_| {
        does(|emit| async move {
            let mut polls = 0_u64;
            let mut talk = Box::pin(async move {
                for said in 1..=160 {
                    emit.send(Chunk::text("x")).await;
                    assert_eq!(log.bus().next_seq(), said + 1);
                }
            });
            poll_fn(|cx| {
                polls += 1;
                talk.as_mut().poll(cx)
            })
            .await;
            SubAgentOutcome::completed(polls)
        })
    });
    let outcome = run.settle().await;
    // Each seventeenth goes the long way, on which the pipe looks around.
    assert_eq!(outcome.result(), Some(&json!(10)));
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn a_block_does_not_go_on_behind_a_message_that_ends_its_run() {
    let went_on = Arc::new(AtomicUsize::new(0));
    let limits = RunLimits { tool_calls: Limit::At(2), ..RunLimits::default() };
    for is_cancelled in [false, true] {
        let test = TestRoot::new();
        let went_on = Arc::clone(&went_on);
        let run = test.root().run(spec().limited(limits), |cx| {
            does(|emit| async move {
                if is_cancelled {
                    cx.token().cancel(CancelledBy::User);
                }
                for index in 0..3 {
                    emit.send(call(index, "c", "tool")).await;
                }
                went_on.fetch_add(1, Ordering::SeqCst);
                SubAgentOutcome::completed("all the same")
            })
        });
        let outcome = run.settle().await;
        match is_cancelled {
            true => assert!(matches!(outcome, SubAgentOutcome::Cancelled { .. }), "{outcome:?}"),
            false => assert!(
                matches!(outcome, SubAgentOutcome::Stopped { limit: Some(LimitKind::ToolCalls), .. }),
                "{outcome:?}"
            ),
        }
        let calls = test
            .finish()
            .iter()
            .filter(|message| matches!(message.body(), MessageBody::ToolCallUpdate(_)))
            .count();
        assert_eq!(calls, if is_cancelled { 1 } else { 2 });
    }
    assert_eq!(went_on.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn ac14_an_abort_does_not_wait_for_a_blocked_producer() {
    let test = TestRoot::new();
    let root = test.root().clone();
    let mut run = root.run(spec(), |_| hangs());
    assert!(run.next().await.is_some());
    let ended = root.cancel_all(CancelledBy::User);
    while run.next().await.is_some() {}
    assert_eq!(ended.await, 1);
    assert_eq!(
        test.timeline(),
        "root started\nroot text \"hanging\"\nroot cancelled by user, partial \"hanging\"\n"
    );
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn ac14_a_signal_that_fired_before_never_starts_the_producer() {
    let test = TestRoot::new();
    assert_eq!(test.root().cancel_all(CancelledBy::Shutdown).await, 0);
    let run = test.root().run(spec(), |_| does(|_| async { panic!("never polled") }));
    assert_eq!(run.settle().await, SubAgentOutcome::cancelled(CancelledBy::Shutdown));
    assert_eq!(test.timeline(), "root started\nroot cancelled by shutdown\n");
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn ac15_the_gate_on_a_fresh_context() {
    let test = TestRoot::new();
    let run = test.root().run(spec(), |cx| {
        does(|_| async move {
            assert_eq!(enter_subagent_depth(&cx, "subtask"), Ok(1));
            let entered = enter(&cx, "a");
            assert_eq!((entered.context().depth(), cx.depth()), (1, 0));
            SubAgentOutcome::completed("checked")
        })
    });
    assert_eq!(run.settle().await, SubAgentOutcome::completed("checked"));
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn ac16_the_gate_at_the_limit() {
    let test = TestRoot::of(limited(TreeLimits { depth: Limit::At(0), ..wide() }));
    let run = test.root().run(spec(), |cx| {
        does(|_| async move {
            assert!(!cx.may_nest());
            let refusal = enter_subagent_depth(&cx, "search").unwrap_err().to_value();
            assert_eq!(refusal["error"], json!("max_recursion_depth_reached"));
            assert_eq!((&refusal["depth"], &refusal["max_depth"]), (&json!(0), &json!(0)));
            assert!(refusal["message"].as_str().unwrap().contains("another search"));
            SubAgentOutcome::completed("checked")
        })
    });
    assert_eq!(run.settle().await, SubAgentOutcome::completed("checked"));
    test.finish();
}

/// A producer with everything: text, thinking, calls, turns, children two deep.
fn busy(cx: anabranch::context::RunContext) -> SubAgentStream {
    does(|emit| async move {
        emit.send(Chunk::thinking("hm")).await;
        emit.send(Chunk::text("let me see")).await;
        emit.send(turn(1, 10, 5)).await;
        emit.send(call(0, "call_0", "read")).await;
        emit.send(result(0, "call_0", "read")).await;
        emit.send(call(1, "call_1", "run_subtask")).await;
        if cx.may_nest() {
            let (one, two) = (child(&cx, "one", busy), child(&cx, "two", |_| says(["x", "y"])));
            let (one, two) = tokio::join!(one, two);
            assert!(one.is_ok() && two.is_ok());
        }
        emit.send(result(1, "call_1", "run_subtask")).await;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        emit.send(turn(2, 10, 5)).await;
        SubAgentOutcome::completed("all seen")
    })
}

/// AX-1, AX-2 and AX-4 are what the battery looks at, at every place.
#[tokio::test(start_paused = true)]
async fn ax1_ax2_ax4_one_terminal_and_one_result_a_call_at_every_place() {
    for report in [
        check_sub_agent(busy).await,
        check_sub_agent(|_| says(["a", "b"])).await,
        check_sub_agent(|_| SubAgentStream::settled(SubAgentOutcome::completed(1))).await,
        check_sub_agent(|_| does(|_| async { panic!("always") })).await,
        check_sub_agent(|_| SubAgentStream::from_stream(futures::stream::iter([call(0, "c", "read")]))).await,
    ] {
        assert!(report.is_ok(), "{report}");
        assert!(report.runs > 5);
    }
}

#[tokio::test(start_paused = true)]
async fn ax1_the_battery_reports_a_producer_that_never_ends() {
    let report = check_sub_agent(|_| hangs()).await;
    assert!(report.to_string().contains("no end within"), "{report}");
}

#[tokio::test(start_paused = true)]
async fn ax3_a_child_starts_after_the_call_that_spawned_it_was_announced() {
    let test = TestRoot::new();
    let run = test.root().run(spec(), |cx| {
        does(|emit| async move {
            emit.send(call(0, "call_0", "run_subtask")).await;
            let spec = anabranch::context::RunSpec::new("child", "a").called_by(Some("call_0".into()));
            let entered = cx.enter(spec).unwrap();
            forward_subagent_stream(says(["x"]), entered).await;
            emit.send(result(0, "call_0", "run_subtask")).await;
            SubAgentOutcome::completed("done")
        })
    });
    run.settle().await;
    let log = test.finish();
    assert_eq!(
        timeline(&log),
        "root started\nroot call 0 run_subtask {}\nroot/a started\nroot/a text \"x\"\nroot/a done \"said\"\n\
         root result 0 ok {\"result\":\"ok\"}\nroot done \"done\"\n"
    );
    let tree = RunTree::of(&log);
    let child = tree.children(tree.root().unwrap()).next().unwrap();
    assert_eq!(child.spawned_by, Some(0));
}

#[tokio::test(start_paused = true)]
async fn ax5_the_deadline_of_a_run_cancels_the_children_that_it_spawned() {
    let limits = anabranch::budget::RunLimits {
        wall: Limit::At(std::time::Duration::from_secs(1)),
        ..Default::default()
    };
    let test = TestRoot::new();
    let run = test.root().run(spec().limited(limits), |cx| {
        does(|_| async move { child(&cx, "a", |cx| does(|_| child(&cx, "b", |_| hangs()))).await })
    });
    run.settle().await;
    let timeline = test.timeline();
    let ends: Vec<&str> = timeline.lines().skip(4).collect();
    assert_eq!(
        ends,
        [
            "root/a/b cancelled by deadline_of_parent, partial \"hanging\"",
            "root/a cancelled by deadline_of_parent",
            "root stopped (wall)",
        ]
    );
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn ax6_concurrent_calls_have_distinct_indices() {
    let test = TestRoot::new();
    let run = test.root().run(spec(), |cx| {
        does(|emit| async move {
            let one = async {
                let index = cx.mint_call_index();
                emit.send(call(index, "call_0", "read")).await;
                emit.send(result(index, "call_0", "read")).await;
                index
            };
            let two = async {
                let index = cx.mint_call_index();
                emit.send(call(index, "call_0", "read")).await;
                emit.send(result(index, "call_0", "read")).await;
                index
            };
            assert_eq!(tokio::join!(one, two), (0, 1));
            SubAgentOutcome::completed("done")
        })
    });
    run.settle().await;
    let tree = RunTree::of(&test.finish());
    assert_eq!(tree.root().unwrap().calls.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn ax7_a_late_joiner_gets_the_rest_without_gap_or_duplicate() {
    let test = TestRoot::of(Root::builder().retain(Retain { messages: 8, ..Retain::default() }));
    test.root().run(spec(), |_| says(["x"; 40])).settle().await;
    let next = test.root().bus().next_seq();
    let rest: Vec<Delivery> = test.root().subscribe(From::Seq(next - 3)).collect().await;
    let seqs: Vec<_> = rest.iter().map(|d| d.message().unwrap().nesting().unwrap().seq).collect();
    assert_eq!(seqs, [next - 3, next - 2, next - 1]);
    let all: Vec<Delivery> = test.root().subscribe(From::Start).collect().await;
    let Delivery::Gap(gap) = &all[0] else { panic!("the head of the log is no longer there") };
    assert_eq!((gap.from_seq, gap.snapshot.next_seq()), (0, gap.to_seq + 1));
    assert_eq!(all[1].message().unwrap().nesting().unwrap().seq, gap.to_seq + 1);
    assert!(matches!(all.last().unwrap().message().unwrap().body(), MessageBody::RunFinished(_)));
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn ax10_nesting_deeper_than_the_pool_completes() {
    fn nest(cx: anabranch::context::RunContext) -> SubAgentStream {
        does(|_| async move {
            if cx.depth() < 3 { child(&cx, "deeper", nest).await } else { SubAgentOutcome::completed("deep") }
        })
    }
    let test = TestRoot::of(limited(TreeLimits { live: Limit::At(1), ..wide() }));
    assert_eq!(test.root().run(spec(), nest).settle().await, SubAgentOutcome::completed("deep"));
    assert!(!test.timeline().contains("queued"));
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn ax11_the_tree_costs_what_its_runs_cost() {
    let test = TestRoot::new();
    test.root().run(spec(), busy).settle().await;
    assert_eq!(test.root().usage().tokens(), 4 * 30);
    assert_eq!(test.root().ledger().tokens(), 120);
    let log = test.finish();
    let (_, root) = crate::kit::ends(&log).pop().unwrap();
    assert_eq!(root.usage.unwrap().tokens(), 30);
    assert_eq!(root.subtree_usage.unwrap().tokens(), 120);
}

/// Cancelled after the producer returned, before the pipe is polled again: the outcome stands.
#[tokio::test(start_paused = true)]
async fn ax12_a_cancel_after_the_outcome_was_decided_changes_nothing() {
    let test = TestRoot::new();
    let run = test.root().run(spec(), |cx| {
        does(|_| async move {
            // A background child holds the root in its join, after its own outcome.
            let entered =
                cx.enter(spec().titled("later").scoped(anabranch::message::Scope::Background)).unwrap();
            tokio::spawn(crate::kit::forward(entered, |_| hangs()));
            SubAgentOutcome::completed("decided")
        })
    });
    let mut run = tokio_test::task::spawn(run.settle());
    assert_eq!(run.poll(), Poll::Pending);
    tokio::task::yield_now().await;
    let ended = test.root().cancel_all(CancelledBy::User);
    assert_eq!(run.await, SubAgentOutcome::completed("decided"));
    assert_eq!(ended.await, 2);
    assert!(
        test.timeline()
            .ends_with("root/later cancelled by parent, partial \"hanging\"\nroot done \"decided\"\n")
    );
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn ax13_a_failed_construction_is_a_failed_outcome() {
    for broken in [
        SubAgentStream::build(|| Err::<SubAgentStream, _>("no model")),
        SubAgentStream::build(|| -> Result<SubAgentStream, String> { panic!("no model") }),
    ] {
        let test = TestRoot::new();
        let outcome = test.root().run(spec(), |_| broken).settle().await;
        assert!(
            matches!(&outcome, SubAgentOutcome::Failed { kind: FailureKind::Construction, message, .. } if message.contains("no model"))
        );
        assert_eq!(test.finish().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn ax13_a_producer_function_that_panics_is_a_failed_outcome() {
    let test = TestRoot::new();
    let outcome = test.root().run(spec(), |_| panic!("no model")).settle().await;
    assert!(matches!(outcome, SubAgentOutcome::Failed { kind: FailureKind::Construction, .. }));
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn ax15_with_a_seed_and_a_paused_clock_the_log_is_the_same_to_the_byte() {
    let mut logs = Vec::new();
    for _ in 0..2 {
        let test = TestRoot::new();
        test.root().run(spec(), busy).settle().await;
        let lines: Vec<String> = test.finish().iter().map(ProcessingMessage::to_json).collect();
        logs.push(lines.join("\n"));
    }
    assert_eq!(logs[0], logs[1]);
    assert!(logs[0].contains("\"time\":\"2026-01-01T00:00:01.000000Z\""));
}
