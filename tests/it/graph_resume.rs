//! Graphs that are gone on with from a log: what completed does not run again.

use anabranch::agent::planner::{FinishedNodes, GraphExecutor};
use anabranch::context::Root;
use anabranch::message::ProcessingMessage;
use anabranch::outcome::OutcomeKind;
use serde_json::{Value, json};

use crate::graph_runs::{agent, checked, diamond, edge, run, run_on, says};

#[tokio::test(start_paused = true)]
async fn what_completed_does_not_run_again() {
    let graph =
        json!({"nodes": [agent("a"), agent("b"), agent("c")], "edges": [edge("a", "c"), edge("b", "c")]});
    let first = run(
        graph.clone(),
        json!([
            {"when": {"title": "a"}, "turns": [{"text": "from a"}]},
            {"turns": [{"error": {"kind": "auth", "message": "no key"}}]},
        ]),
    )
    .await;
    assert_eq!((first.outcome.kind(), first.finished().len()), (OutcomeKind::Failed, 1));
    assert_eq!(first.finished().graph().unwrap().to_value()["nodes"], graph["nodes"]);

    let script = says(&[("b", "from b"), ("c", "both")]);
    let executor = |graph: &Value| GraphExecutor::new(checked(graph.clone()));
    let second = run_on(Root::builder(), executor(&graph).resuming(first.finished()), script, None).await;
    assert_eq!(
        (second.began(), second.events("step_restored")),
        (vec!["b".into(), "c".into()], vec!["a".into()])
    );
    assert!(second.model.of("c")[0].run.prompt.contains("from a"));

    // All is known now, from the log of the second run alone.
    let third = run_on(Root::builder(), executor(&graph).resuming(second.finished()), json!([]), None).await;
    assert_eq!((third.began(), third.outcome.clone()), (vec![], second.outcome.clone()));

    // One that was changed runs again; what depends on it only if it gives something else.
    let mut changed = graph.clone();
    changed["nodes"][0]["prompt"] = json!("Do a otherwise.");
    let same = run_on(
        Root::builder(),
        executor(&changed).resuming(second.finished()),
        says(&[("a", "from a")]),
        None,
    )
    .await;
    assert_eq!(same.began(), ["a"]);
    let script = says(&[("a", "new"), ("c", "both")]);
    let other = run_on(Root::builder(), executor(&changed).resuming(second.finished()), script, None).await;
    assert_eq!(other.began(), ["a", "c"]);
}

/// A log that was cut anywhere is gone on from, to the same end, and nothing that completed in it runs again.
#[tokio::test(start_paused = true)]
async fn a_log_that_was_cut_anywhere_is_gone_on_from() {
    let script = says(&[("a", "1"), ("b", "2"), ("c", "3")]);
    let whole = run(diamond(), script.clone()).await;
    for end in 0..=whole.log.len() {
        let mut finished = FinishedNodes::default();
        whole.log.iter().take(end).for_each(|message| finished.observe(message));
        let known = finished.len();
        let executor = GraphExecutor::new(checked(diamond())).resuming(finished);
        let ran = run_on(Root::builder(), executor, script.clone(), None).await;
        assert_eq!((&ran.outcome, ran.began().len()), (&whole.outcome, 4 - known), "cut at {end}");
    }
}

/// A result that the log has only in part is none; neither is what a node's own run says.
#[test]
fn only_what_the_execution_says_and_only_whole() {
    let line = |run: &str, body: Value| {
        let mut message = json!({"seq": 0, "run_seq": 0, "time": "2026-01-01T00:00:00.000000Z", "root_run_id": "r", "run_id": run,
            "parent_run_id": null, "parent_tool_call_id": null, "subtask_depth": 0});
        message.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        ProcessingMessage::from_json(&message.to_string()).unwrap()
    };
    let start = |run, producer| {
        line(
            run,
            json!({"type": "run_started", "agent": "x", "title": "x", "task": "x", "scope": "foreground", "producer": producer}),
        )
    };
    let step = |run, digest: &str| {
        line(
            run,
            json!({"type": "step_result", "step": {"id": "a", "digest": "d", "result_digest": digest}, "result": "x"}),
        )
    };
    let mut finished = FinishedNodes::default();
    let right = "67aadb138d757277b806e8eb3b623417";
    for message in [start("r", "graph_executor"), start("n", "tool_loop"), step("n", right), step("r", "0")] {
        finished.observe(&message);
        assert!(finished.is_empty());
    }
    finished.observe(&step("r", right));
    assert_eq!(finished.len(), 1);
}

/// A node may itself run a graph: what is gone on with is the graph around it.
#[test]
fn the_graph_of_a_log_is_the_outermost() {
    let line = |run: &str, parent: Option<&str>, body: Value| {
        let depth = usize::from(parent.is_some());
        let mut message = json!({"seq": 0, "run_seq": 0, "time": "2026-01-01T00:00:00.000000Z", "root_run_id": "r", "run_id": run,
            "parent_run_id": parent, "parent_tool_call_id": null, "subtask_depth": depth});
        message.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        ProcessingMessage::from_json(&message.to_string()).unwrap()
    };
    let start = |run, parent, producer| {
        line(
            run,
            parent,
            json!({"type": "run_started", "agent": "x", "title": "x", "task": "x", "scope": "foreground", "producer": producer}),
        )
    };
    // What each of the two says of its graph, by the same code that says it in earnest.
    let said = |id: &str| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let graph = json!({"nodes": [agent(id)], "edges": []});
        let log = runtime.block_on(run(graph, says(&[(id, "x")]))).log;
        let graph = log.iter().find_map(|message| {
            let message: Value = serde_json::from_str(&message.to_json()).unwrap();
            message["task"].get("graph").is_some().then(|| message["task"].clone())
        });
        json!({"type": "task_update", "event": "graph_started", "task": graph.unwrap()})
    };
    let mut finished = FinishedNodes::default();
    for message in [
        start("r", None, "graph_executor"),
        line("r", None, said("outer")),
        start("n", Some("r"), "tool_loop"),
        start("i", Some("n"), "graph_executor"),
        line("i", Some("n"), said("inner")),
    ] {
        finished.observe(&message);
    }
    assert_eq!(&*finished.graph().unwrap().nodes[0].id, "outer");
}
