//! Cancellation: I12 to I14, and the situations about it.

use std::time::Duration;

use anabranch::budget::{Limit, TreeLimits};
use anabranch::context::{Root, RunContext, RunSpec};
use anabranch::outcome::{CancelledBy, OutcomeKind};
use anabranch::testing::{TestRoot, timeline};
use anabranch::tree::RunTree;
use anabranch::{Chunk, SubAgentOutcome, SubAgentStream};
use futures::StreamExt;
use futures::future::join_all;
use serde_json::json;

use crate::kit::{call, chain, child, does, ends, hangs, id_of, limited, spec, turn, wide};

/// The phases in which a cancel may find a run (C22), as far as they are these rooms' own.
#[tokio::test(start_paused = true)]
async fn c22_a_cancel_in_each_phase_ends_each_live_run_once_children_first() {
    let phases: [(&str, fn(RunContext) -> SubAgentStream); 5] = [
        ("in the middle of a token", |_| hangs()),
        ("while a tool runs", |_| {
            does(|emit| async move {
                emit.send(call(0, "c", "slow")).await;
                std::future::pending().await
            })
        }),
        ("in a backoff's sleep", |_| {
            does(|_| async {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                SubAgentOutcome::completed(1)
            })
        }),
        ("while it waits for many children", |cx| {
            does(|_| async move {
                join_all((0..5).map(|_| child(&cx, "kid", |_| hangs()))).await;
                SubAgentOutcome::completed(1)
            })
        }),
        ("while something awaits the token itself", |cx| {
            does(|_| async move {
                let _ = cx.or_cancel(std::future::pending::<()>()).await;
                SubAgentOutcome::completed("noticed")
            })
        }),
    ];
    for (phase, producer) in phases {
        let test = TestRoot::of(limited(wide()));
        let root = test.root().clone();
        let run = tokio::spawn(root.run(spec(), move |cx| chain(cx, &["a", "b"], producer)).settle());
        tokio::time::sleep(Duration::from_secs(1)).await;
        let live = root.live_runs();
        let count = root.cancel_all(CancelledBy::User).await;
        assert_eq!((count, root.live_runs()), (live, 0), "{phase}");
        assert_eq!(run.await.unwrap().kind(), OutcomeKind::Cancelled, "{phase}");
        let log = test.finish();
        let ends = ends(&log);
        assert_eq!(ends.len(), live, "{phase}");
        assert!(
            ends.iter().all(|(_, end)| end.outcome == OutcomeKind::Cancelled && end.forced.is_none()),
            "{phase}"
        );
        let order: Vec<&str> = ends.iter().rev().take(3).map(|(title, _)| title.as_str()).collect();
        assert_eq!(order, ["work", "a", "b"], "{phase}");
    }
}

