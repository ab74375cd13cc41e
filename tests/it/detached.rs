//! `start_subtask` and `wait_subtasks`: by the acceptance criteria of the original core, and what was wrong there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anabranch::agent::{Detached, RunSubtask};
use anabranch::budget::{Limit, TreeLimits};
use anabranch::context::Root;
use anabranch::message::{MessageBody, Scope};
use anabranch::outcome::FailureKind;
use anabranch::testing::TestRoot;
use anabranch::tool::{Access, Tool, ToolContext, ToolReply, Toolset};
use anabranch::{Agent, SubAgentOutcome};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use crate::acts::{Act, agent, detached, play, rows, said};
use crate::stage::{Stage, calls, results};

#[test]
fn ac42_ac52_ac53_the_surface_of_the_pair() {
    let tools = detached();
    let spec = |name: &str| tools.get(name).unwrap().spec().clone();
    let (start, wait, run) = (spec("start_subtask"), spec("wait_subtasks"), spec("run_subtask"));
    assert_eq!(start.parameters, run.parameters);
    assert_eq!(start.parameters["required"], json!(["description", "prompt"]));
    assert!(start.description.contains("lost if you never wait for it"));
    assert!(start.description.contains("ends with the whole run"));
    assert_eq!(wait.parameters["additionalProperties"], json!(false));
    assert_eq!(wait.parameters.get("required"), None);
    assert_eq!(wait.parameters["properties"]["ids"]["items"]["type"], json!("string"));
    assert!(wait.parameters["properties"]["timeout_ms"]["description"].as_str().unwrap().contains("900000"));
    assert_eq!(tools.get("start_subtask").unwrap().access(), Access::Spawn);
    assert_eq!(tools.get("wait_subtasks").unwrap().access(), Access::Read);
    let args = json!({ "description": " count " });
    let text = tools.get("start_subtask").unwrap().status_text(args.as_object().unwrap());
    assert_eq!(text.as_deref(), Some("Starting subtask: count"));
    // Once only.
    assert!(Detached::new().add_to(&tools).is_err());
}

#[tokio::test(start_paused = true)]
async fn ac35_ac45_ac48_ac49_ac56_start_goes_on_and_wait_fetches() {
    let played = play(Root::builder(), |title, act| async move {
        match title.as_str() {
            "root" => {
                let receipt = act.start("a").await;
                assert_eq!(receipt["subtask_id"], json!(act.id("a")));
                assert_eq!((&receipt["description"], &receipt["status"]), (&json!("a"), &json!("running")));
                assert!(receipt["message"].as_str().unwrap().contains("wait_subtasks"));
                act.starts(&["b"]).await;
                let one = act.call("wait_subtasks", json!({ "ids": [act.id("a")], "timeout_ms": 0 })).await;
                let row =
                    json!({ "subtask_id": act.id("a"), "depth": 1, "description": "a", "status": "running" });
                assert_eq!(one["subtasks"], json!([row]));
                // The one that started last ends first.
                act.wait(&["b"]).await;
                let both = act.look().await;
                assert_eq!(rows(&both), ["a running", "b failed delivered=true"]);
                assert_eq!(both["all_settled"], json!(false));
                let all = act.wait(&[]).await;
                assert_eq!(rows(&all), ["a completed result=\"did a\"", "b failed delivered=true"]);
                assert_eq!(all["all_settled"], json!(true));
                assert_eq!(all.get("message"), None);
                said("done")
            }
            "a" => {
                act.sleep(100).await;
                said("did a")
            }
            _ => {
                act.sleep(50).await;
                SubAgentOutcome::failed(FailureKind::Tool, "b could not")
            }
        }
    })
    .await;
    let text = played.timeline();
    let expected = [
        "root call 0 start_subtask: Starting subtask: a\n",
        "root/a started",
        "root result 0 ok ",
        "root/b failed",
        "root result 3 ok ",
        "root/a done \"did a\"\n",
        "root result 5 ok ",
        "root done \"done\"\n",
    ];
    let mut rest = text.as_str();
    for part in expected {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} is not in its place in\n{text}"));
        rest = &rest[at + part.len()..];
    }
    let tree = anabranch::tree::RunTree::of(&played.log);
    let child = tree.nodes().find(|node| node.title() == "a").unwrap();
    assert_eq!((child.origin.subtask_depth, child.origin.parent_tool_call_id.is_some()), (1, true));
    let started = played.log.iter().find_map(|message| match message.body() {
        MessageBody::RunStarted(started) if &*started.title == "a" => Some(Arc::clone(started)),
        _ => None,
    });
    assert_eq!(started.unwrap().scope, Scope::Background);
}

