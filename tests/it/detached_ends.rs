//! Every way in which detached subtasks, waits for them, their parents and their tree end.

use std::sync::Arc;
use std::time::Duration;

use anabranch::SubAgentOutcome;
use anabranch::budget::{Limit, RunLimits, TreeLimits};
use anabranch::context::{BackgroundPolicy, Root};
use anabranch::message::MessageBody;
use anabranch::model::ScriptModel;
use anabranch::outcome::{CancelledBy, OutcomeKind};
use anabranch::testing::{Conformance, TestRoot};
use anabranch::tool::{AgentRuntime, Job};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::acts::{Act, agent, detached, no_task_is_left, play, rows, said, tasks};
use crate::kit::{ends, id_of};
use crate::stage::{Stage, calls};

/// A turn that starts these subtasks, each titled and briefed with the same words.
fn start_turn(titles: &[&str]) -> Value {
    let call = |title: &&str| json!({ "name": "start_subtask", "arguments": { "description": title, "prompt": title } });
    json!({ "tool_calls": titles.iter().map(call).collect::<Vec<_>>() })
}

#[tokio::test(start_paused = true)]
async fn ac41_ac50_a_wait_that_is_cancelled_ends_at_once_and_takes_nothing_along() {
    let since = Instant::now();
    let played = play(Root::builder(), |title, act| async move {
        match title.as_str() {
            "root" => {
                act.starts(&["slow"]).await;
                let front = act.run("waits");
                let canceller = async {
                    act.sleep(10).await;
                    let waits = id_of(act.cx.root(), "waits");
                    drop(act.cx.root().cancel(&waits, CancelledBy::User).unwrap());
                };
                let (reply, ()) = tokio::join!(front, canceller);
                assert_eq!(reply["outcome"], json!("cancelled"));
                assert_eq!(act.cx.root().clock().now().millis() % 1000, 10, "at once");
                // A wait that was dropped is in nobody's way, and its result is there.
                let dropped = tokio::time::timeout(Duration::from_millis(10), act.wait(&["slow"])).await;
                assert!(dropped.is_err());
                said(rows(&act.wait(&["slow"]).await))
            }
            "waits" => said(act.wait(&["slow"]).await),
            _ => {
                act.sleep(100).await;
                said("slow")
            }
        }
    })
    .await;
    assert_eq!(played.result(), &json!(["slow completed result=\"slow\""]));
    assert_eq!(since.elapsed(), Duration::from_millis(100));
}

