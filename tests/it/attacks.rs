//! Values that nest very deep, results that were handed in beside other calls, and programs that are dropped at any moment.

use std::sync::Arc;
use std::time::Duration;

use anabranch::agent::codeact::CodeAct;
use anabranch::agent::script::ScriptRun;
use anabranch::budget::{Limit, RunLimits};
use anabranch::context::Root;
use anabranch::message::{MessageBody, ProcessingMessage};
use anabranch::outcome::CancelledBy;
use anabranch::testing::{TestRoot, timeline};
use anabranch::tool::{ToolReply, Toolset, chaos, tool_fn};
use anabranch::tree::RunTree;
use anabranch::{Agent, SubAgentOutcome};
use futures::FutureExt;
use serde_json::{Value, json};

use crate::stage::{Recorder, Stage, all_tools, calls, results};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |value, _| json!([value]))
}

fn deep_tools(levels: usize) -> Toolset {
    let deep =
        tool_fn(
            "deep",
            "Gives a deep value.",
            move |_: Nothing, _| async move { ToolReply::ok(nested(levels)) },
        );
    all_tools().with(deep).unwrap()
}

/// What a reader of the log's lines has is what was in the log.
#[track_caller]
fn reads_back(log: &[ProcessingMessage]) {
    let read: Vec<ProcessingMessage> =
        log.iter().map(|message| ProcessingMessage::from_json(&message.to_json()).unwrap()).collect();
    for (message, read) in log.iter().zip(&read) {
        assert!(!matches!(read.body(), MessageBody::Other(_)), "{:?}", read.body());
        assert_eq!(message.body(), read.body());
    }
    assert_eq!(timeline(log), timeline(&read));
    assert_eq!(RunTree::of(log).nodes().count(), RunTree::of(&read).nodes().count());
}

#[tokio::test(start_paused = true)]
async fn a_log_with_deep_values_is_read_back() {
    for levels in [90, 125, 126, 127, 128, 200] {
        let agents = json!([{ "turns": [calls("deep", json!({})), { "text": "done" }] }]);
        let played = Stage::new(agents.clone()).tools(deep_tools(levels)).play().await;
        reads_back(&played.log);
        let code =
            json!([{ "turns": [{ "code": "await finish(await tools.deep({}))" }, { "text": "done" }] }]);
        let played = Stage::new(code).produced_by(CodeAct::default()).tools(deep_tools(levels)).play().await;
        reads_back(&played.log);
    }
}

#[tokio::test]
async fn a_deep_result_of_a_script_is_not_another_value() {
    for levels in [100, 126, 200, 1_000] {
        let code = format!("let v = 1; for (let i = 0; i < {levels}; i++) v = [v]; return v");
        let agent = Agent::with_producer(Recorder::new(&json!([])), Arc::new(CodeAct::default()));
        let outcome = agent.run_with(Arc::new(ScriptRun::new(code)), &Root::new(), "x").settle().await;
        match &outcome {
            SubAgentOutcome::Completed { result, .. } => assert_eq!(result, &nested(levels), "{levels}"),
            other => assert!(other.error_text().unwrap().contains("levels"), "{other:?}"),
        }
    }
    let code = "let v = 1; for (let i = 0; i < 300; i++) v = [v]; return v";
    let agents = json!([{ "turns": [{ "code": code }, { "text": "done" }] }]);
    let played = Stage::new(agents).produced_by(CodeAct::default()).play().await;
    let read = played.model.requests();
    let observation: Value = serde_json::from_str(results(&read[1])[0]).unwrap();
    assert_eq!(observation["ok"], json!(false), "{observation}");
}

