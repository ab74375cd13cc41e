//! Limits: I18 and I19, and the situations about them.

use std::time::Duration;

use anabranch::budget::{Limit, RunLimits, TreeLimits, WhenFull};
use anabranch::context::{EnterError, RunContext, RunSpec};
use anabranch::message::Scope;
use anabranch::outcome::{LimitKind, OutcomeKind, StopClass, Usage};
use anabranch::testing::{TestRoot, timeline};
use anabranch::tree::RunTree;
use anabranch::{Chunk, SubAgentOutcome, SubAgentStream};
use futures::future::join_all;
use serde_json::json;

use crate::kit::{call, child, does, ends, enter, forward, hangs, limited, result, says, spec, turn, wide};

fn live(live: u32) -> TreeLimits {
    TreeLimits { live: Limit::At(live), ..wide() }
}

/// The code of the refusal, if `enter` refuses.
fn refusal(cx: &RunContext) -> Option<String> {
    match cx.enter(RunSpec::new("child", "x")) {
        Ok(_) => None,
        Err(EnterError::Refused(refusal)) => Some(refusal.to_value()["error"].as_str().unwrap().to_owned()),
        Err(EnterError::Cancelled(cancelled)) => panic!("{cancelled:?}"),
    }
}

/// Works for a second.
fn second() -> SubAgentStream {
    does(|_| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        SubAgentOutcome::completed("worked")
    })
}

/// Spawns one child below itself as long as it may; the result is how deep it got.
fn dive(cx: RunContext) -> SubAgentStream {
    does(|_| async move {
        match cx.enter(RunSpec::new("child", "x")) {
            Ok(entered) => {
                assert!(cx.may_nest());
                forward(entered, dive).await
            }
            Err(EnterError::Refused(refusal)) => {
                assert!(!cx.may_nest());
                assert_eq!(refusal.to_value()["depth"], json!(cx.depth()));
                SubAgentOutcome::completed(cx.depth())
            }
            Err(EnterError::Cancelled(_)) => panic!("nobody cancels"),
        }
    })
}

#[tokio::test(start_paused = true)]
async fn c34_depth_table() {
    for max in 0..4_u32 {
        let test = TestRoot::of(limited(TreeLimits { depth: Limit::At(max), ..TreeLimits::default() }));
        assert_eq!(test.root().run(spec(), dive).settle().await, SubAgentOutcome::completed(max));
        test.finish();
    }
}

#[tokio::test(start_paused = true)]
async fn c35_a_runaway_meets_every_limit() {
    fn spawns(cx: RunContext) -> SubAgentStream {
        does(|_| async move {
            let entered = (0..3).filter_map(|_| cx.enter(RunSpec::new("child", "x")).ok());
            join_all(entered.map(|entered| forward(entered, spawns))).await;
            SubAgentOutcome::completed("spawned")
        })
    }
    for limits in [
        TreeLimits { depth: Limit::At(5), ..wide() },
        TreeLimits { total: Limit::At(100), ..wide() },
        TreeLimits { depth: Limit::At(5), live: Limit::At(2), ..wide() },
    ] {
        let test = TestRoot::of(limited(limits));
        assert_eq!(test.root().run(spec(), spawns).settle().await, SubAgentOutcome::completed("spawned"));
        let runs = test.root().ledger().total_runs();
        assert_eq!(runs, if limits.depth == Limit::Unlimited { 100 } else { 1 + 3 + 9 + 27 + 81 + 243 });
        test.finish();
    }
}

