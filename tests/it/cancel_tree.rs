//! Cancellation of a whole tree: scope, any node by anybody, and what is left afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anabranch::budget::{Limit, TreeLimits};
use anabranch::bus::From;
use anabranch::context::RunSpec;
use anabranch::message::Scope;
use anabranch::outcome::CancelledBy;
use anabranch::testing::{TestRoot, timeline};
use anabranch::{Chunk, SubAgentOutcome};
use futures::StreamExt;
use futures::future::join_all;
use serde_json::json;

use crate::kit::{chain, child, does, ends, forward, hangs, id_of, limited, spec, wide};

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
