//! Cancellation: I12 to I14, and the situations about it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anabranch::budget::{Limit, TreeLimits};
use anabranch::bus::{From, Subscription};
use anabranch::context::{Root, RunContext, RunSpec};
use anabranch::id::RunId;
use anabranch::message::Scope;
use anabranch::outcome::{CancelledBy, OutcomeKind};
use anabranch::testing::{TestRoot, timeline};
use anabranch::tree::RunTree;
use anabranch::{Chunk, SubAgentOutcome, SubAgentStream};
use futures::StreamExt;
use futures::future::join_all;
use serde_json::json;

use crate::kit::{call, child, does, ends, forward, hangs, limited, spec, turn, wide};

/// A chain of runs, each below the one before: `root/a/b/c`, with `below` at its end.
fn chain(
    cx: RunContext,
    titles: &'static [&'static str],
    below: fn(RunContext) -> SubAgentStream,
) -> SubAgentStream {
    match titles.split_first() {
        None => below(cx),
        Some((title, rest)) => does(|_| async move { child(&cx, title, |cx| chain(cx, rest, below)).await }),
    }
}

async fn next_kind(events: &mut Subscription) -> String {
    events.next().await.unwrap().message().unwrap().body().kind().to_owned()
}

fn id_of(root: &Root, title: &str) -> RunId {
    let tree = root.snapshot();
    tree.nodes().find(|node| node.title() == title).unwrap().origin.run_id.clone()
}

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
    let run = tokio::spawn(
        root.run(spec(), |cx| {
            does(|emit| async move {
                emit.send(call(0, "c", "busy")).await;
                let output = cx.blocking(move || blocked.recv().is_ok()).await;
                emit.send(Chunk::text(format!("late: {output:?}"))).await;
                SubAgentOutcome::completed("ignored it")
            })
        })
        .settle(),
    );
    // Blocking work holds up paused time, so it passes by hand.
    let mut events = root.subscribe(From::Start);
    while next_kind(&mut events).await != "tool_call_update" {}
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

