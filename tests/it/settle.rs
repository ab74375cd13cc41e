//! Settlement: one terminal whatever a producer does (I1 to I3), its panic its own (I21), careless authors held to the rules.

use std::sync::Arc;
use std::time::Duration;

use anabranch::bus::From;
use anabranch::context::{RunContext, RunSpec};
use anabranch::forward::forward_subagent_stream;
use anabranch::message::{MessageBody, Nesting, Origin, ProcessingMessage, Scope};
use anabranch::outcome::{CancelledBy, FailureKind, OutcomeKind};
use anabranch::testing::{TestRoot, check_sub_agent, timeline};
use anabranch::tree::RunTree;
use anabranch::{Chunk, SubAgentOutcome, SubAgentStream};
use futures::{StreamExt, stream};
use serde_json::json;

use crate::kit::{body, call, child, does, ends, enter, forward, hangs, result, says, spec, turn};

/// Runs a producer as a root; its timeline, held against the invariants.
async fn timeline_of(producer: impl FnOnce(RunContext) -> SubAgentStream) -> String {
    let test = TestRoot::new();
    test.root().run(spec(), producer).settle().await;
    timeline(&test.finish())
}

#[tokio::test(start_paused = true)]
async fn i1_return_error_and_panic_each_end_once() {
    assert_eq!(timeline_of(|_| says([])).await, "root started\nroot done \"said\"\n");
    let failed = || SubAgentOutcome::failed(FailureKind::Provider, "no quota");
    assert_eq!(
        timeline_of(|_| does(|_| async move { failed() })).await,
        "root started\nroot failed (provider): no quota\n"
    );
    assert_eq!(
        timeline_of(|_| does(|_| async { panic!("at once") })).await,
        "root started\nroot failed (panic): the sub-agent panicked: at once\n"
    );
    let late_panic = does(|emit| async move {
        emit.send(Chunk::text("so far")).await;
        panic!("in the middle")
    });
    assert_eq!(
        timeline_of(|_| late_panic).await,
        "root started\nroot text \"so far\"\n\
         root failed (panic): the sub-agent panicked: in the middle, partial \"so far\"\n"
    );
}

#[derive(Debug)]
struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("in a destructor");
    }
}

#[tokio::test(start_paused = true)]
async fn i21_a_panic_in_a_destructor_harms_nobody() {
    let holds_it = |_: RunContext| {
        let bomb = PanicsInDrop;
        does(|emit| async move {
            let _bomb = bomb;
            emit.send(Chunk::text("x")).await;
            std::future::pending().await
        })
    };
    // Dropped by the cancel, by the drop of the whole tree, and while a panic of the parent passes.
    let test = TestRoot::new();
    let mut run = test.root().run(spec(), holds_it);
    run.next().await.unwrap();
    let ended = test.root().cancel_all(CancelledBy::User);
    assert_eq!(run.settle().await.kind(), OutcomeKind::Cancelled);
    ended.await;
    test.finish();

    let test = TestRoot::new();
    let mut run = test.root().run(spec(), holds_it);
    run.next().await.unwrap();
    drop(run);
    test.finish();

    let text = timeline_of(move |cx| {
        does(|emit| async move {
            let mut one = std::pin::pin!(child(&cx, "one", holds_it));
            assert!(
                std::future::poll_fn(|cx| std::task::Poll::Ready(one.as_mut().poll(cx).is_pending())).await
            );
            emit.send(Chunk::text("y")).await;
            panic!("the parent")
        })
    })
    .await;
    assert_eq!(
        text,
        "root started\nroot/one started\nroot/one text \"x\"\nroot text \"y\"\nroot/one cancelled by parent, partial \"x\"\n\
         root failed (panic): the sub-agent panicked: the parent, partial \"y\"\n"
    );
}

#[tokio::test(start_paused = true)]
async fn i2_a_stream_that_ends_without_settling_has_vanished() {
    let vanished = "failed (vanished): the sub-agent ended without an outcome";
    let empty = SubAgentStream::from_stream(stream::empty());
    assert_eq!(timeline_of(|_| empty).await, format!("root started\nroot {vanished}\n"));
    let said = SubAgentStream::from_stream(stream::iter([Chunk::text("a").into()]));
    assert_eq!(
        timeline_of(|_| said).await,
        format!("root started\nroot text \"a\"\nroot {vanished}, partial \"a\"\n")
    );
}

