//! The tool loop as a producer: what its log looks like, and how it ends under limits, cancels and broken models.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anabranch::agent::{ToolLoop, tool_loop::LoopConfig};
use anabranch::budget::{Limit, RunLimits, TreeLimits};
use anabranch::context::Root;
use anabranch::message::MessageBody;
use anabranch::model::{ChatEvent, ChatModel, ChatRequest, ChatStream};
use anabranch::outcome::{CancelledBy, FailureKind, StopClass, StopReason, SubAgentOutcome, Usage};
use anabranch::testing::{Conformance, TestRoot, check_sub_agent};
use anabranch::tool::{Job, Producer};
use anabranch::{Agent, SubAgentStream};
use serde_json::{Value, json};

use crate::stage::{Recorder, Stage, all_tools, calls, delegates, results, runtime};

fn says(text: &str) -> Value {
    json!({ "text": text })
}

/// A root that plays these turns.
fn root(turns: Value) -> Stage {
    Stage::new(json!([{ "turns": turns }]))
}

/// The tool loop on a script, made anew for each context.
fn looped(agents: Value) -> impl Fn(anabranch::RunContext) -> SubAgentStream {
    move |cx| {
        let job = Job::new("work", all_tools(), runtime(&Recorder::new(&agents)));
        ToolLoop::default().produce(job, cx)
    }
}

#[tokio::test(start_paused = true)]
async fn the_tool_loop_conforms() {
    let report = check_sub_agent(looped(json!([{ "turns": [
        { "thinking": "hm", "chunks": ["one ", "two"], "chunk_delay_ms": 10, "tool_calls": [
            { "name": "chaos_sleep", "arguments": { "ms": 20 } },
            { "name": "chaos_progress", "arguments": { "n": 2, "ms": 5 } },
            { "name": "chaos_error", "arguments": { "message": "no" } },
            { "name": "unknown", "arguments": "{" },
        ] },
        says("done"),
    ] }])))
    .await;
    assert!(report.is_ok(), "{report}");
    assert!(report.runs > 20);
}

/// Delays are different in each run, and so are the ids that errors name: two at once do not say the same.
const WITH_CHANCE: Conformance =
    Conformance { deterministic: false, places: 32, patience: Duration::from_mins(1) };