/// C28, C30: a detached subtask goes on when the run that started it ends, and not when the tree does.
#[tokio::test(start_paused = true)]
async fn c28_c30_what_is_detached_ends_with_the_root_and_not_with_its_parent() {
    let played = play(Root::builder(), |title, act| async move {
        match title.as_str() {
            "root" => {
                assert_eq!(act.run("mid").await, json!("mid"));
                let all = act.look().await;
                assert_eq!(rows(&all), ["bg 1 running", "bg 2 running"]);
                assert_eq!(all["subtasks"][0]["depth"], json!(2));
                // The result of a subtask whose parent has ended is there for all.
                said(rows(&act.wait(&["bg 1"]).await))
            }
            "mid" => {
                act.starts(&["bg 1", "bg 2"]).await;
                act.run("fg").await;
                said("mid")
            }
            "fg" => said("fg"),
            "bg 1" => {
                act.sleep(10).await;
                said("one")
            }
            _ => {
                act.sleep(20).await;
                said("two")
            }
        }
    })
    .await;
    assert_eq!(played.result(), &json!(["bg 1 completed result=\"one\""]));
    let titles: Vec<String> = ends(&played.log).into_iter().map(|(title, _)| title).collect();
    assert_eq!(
        titles,
        ["fg", "mid", "bg 1", "bg 2", "root"],
        "the root waited for the one that it did not ask for"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_the_parent_reaches_what_it_detached() {
    let played = play(Root::builder(), |title, act| async move {
        match title.as_str() {
            "root" => {
                act.starts(&["mid", "other"]).await;
                act.sleep(10).await;
                let mid = id_of(act.cx.root(), "mid");
                assert_eq!(act.cx.root().cancel(&mid, CancelledBy::User).unwrap().await, 2);
                assert_eq!(tasks(), 1);
                said(rows(&act.wait(&[]).await))
            }
            "mid" => {
                act.starts(&["below"]).await;
                std::future::pending().await
            }
            "below" => std::future::pending().await,
            _ => {
                act.sleep(20).await;
                said("other")
            }
        }
    })
    .await;
    let rows = played.result().as_array().unwrap().clone();
    assert!(rows[0].as_str().unwrap().starts_with("mid cancelled"));
    assert_eq!(rows[1], json!("other completed result=\"other\""));
    assert!(rows[2].as_str().unwrap().starts_with("below cancelled"));
}

/// Starts two that never end, one of them below a child that has ended, and waits for them.
async fn hangs(title: String, act: Act) -> SubAgentOutcome {
    match title.as_str() {
        "root" => {
            act.starts(&["a"]).await;
            act.run("mid").await;
            act.wait(&[]).await;
            said("never")
        }
        "mid" => {
            act.starts(&["b"]).await;
            said("mid")
        }
        _ => std::future::pending().await,
    }
}

#[tokio::test(start_paused = true)]
async fn w9_nothing_outlives_a_root_that_is_dropped() {
    let test = TestRoot::new();
    let mut run = agent(hangs).run(test.root(), "root");
    // Until nothing happens any more.
    while tokio::time::timeout(Duration::from_millis(1), run.next()).await.is_ok() {}
    assert_eq!(tasks(), 2);
    drop(run);
    assert_eq!(test.root().live_runs(), 0);
    no_task_is_left().await;
    let log = test.finish();
    assert!(
        ends(&log)
            .iter()
            .filter(|(title, _)| title != "mid")
            .all(|(_, end)| end.outcome == OutcomeKind::Cancelled)
    );
}

#[tokio::test(start_paused = true)]
async fn w9_nothing_outlives_a_root_that_is_cancelled() {
    let test = TestRoot::new();
    let root = test.root().clone();
    let run = tokio::spawn(agent(hangs).run(&root, "root").settle());
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(tasks(), 3);
    assert_eq!(root.cancel_all(CancelledBy::User).await, 3);
    assert_eq!(run.await.unwrap(), SubAgentOutcome::cancelled(CancelledBy::User));
    no_task_is_left().await;
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn w9_nothing_outlives_a_root_that_panics() {
    let played = play(Root::builder(), |title, act| async move {
        if title != "root" {
            std::future::pending().await
        }
        act.starts(&["a"]).await;
        panic!("in the root")
    })
    .await;
    assert_eq!(played.outcome.kind(), OutcomeKind::Failed);
    assert_eq!(
        played.timeline().lines().rfind(|line| line.starts_with("root/a")),
        Some("root/a cancelled by parent")
    );
}

#[tokio::test(start_paused = true)]
async fn the_policy_of_the_root_joins_or_cancels() {
    for (policy, end, ms) in [
        (BackgroundPolicy::Join, "root/a done \"a\"", 1_000),
        (BackgroundPolicy::Cancel, "root/a cancelled by parent", 0),
    ] {
        let since = Instant::now();
        let played = play(Root::builder().background(policy), |title, act| async move {
            if title == "root" {
                act.starts(&["a"]).await;
                return said("did not wait");
            }
            act.sleep(1_000).await;
            said("a")
        })
        .await;
        assert_eq!(played.outcome, said("did not wait"));
        assert_eq!(since.elapsed(), Duration::from_millis(ms));
        let text = played.timeline();
        assert!(text.contains(end), "{text}");
    }
}

/// The root's time bounds also the wait at its end; its outcome was decided before and stays.
#[tokio::test(start_paused = true)]
async fn the_deadline_of_the_root_ends_a_join() {
    for waits in [false, true] {
        let since = Instant::now();
        let limits = RunLimits { wall: Limit::At(Duration::from_secs(3)), ..RunLimits::default() };
        let played = play(Root::builder().run_limits(limits), move |title, act| async move {
            if title != "root" {
                std::future::pending().await
            }
            act.starts(&["a"]).await;
            if waits {
                act.wait(&[]).await;
            }
            said("done")
        })
        .await;
        assert_eq!(since.elapsed(), Duration::from_secs(3));
        assert_eq!(played.outcome.kind(), if waits { OutcomeKind::Stopped } else { OutcomeKind::Completed });
        let text = played.timeline();
        assert!(text.contains("root/a cancelled by deadline_of_parent"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_trees_of_one_agent_know_nothing_of_each_other() {
    let agent = agent(|title, act: Act| async move {
        if title == "root" {
            let before = act.look().await["subtasks"].as_array().unwrap().len();
            act.starts(&["a"]).await;
            act.sleep(10).await;
            return said(json!([before, rows(&act.wait(&[]).await)]));
        }
        act.sleep(50).await;
        said(title)
    });
    let expected = said(json!([0, ["a completed result=\"a\""]]));
    let (one, other) = (TestRoot::new(), TestRoot::of(Root::builder()));
    let both = tokio::join!(agent.run(one.root(), "root").settle(), agent.run(other.root(), "root").settle());
    assert_eq!(both, (expected.clone(), expected.clone()));
    // Nor a later one of those before, whose roots are still there to be read.
    let later = TestRoot::new();
    assert_eq!(agent.run(later.root(), "root").settle().await, expected);
    for test in [one, other, later] {
        test.finish();
    }
    no_task_is_left().await;
}

#[tokio::test(start_paused = true)]
async fn a_seeded_run_is_the_same_to_the_byte() {
    let once = || async {
        let agents = json!([
            { "when": { "depth": 0 }, "turns": [
                start_turn(&["a", "b", "c"]),
                { "chunks": ["mean", "while"], "chunk_delay_ms": 7, "tool_calls": [{ "name": "wait_subtasks", "arguments": {} }] },
                { "text": "done" } ] },
            { "turns": [{ "chunks": ["x", "y", "z"], "chunk_delay_ms": 5 }] },
        ]);
        let played = Stage::new(agents).tools(detached()).play().await;
        played.log.iter().map(anabranch::ProcessingMessage::to_json).collect::<Vec<_>>()
    };
    let (one, other) = (once().await, once().await);
    assert_eq!(one, other);
}

#[tokio::test(start_paused = true)]
async fn the_battery_holds_for_a_run_that_detaches() {
    let agents = json!([
        { "when": { "prompt": "^detached" }, "turns": [{ "chunks": ["a", "b"], "chunk_delay_ms": 5 }] },
        { "turns": [
            start_turn(&["detached 1", "detached 2"]),
            calls("wait_subtasks", json!({})),
            calls("start_subtask", json!({ "description": "detached 3", "prompt": "detached 3" })),
            { "text": "done, without a wait for the last one" } ] },
    ]);
    let factory = move |cx| {
        let text = json!({ "anabranch_script": 1, "agents": agents }).to_string();
        let model = ScriptModel::new(anabranch::model::Script::parse(&text, "test.json").unwrap());
        let runtime = AgentRuntime::new(Arc::new(model), Arc::new(anabranch::agent::ToolLoop::default()));
        let runtime = Arc::new(runtime);
        let job = Job::new("work", detached(), Arc::clone(&runtime));
        runtime.producer.produce(job, cx)
    };
    // Its receipts name ids, which differ between two at once; that one alone is reproducible has a test of its own.
    let report = Conformance { deterministic: false, ..Conformance::default() }.check(factory).await;
    assert!(report.is_ok(), "{report}");
}

/// Whoever waits learns of the end also where the subtask's own task cannot say it: it blocks its thread, and is given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_subtask_that_blocks_its_thread_is_given_up_and_its_wait_ends() {
    let test = TestRoot::of(Root::builder().grace(Duration::from_millis(20)));
    let shared = Arc::new((std::sync::Barrier::new(2), tokio::sync::Notify::new()));
    let agent = agent(move |title, act: Act| {
        let shared = Arc::clone(&shared);
        async move {
            let (gate, blocks) = (&shared.0, &shared.1);
            if title == "root" {
                act.starts(&["stubborn"]).await;
                let root = act.cx.root();
                let cancel = async {
                    blocks.notified().await;
                    root.cancel(&id_of(root, "stubborn"), CancelledBy::User).unwrap().await
                };
                let (reply, _) = tokio::join!(act.wait(&[]), cancel);
                gate.wait();
                return said(rows(&reply));
            }
            blocks.notify_one();
            gate.wait();
            said("too late")
        }
    });
    let outcome = agent.run(test.root(), "root").settle().await;
    let row = outcome.result().unwrap()[0].as_str().unwrap().to_owned();
    assert!(row.starts_with("stubborn cancelled") && row.contains("forced"), "{row}");
    test.finish();
}

/// A run that works elsewhere: what the root says and what it detached are told apart by their places alone.
#[tokio::test(start_paused = true)]
async fn what_is_detached_speaks_on_after_its_call_has_its_result() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [
            calls("start_subtask", json!({ "description": "a", "prompt": "a" })),
            { "chunks": ["mean", "while"], "chunk_delay_ms": 10, "tool_calls": [{ "name": "wait_subtasks", "arguments": {} }] },
            { "text": "done" } ] },
        { "turns": [{ "chunks": ["one ", "two"], "chunk_delay_ms": 15 }] },
    ]);
    let played = Stage::new(agents).tools(detached()).play().await;
    let messages = played.log.iter().filter_map(|message| match message.body() {
        MessageBody::Chunk(chunk) if !chunk.content.is_empty() => Some(chunk.content.to_string()),
        _ => None,
    });
    assert_eq!(messages.collect::<Vec<_>>(), ["mean", "one ", "while", "two", "done"]);
}

/// Many at once on several threads, which start and wait for one another, and a tree that ends in the middle of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once_on_several_threads_end_with_their_tree() {
    for round in 0..60_u64 {
        let limits = TreeLimits { live: Limit::At(4), ..TreeLimits::default() };
        let test = TestRoot::of(Root::builder().tree_limits(limits));
        let agent = agent(|title, act: Act| async move {
            if title == "root" {
                act.starts(&["a", "b", "c", "d", "e", "f"]).await;
                return said(act.wait(&[]).await["subtasks"].as_array().map(Vec::len));
            }
            tokio::task::yield_now().await;
            if title.len() == 1 {
                let below = [format!("{title} 1"), format!("{title} 2")];
                act.starts(&[&below[0], &below[1]]).await;
                // Whoever comes second is refused: no round hangs.
                let next = if title == "f" { "a" } else { "b" };
                act.wait(&[next]).await;
                act.wait(&[&below[0]]).await;
            }
            said(title)
        });
        let run = tokio::spawn(agent.run(test.root(), "root").settle());
        let root = test.root().clone();
        if round % 3 == 1 {
            tokio::time::sleep(Duration::from_micros(round * 20)).await;
            // None at all if it has not begun: then it ends when it does.
            let live = root.cancel_all(CancelledBy::User).await;
            assert!(live == 0 || root.live_runs() == 0);
        } else if round % 3 == 2 {
            tokio::time::sleep(Duration::from_micros(round * 20)).await;
            run.abort();
        }
        let outcome = tokio::time::timeout(Duration::from_secs(60), run).await.expect("it hangs");
        if round % 3 == 0 {
            assert!(outcome.unwrap().is_ok());
        }
        while tasks() > 0 {
            tokio::task::yield_now().await;
        }
        test.finish();
    }
}
