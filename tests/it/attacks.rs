//! Values that nest very deep, results that were handed in beside other calls, and programs that are dropped at any moment.

use std::sync::Arc;
use std::time::Duration;

use anabranch::agent::Detached;
use anabranch::agent::codeact::CodeAct;
use anabranch::agent::script::ScriptRun;
use anabranch::budget::{Limit, RunLimits};
use anabranch::context::{Reply, Root};
use anabranch::message::{MessageBody, ProcessingMessage};
use anabranch::outcome::CancelledBy;
use anabranch::testing::{TestRoot, timeline};
use anabranch::tool::{Policy, ToolReply, Toolset, chaos, tool_fn};
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

/// Hands in its name, after so long.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Late {
    name: String,
    ms: u64,
}

#[tokio::test(start_paused = true)]
async fn of_two_results_of_a_turn_the_same_one_counts_whether_or_not_it_is_cut_short() {
    let tools = || {
        let tool = tool_fn("late", "Hands in.", |Late { name, ms }: Late, _| async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            ToolReply::finishing(json!(name))
        });
        all_tools().with(tool).unwrap()
    };
    let limits = RunLimits { wall: Limit::At(Duration::from_secs(5)), ..RunLimits::default() };
    for (one, other) in [(1, 2), (2, 1), (1, 1)] {
        for last in [
            json!({ "name": "chaos_sleep", "arguments": { "ms": 3 } }),
            json!({ "name": "chaos_hang", "arguments": {} }),
        ] {
            let turn = json!({ "tool_calls": [
                { "name": "late", "arguments": { "name": "a", "ms": one } },
                { "name": "late", "arguments": { "name": "b", "ms": other } },
                last,
            ] });
            let played =
                Stage::new(json!([{ "turns": [turn] }])).tools(tools()).run_limits(limits).play().await;
            assert_eq!(played.end_of("root"), "done \"a\"", "{}", played.timeline());
        }
    }
}

#[tokio::test]
async fn code_with_a_null_character_is_told_where() {
    let agents = json!([{ "turns": [{ "code": "const a = 1\nreturn '\u{0}'" }, { "text": "done" }] }]);
    let played = Stage::new(agents).produced_by(CodeAct::default()).play().await;
    let read = played.model.requests();
    let observation: Value = serde_json::from_str(results(&read[1])[0]).unwrap();
    let error = observation["error"].as_str().unwrap();
    assert!(error.contains("line 2 has a null character"), "{observation}");
    // In values it is a character like others.
    let agents = json!([{ "turns": [{ "code": "log('a\\0b'); try { await tools.chaos_error({ message: 'x\\0y' }) } catch (e) { return { [e.message]: 'z\\0' } }" }, { "text": "done" }] }]);
    let played = Stage::new(agents).produced_by(CodeAct::default()).play().await;
    let read = played.model.requests();
    let observation: Value = serde_json::from_str(results(&read[1])[0]).unwrap();
    assert_eq!(observation["result"], json!({ "tools.chaos_error: x\u{0}y": "z\u{0}" }), "{observation}");
    assert_eq!(observation["logs"], json!(["a\u{0}b"]));
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
            let polls = if seed.is_some() { vec![1, 4] } else { vec![0, 1, 2, 3, 4, 6, 9, 20, 40] };
            for polls in polls {
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
    for round in 0..6_u64 {
        let mut tasks = Vec::new();
        for (at, code) in BUSY.iter().enumerate() {
            let code = *code;
            tasks.push(tokio::spawn(async move {
                let test = TestRoot::of(Root::builder());
                let (root, run) = (test.root().clone(), busy(code).run(test.root(), "work"));
                let cancels = async {
                    tokio::time::sleep(Duration::from_micros((round * 1_553 + at as u64 * 613) % 9_000))
                        .await;
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

/// A root of several programs at once, one of which may block, beside background runs and a question.
fn crowd() -> Value {
    let child =
        |name: &str| json!({ "name": "run_subtask", "arguments": { "description": name, "prompt": name } });
    let started =
        |name: &str| json!({ "name": "start_subtask", "arguments": { "description": name, "prompt": name } });
    let code = |title: &str, code: &str| json!({ "when": { "title": title }, "turns": [{ "code": code }, { "text": "done" }] });
    json!([
        code("^asks$", "try { await tools.chaos_error({ message: 'asked' }) } catch (e) { return e.code }"),
        code("^blocks$", "for (let i = 0; i < 3e6; i++); await sleep(0); return 1"),
        code("^calls$", "for (let i = 0; i < 30; i++) await search_tools('x'); await Promise.all([1, 2, 3].map(ms => tools.chaos_sleep({ ms }))); return 2"),
        code("^starts$", "const a = await tools.start_subtask({ description: 'calls', prompt: 'calls' }); return await tools.wait_subtasks({})"),
        code("^waits$", "await tools.run_subtask({ description: 'calls', prompt: 'calls' }); return await finish({ n: 1 })"),
        { "when": { "depth": 0 }, "turns": [
            { "tool_calls": [started("starts"), started("blocks"), child("asks"), child("blocks"), child("calls"), child("waits")] },
            { "tool_calls": [{ "name": "wait_subtasks", "arguments": {} }] },
            { "text": "done" },
        ] },
    ])
}

async fn play_crowd(cancel_after: Option<u64>) -> String {
    let stage = Stage::new(crowd()).produced_by(CodeAct::default());
    let stage = stage.tools(Detached::new().add_to(&all_tools()).unwrap());
    let stage = stage.policy(Policy::default().ask(["chaos_error"])).root(|builder| builder.seed(11));
    let played = stage.play_beside(|root| {
        let mut asks = root.asks();
        async move {
            let answers = async {
                while let Some(ask) = asks.next().await {
                    let _ = root.answer(&ask.request_id, Reply::allow());
                }
            };
            let cancels = async {
                if let Some(micros) = cancel_after {
                    tokio::time::sleep(Duration::from_micros(micros)).await;
                    root.cancel_all(CancelledBy::User).await;
                }
            };
            tokio::join!(answers, cancels);
        }
    });
    // `play_beside` holds the log against the invariants.
    tokio::time::timeout(Duration::from_secs(60), played).await.expect("it hangs").timeline()
}

#[tokio::test]
async fn a_crowd_that_keeps_step_ends_whenever_it_is_cancelled() {
    let whole = play_crowd(None).await;
    assert!(whole.ends_with("root done \"done\"\n"), "{whole}");
    for round in 0..10_u64 {
        play_crowd(Some(round * round * 3_600)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_keeps_step_ends_on_several_threads() {
    for round in 0..4_u64 {
        let task = tokio::spawn(play_crowd((round > 0).then_some(round * 18_000)));
        task.await.unwrap();
    }
}