#[tokio::test(start_paused = true)]
async fn c36_permits_return_under_every_ending() {
    let test = TestRoot::of(limited(live(6)));
    let root = test.root().clone();
    let run = root.run(spec(), |cx| {
        does(|_| async move {
            for _ in 0..3 {
                join_all((0..5).map(|_| child(&cx, "wave", |_| second()))).await;
            }
            for _ in 0..10 {
                drop(enter(&cx, "dropped after the reservation"));
            }
            child(&cx, "panics", |_| does(|_| async { panic!("in a child") })).await;
            child(&cx, "vanishes", |_| SubAgentStream::from_stream(futures::stream::empty())).await;
            assert!(
                tokio::time::timeout(Duration::from_secs(1), child(&cx, "dropped", |_| hangs()))
                    .await
                    .is_err()
            );
            let full: Vec<_> = (0..8).map(|_| child(&cx, "queues", |_| hangs())).collect();
            assert!(tokio::time::timeout(Duration::from_secs(1), join_all(full)).await.is_err());
            child(&cx, "works", |_| second()).await
        })
    });
    assert_eq!(run.settle().await, SubAgentOutcome::completed("worked"));
    assert_eq!(root.ledger().free_permits(), Some(6));
    assert_eq!(root.ledger().total_runs(), 1 + 15 + 3 + 8 + 1);
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn c37_more_waiting_parents_than_permits_all_finish() {
    let test = TestRoot::of(limited(live(4)));
    let run = test.root().run(spec(), |cx| {
        does(|_| async move {
            let parents = (0..5).map(|_| {
                child(&cx, "parent", |cx| {
                    does(|emit| async move {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        let outcome = child(&cx, "child", |_| second()).await;
                        emit.send(Chunk::text("and I go on")).await;
                        outcome
                    })
                })
            });
            let outcomes = join_all(parents).await;
            assert!(outcomes.iter().all(SubAgentOutcome::is_ok));
            SubAgentOutcome::completed("all")
        })
    });
    assert_eq!(run.settle().await, SubAgentOutcome::completed("all"));
    let text = timeline(&test.finish());
    assert_eq!(
        text.matches("queued for permit").count(),
        1,
        "a parent hands its permit to its child: {text}"
    );
}

#[tokio::test(start_paused = true)]
async fn c38_each_child_has_its_own_deadline() {
    let test = TestRoot::new();
    let start = tokio::time::Instant::now();
    let run = test.root().run(spec(), |cx| {
        does(|_| async move {
            let limits = RunLimits { wall: Limit::At(Duration::from_secs(1)), ..RunLimits::default() };
            let children = (0..5).map(|n| {
                let entered = cx.enter(RunSpec::new("child", "x").limited(limits)).unwrap();
                forward(entered, |_| if n < 2 { says(["ok"]) } else { hangs() })
            });
            let outcomes = join_all(children).await;
            let classes: Vec<StopClass> = outcomes.iter().map(SubAgentOutcome::stop_class).collect();
            use StopClass::{Natural, Timeout};
            assert_eq!(classes, [Natural, Natural, Timeout, Timeout, Timeout]);
            assert_eq!(outcomes[4].partial(), Some(&json!("hanging")));
            SubAgentOutcome::completed("all")
        })
    });
    assert_eq!(run.settle().await, SubAgentOutcome::completed("all"));
    assert!(start.elapsed() < Duration::from_millis(1100));
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn i18_the_queue_is_visible_first_come_first_served_and_has_a_deadline() {
    let limits = TreeLimits { when_full: WhenFull::Wait(Duration::from_millis(1500)), ..live(1) };
    let test = TestRoot::of(limited(limits));
    let run = test.root().run(spec(), |cx| {
        does(|_| async move {
            let outcomes = join_all(["a", "b", "c"].map(|title| child(&cx, title, |_| second()))).await;
            let ok: Vec<bool> = outcomes.iter().map(SubAgentOutcome::is_ok).collect();
            assert_eq!(ok, [true, true, false]);
            SubAgentOutcome::completed("done")
        })
    });
    assert_eq!(run.settle().await, SubAgentOutcome::completed("done"));
    assert_eq!(
        timeline(&test.finish()),
        "root started\nroot/a started\nroot/b started\nroot/b queued for permit\nroot/c started\n\
         root/c queued for permit\nroot/a done \"worked\"\n\
         root/c failed (refused): no place among the live runs became free in time\n\
         root/b done \"worked\"\nroot done \"done\"\n"
    );
}

#[tokio::test(start_paused = true)]
async fn i18_refusing_instead_of_queueing() {
    let test = TestRoot::of(limited(TreeLimits { when_full: WhenFull::Refuse, ..live(2) }));
    let run = test.root().run(spec(), |cx| {
        does(|_| async move {
            let (one, two) = (enter(&cx, "one"), enter(&cx, "two"));
            let (mut one, mut two) =
                (Box::pin(forward(one, |_| second())), Box::pin(forward(two, |_| second())));
            let both_begin = std::future::poll_fn(|cx| {
                let pending = one.as_mut().poll(cx).is_pending() && two.as_mut().poll(cx).is_pending();
                std::task::Poll::Ready(pending)
            });
            assert!(both_begin.await);
            assert_eq!(refusal(&cx).as_deref(), Some("max_live_runs_reached"));
            join_all([one, two]).await;
            assert_eq!(refusal(&cx), None);
            SubAgentOutcome::completed("done")
        })
    });
    assert_eq!(run.settle().await, SubAgentOutcome::completed("done"));
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn i18_zero_is_none() {
    for limits in [
        TreeLimits { total: Limit::At(0), ..wide() },
        TreeLimits { tokens: Limit::At(0), ..wide() },
        TreeLimits { cost_usd: Limit::At(0.0), ..wide() },
    ] {
        let test = TestRoot::of(limited(limits));
        let outcome = test.root().run(spec(), |_| says(["x"])).settle().await;
        assert_eq!(outcome.kind(), OutcomeKind::Failed);
        assert!(test.finish().is_empty());
    }
    let none = TreeLimits { when_full: WhenFull::Wait(Duration::from_secs(1)), ..live(0) };
    let test = TestRoot::of(limited(none));
    assert_eq!(test.root().run(spec(), |_| says(["x"])).settle().await.kind(), OutcomeKind::Failed);
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn i18_total_and_budgets_of_the_tree_refuse() {
    let cases = [
        (TreeLimits { total: Limit::At(1), ..wide() }, "max_total_runs_reached"),
        (TreeLimits { tokens: Limit::At(10), ..wide() }, "budget_exhausted"),
        (TreeLimits { cost_usd: Limit::At(0.5), ..wide() }, "budget_exhausted"),
    ];
    for (limits, code) in cases {
        let test = TestRoot::of(limited(limits));
        let run = test.root().run(spec(), move |cx| {
            does(move |emit| async move {
                assert_eq!(refusal(&cx).is_some(), code.contains("total"));
                let usage = json!({"input_tokens": 8, "output_tokens": 4, "cost_usd": 0.6, "model_calls": 1});
                emit.send(crate::kit::body(json!({
                    "type": "turn_finished", "turn": 1, "stop_reason": "tool_calls", "usage": usage
                })))
                .await;
                assert_eq!(refusal(&cx).as_deref(), Some(code));
                SubAgentOutcome::completed("went on without")
            })
        });
        assert_eq!(run.settle().await, SubAgentOutcome::completed("went on without"));
        test.finish();
    }
}

/// A run's own budgets: what begins after they are used up is stopped, or refused.
#[tokio::test(start_paused = true)]
async fn i18_budgets_of_a_run() {
    let tokens = RunLimits { tokens: Limit::At(10), ..RunLimits::default() };
    let cost = RunLimits { cost_usd: Limit::At(0.5), ..RunLimits::default() };
    for (limits, kind) in [(tokens, LimitKind::Tokens), (cost, LimitKind::Cost)] {
        let test = TestRoot::new();
        let run = test.root().run(spec().limited(limits), move |cx| {
            does(move |emit| async move {
                let usage = json!({"input_tokens": 8, "output_tokens": 4, "cost_usd": 0.6, "model_calls": 1});
                emit.send(Chunk::text("so far")).await;
                emit.send(crate::kit::body(json!({
                    "type": "turn_finished", "turn": 1, "stop_reason": "tool_calls", "usage": usage
                })))
                .await;
                assert_eq!(cx.exhausted(), Some(kind));
                assert_eq!(refusal(&cx).as_deref(), Some("budget_exhausted"));
                emit.send(call(0, "c", "read")).await;
                unreachable!("the run is stopped before the call")
            })
        });
        let outcome = run.settle().await;
        assert!(matches!(outcome, SubAgentOutcome::Stopped { limit: Some(limit), .. } if limit == kind));
        assert_eq!((outcome.stop_class(), outcome.partial()), (StopClass::Budget, Some(&json!("so far"))));
        test.finish();
    }
}

#[tokio::test(start_paused = true)]
async fn i18_turns_and_calls_of_a_run() {
    let limits = RunLimits { turns: Limit::At(2), tool_calls: Limit::At(3), ..RunLimits::default() };
    let test = TestRoot::new();
    let run = test.root().run(spec().limited(limits), |cx| {
        does(|_| async move {
            let turns = child(&cx, "turns", |_| {
                does(|emit| async move {
                    for n in 1..10 {
                        emit.send(turn(n, 1, 1)).await;
                    }
                    SubAgentOutcome::completed("never")
                })
            });
            let calls = child(&cx, "calls", |_| {
                does(|emit| async move {
                    for n in 0..10 {
                        emit.send(call(n, "c", "read")).await;
                        emit.send(result(n, "c", "read")).await;
                    }
                    SubAgentOutcome::completed("never")
                })
            });
            let (turns, calls) = tokio::join!(turns, calls);
            assert!(matches!(turns, SubAgentOutcome::Stopped { limit: Some(LimitKind::Turns), .. }));
            assert!(matches!(calls, SubAgentOutcome::Stopped { limit: Some(LimitKind::ToolCalls), .. }));
            SubAgentOutcome::completed("done")
        })
    });
    assert_eq!(run.settle().await, SubAgentOutcome::completed("done"));
    let log = test.finish();
    let calls = ends(&log).into_iter().find(|(title, _)| title == "calls").unwrap().1;
    assert_eq!((calls.tool_calls, calls.stop_class), (Some(3), Some(StopClass::MaxSteps)));
}

/// Usage that a turn reports before it is over counts, also when the run is cut off in it.
#[tokio::test(start_paused = true)]
async fn i20_the_usage_of_a_turn_that_never_ended_counts() {
    let test = TestRoot::new();
    let run = test.root().run(spec(), |cx| {
        does(|_| async move {
            child(&cx, "a", |cx| {
                does(|_| async move {
                    cx.report_turn_usage(Usage::of_call(100, 1));
                    cx.report_turn_usage(Usage::of_call(100, 20));
                    SubAgentOutcome::failed(anabranch::outcome::FailureKind::Provider, "cut off")
                })
            })
            .await
        })
    });
    run.settle().await;
    assert_eq!(test.root().ledger().tokens(), 120);
    assert_eq!(test.root().usage().tokens(), 120);
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn i18_idle_is_the_silence_of_the_whole_subtree() {
    let limits = RunLimits { idle: Limit::At(Duration::from_secs(10)), ..RunLimits::default() };
    let test = TestRoot::new();
    let start = tokio::time::Instant::now();
    let run = test.root().run(spec().limited(limits), |cx| {
        does(|_| async move {
            // A minute of work below, with never more than six seconds of silence.
            child(&cx, "a", |cx| {
                does(|_| async move {
                    child(&cx, "b", |_| {
                        does(|emit| async move {
                            for _ in 0..10 {
                                tokio::time::sleep(Duration::from_secs(6)).await;
                                emit.send(Chunk::text("x")).await;
                            }
                            std::future::pending().await
                        })
                    })
                    .await
                })
            })
            .await
        })
    });
    let outcome = run.settle().await;
    assert!(matches!(outcome, SubAgentOutcome::Stopped { limit: Some(LimitKind::Idle), .. }), "{outcome:?}");
    assert_eq!(start.elapsed().as_secs(), 70);
    test.finish();
}

/// A run that is always ready does not outlive its wall time, nor does one above it.
#[tokio::test]
async fn i18_a_busy_run_meets_its_deadline() {
    fn endless() -> SubAgentStream {
        does(|emit| async move {
            loop {
                emit.send(Chunk::text("x")).await;
            }
        })
    }
    let limits = RunLimits { wall: Limit::At(Duration::from_millis(20)), ..RunLimits::default() };
    for below in [false, true] {
        let test = TestRoot::new();
        let run = test.root().run(spec().limited(limits), move |cx| {
            if below { does(|_| async move { child(&cx, "a", |_| endless()).await }) } else { endless() }
        });
        let outcome = tokio::time::timeout(Duration::from_secs(120), run.settle()).await.unwrap();
        assert_eq!(outcome.stop_class(), StopClass::Timeout);
        test.finish();
    }
}

#[tokio::test(start_paused = true)]
async fn i19_a_child_cannot_widen_its_limits() {
    let seconds = |wall, idle| RunLimits {
        wall: Limit::At(Duration::from_secs(wall)),
        idle: Limit::At(Duration::from_secs(idle)),
        turns: Limit::At(wall),
        ..RunLimits::default()
    };
    let test = TestRoot::of(limited(wide()).run_limits(seconds(100, 50)));
    let run = test.root().run(spec().limited(seconds(200, 20)), move |cx| {
        does(move |_| async move {
            assert_eq!(*cx.limits(), seconds(100, 20));
            let spec = RunSpec::new("child", "x").limited(seconds(10, 60));
            let entered = cx.enter(spec.scoped(Scope::Background)).unwrap();
            assert_eq!(*entered.context().limits(), seconds(10, 20));
            SubAgentOutcome::completed("done")
        })
    });
    assert_eq!(run.settle().await, SubAgentOutcome::completed("done"));
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn ax10_a_deep_chain_and_a_wide_one_with_one_permit() {
    fn tree(cx: RunContext) -> SubAgentStream {
        does(|emit| async move {
            emit.send(Chunk::text("before")).await;
            if cx.depth() < 3 {
                let children = join_all((0..3).map(|_| child(&cx, "kid", tree))).await;
                assert!(children.iter().all(SubAgentOutcome::is_ok));
            }
            emit.send(Chunk::text("after")).await;
            SubAgentOutcome::completed("done")
        })
    }
    let test = TestRoot::of(limited(live(1)));
    assert_eq!(test.root().run(spec(), tree).settle().await, SubAgentOutcome::completed("done"));
    assert_eq!(RunTree::of(&test.finish()).settled(), 40);
}