#[tokio::test(start_paused = true)]
async fn a_loop_that_tries_again_conforms() {
    let error = json!({ "error": { "kind": "server", "message": "overloaded" } });
    let turns =
        json!([error.clone(), calls("chaos_sleep", json!({ "ms": 5 })), error.clone(), error, says("done")]);
    let report = WITH_CHANCE.check(looped(json!([{ "turns": turns }]))).await;
    assert!(report.is_ok(), "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_tree_of_subtasks_conforms() {
    let report = check_sub_agent(looped(json!([
        { "when": { "title": "leaf" }, "turns": [{ "chunks": ["a", "b"], "chunk_delay_ms": 7 }] },
        { "when": { "title": "middle" }, "turns": [delegates(&["leaf", "leaf"]), says("middle done")] },
        { "turns": [delegates(&["middle", "leaf"]), says("done")] },
    ])))
    .await;
    assert!(report.is_ok(), "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_tree_of_subtasks_that_fail_conforms() {
    let report = WITH_CHANCE
        .check(looped(json!([
            { "when": { "title": "leaf" }, "turns": [{ "chunks": ["a", "b"], "chunk_delay_ms": 7 }] },
            { "when": { "title": "broken" }, "turns": [calls("chaos_panic", json!({}))] },
            { "when": { "title": "cut" }, "turns": [{ "text": "half", "stop": null }] },
            { "when": { "title": "middle" }, "turns": [delegates(&["leaf", "broken"]), says("middle done")] },
            { "turns": [delegates(&["middle", "cut"]), says("done")] },
        ])))
        .await;
    assert!(report.is_ok(), "{report}");
}

#[tokio::test(start_paused = true)]
async fn searches_conform() {
    let search = |query: &str| json!({ "name": "run_search", "arguments": { "query": query } });
    let report = check_sub_agent(looped(json!([
        { "when": { "agent": "search" }, "turns": [{ "delay_ms": 5, "text": "found" }] },
        { "turns": [{ "tool_calls": [search("a"), search("b")] }, says("done")] },
    ])))
    .await;
    assert!(report.is_ok(), "{report}");
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_turn_run_at_once_and_their_results_go_back_in_order() {
    let played = root(json!([
        { "text": "both", "tool_calls": [
            { "id": "a", "name": "chaos_sleep", "arguments": { "ms": 300 } },
            { "id": "b", "name": "chaos_sleep", "arguments": { "ms": 100 } },
        ] },
        says("done"),
    ]))
    .play()
    .await;
    played.is(&[
        "root started",
        "root text \"both\"",
        "root turn 1 tool_calls",
        "root call 0 chaos_sleep {\"ms\":300}",
        "root call 1 chaos_sleep {\"ms\":100}",
        "root result 1 ok {\"result\":\"slept 100 ms\"}",
        "root result 0 ok {\"result\":\"slept 300 ms\"}",
        "root text \"done\"",
        "root turn 2 end_turn",
        "root done \"done\"",
    ]);
    assert_eq!(results(&played.model.requests()[1]), ["slept 300 ms", "slept 100 ms"]);
    let end = played.end();
    assert_eq!((end.duration_ms, end.turns, end.tool_calls), (Some(300), Some(2), Some(2)));
    let durations: Vec<u64> = played
        .log
        .iter()
        .filter_map(|message| match message.body() {
            MessageBody::ToolResultUpdate(result) => Some(result.duration_ms),
            _ => None,
        })
        .collect();
    assert_eq!(durations, [100, 300]);
}

#[tokio::test(start_paused = true)]
async fn ax2_every_call_has_one_result_however_it_goes_wrong() {
    let call = |name: &str, arguments: Value| json!({ "name": name, "arguments": arguments });
    let played = root(json!([
        { "tool_calls": [
            call("unknown", json!({})),
            call("chaos_sleep", json!("{\"ms\":")),
            call("chaos_sleep", json!({ "ms": "long" })),
            call("chaos_error", json!({ "message": "boo" })),
            call("run_subtask", json!({})),
            call("run_search", json!({ "query": "q" })),
            call("chaos_sleep", json!({ "ms": 1 })),
        ] },
        says("done"),
    ]))
    .tree_limits(TreeLimits { depth: Limit::At(0), ..TreeLimits::default() })
    .play()
    .await;
    let codes: Vec<Value> = results(&played.model.requests()[1])
        .iter()
        .map(|text| serde_json::from_str::<Value>(text).map_or(Value::Null, |value| value["error"].clone()))
        .collect();
    let depth = "max_recursion_depth_reached";
    let known =
        ["unknown_tool", "invalid_tool_arguments", "invalid_tool_arguments", "chaos_error", depth, depth];
    assert_eq!(codes[..6], known.map(|code| json!(code)));
    assert_eq!(codes[6], Value::Null);
    assert_eq!(played.outcome, SubAgentOutcome::completed("done"));
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_before_it_speaks_is_asked_again_visibly() {
    let error = |kind: &str| json!({ "error": { "kind": kind, "message": "busy", "retry_after_ms": 1000 } });
    let played = root(json!([error("rate_limit"), error("server"), says("done")])).play().await;
    let lines = played.timeline();
    let waits: Vec<&str> = lines.lines().filter(|line| line.contains("retrying")).collect();
    assert_eq!(waits.len(), 2, "{lines}");
    assert!(waits[0].starts_with("root retrying 2 in 1") && waits[0].ends_with("ms: rate_limit: busy"));
    assert!(waits[1].starts_with("root retrying 3 in 1") && waits[1].ends_with("ms: server: busy"));
    let end = played.end();
    // Failed attempts are calls of the model and no turns.
    assert_eq!((end.turns, end.usage.unwrap().model_calls), (Some(1), 3));
    assert!((2000..=2500).contains(&end.duration_ms.unwrap()), "{:?}", end.duration_ms);
    assert_eq!(played.outcome, SubAgentOutcome::completed("done"));
}

#[tokio::test(start_paused = true)]
async fn a_model_that_keeps_failing_fails_the_run_with_its_words() {
    let error = json!({ "error": { "kind": "server", "message": "overloaded" } });
    let played = root(json!([error.clone(), error.clone(), error])).play().await;
    let words = "the model call failed (server): overloaded";
    assert_eq!(played.outcome, SubAgentOutcome::failed(FailureKind::Provider, words));
    assert_eq!(played.model.requests().len(), 3);
    let played = root(json!([{ "error": { "kind": "auth", "message": "no key" } }])).play().await;
    played.is(&[
        "root started",
        "root turn 1 error",
        "root failed (provider): the model call failed (auth): no key",
    ]);
}

#[tokio::test(start_paused = true)]
async fn c21_a_structured_run_is_reminded_repaired_and_validated() {
    let schema = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
    let structured = |turns: Value| root(turns).agent(|agent| agent.output_schema(schema.clone()));
    let played = structured(json!([
        says("Let me think."),
        says("```json\n{\"n\": \"four\"}\n```"),
        says("Corrected:\n```json\n{\"n\": 4}\n```"),
    ]))
    .play()
    .await;
    assert_eq!(played.outcome, SubAgentOutcome::completed(json!({"n": 4})));
    let requests = played.model.requests();
    assert_eq!(requests[0].output_schema.as_deref(), Some(&schema));
    assert!(format!("{:?}", requests[2].messages.last()).contains("/n: "));
    // An error key of the value is a value.
    let played = root(json!([says("{\"error\": \"a legal value\"}")]))
        .agent(|agent| agent.output_schema(json!({"type": "object"})))
        .play()
        .await;
    assert_eq!(played.outcome, SubAgentOutcome::completed(json!({"error": "a legal value"})));
}

#[tokio::test(start_paused = true)]
async fn ax13_a_schema_that_does_not_compile_is_a_failed_outcome() {
    let played = root(json!([says("x")])).agent(|agent| agent.output_schema(json!({"type": 7}))).play().await;
    let SubAgentOutcome::Failed { kind, message, .. } = &played.outcome else { panic!() };
    assert_eq!(*kind, FailureKind::Construction);
    assert!(message.contains("the result"), "{message}");
    assert!(played.model.requests().is_empty());
    // One that looks elsewhere is not followed.
    let elsewhere = json!({"$ref": "http://127.0.0.1:9/schema.json"});
    let played = root(json!([says("x")])).agent(|agent| agent.output_schema(elsewhere)).play().await;
    assert!(matches!(played.outcome, SubAgentOutcome::Failed { kind: FailureKind::Construction, .. }));
}

#[tokio::test(start_paused = true)]
async fn c11_a_tool_to_stop_on_ends_the_run_with_its_result() {
    let config = LoopConfig { stop_on: vec!["chaos_big".into()], ..LoopConfig::default() };
    let model = Recorder::new(&json!([{ "turns": [calls("chaos_big", json!({"bytes": 3}))] }]));
    let agent = Agent::with_producer(Arc::<Recorder>::clone(&model), Arc::new(ToolLoop::new(config)));
    let test = TestRoot::new();
    let outcome = agent.tools(all_tools()).run(test.root(), "work").settle().await;
    assert_eq!(outcome, SubAgentOutcome::completed("xxx"));
    assert_eq!(model.requests().len(), 1);
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn limits_of_a_run_stop_it_with_what_it_has() {
    let busy = json!([{ "text": "so far", "tool_calls": [
        { "name": "chaos_sleep", "arguments": { "ms": 10 } }, { "name": "chaos_sleep", "arguments": { "ms": 10 } },
    ], "usage": { "input_tokens": 10, "output_tokens": 5, "cost_usd": 0.5 } }]);
    let forever = json!([{ "turns": busy, "then": "repeat" }]);
    let default = RunLimits::default();
    let second = Duration::from_secs(1);
    for (limits, limit, turns, calls) in [
        (RunLimits { turns: Limit::At(3), ..default }, "turns", 3, 6),
        (RunLimits { turns: Limit::At(0), ..default }, "turns", 0, 0),
        // More than the loop's own default, which is for whoever says nothing.
        (RunLimits { turns: Limit::At(50), ..default }, "turns", 50, 100),
        (RunLimits { tool_calls: Limit::At(3), ..default }, "tool_calls", 2, 3),
        (RunLimits { tool_calls: Limit::At(0), ..default }, "tool_calls", 1, 0),
        (RunLimits { tokens: Limit::At(30), ..default }, "tokens", 2, 2),
        (RunLimits { cost_usd: Limit::At(0.9), ..default }, "cost", 2, 2),
        (RunLimits { wall: Limit::At(Duration::from_millis(25)), ..default }, "wall", 3, 6),
        (RunLimits { idle: Limit::At(Duration::from_millis(5)), ..default }, "idle", 1, 2),
        (RunLimits { wall: Limit::At(second), ..default }, "turns", 20, 40),
    ] {
        let played = Stage::new(forever.clone()).run_limits(limits).play().await;
        let end = played.end_of("root");
        let partial = if turns == 0 { "" } else { ", partial \"so far\"" };
        assert_eq!(end, format!("stopped ({limit}){partial}"), "{limits:?}");
        let end = played.end();
        assert_eq!((end.turns, end.tool_calls), (Some(turns), Some(calls)), "{limits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_budget_of_the_tree_stops_whoever_begins_something() {
    let turn = |title: &str| json!({ "text": title, "usage": { "input_tokens": 60 } });
    let mut delegating = delegates(&["one", "two"]);
    delegating["usage"] = json!({ "input_tokens": 10 });
    let played = Stage::new(json!([
        { "when": { "depth": 0 }, "turns": [delegating, says("done")] },
        { "turns": [turn("child")] },
    ]))
    .tree_limits(TreeLimits { tokens: Limit::At(100), ..TreeLimits::default() })
    .play()
    .await;
    assert!(matches!(&played.outcome, SubAgentOutcome::Stopped { stop_class: StopClass::Budget, .. }));
    // AX-11: the tree's usage is the sum of its runs', those that were stopped included.
    let usage = played.tree().usage();
    assert_eq!((usage.input_tokens, usage.model_calls), (130, 3));
}

#[tokio::test(start_paused = true)]
async fn ax10_three_levels_on_one_permit() {
    let agents = json!([
        { "when": { "depth": 3 }, "turns": [says("bottom")] },
        { "turns": [delegates(&["a", "b"]), says("up")] },
    ]);
    let limits = TreeLimits { live: Limit::At(1), ..TreeLimits::default() };
    let played = Stage::new(agents).tree_limits(limits).play().await;
    assert_eq!(played.outcome, SubAgentOutcome::completed("up"));
    assert_eq!(played.tree().len(), 1 + 2 + 4 + 8);
}

#[tokio::test(start_paused = true)]
async fn ax12_a_cancel_after_the_end_changes_nothing() {
    let test = TestRoot::new();
    let model = Recorder::new(&json!([{ "turns": [says("done")] }]));
    let agent = Agent::with_producer(Arc::<Recorder>::clone(&model), Arc::new(ToolLoop::default()));
    let outcome = agent.run(test.root(), "work").settle().await;
    test.root().cancel_all(CancelledBy::User).await;
    assert_eq!(outcome, SubAgentOutcome::completed("done"));
    assert_eq!(test.timeline().lines().last(), Some("root done \"done\""));
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn ax15_one_seed_one_log() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [
            { "error": { "kind": "server", "message": "busy" } }, delegates(&["a", "b", "a"]), says("done"),
        ] },
        { "turns": [{ "chunks": ["x", "y"], "chunk_delay_ms": 3,
            "tool_calls": [{ "name": "chaos_sleep", "arguments": { "ms": 2 } }] }, says("child")] },
    ]);
    let log = async || -> Vec<String> {
        let played = Stage::new(agents.clone()).play().await;
        played.log.iter().map(|message| serde_json::to_string(message).unwrap()).collect()
    };
    assert_eq!(log().await, log().await);
}

/// What a run used whose turn was cut short.
fn used(played: &crate::stage::Played) -> Usage {
    played.end().subtree_usage.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_of_the_model_counts() {
    let played = root(json!([{ "text": "a", "usage": { "input_tokens": 7 }, "hang": true }]))
        .cancel_when(|body| matches!(body, MessageBody::Chunk(_)))
        .await;
    assert_eq!((used(&played).input_tokens, used(&played).model_calls), (7, 1));
    let played =
        root(json!([{ "hang": true }])).cancel_when(|body| matches!(body, MessageBody::RunStarted(_))).await;
    assert_eq!(used(&played).model_calls, 1);
}

#[tokio::test(start_paused = true)]
async fn a_root_that_may_have_no_run_refuses() {
    let root =
        Root::builder().tree_limits(TreeLimits { total: Limit::At(0), ..TreeLimits::default() }).build();
    let model = Recorder::new(&json!([{ "turns": [says("x")] }]));
    let agent = Agent::with_producer(model, Arc::new(ToolLoop::default()));
    let outcome = agent.run(&root, "work").settle().await;
    assert!(matches!(outcome, SubAgentOutcome::Failed { kind: FailureKind::Refused, .. }));
}

/// A model that never answers and knows how many of its calls are open.
#[derive(Default)]
struct Silent {
    open: Arc<AtomicUsize>,
}

struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ChatModel for Silent {
    fn name(&self) -> &str {
        "silent"
    }

    fn chat(&self, request: ChatRequest) -> ChatStream {
        if request.run.depth < 2 {
            let call = ChatEvent::ToolCallStart { index: 0, id: String::new(), name: "chaos_spawn".into() };
            let args = ChatEvent::ToolCallArgs { index: 0, delta: r#"{"count":3,"prompt":"p"}"#.into() };
            let end = ChatEvent::End { stop_reason: StopReason::ToolCalls, usage: None };
            return Box::pin(futures::stream::iter([call, args, end].map(Ok)));
        }
        self.open.fetch_add(1, Ordering::SeqCst);
        let open = Open(Arc::clone(&self.open));
        Box::pin(futures::stream::poll_fn(move |_| {
            let _ = &open;
            std::task::Poll::Pending
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn ax4_c54_when_a_cancel_has_ended_nothing_below_works_any_more() {
    let open = Arc::new(AtomicUsize::new(0));
    let agent = Agent::new(Silent { open: Arc::clone(&open) }).tools(all_tools());
    let test = TestRoot::new();
    let root = test.root().clone();
    let run = tokio::spawn(agent.run(&root, "work").settle());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!((open.load(Ordering::SeqCst), root.live_runs()), (9, 13));
    let middle =
        root.snapshot().children(root.snapshot().root().unwrap()).next().unwrap().origin.run_id.clone();
    assert_eq!(root.cancel(&middle, CancelledBy::User).unwrap().await, 4);
    assert_eq!((open.load(Ordering::SeqCst), root.live_runs()), (6, 9));
    let said = test.log().len();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(test.log().len(), said);
    assert_eq!(root.cancel_all(CancelledBy::User).await, 9);
    assert_eq!((open.load(Ordering::SeqCst), root.live_runs()), (0, 0));
    assert!(matches!(
        run.await.unwrap(),
        SubAgentOutcome::Cancelled { by: CancelledBy::User, forced: false, .. }
    ));
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn what_the_host_says_reaches_the_model_and_the_log() {
    let played = root(json!([calls("chaos_sleep", json!({ "ms": 1 })), says("unused")]))
        .agent(|agent| agent.named("reviewer").system_prompt("Be brief.").max_turns(1))
        .play()
        .await;
    let request = &played.model.requests()[0];
    assert_eq!(
        (request.system.as_deref(), &*request.run.agent, &*request.run.prompt),
        (Some("Be brief."), "reviewer", "work")
    );
    assert_eq!(
        (request.run.depth, request.call, request.run.run_id == *played.tree().root_run_id().unwrap()),
        (0, 0, true)
    );
    let MessageBody::RunStarted(started) = played.log[0].body() else { panic!() };
    assert_eq!((&*started.agent, &*started.task, &*started.producer), ("reviewer", "work", "tool_loop"));
    assert_eq!(started.model.as_deref(), Some("script:test.json"));
    assert_eq!(played.end_of("root"), "stopped (turns)");
}

/// A provider that sends whole messages only, or both deltas and the whole.
struct Whole {
    deltas: bool,
}

impl ChatModel for Whole {
    fn name(&self) -> &str {
        "whole"
    }

    fn chat(&self, _: ChatRequest) -> ChatStream {
        let deltas = self.deltas.then(|| ["ans", "wer"].map(|piece| ChatEvent::Text(piece.into())));
        let end = ChatEvent::End { stop_reason: StopReason::EndTurn, usage: None };
        let events = deltas.into_iter().flatten().chain([ChatEvent::Snapshot("answer".into()), end]);
        Box::pin(futures::stream::iter(events.map(Ok).collect::<Vec<_>>()))
    }
}

#[tokio::test(start_paused = true)]
async fn c13_a_whole_message_with_or_without_deltas_is_said_once() {
    for deltas in [true, false] {
        let test = TestRoot::new();
        let outcome = Agent::new(Whole { deltas }).run(test.root(), "work").settle().await;
        assert_eq!(outcome, SubAgentOutcome::completed("answer"));
        let lines = test.timeline();
        assert_eq!(lines, "root started\nroot text \"answer\"\nroot turn 1 end_turn\nroot done \"answer\"\n");
        test.finish();
    }
}