#[tokio::test(start_paused = true)]
async fn ac37_ac38_ac39_ac40_ac47_what_a_wait_can_ask_for() {
    play(Root::builder(), |title, act| async move {
        if title != "root" {
            act.sleep(1_000).await;
            return said(title);
        }
        let none = act.wait(&[]).await;
        assert_eq!((rows(&none).len(), &none["all_settled"]), (0, &json!(true)));
        assert!(none["message"].as_str().unwrap().contains("No background subtasks"));
        let unknown = act.call("wait_subtasks", json!({ "ids": ["nobody"] })).await;
        assert_eq!((rows(&unknown), &unknown["all_settled"]), (vec!["nobody unknown".into()], &json!(true)));
        act.starts(&["a", "b"]).await;
        let since = tokio::time::Instant::now();
        let ids = json!(["nobody", act.id("b"), act.id("a"), act.id("b"), "nobody"]);
        // As long as it was asked for, to the millisecond.
        let some = act.call("wait_subtasks", json!({ "ids": ids, "timeout_ms": 50 })).await;
        assert_eq!(since.elapsed(), Duration::from_millis(50));
        assert_eq!(rows(&some), ["a running", "b running", "nobody unknown"]);
        assert_eq!(some["all_settled"], json!(false));
        assert!(some["message"].as_str().unwrap().contains("2 still work"));
        let done = act.call("wait_subtasks", json!({ "ids": [act.id("b")], "timeout_ms": 9e9 })).await;
        assert_eq!(since.elapsed(), Duration::from_secs(1));
        assert_eq!(rows(&done), ["b completed result=\"b\""]);
        assert!(done["message"].as_str().unwrap().contains("cut to 900000"));
        act.wait(&["a", "b"]).await;
        assert_eq!(since.elapsed(), Duration::from_secs(1));
        said("done")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn w23_wrong_types_are_refused_and_nothing_is_waited_for() {
    for args in [
        json!({ "ids": "a" }),
        json!({ "ids": [5] }),
        json!({ "ids": ["a", null] }),
        json!({ "timeout_ms": "0" }),
        json!({ "timeout_ms": -1 }),
        json!({ "timeout_ms": true }),
        json!({ "id": ["a"] }),
    ] {
        let agents = json!([{ "turns": [calls("wait_subtasks", args.clone()), { "text": "done" }] }]);
        let played = Stage::new(agents).tools(detached()).play().await;
        let reply: Value = serde_json::from_str(results(&played.model.of("work")[1])[0]).unwrap();
        assert_eq!(reply["error"], json!("invalid_tool_arguments"), "{args}");
    }
}

#[test]
fn ac43_without_a_runtime_the_pair_is_not_available() {
    let test = TestRoot::new();
    let run = agent(|_, act: Act| async move {
        for (tool, args) in
            [("start_subtask", json!({ "description": "a", "prompt": "a" })), ("wait_subtasks", json!({}))]
        {
            let reply = act.call(tool, args).await;
            assert_eq!(reply["error"], json!("background_unavailable"));
        }
        said("done")
    });
    assert_eq!(run.run(test.root(), "root").settle().now_or_never(), Some(said("done")));
    assert_eq!(test.root().ledger().total_runs(), 1);
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn ac44_depth_comes_before_the_prompt() {
    let limits = TreeLimits { depth: Limit::At(1), ..TreeLimits::default() };
    play(Root::builder().tree_limits(limits), |title, act| async move {
        if title == "root" {
            for args in [
                json!({ "description": "x" }),
                json!({ "description": "x", "prompt": " " }),
                json!({ "prompt": 3 }),
            ] {
                assert_eq!(act.call("start_subtask", args).await["error"], json!("missing_prompt"));
            }
            act.starts(&["a"]).await;
            return said(act.wait(&["a"]).await["subtasks"][0]["status"].clone());
        }
        let refusal = act.call("start_subtask", json!({})).await;
        assert_eq!(refusal["error"], json!("max_recursion_depth_reached"));
        assert_eq!((&refusal["depth"], &refusal["max_depth"]), (&json!(1), &json!(1)));
        // Where nothing can be started there may still be something to wait for.
        assert_eq!(act.caller.offered().names().collect::<Vec<_>>(), ["wait_subtasks"]);
        said("refused")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn ac46_a_child_without_an_answer_has_failed() {
    let played = play(Root::builder(), |title, act| async move {
        match title.as_str() {
            "root" => {
                act.starts(&["nothing", "panics"]).await;
                let reply = act.wait(&[]).await;
                assert_eq!(
                    rows(&reply)[0],
                    "nothing failed error=\"The subtask ended without an answer.\" code=\"subtask_no_result\""
                );
                said(reply["subtasks"][1].clone())
            }
            "nothing" => said(Value::Null),
            _ => panic!("in a subtask"),
        }
    })
    .await;
    let row = played.result();
    assert_eq!(
        (&row["status"], &row["outcome"], &row["code"]),
        (&json!("failed"), &json!("failed"), &json!("subtask_failed"))
    );
    assert!(row["error"].as_str().unwrap().contains("in a subtask"));
}

/// A tool that cannot be asked whether a child may have it.
struct Torn(anabranch::model::ToolSpec);

impl Tool for Torn {
    fn spec(&self) -> &anabranch::model::ToolSpec {
        &self.0
    }

    fn call<'a>(&'a self, _: Map<String, Value>, _: ToolContext) -> BoxFuture<'a, ToolReply> {
        Box::pin(std::future::ready(ToolReply::ok("torn")))
    }

    fn is_inheritable(&self) -> bool {
        panic!("in the belt")
    }
}

#[tokio::test(start_paused = true)]
async fn w24_a_belt_that_cannot_be_built_leaves_nothing_that_runs() {
    let spec = anabranch::model::ToolSpec {
        name: "torn".into(),
        description: "Torn.".into(),
        parameters: json!({ "type": "object" }),
    };
    let test = TestRoot::new();
    let agent = agent(|_, act: Act| async move {
        act.starts(&["a"]).await;
        said(act.wait(&[]).await["subtasks"][0].clone())
    });
    let outcome = agent.tools(detached().with(Torn(spec)).unwrap()).run(test.root(), "root").settle().await;
    let row = outcome.result().unwrap();
    assert_eq!(row["status"], json!("failed"));
    assert!(row["error"].as_str().unwrap().contains("in the belt"));
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn a_child_has_what_its_parent_has_and_the_three() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [
            calls("start_subtask", json!({ "description": "a", "prompt": "a" })), calls("wait_subtasks", json!({})), { "text": "done" }] },
        { "turns": [{ "text": "the answer" }] },
    ]);
    let tools = anabranch::tool::chaos::add_to(&Toolset::new()).unwrap().only(&["chaos_sleep"]);
    let played = Stage::new(agents).tools(Detached::new().add_to(&tools).unwrap()).play().await;
    let mut offered = played.model.offered("a");
    offered.sort();
    assert_eq!(offered, ["chaos_sleep", "run_subtask", "start_subtask", "wait_subtasks"]);
    let reply: Value = serde_json::from_str(results(&played.model.of("work")[2])[1]).unwrap();
    assert_eq!(rows(&reply), ["a completed result=\"the answer\""]);
}

/// Counts who works at once, and whoever works for a moment.
async fn work(act: &Act, now: &AtomicUsize, most: &AtomicUsize) {
    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    act.sleep(10).await;
    now.fetch_sub(1, Ordering::SeqCst);
}

#[tokio::test(start_paused = true)]
async fn ac51_never_more_at_work_than_permits_and_a_wait_holds_none() {
    for live in [1_usize, 2, 3] {
        let limits = TreeLimits { live: Limit::At(u32::try_from(live).unwrap()), ..TreeLimits::default() };
        let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let shared = Arc::clone(&counts);
        let played = play(Root::builder().tree_limits(limits), move |title, act| {
            let counts = Arc::clone(&shared);
            async move {
                let (now, most) = (&counts.0, &counts.1);
                if title == "root" {
                    for n in 0..20 {
                        act.starts(&[&format!("child {n}")]).await;
                    }
                    work(&act, now, most).await;
                    let reply = act.wait(&[]).await;
                    work(&act, now, most).await;
                    let done = rows(&reply).iter().filter(|row| row.contains("completed")).count();
                    return said(done);
                }
                work(&act, now, most).await;
                if title == "child 7" {
                    // One below another one, too.
                    act.starts(&["deeper"]).await;
                    act.wait(&["deeper"]).await;
                    work(&act, now, most).await;
                }
                said("worked")
            }
        })
        .await;
        assert_eq!(played.result(), &json!(20), "{}", played.timeline());
        assert_eq!((counts.0.load(Ordering::SeqCst), counts.1.load(Ordering::SeqCst)), (0, live));
    }
}

#[tokio::test(start_paused = true)]
async fn ac51_one_more_than_the_maximum_is_refused_with_both_numbers() {
    let test = TestRoot::new();
    let tools = Toolset::new().with_sub_agent(RunSubtask::default()).unwrap();
    let agent: Agent = agent(|title, act: Act| async move {
        if title != "root" {
            return said(title);
        }
        act.starts(&["a"]).await;
        act.wait(&[]).await;
        // A settled one keeps its place.
        act.starts(&["b"]).await;
        let refusal = act.start("c").await;
        assert_eq!(refusal["error"], json!("max_background_subtasks_reached"));
        assert_eq!(
            (&refusal["background_subtasks"], &refusal["max_background_subtasks"]),
            (&json!(2), &json!(2))
        );
        // In the foreground there is room.
        assert_eq!(act.run("d").await, json!("d"));
        said(act.wait(&[]).await["subtasks"].as_array().unwrap().len())
    });
    let agent = agent.tools(Detached::new().at_most(2).add_to(&tools).unwrap());
    assert_eq!(agent.run(test.root(), "root").settle().await, said(2));
    assert_eq!(test.root().ledger().total_runs(), 4);
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn c33_two_waits_at_once_and_each_result_is_handed_over_once() {
    let played = play(Root::builder(), |title, act| async move {
        match title.as_str() {
            "root" => {
                act.starts(&["a", "b"]).await;
                let (one, other, early) =
                    tokio::join!(act.wait(&[]), act.wait(&["a", "b"]), act.wait(&["a"]));
                let told: Vec<String> = [one, other, early].iter().flat_map(rows).collect();
                let count = |row: &str| told.iter().filter(|told| *told == row).count();
                assert_eq!((count("a completed result=\"a\""), count("a completed delivered=true")), (1, 2));
                assert_eq!((count("b completed result=\"b\""), count("b completed delivered=true")), (1, 1));
                said(rows(&act.wait(&[]).await))
            }
            "a" => said("a"),
            _ => {
                act.sleep(5).await;
                said("b")
            }
        }
    })
    .await;
    assert_eq!(played.result(), &json!(["a completed delivered=true", "b completed delivered=true"]));
}

#[tokio::test(start_paused = true)]
async fn more_than_one_reply_can_carry_comes_with_the_next() {
    let played = play(Root::builder(), |title, act| async move {
        if title != "root" {
            return said(title.repeat(30_000));
        }
        act.starts(&["a", "b", "c"]).await;
        let mut sizes = Vec::new();
        for _ in 0..2 {
            let reply = act.wait(&[]).await;
            assert_eq!(reply["all_settled"], json!(true));
            let size = |row: &Value| row["result"].as_str().map_or(0, str::len);
            sizes.push(reply["subtasks"].as_array().unwrap().iter().map(size).collect::<Vec<_>>());
        }
        said(json!(sizes))
    })
    .await;
    assert_eq!(
        played.result(),
        &json!([[30_000, 30_000, 0], [0, 0, 30_000]]),
        "what fits, in the order of the starts"
    );
}
