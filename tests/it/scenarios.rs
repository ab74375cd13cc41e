//! Situations of the catalogue that touch only the core's rooms.

use std::sync::Arc;
use std::time::Duration;

use anabranch::bus::{From, Retain};
use anabranch::context::{RunContext, RunSpec};
use anabranch::forward::forward_subagent_stream;
use anabranch::message::{MessageBody, ProcessingMessage, Scope};
use anabranch::outcome::{CancelledBy, FailureKind, OutcomeKind};
use anabranch::testing::{TestRoot, timeline};
use anabranch::tree::{RunTree, Status};
use anabranch::{Chunk, SubAgentOutcome, SubAgentStream};
use futures::StreamExt;
use futures::future::join_all;
use serde_json::json;

use crate::kit::{
    body, call, child, does, ends, enter, forward, hangs, id_of, limited, result, says, spec, turn, wide,
};

#[tokio::test(start_paused = true)]
async fn c01_one_call_id_in_two_live_children() {
    let test = TestRoot::new();
    let root = test.root().clone();
    let run = tokio::spawn(
        root.run(spec(), |cx| {
            does(|_| async move {
                let works = |_: RunContext| {
                    does(|emit| async move {
                        emit.send(call(0, "call_0", "read")).await;
                        tokio::time::sleep(Duration::from_secs(2)).await;
                        emit.send(result(0, "call_0", "read")).await;
                        SubAgentOutcome::completed("read")
                    })
                };
                let (one, two) = tokio::join!(child(&cx, "one", works), child(&cx, "two", works));
                assert_eq!((one.kind(), two.kind()), (OutcomeKind::Cancelled, OutcomeKind::Completed));
                SubAgentOutcome::completed("done")
            })
        })
        .settle(),
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    root.cancel(&id_of(&root, "one"), CancelledBy::User).unwrap().await;
    run.await.unwrap();
    let log = test.finish();
    let tree = RunTree::of(&log);
    let children: Vec<_> = tree.children(tree.root().unwrap()).collect();
    assert_ne!(children[0].origin.run_id, children[1].origin.run_id);
    assert_eq!((children[0].calls.len(), children[1].calls.len()), (1, 1));
    assert!(timeline(&log).contains("root/one result 0 error"));
    assert!(timeline(&log).contains("root/two result 0 ok"));
}

/// Two children of one call id, by a provider that reuses it: two nodes, each under the call that was open.
#[tokio::test(start_paused = true)]
async fn c04_one_call_id_for_two_spawns() {
    let test = TestRoot::new();
    let run = test.root().run(spec(), |cx| {
        does(|emit| async move {
            for index in 0..2 {
                emit.send(call(index, "call_0", "run_subtask")).await;
                let spec = RunSpec::new("same", "same").called_by(Some("call_0".into()));
                forward_subagent_stream(says(["x"]), cx.enter(spec).unwrap()).await;
                emit.send(result(index, "call_0", "run_subtask")).await;
            }
            SubAgentOutcome::completed("done")
        })
    });
    run.settle().await;
    let tree = RunTree::of(&test.finish());
    let spawned: Vec<_> = tree.children(tree.root().unwrap()).map(|node| node.spawned_by).collect();
    assert_eq!(spawned, [Some(0), Some(1)]);
}

#[tokio::test(start_paused = true)]
async fn c05_three_levels_rebuilt_from_the_log_alone() {
    let test = TestRoot::new();
    let run = test.root().run(RunSpec::new("same", "same"), |cx| {
        does(|emit| async move {
            emit.send(call(0, "c", "run_subtask")).await;
            let spec = || RunSpec::new("same", "same").called_by(Some("c".into()));
            let entered = cx.enter(spec()).unwrap();
            let outcome = forward(entered, |cx| {
                does(|emit| async move {
                    emit.send(call(0, "c", "run_subtask")).await;
                    let outcome = forward(cx.enter(spec()).unwrap(), |_| says(["deep"])).await;
                    emit.send(result(0, "c", "run_subtask")).await;
                    outcome
                })
            });
            let outcome = outcome.await;
            emit.send(result(0, "c", "run_subtask")).await;
            outcome
        })
    });
    run.settle().await;
    let live = test.root().snapshot();
    let lines: Vec<String> = test.finish().iter().map(ProcessingMessage::to_json).collect();
    // Nothing but the text of the log is left.
    let read: Vec<ProcessingMessage> =
        lines.iter().map(|line| ProcessingMessage::from_json(line).unwrap()).collect();
    let tree = RunTree::of(&read);
    assert_eq!(tree.to_json(), live.to_json());
    let deepest = tree.nodes().last().unwrap();
    assert_eq!((tree.path(&deepest.origin.run_id).len(), deepest.spawned_by), (3, Some(0)));
}

#[tokio::test(start_paused = true)]
async fn c06_a_late_grandchilds_ask_is_seen_at_the_root() {
    let test = TestRoot::new();
    let root = test.root().clone();
    let mut run = root.run(spec(), |cx| {
        does(|_| async move {
            child(&cx, "child", |cx| {
                does(|_| async move {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    child(&cx, "grandchild", |_| {
                        does(|emit| async move {
                            emit.send(body(json!({
                                "type": "ask", "request_id": "q1", "kind": "permission", "title": "may I?",
                                "deadline_ms": 60000
                            })))
                            .await;
                            emit.send(body(json!({
                                "type": "ask_answered", "request_id": "q1", "decision": "deny", "by": "nobody"
                            })))
                            .await;
                            SubAgentOutcome::completed("went without")
                        })
                    })
                    .await
                })
            })
            .await
        })
    });
    let (mut tree, mut asked) = (RunTree::new(), Vec::new());
    while let Some(delivery) = run.next().await {
        tree.apply(&delivery);
        let asking = tree.nodes().filter(|node| node.status == Status::Asking);
        asked.extend(asking.map(|node| (node.title().to_owned(), node.open_asks.clone())));
    }
    assert_eq!(asked, [("grandchild".to_owned(), vec!["q1".to_owned()])]);
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn c08_parallel_texts_do_not_mix() {
    let test = TestRoot::new();
    let talks = |own: &'static str| {
        move |_: RunContext| {
            does(move |emit| async move {
                for letter in own.chars() {
                    emit.send(Chunk::text(letter.to_string())).await;
                    emit.send(Chunk::thinking(letter.to_uppercase().to_string())).await;
                    tokio::task::yield_now().await;
                }
                std::future::pending().await
            })
        }
    };
    let mut run = test.root().run(spec(), move |cx| {
        does(move |emit| async move {
            let own = async {
                for _ in 0..6 {
                    emit.send(Chunk::text("r")).await;
                    tokio::task::yield_now().await;
                }
            };
            tokio::join!(own, child(&cx, "a", talks("aaaaaa")), child(&cx, "b", talks("bbbbbb")));
            SubAgentOutcome::completed("never")
        })
    });
    let mut tree = RunTree::new();
    for _ in 0..(3 + 6 + 4 * 6) {
        tree.apply(&run.next().await.unwrap());
    }
    let texts: Vec<_> = tree.nodes().map(|node| (node.text.as_str(), node.thinking.as_str())).collect();
    assert_eq!(texts, [("rrrrrr", ""), ("aaaaaa", "AAAAAA"), ("bbbbbb", "BBBBBB")]);
    drop(run);
    test.finish();
}

/// C27: what a cut-off turn left open has a result, so that the next prompt's history is valid.
#[tokio::test(start_paused = true)]
async fn c27_calls_that_a_cancel_left_open_have_a_result() {
    let test = TestRoot::new();
    let mut run = test.root().run(spec(), |_| {
        does(|emit| async move {
            emit.send(call(0, "a", "read")).await;
            emit.send(call(1, "b", "read")).await;
            emit.send(result(0, "a", "read")).await;
            std::future::pending().await
        })
    });
    for _ in 0..4 {
        run.next().await.unwrap();
    }
    let ended = test.root().cancel_all(CancelledBy::User);
    run.settle().await;
    ended.await;
    let results: Vec<_> = test
        .finish()
        .into_iter()
        .filter_map(|message| match message.into_body() {
            MessageBody::ToolResultUpdate(result) => Some((result.call_index, result.is_error)),
            _ => None,
        })
        .collect();
    assert_eq!(results, [(0, false), (1, true)]);
}

#[tokio::test(start_paused = true)]
async fn c30_a_parents_turn_ends_while_background_children_live() {
    let test = TestRoot::new();
    let root = test.root().clone();
    let run = tokio::spawn(
        root.run(spec(), |cx| {
            does(|emit| async move {
                for title in ["a", "b"] {
                    let spec = RunSpec::new("bg", "x").titled(title).scoped(Scope::Background);
                    tokio::spawn(forward(cx.enter(spec).unwrap(), |_| {
                        does(|_| async {
                            tokio::time::sleep(Duration::from_secs(5)).await;
                            SubAgentOutcome::completed("later")
                        })
                    }));
                }
                emit.send(turn(1, 1, 1)).await;
                SubAgentOutcome::completed("turn over")
            })
        })
        .settle(),
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The control channel is open until the run's own end.
    assert_eq!(root.live_runs(), 3);
    root.cancel(&id_of(&root, "a"), CancelledBy::User).unwrap().await;
    assert_eq!(run.await.unwrap(), SubAgentOutcome::completed("turn over"));
    let log = test.finish();
    assert_eq!(ends(&log).len(), 3);
    assert!(
        timeline(&log)
            .ends_with("root/a cancelled by user\nroot/b done \"later\"\nroot done \"turn over\"\n")
    );
}

#[tokio::test(start_paused = true)]
async fn c31_an_error_and_then_a_finish_is_one_terminal() {
    let finish = body(json!({"type": "run_finished", "ok": true, "outcome": "completed", "result": "fine"}));
    let raised = body(json!({
        "type": "step_result", "step": {"id": "s"}, "result": null, "error": "raised mid-stream"
    }));
    let test = TestRoot::new();
    let stream = SubAgentStream::from_stream(futures::stream::iter([raised, finish.clone(), finish]));
    let outcome = test.root().run(spec(), |_| stream).settle().await;
    assert_eq!(outcome, SubAgentOutcome::failed(FailureKind::Step, "raised mid-stream"));
    let (_, end) = ends(&test.finish()).pop().unwrap();
    assert_eq!(end.late, Some(2));
}

#[tokio::test(start_paused = true)]
async fn c32_a_task_that_is_aborted_leaves_a_terminal() {
    let test = TestRoot::new();
    let root = test.root().clone();
    let run = tokio::spawn(
        root.run(spec(), |cx| does(|_| async move { child(&cx, "a", |_| hangs()).await })).settle(),
    );
    tokio::task::yield_now().await;
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    assert!(
        timeline(&test.finish())
            .ends_with("root/a cancelled by parent, partial \"hanging\"\nroot cancelled by user\n")
    );
}

#[tokio::test(start_paused = true)]
async fn c32_a_host_that_panics_leaves_a_terminal() {
    let test = TestRoot::new();
    let root = test.root().clone();
    let host = tokio::spawn(async move {
        let mut run = root.run(spec(), |cx| does(|_| async move { child(&cx, "a", |_| hangs()).await }));
        run.next().await.unwrap();
        panic!("the host's own");
    });
    assert!(host.await.unwrap_err().is_panic());
    let text = timeline(&test.finish());
    assert!(text.contains("root/a cancelled by parent"), "{text}");
    assert!(text.ends_with("root failed (panic): a panic passed through this run\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn c39_siblings_are_isolated() {
    let test = TestRoot::new();
    let run = test.root().run(spec(), |cx| {
        does(|_| async move {
            let hang = child(&cx, "hang", |_| hangs());
            let others = join_all([
                child(&cx, "ok", |_| says(["fine"])),
                child(&cx, "error", |_| {
                    SubAgentStream::settled(SubAgentOutcome::failed(FailureKind::Tool, "no"))
                }),
                child(&cx, "panic", |_| does(|_| async { panic!("mine alone") })),
                child(&cx, "429", |_| {
                    SubAgentStream::settled(SubAgentOutcome::failed(FailureKind::Provider, "429"))
                }),
                forward_subagent_stream(
                    SubAgentStream::build(|| Err::<SubAgentStream, _>("no")),
                    enter(&cx, "unbuilt"),
                ),
            ]);
            let hang = tokio::time::timeout(Duration::from_secs(1), hang);
            let (others, hang) = tokio::join!(others, hang);
            assert!(hang.is_err());
            let kinds = others.iter().map(|outcome| match outcome {
                SubAgentOutcome::Failed { kind, .. } => Some(*kind),
                _ => None,
            });
            let kinds: Vec<_> = kinds.collect();
            use FailureKind::{Construction, Panic, Provider, Tool};
            assert_eq!(kinds, [None, Some(Tool), Some(Panic), Some(Provider), Some(Construction)]);
            SubAgentOutcome::completed("ok kept")
        })
    });
    assert_eq!(run.settle().await, SubAgentOutcome::completed("ok kept"));
    assert_eq!(ends(&test.finish()).len(), 7);
}

/// C47: the end of a log that was cut anywhere is made whole, and says that it was.
#[tokio::test(start_paused = true)]
async fn c47_a_log_cut_anywhere_is_made_whole() {
    let test = TestRoot::new();
    let run = test.root().run(spec(), |cx| {
        does(|emit| async move {
            emit.send(call(0, "c", "run_subtask")).await;
            emit.send(turn(1, 5, 5)).await;
            child(&cx, "ok", |_| says(["a", "b"])).await;
            child(&cx, "failed", |_| does(|_| async { panic!("no") })).await;
            let spec = RunSpec::new("bg", "bg").scoped(Scope::Background);
            tokio::spawn(forward(cx.enter(spec).unwrap(), |cx| {
                does(|emit| async move {
                    emit.send(turn(1, 7, 7)).await;
                    child(&cx, "below", |_| says(["x"])).await
                })
            }));
            tokio::task::yield_now().await;
            SubAgentOutcome::completed("done")
        })
    });
    run.settle().await;
    let log = test.finish();
    for cut in 1..log.len() {
        let whole = anabranch::tree::compact(&log[..cut]);
        anabranch::testing::assert_verified(&whole);
        assert_eq!(RunTree::of(&whole).usage(), RunTree::of(&log[..cut]).usage(), "cut at {cut}");
        assert_eq!(anabranch::tree::compact(&whole), whole);
    }
}

/// C50, small: many tiny children one after another and at once, and one that talks a lot.
#[tokio::test(start_paused = true)]
async fn c50_many_tiny_children_and_one_that_talks_a_lot() {
    let retain = Retain { messages: 256, bytes: 1 << 20, ..Retain::default() };
    let test = TestRoot::of(limited(wide()).retain(retain));
    let root = test.root().clone();
    let run = root.run(spec(), |cx| {
        does(|_| async move {
            for _ in 0..1000 {
                child(&cx, "tiny", |_| says(["x"])).await;
            }
            join_all((0..1000).map(|_| child(&cx, "tiny", |_| says(["x"])))).await;
            child(&cx, "talks", |_| {
                does(|emit| async move {
                    let text: Arc<str> = "y".repeat(10_000).into();
                    for _ in 0..1000 {
                        emit.send(Chunk::text(Arc::clone(&text))).await;
                    }
                    SubAgentOutcome::completed("said")
                })
            })
            .await
        })
    });
    assert_eq!(run.settle().await, SubAgentOutcome::completed("said"));
    let tree = root.snapshot();
    assert_eq!((tree.len(), tree.settled()), (2002, 2002));
    assert!(tree.nodes().all(|node| node.text.is_empty()));
    let retained: Vec<_> = root.subscribe(From::Start).collect().await;
    assert!(retained.len() <= 257);
    test.finish();
}

/// C53: each message of a child is there as soon as it is said, once, whichever way the child was spawned.
#[tokio::test(start_paused = true)]
async fn c53_a_childs_messages_are_live() {
    fn works(_: RunContext) -> SubAgentStream {
        does(|emit| async move {
            for n in 0..10 {
                emit.send(call(n, "c", "tool")).await;
                tokio::time::sleep(Duration::from_secs(3)).await;
                emit.send(result(n, "c", "tool")).await;
            }
            SubAgentOutcome::completed("worked")
        })
    }
    let test = TestRoot::new();
    let root = test.root().clone();
    let mut run = root.run(spec(), |cx| {
        does(|_| async move {
            // Polled in place, on a task, boxed inside another future, and below a background run.
            let on_task = tokio::spawn(child(&cx, "task", works));
            let spec = RunSpec::new("bg", "bg").scoped(Scope::Background);
            let background = tokio::spawn(forward(cx.enter(spec).unwrap(), |cx| {
                does(|_| async move { child(&cx, "below", works).await })
            }));
            let boxed: futures::future::BoxFuture<'_, _> =
                Box::pin(async { child(&cx, "boxed", works).await });
            let _ = tokio::join!(child(&cx, "in place", works), boxed, on_task, background);
            SubAgentOutcome::completed("done")
        })
    });
    let mut seen = 0;
    while let Some(delivery) = run.next().await {
        let nesting = delivery.message().unwrap().nesting().unwrap().clone();
        assert_eq!(nesting.seq, seen, "each message once");
        seen += 1;
        assert!(root.clock().now().since(nesting.time) < Duration::from_millis(100));
    }
    // Six runs' two messages, and four times ten calls with their results.
    assert_eq!(seen, 2 * 6 + 4 * 20);
    test.finish();
}

/// C57: a child on another runtime and thread; both kinds of runtime.
#[test]
fn c57_two_runtimes() {
    let build = |mut builder: tokio::runtime::Builder| builder.enable_all().build().unwrap();
    let here = build(tokio::runtime::Builder::new_current_thread());
    let mut many = tokio::runtime::Builder::new_multi_thread();
    many.worker_threads(2);
    let there = build(many);
    let elsewhere = there.handle().clone();
    let test = TestRoot::new();
    let outcome = here.block_on(
        test.root()
            .run(spec(), |cx| {
                does(|emit| async move {
                    let children: Vec<_> = (0..8)
                        .map(|_| {
                            elsewhere.spawn(child(&cx, "far", |_| {
                                does(|emit| async move {
                                    for _ in 0..100 {
                                        emit.send(Chunk::text("x")).await;
                                        tokio::task::yield_now().await;
                                    }
                                    SubAgentOutcome::completed("far")
                                })
                            }))
                        })
                        .collect();
                    // A part of this very run on the other runtime.
                    let part = emit.clone();
                    let part = elsewhere.spawn(async move {
                        for _ in 0..100 {
                            part.send(Chunk::text("y")).await;
                        }
                    });
                    for _ in 0..100 {
                        emit.send(Chunk::text("z")).await;
                        tokio::task::yield_now().await;
                    }
                    part.await.unwrap();
                    assert!(join_all(children).await.into_iter().all(|outcome| outcome.unwrap().is_ok()));
                    SubAgentOutcome::completed("near")
                })
            })
            .settle(),
    );
    assert_eq!(outcome, SubAgentOutcome::completed("near"));
    let log = test.finish();
    assert_eq!(log.iter().filter(|message| message.body().kind() == "chunk").count(), 200 + 800 + 9);
}