fn handing_in() -> Toolset {
    let tool =
        tool_fn("hand_in", "Hands in.", |_: Nothing, _| async { ToolReply::finishing(json!("handed in")) });
    chaos::add_to(&Toolset::new()).unwrap().with(tool).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_action_of_the_same_turn_takes_no_result_back() {
    let code = json!({ "title": "t", "risk": "low", "description": "", "code": "await tools.chaos_hang()" });
    let turn = json!({ "tool_calls": [
        { "name": "hand_in", "arguments": {} },
        { "name": "execute_code", "arguments": code },
    ] });
    let limits = RunLimits { wall: Limit::At(Duration::from_secs(5)), ..RunLimits::default() };
    let stage = Stage::new(json!([{ "turns": [turn] }])).produced_by(CodeAct::default()).tools(handing_in());
    let played = stage.run_limits(limits).play().await;
    assert_eq!(played.end_of("root"), "done \"handed in\"", "{}", played.timeline());
}

#[tokio::test(start_paused = true)]
async fn what_failed_hands_in_nothing() {
    let failing = || {
        let tool = tool_fn("fails", "Fails.", |_: Nothing, _| async {
            ToolReply {
                finishes_with: Some(Box::new(json!("no"))),
                ..ToolReply::error("broken", "It broke.")
            }
        });
        all_tools().with(tool).unwrap()
    };
    let direct = json!([{ "turns": [calls("fails", json!({})), { "text": "done" }] }]);
    let played = Stage::new(direct).tools(failing()).play().await;
    assert_eq!(played.end_of("root"), "done \"done\"");
    let code =
        json!([{ "turns": [{ "code": "try { await tools.fails({}) } catch {}" }, { "text": "done" }] }]);
    let played = Stage::new(code).produced_by(CodeAct::default()).tools(failing()).play().await;
    assert_eq!(played.end_of("root"), "done \"done\"", "{}", played.timeline());
}

/// What programs do while they are dropped or cancelled.
const BUSY: &[&str] = &[
    "return 1",
    "await finish({ n: 1 }); return 2",
    "await finish(1); await tools.chaos_sleep({ ms: 1 }); await finish(2); await tools.chaos_hang()",
    "await Promise.all([...Array(100).keys()].map(n => tools.chaos_sleep({ ms: n % 3 }))); return 1",
    "for (let i = 0; i < 40; i++) { try { await tools.chaos_error({ message: 'x' }) } catch {} } return 1",
    "const all = []; for (let i = 0; i < 200; i++) all.push(search_tools('x')); await Promise.all(all); return all.length",
    "tools.chaos_hang(); await tools.run_subtask({ description: 'c', prompt: 'c' }); return 1",
    "await Promise.race([tools.chaos_hang(), sleep(1)]); return 1",
    "for (;;) await sleep(0)",
    "for (;;) {}",
];

fn busy(code: &str) -> Agent {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [{ "code": code }, { "text": "done" }] },
        { "turns": [{ "text": "a child" }] },
    ]);
    Agent::with_producer(Recorder::new(&agents), Arc::new(CodeAct::default())).tools(all_tools())
}

/// `finish` of the test root holds the log against the invariants: one terminal among them.
#[tokio::test]
async fn a_program_may_be_dropped_at_any_poll() {
    for code in BUSY {
        for seed in [None, Some(7)] {
            for polls in (0..8).chain([20, 40]) {
                let builder = Root::builder();
                let test = TestRoot::of(match seed {
                    Some(seed) => builder.seed(seed),
                    None => builder,
                });
                let mut run = Box::pin(busy(code).run(test.root(), "work").settle());
                for _ in 0..polls {
                    if run.as_mut().now_or_never().is_some() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
                drop(run);
                if polls > 0 {
                    test.finish();
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_may_be_cancelled_at_any_time() {
    for round in 0..12_u64 {
        let mut tasks = Vec::new();
        for (at, code) in BUSY.iter().enumerate() {
            let code = *code;
            tasks.push(tokio::spawn(async move {
                let test = TestRoot::of(Root::builder());
                let (root, run) = (test.root().clone(), busy(code).run(test.root(), "work"));
                let cancels = async {
                    tokio::time::sleep(Duration::from_micros((round * 977 + at as u64 * 613) % 9_000)).await;
                    root.cancel_all(CancelledBy::User).await
                };
                let both = async { tokio::join!(run.settle(), cancels) };
                let ended = tokio::time::timeout(Duration::from_secs(30), both).await;
                assert!(ended.is_ok(), "{code} hangs");
                test.finish();
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    }
}