#[tokio::test(start_paused = true)]
async fn c22_a_cancel_while_queued() {
    let test = TestRoot::of(limited(TreeLimits { live: Limit::At(1), ..wide() }));
    let root = test.root().clone();
    let run = tokio::spawn(
        root.run(spec(), |cx| {
            does(|_| async move {
                join_all([child(&cx, "works", |_| hangs()), child(&cx, "queued", |_| hangs())]).await;
                SubAgentOutcome::completed(1)
            })
        })
        .settle(),
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    root.cancel(&id_of(&root, "queued"), CancelledBy::User).unwrap().await;
    assert_eq!(root.live_runs(), 2);
    root.cancel_all(CancelledBy::Shutdown).await;
    run.await.unwrap();
    assert_eq!(
        timeline(&test.finish()),
        "root started\nroot/works started\nroot/works text \"hanging\"\nroot/queued started\n\
         root/queued queued for permit\nroot/queued cancelled by user\n\
         root/works cancelled by shutdown, partial \"hanging\"\nroot cancelled by shutdown\n"
    );
}

#[tokio::test(start_paused = true)]
async fn c22_a_cancel_while_the_run_settles() {
    let test = TestRoot::new();
    let root = test.root().clone();
    let run = root.run(spec(), |cx| {
        does(|_| async move {
            tokio::spawn(child(&cx, "stubborn", |cx| {
                does(|_| async move {
                    let _hold = cx.hold_grace();
                    std::future::pending().await
                })
            }));
            tokio::task::yield_now().await;
            SubAgentOutcome::completed("decided")
        })
    });
    let run = tokio::spawn(run.settle());
    tokio::time::sleep(Duration::from_millis(100)).await;
    root.cancel_all(CancelledBy::User).await;
    assert_eq!(run.await.unwrap(), SubAgentOutcome::completed("decided"));
    assert_eq!(
        timeline(&test.finish()),
        "root started\nroot/stubborn started\nroot/stubborn cancelled by parent (forced)\nroot done \"decided\"\n"
    );
}

#[tokio::test(start_paused = true)]
async fn c23_what_ignores_the_cancel_is_abandoned_after_the_grace_period_and_counted() {
    let test = TestRoot::new();
    let root = test.root().clone();
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let (begun, begins) = tokio::sync::oneshot::channel();
    let run = tokio::spawn(
        root.run(spec(), |cx| {
            does(|emit| async move {
                emit.send(call(0, "c", "busy")).await;
                let work = move || {
                    let _ = begun.send(());
                    blocked.recv().is_ok()
                };
                let output = cx.blocking(work).await;
                emit.send(Chunk::text(format!("late: {output:?}"))).await;
                SubAgentOutcome::completed("ignored it")
            })
        })
        .settle(),
    );
    // Blocking work holds up paused time, so it passes by hand.
    begins.await.unwrap();
    let before = tokio::time::Instant::now();
    let ended = root.cancel_all(CancelledBy::User);
    tokio::task::yield_now().await;
    tokio::time::advance(root.grace()).await;
    assert_eq!(ended.await, 1);
    assert!(before.elapsed() <= root.grace() + Duration::from_millis(10));
    let outcome = run.await.unwrap();
    assert!(matches!(outcome, SubAgentOutcome::Cancelled { by: CancelledBy::User, forced: true, .. }));
    release.send(()).unwrap();
    while root.late() == 0 {
        tokio::task::yield_now().await;
    }
    let text = timeline(&test.finish());
    assert!(text.ends_with("root cancelled by user (forced)\n"), "{text}");
    assert!(text.contains("root result 0 error {\"error\":\"cancelled\""), "{text}");
}

#[tokio::test(start_paused = true)]
async fn c23_a_tool_that_ends_within_the_grace_period_is_not_forced() {
    let test = TestRoot::new();
    let root = test.root().clone();
    let run = tokio::spawn(
        root.run(spec(), |cx| {
            does(|emit| async move {
                emit.send(call(0, "c", "careful")).await;
                let hold = cx.hold_grace();
                tokio::time::sleep(Duration::from_millis(1500)).await;
                emit.send(crate::kit::result(0, "c", "careful")).await;
                // Nothing new begins any more.
                emit.send(call(1, "c", "another")).await;
                drop(hold);
                std::future::pending().await
            })
        })
        .settle(),
    );
    tokio::time::sleep(Duration::from_millis(100)).await;
    root.cancel_all(CancelledBy::User).await;
    run.await.unwrap();
    assert_eq!(
        timeline(&test.finish()),
        "root started\nroot call 0 careful {}\nroot result 0 ok {\"result\":\"ok\"}\nroot cancelled by user, 1 late\n"
    );
}

#[tokio::test(start_paused = true)]
async fn c23_a_producer_that_talks_through_the_grace_period_ends() {
    let test = TestRoot::new();
    let root = test.root().clone();
    let run = tokio::spawn(
        root.run(spec(), |cx| {
            does(|emit| async move {
                let _hold = cx.hold_grace();
                loop {
                    emit.send(Chunk::text("x")).await;
                    if cx.token().is_cancelled() {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    } else {
                        tokio::task::yield_now().await;
                    }
                }
            })
        })
        .settle(),
    );
    tokio::task::yield_now().await;
    root.cancel_all(CancelledBy::User).await;
    assert!(matches!(run.await.unwrap(), SubAgentOutcome::Cancelled { forced: true, .. }));
    test.finish();
}

#[tokio::test]
async fn c23_a_producer_that_is_always_ready_ends_with_the_grace_period_too() {
    let test = TestRoot::of(Root::builder().grace(Duration::from_millis(20)));
    let root = test.root().clone();
    let run = tokio::spawn(
        root.run(spec(), |cx| {
            does(|emit| async move {
                let _hold = cx.hold_grace();
                loop {
                    emit.send(Chunk::text("x")).await;
                }
            })
        })
        .settle(),
    );
    tokio::task::yield_now().await;
    root.cancel_all(CancelledBy::User).await;
    assert!(matches!(run.await.unwrap(), SubAgentOutcome::Cancelled { forced: true, .. }));
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn c24_nothing_begins_after_a_cancel() {
    let test = TestRoot::new();
    let run = test.root().run(spec(), |cx| {
        does(|emit| async move {
            let hold = cx.hold_grace();
            let ended = cx.cancel(CancelledBy::User);
            assert!(cx.enter(RunSpec::new("child", "x")).is_err());
            drop(ended);
            drop(hold);
            emit.send(call(0, "c", "read")).await;
            SubAgentOutcome::completed("went on")
        })
    });
    assert_eq!(run.settle().await.kind(), OutcomeKind::Cancelled);
    let text = timeline(&test.finish());
    assert!(text.ends_with("root cancelled by user\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn c25_a_child_cancels_itself() {
    let test = TestRoot::new();
    let run = test.root().run(spec(), |cx| {
        does(|_| async move {
            let waits = child(&cx, "waits", |cx| {
                does(|_| async move {
                    cx.cancel(CancelledBy::Itself).await;
                    unreachable!("its next await ends it")
                })
            });
            let returns = child(&cx, "returns", |cx| {
                does(|_| async move {
                    drop(cx.cancel(CancelledBy::Itself));
                    SubAgentOutcome::completed("anyway")
                })
            });
            assert_eq!(waits.await, SubAgentOutcome::cancelled(CancelledBy::Itself));
            let partial = Some(json!("anyway"));
            let cancelled = SubAgentOutcome::Cancelled { by: CancelledBy::Itself, forced: false, partial };
            assert_eq!(returns.await, cancelled);
            SubAgentOutcome::completed("the parent goes on")
        })
    });
    assert_eq!(run.settle().await, SubAgentOutcome::completed("the parent goes on"));
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn c26_a_cancelled_run_keeps_its_partial_result_and_finished_calls() {
    let test = TestRoot::new();
    let mut run = test.root().run(spec(), |_| {
        does(|emit| async move {
            for index in 0..30 {
                emit.send(call(index, "c", "read")).await;
                emit.send(crate::kit::result(index, "c", "read")).await;
                emit.send(turn(u64::from(index) + 1, 1, 1)).await;
            }
            for _ in 0..200 {
                emit.send(Chunk::text("token ")).await;
            }
            std::future::pending().await
        })
    });
    for _ in 0..291 {
        run.next().await.unwrap();
    }
    let ended = test.root().cancel_all(CancelledBy::User);
    let outcome = run.settle().await;
    ended.await;
    assert_eq!(outcome.partial().unwrap().as_str().unwrap().len(), 1200);
    let tree = RunTree::of(&test.finish());
    let end = tree.root().unwrap().finished.clone().unwrap();
    assert_eq!((end.tool_calls, end.turns, end.usage.unwrap().tokens()), (Some(30), Some(30), 60));
}