#[tokio::test(start_paused = true)]
async fn c28_foreground_and_background_are_spared_or_cancelled_by_their_scope() {
    let test = TestRoot::new();
    let root = test.root().clone();
    let run = tokio::spawn(
        root.run(spec(), |cx| {
            does(|_| async move {
                child(&cx, "turn", |cx| {
                    does(|_| async move {
                        for title in ["bg1", "bg2"] {
                            let spec = RunSpec::new("bg", "x").titled(title).scoped(Scope::Background);
                            tokio::spawn(forward(cx.enter(spec).unwrap(), |_| hangs()));
                        }
                        tokio::spawn(child(&cx, "fg", |_| hangs()));
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        SubAgentOutcome::completed("turn over")
                    })
                })
                .await;
                std::future::pending().await
            })
        })
        .settle(),
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    let tree = root.snapshot();
    let live: Vec<&str> =
        tree.nodes().filter(|node| !node.status.is_settled()).map(|node| node.title()).collect();
    assert_eq!(live, ["work", "bg1", "bg2"]);
    root.cancel(&id_of(&root, "bg1"), CancelledBy::User).unwrap().await;
    assert_eq!(root.cancel_all(CancelledBy::User).await, 2);
    run.await.unwrap();
    assert!(timeline(&test.finish()).ends_with(
        "root/turn done \"turn over\"\nroot/turn/bg1 cancelled by user, partial \"hanging\"\n\
         root/turn/bg2 cancelled by parent, partial \"hanging\"\nroot cancelled by user\n"
    ));
}

#[tokio::test(start_paused = true)]
async fn i12_a_cancelled_node_takes_its_background_runs_along_and_ends_after_them() {
    let test = TestRoot::new();
    let root = test.root().clone();
    let run = tokio::spawn(
        root.run(spec(), |cx| {
            does(|_| async move {
                child(&cx, "node", |cx| {
                    does(|_| async move {
                        let spec = RunSpec::new("bg", "x").titled("bg").scoped(Scope::Background);
                        tokio::spawn(forward(cx.enter(spec).unwrap(), |_| hangs()));
                        std::future::pending().await
                    })
                })
                .await
            })
        })
        .settle(),
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(root.cancel(&id_of(&root, "node"), CancelledBy::User).unwrap().await, 2);
    run.await.unwrap();
    let log = test.finish();
    let order: Vec<String> = ends(&log).into_iter().map(|(title, _)| title).collect();
    assert_eq!(order, ["bg", "node", "work"]);
}

/// Any node may be cancelled, by any cause; what is beside and above it lives on.
#[tokio::test(start_paused = true)]
async fn i12_any_node_by_any_cause() {
    for (by, below) in [
        (CancelledBy::User, "parent"),
        (CancelledBy::Itself, "parent"),
        (CancelledBy::Parent, "parent"),
        (CancelledBy::Shutdown, "shutdown"),
        (CancelledBy::DeadlineOfParent, "deadline_of_parent"),
    ] {
        for title in ["a", "b", "c"] {
            let test = TestRoot::new();
            let root = test.root().clone();
            let run = tokio::spawn(
                root.run(spec(), |cx| {
                    does(|_| async move {
                        let beside = child(&cx, "beside", |_| {
                            does(|_| async {
                                tokio::time::sleep(Duration::from_secs(9)).await;
                                SubAgentOutcome::completed("unharmed")
                            })
                        });
                        let chain = child(&cx, "a", |cx| chain(cx, &["b", "c"], |_| hangs()));
                        tokio::join!(beside, chain).0
                    })
                })
                .settle(),
            );
            tokio::time::sleep(Duration::from_secs(1)).await;
            root.cancel(&id_of(&root, title), by).unwrap().await;
            assert!(root.cancel(&"no-such-run".into(), by).is_err());
            assert_eq!(run.await.unwrap(), SubAgentOutcome::completed("unharmed"));
            for (run, end) in ends(&test.finish()) {
                let by = end.by.map(|by| by.to_string());
                match run.as_str() {
                    "work" | "beside" => assert_eq!(by, None),
                    run if run == title => assert_eq!(by.unwrap(), end.by.unwrap().as_str()),
                    run if run > title => assert_eq!(by.unwrap(), below),
                    _ => {}
                }
            }
        }
    }
}

/// I14: a parent whose child was cancelled with it cannot make a failure or a success of that.
#[tokio::test(start_paused = true)]
async fn i14_a_cancel_is_not_mistaken_for_an_error() {
    for reaction in [0, 1, 2] {
        let test = TestRoot::new();
        let run = test.root().run(spec(), move |cx| {
            does(move |_| async move {
                let outcome = child(&cx, "a", |cx| {
                    does(|_| async move {
                        drop(cx.root().cancel_all(CancelledBy::User));
                        std::future::pending().await
                    })
                })
                .await;
                match reaction {
                    0 => SubAgentOutcome::completed("all good"),
                    1 => outcome,
                    _ => panic!("the child failed"),
                }
            })
        });
        let outcome = run.settle().await;
        assert!(matches!(outcome, SubAgentOutcome::Cancelled { by: CancelledBy::User, .. }), "{outcome:?}");
        test.finish();
    }
}

/// C54: after the cancel nothing lives, also what other tasks drive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c54_when_the_cancel_returns_nothing_is_left() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let live = Arc::new(AtomicUsize::new(0));
    let test = TestRoot::new();
    let root = test.root().clone();
    let counted = Arc::clone(&live);
    let run = tokio::spawn(
        root.run(spec(), |cx| {
            does(|_| async move {
                for n in 0..50 {
                    counted.fetch_add(1, Ordering::SeqCst);
                    let held = Counted(Arc::clone(&counted));
                    let scope = if n % 2 == 0 { Scope::Background } else { Scope::Foreground };
                    let entered = cx.enter(RunSpec::new("kid", "x").scoped(scope)).unwrap();
                    tokio::spawn(forward(entered, |_| {
                        does(|emit| async move {
                            let _held = held;
                            emit.send(Chunk::text("x")).await;
                            std::future::pending().await
                        })
                    }));
                }
                std::future::pending().await
            })
        })
        .settle(),
    );
    let mut events = root.subscribe(From::Start);
    for _ in 0..60 {
        events.next().await.unwrap();
    }
    root.cancel_all(CancelledBy::User).await;
    assert_eq!(root.live_runs(), 0);
    run.await.unwrap();
    while live.load(Ordering::SeqCst) > 0 {
        tokio::task::yield_now().await;
    }
    test.finish();
}

/// The task that drives the tree is blocked: the cancel still ends, and the log is whole.
#[tokio::test(start_paused = true)]
async fn c54_a_cancel_ends_though_nobody_polls_the_tree() {
    let test = TestRoot::new();
    let root = test.root().clone();
    let mut run = root.run(spec(), |cx| chain(cx, &["a", "b"], |_| hangs()));
    for _ in 0..4 {
        run.next().await.unwrap();
    }
    // The run is kept, but not polled.
    assert_eq!(root.cancel_all(CancelledBy::User).await, 3);
    let text = timeline(&test.log());
    assert!(text.ends_with(
        "root/a/b cancelled by parent (forced), partial \"hanging\"\nroot/a cancelled by parent (forced)\n\
         root cancelled by user (forced)\n"
    ));
    // Polled again, it finds its end decided, and reports the outcome that the log has.
    let outcome = run.settle().await;
    assert!(matches!(outcome, SubAgentOutcome::Cancelled { by: CancelledBy::User, forced: true, .. }));
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn i3_a_run_ended_from_outside_reports_the_outcome_of_the_log() {
    let test = TestRoot::new();
    let root = test.root().clone();
    let mut run = root.run(spec(), |_| hangs());
    run.next().await.unwrap();
    run.next().await.unwrap();
    root.cancel_all(CancelledBy::User).await;
    let logged = ends(&test.log()).pop().unwrap().1.to_outcome();
    assert_eq!(logged.partial(), Some(&json!("hanging")));
    assert_eq!(run.settle().await, logged);
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn c55_a_parent_that_ends_with_live_children_ends_them_first() {
    let test = TestRoot::new();
    let run = test.root().run(spec(), |cx| {
        does(|emit| async move {
            let mut polled = Box::pin(join_all([child(&cx, "a", |_| hangs()), child(&cx, "b", |_| hangs())]));
            tokio::select! {
                _ = &mut polled => {}
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
            tokio::spawn(child(&cx, "c", |_| hangs()));
            tokio::task::yield_now().await;
            emit.send(Chunk::text("enough")).await;
            SubAgentOutcome::completed("done")
        })
    });
    run.settle().await;
    let log = test.finish();
    let order: Vec<String> = ends(&log).into_iter().map(|(title, _)| title).collect();
    assert_eq!(order, ["a", "b", "c", "work"]);
}

/// A caller that gives up on one child and goes on.
#[tokio::test(start_paused = true)]
async fn i12_a_child_that_its_parent_drops_is_cancelled_by_it() {
    let test = TestRoot::of(limited(TreeLimits { live: Limit::At(1), ..wide() }));
    let run = test.root().run(spec(), |cx| {
        does(|_| async move {
            let slow = child(&cx, "slow", |cx| chain(cx, &["below"], |_| hangs()));
            assert!(tokio::time::timeout(Duration::from_secs(1), slow).await.is_err());
            child(&cx, "quick", |_| crate::kit::says(["x"])).await
        })
    });
    run.settle().await;
    assert_eq!(
        timeline(&test.finish()),
        "root started\nroot/slow started\nroot/slow/below started\nroot/slow/below text \"hanging\"\n\
         root/slow/below cancelled by parent, partial \"hanging\"\nroot/slow cancelled by parent\n\
         root/quick started\nroot/quick text \"x\"\nroot/quick done \"said\"\nroot done \"said\"\n"
    );
}

#[tokio::test(start_paused = true)]
async fn i1_a_tree_that_is_dropped_has_all_its_terminals() {
    let test = TestRoot::new();
    let mut run = test.root().run(spec(), |cx| {
        does(|_| async move {
            let entered = cx.enter(RunSpec::new("bg", "bg").scoped(Scope::Background)).unwrap();
            tokio::spawn(forward(entered, |cx| chain(cx, &["a"], |_| hangs())));
            child(&cx, "fg", |_| hangs()).await
        })
    });
    for _ in 0..6 {
        run.next().await.unwrap();
    }
    drop(run);
    assert_eq!(test.root().live_runs(), 0);
    let log = test.finish();
    assert_eq!(ends(&log).len(), 4);
}