#[tokio::test(start_paused = true)]
async fn i2_the_last_step_result_that_settles_counts() {
    let step = |result| body(json!({"type": "step_result", "step": {"id": "s"}, "result": result}));
    let steps = [step(json!("one")), step(json!({"error": "no"})), step(json!("two")), step(json!(null))];
    let text = timeline_of(|_| SubAgentStream::from_stream(stream::iter(steps))).await;
    assert!(text.ends_with("root step result null\nroot done \"two\"\n"), "{text}");
    let failed = body(json!({"type": "step_result", "step": {"id": "s"}, "result": null, "error": "broke"}));
    let text = timeline_of(|_| SubAgentStream::from_stream(stream::iter([failed]))).await;
    assert!(text.ends_with("root failed (step): broke\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn i1_a_root_runs_once() {
    let test = TestRoot::new();
    test.root().run(spec(), |_| says(["a"])).settle().await;
    let again = test.root().run(spec(), |_| says(["b"])).settle().await;
    assert!(matches!(again, SubAgentOutcome::Failed { kind: FailureKind::Refused, .. }));
    assert_eq!(test.finish().len(), 3 + 1);
}

#[tokio::test(start_paused = true)]
async fn i3_a_careless_producer_cannot_start_or_end_its_run() {
    let own_end = body(json!({"type": "run_finished", "ok": true, "outcome": "completed", "result": 1}));
    let own_start = body(json!({
        "type": "run_started", "agent": "x", "title": "x", "task": "x", "scope": "foreground", "producer": "x"
    }));
    let careless = SubAgentStream::from_stream(stream::iter([own_start, own_end, Chunk::text("a").into()]));
    let text = timeline_of(|_| careless).await;
    assert_eq!(
        text,
        "root started\nroot text \"a\"\n\
         root failed (vanished): the sub-agent ended without an outcome, partial \"a\", 2 late\n"
    );
}

#[tokio::test(start_paused = true)]
async fn i8_a_careless_producer_has_one_result_for_each_call() {
    let careless = does(|emit| async move {
        emit.send(result(7, "ghost", "read")).await;
        emit.send(call(0, "c", "read")).await;
        emit.send(result(0, "c", "read")).await;
        emit.send(result(0, "c", "read")).await;
        emit.send(call(0, "c", "reused index")).await;
        emit.send(call(1, "c", "left open")).await;
        emit.send(call(2, "c", "left open too")).await;
        emit.send(Chunk::thinking("hm")).await;
        emit.send(Chunk::text("open")).await;
        SubAgentOutcome::completed("done")
    });
    let test = TestRoot::new();
    test.root().run(spec(), |_| careless).settle().await;
    assert_eq!(test.root().late(), 3);
    let log = test.finish();
    let text = timeline(&log);
    assert!(text.contains("root result 1 error {\"error\":\"no_result\""), "{text}");
    assert!(text.contains("root result 2 error {\"error\":\"no_result\""), "{text}");
    assert!(text.ends_with("root done \"done\", 3 late\n"), "{text}");
    let closing: Vec<_> = log.iter().rev().skip(1).take(2).map(ProcessingMessage::body).collect();
    assert!(closing.iter().all(|body| matches!(body, MessageBody::Chunk(chunk) if chunk.done)));
}

#[tokio::test(start_paused = true)]
async fn i6_a_nested_producers_messages_yielded_again_are_not_doubled() {
    let test = TestRoot::new();
    let run = test.root().run(spec(), |cx| {
        does(|emit| async move {
            let mut events = cx.root().subscribe(From::Start);
            child(&cx, "a", |_| says(["x", "y"])).await;
            while let Some(delivery) = events.try_next() {
                emit.send(delivery.message().unwrap().clone()).await;
            }
            SubAgentOutcome::completed("done")
        })
    });
    run.settle().await;
    assert_eq!(
        timeline(&test.finish()),
        "root started\nroot/a started\nroot/a text \"xy\"\nroot/a done \"said\"\nroot done \"done\", 6 late\n"
    );
}

/// What a child in another process would send: stamped there, with the ids of this tree.
struct Remote(Arc<Origin>, u64);

impl Remote {
    fn below(origin: &Origin, id: &str, call: Option<&str>) -> Self {
        let origin = Origin {
            root_run_id: origin.root_run_id.clone(),
            run_id: id.into(),
            parent_run_id: Some(origin.run_id.clone()),
            parent_tool_call_id: call.map(Into::into),
            subtask_depth: origin.subtask_depth + 1,
        };
        Self(Arc::new(origin), 0)
    }

    fn says(&mut self, message: impl Into<ProcessingMessage>) -> ProcessingMessage {
        let nesting = Nesting {
            origin: Arc::clone(&self.0),
            seq: 900 + self.1,
            run_seq: self.1,
            time: anabranch::message::Timestamp::from_micros(1_767_225_600_000_000),
        };
        self.1 += 1;
        message.into().stamped(nesting)
    }

    fn starts(&mut self) -> ProcessingMessage {
        let title = self.0.run_id.to_string();
        self.says(body(json!({
            "type": "run_started", "agent": "remote", "title": title, "task": "x", "scope": "foreground",
            "producer": "remote"
        })))
    }

    fn ends(&mut self, tokens: u64) -> ProcessingMessage {
        let usage = json!({"input_tokens": tokens, "output_tokens": 0, "model_calls": 1});
        self.says(body(json!({
            "type": "run_finished", "ok": true, "outcome": "completed", "result": "far", "usage": usage,
            "subtree_usage": usage
        })))
    }
}

#[tokio::test(start_paused = true)]
async fn i6_a_remote_childs_stamps_are_kept_and_the_end_of_its_connection_is_its_end() {
    let test = TestRoot::new();
    let run = test.root().run(spec(), |cx| {
        let mut far = Remote::below(cx.origin(), "far", None);
        let mut lost = Remote::below(cx.origin(), "lost", None);
        let mut below = Remote::below(&lost.0, "below", None);
        let mut below_too = Remote::below(&lost.0, "below-too", None);
        let messages = vec![
            far.starts(),
            far.says(turn(1, 5, 0)),
            far.says(Chunk::text("hi")),
            far.says(Chunk::end(false)),
            far.ends(5),
            lost.starts(),
            lost.says(turn(1, 7, 0)),
            lost.says(call(0, "c", "read")),
            lost.says(Chunk::text("half a")),
            below.starts(),
            below.says(turn(1, 11, 0)),
            below.ends(11),
            below_too.starts(),
            below_too.says(turn(1, 13, 0)),
        ];
        does(|emit| async move {
            for message in messages {
                emit.send(message).await;
            }
            SubAgentOutcome::completed("done")
        })
    });
    run.settle().await;
    let log = test.finish();
    assert_eq!(log[1].nesting().unwrap().origin.run_id, "far".into());
    assert_eq!(log[1].nesting().unwrap().seq, 1);
    let ends = ends(&log);
    let used: Vec<_> = ends
        .iter()
        .map(|(title, end)| (title.as_str(), end.failure, end.subtree_usage.unwrap().tokens()))
        .collect();
    assert_eq!(
        used,
        [
            ("far", None, 5),
            ("below", None, 11),
            ("below-too", Some(FailureKind::Vanished), 13),
            ("lost", Some(FailureKind::Vanished), 31),
            ("work", None, 36),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn i6_stamped_messages_that_do_not_belong_here_are_discarded() {
    let test = TestRoot::new();
    let run = test.root().run(spec(), |cx| {
        let foreign = Origin { root_run_id: "elsewhere".into(), ..(**cx.origin()).clone() };
        let mut foreign = Remote::below(&foreign, "foreign", None);
        let mut deep = Remote::below(&Origin { subtask_depth: 9, ..(**cx.origin()).clone() }, "deep", None);
        let mut late = Remote::below(cx.origin(), "late", None);
        let mut gap = Remote::below(cx.origin(), "gap", None);
        let messages = [
            foreign.starts(),
            deep.starts(),
            late.starts(),
            late.ends(0),
            late.says(Chunk::text("after the end")),
            gap.says(Chunk::text("before the start")),
        ];
        does(|emit| async move {
            for message in messages {
                emit.send(message).await;
            }
            SubAgentOutcome::completed("done")
        })
    });
    run.settle().await;
    assert_eq!(
        timeline(&test.finish()),
        "root started\nroot/late started\nroot/late done \"far\"\nroot done \"done\", 4 late\n"
    );
}

/// The parent ends while a child that it moved to a task of its own is not yet polled, waits, or works.
#[tokio::test(start_paused = true)]
async fn i9_a_foreground_child_on_another_task_ends_before_its_parent() {
    let test = TestRoot::new();
    let run = test.root().run(spec(), |cx| {
        does(|_| async move {
            tokio::spawn(child(&cx, "unpolled", |_| hangs()));
            tokio::spawn(child(&cx, "working", |_| hangs()));
            SubAgentOutcome::completed("done")
        })
    });
    run.settle().await;
    let log = test.finish();
    assert!(timeline(&log).ends_with("root done \"done\"\n"));
}

#[tokio::test(start_paused = true)]
async fn i9_a_background_run_that_was_entered_is_joined_even_before_its_first_poll() {
    let test = TestRoot::new();
    let run = test.root().run(spec(), |cx| {
        does(|_| async move {
            let entered = cx.enter(RunSpec::new("bg", "b").scoped(Scope::Background)).unwrap();
            tokio::spawn(forward(entered, |cx| {
                does(|emit| async move {
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    // A run that is background below background is the root's to wait for, too.
                    let entered = cx.enter(RunSpec::new("bg", "c").scoped(Scope::Background)).unwrap();
                    tokio::spawn(forward(entered, |_| {
                        does(|emit| async move {
                            tokio::time::sleep(Duration::from_secs(5)).await;
                            emit.send(turn(1, 3, 0)).await;
                            SubAgentOutcome::completed("c")
                        })
                    }));
                    emit.send(turn(1, 2, 0)).await;
                    SubAgentOutcome::completed("b")
                })
            }));
            SubAgentOutcome::completed("done")
        })
    });
    run.settle().await;
    let log = test.finish();
    assert_eq!(
        timeline(&log),
        "root started\nroot/b started (background)\nroot/b turn 1 end_turn\nroot/b done \"b\"\n\
         root/b/c started (background)\nroot/b/c turn 1 end_turn\nroot/b/c done \"c\"\nroot done \"done\"\n"
    );
    let (_, root) = ends(&log).pop().unwrap();
    assert_eq!(root.subtree_usage.unwrap().tokens(), 5);
}

#[tokio::test(start_paused = true)]
async fn i1_what_was_entered_and_never_forwarded_never_existed() {
    let test = TestRoot::new();
    let run = test.root().run(spec(), |cx| {
        does(|_| async move {
            drop(enter(&cx, "dropped"));
            drop(child(&cx, "forwarded, not polled", |_| hangs()));
            assert_eq!(cx.root().ledger().total_runs(), 1);
            SubAgentOutcome::completed("done")
        })
    });
    run.settle().await;
    assert_eq!(timeline(&test.finish()), "root started\nroot done \"done\"\n");
}

#[tokio::test(start_paused = true)]
async fn i3_what_a_moved_part_says_after_the_end_is_never_delivered_and_never_hangs() {
    let test = TestRoot::new();
    let (part, parts) = tokio::sync::oneshot::channel();
    let run = test.root().run(spec(), |cx| {
        does(|emit| async move {
            let moved = emit.clone();
            let task = tokio::spawn(async move {
                moved.send(Chunk::text("in time")).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
                moved.send(Chunk::text("too late")).await;
            });
            let _ = part.send((task, cx.clone()));
            tokio::time::sleep(Duration::from_millis(500)).await;
            SubAgentOutcome::completed("done")
        })
    });
    run.settle().await;
    let (task, cx) = parts.await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), task).await.expect("it does not hang").unwrap();
    assert!(cx.enter(spec()).is_err(), "a run that has settled spawns nothing");
    assert_eq!(timeline(&test.finish()), "root started\nroot text \"in time\"\nroot done \"done\"\n");
}

#[tokio::test(start_paused = true)]
async fn i4_a_turns_end_is_not_the_runs_end() {
    let test = TestRoot::new();
    let run = test.root().run(spec(), |cx| {
        does(|emit| async move {
            emit.send(turn(1, 1, 1)).await;
            assert_eq!(cx.root().live_runs(), 1);
            emit.send(turn(2, 1, 1)).await;
            SubAgentOutcome::completed("done")
        })
    });
    run.settle().await;
    let tree = RunTree::of(&test.finish());
    assert_eq!(tree.root().unwrap().turns, 2);
}

#[tokio::test(start_paused = true)]
async fn i5_a_partial_result_travels_with_the_reason() {
    let text = timeline_of(|cx| {
        does(|emit| async move {
            let failed = child(&cx, "a", |_| {
                does(|emit| async move {
                    emit.send(Chunk::text("old turn")).await;
                    emit.send(turn(1, 1, 1)).await;
                    emit.send(Chunk::text("new ")).await;
                    emit.send(Chunk::text("turn")).await;
                    SubAgentOutcome::failed(FailureKind::Tool, "broke")
                })
            })
            .await;
            assert_eq!(failed.partial(), Some(&json!("new turn")));
            emit.send(Chunk::text("x")).await;
            failed
        })
    })
    .await;
    assert!(text.contains("root/a failed (tool): broke, partial \"new turn\"\n"), "{text}");
    assert!(text.ends_with("root failed (tool): broke, partial \"new turn\"\n"), "{text}");
}

/// The battery on careless producers: whatever they do, their trees hold.
#[tokio::test(start_paused = true)]
async fn i1_the_battery_holds_for_careless_producers() {
    let open_everything = |cx: RunContext| {
        does(|emit| async move {
            emit.send(call(3, "c", "read")).await;
            emit.send(result(9, "c", "read")).await;
            emit.send(Chunk::thinking("a")).await;
            emit.send(Chunk::text("b")).await;
            if let Ok(entered) = cx.enter(RunSpec::new("child", "x")) {
                tokio::spawn(forward_subagent_stream(hangs(), entered));
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            panic!("and then")
        })
    };
    let report = check_sub_agent(open_everything).await;
    assert!(report.is_ok(), "{report}");
}
