//! Compounds: agent, executor, state updater, evaluator, refinement, by the acceptance criteria of the original.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use anabranch::SubAgentStream;
use anabranch::agent::{Agent, ToolLoop};
use anabranch::budget::{Limit, TreeLimits};
use anabranch::frame::compound::{
    Action, Compound, CompoundBuilder, CompoundCall, CompoundError, CompoundResult, Evaluation, ExitReason,
    Stage,
};
use anabranch::frame::{Parent, StepFailure, as_tool};
use anabranch::message::{MessageBody, ProcessingMessage};
use anabranch::model::ChatMessage;
use anabranch::outcome::SubAgentOutcome;
use anabranch::testing::{check_sub_agent, timeline};
use anabranch::tool::{Policy, Risk, Toolset};
use serde_json::{Map, Value, json};

use crate::kit::{inside, inside_of, limited};
use crate::stage::{Recorder, Stage as Play, calls, results};

pub(crate) type State = Vec<String>;
pub(crate) type Done = (Result<CompoundResult<String>, CompoundError>, State);

/// A model whose passes answer with these texts.
pub(crate) fn model(answers: &[&str]) -> Arc<Recorder> {
    let entry = |(at, text): (usize, &&str)| json!({ "when": { "title": format!("pass {}", at + 1) }, "turns": [{ "text": text }] });
    Recorder::new(&json!(answers.iter().enumerate().map(entry).collect::<Vec<_>>()))
}

pub(crate) fn writer(model: &Arc<Recorder>) -> Agent {
    Agent::with_producer(Arc::<Recorder>::clone(model), Arc::new(ToolLoop::default())).named("writer")
}

pub(crate) async fn publish(action: Action<State>) -> Result<String, Infallible> {
    Ok(format!("published {}", action.output.as_str().unwrap()))
}

/// A writer whose texts are published and kept in a list.
pub(crate) fn base(model: &Arc<Recorder>) -> CompoundBuilder<State, String> {
    Compound::builder()
        .agent(writer(model))
        .executor(publish)
        .state_updater(|text: &String, state: &mut State| state.push(text.clone()))
}

/// With refinements until a text ends with this word.
pub(crate) fn until(
    model: &Arc<Recorder>,
    word: &'static str,
    refinements: u32,
) -> CompoundBuilder<State, String> {
    base(model)
        .evaluator(move |text: &String| {
            if text.ends_with(word) { Evaluation::passed() } else { Evaluation::failed(format!("no {word}")) }
        })
        .max_refinements(refinements)
        .build_refinement_prompt(|refinement| {
            format!("{} ({} after {})", refinement.prompt, refinement.feedback, refinement.result)
        })
}

pub(crate) async fn run(
    compound: Compound<State, String>,
    call: impl Into<CompoundCall>,
) -> (Done, Vec<ProcessingMessage>) {
    let call = call.into();
    inside(|cx, _| async move {
        let mut state = vec!["before".to_owned()];
        let result = compound.run(&Parent::of(&cx), &mut state, call).await;
        (result, state)
    })
    .await
}

pub(crate) fn prompts(model: &Recorder) -> Vec<String> {
    let text = |message: &ChatMessage| match message {
        ChatMessage::User { text } => text.clone(),
        other => panic!("{other:?}"),
    };
    model.requests().iter().map(|request| text(&request.messages[0])).collect()
}

#[tokio::test(start_paused = true)]
async fn a1_agent_executor_and_updater_in_that_order_visible_in_the_tree() {
    let model = model(&["one"]);
    let ((result, state), log) = run(base(&model).build().unwrap(), "Write.").await;
    let result = result.unwrap();
    assert_eq!((result.result.as_str(), result.iterations, result.refined), ("published one", 1, false));
    assert_eq!((result.exit_reason, result.confidence), (ExitReason::Passed, None));
    assert_eq!(state, ["before", "published one"]);
    assert_eq!(prompts(&model), ["Write."]);
    let expected = [
        "root started",
        "root/Write. started",
        "root/Write. task step_started",
        "root/Write./pass-1 started",
        "root/Write./pass-1 text \"one\"",
        "root/Write./pass-1 turn 1 end_turn",
        "root/Write./pass-1 done \"one\"",
        "root/Write. step result \"published one\"",
        "root/Write. task step_completed",
    ];
    let timeline = timeline(&log);
    assert_eq!(timeline.lines().take(expected.len()).collect::<Vec<_>>(), expected);
    let MessageBody::RunStarted(started) = log[1].body() else { panic!() };
    assert_eq!((&*started.agent, &*started.producer), ("writer", "compound"));
}

#[tokio::test(start_paused = true)]
async fn a2_a_note_replaces_the_prompt_and_arguments_reach_every_pass() {
    let model = model(&["one", "two"]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    let compound = until(&model, "two", 1)
        .noting_prompts(|state, prompt| state.push(format!("user: {prompt}")))
        .executor(move |action| {
            kept.lock().unwrap().push((action.pass, action.args["tone"].clone()));
            publish(action)
        });
    let call = CompoundCall {
        note: Some("Only this.".into()),
        args: Arc::new(Map::from_iter([("tone".to_owned(), json!("dry"))])),
        ..CompoundCall::from("Write.")
    };
    let ((result, _), _) = run(compound.build().unwrap(), call).await;
    assert_eq!(result.unwrap().exit_reason, ExitReason::Passed);
    let prompts = prompts(&model);
    assert!(prompts[0].starts_with("Only this.\n\nThe arguments are values"), "{}", prompts[0]);
    assert!(prompts[1].starts_with("Write. (no two after published one)"), "{}", prompts[1]);
    // In the original the arguments were gone after the first pass.
    assert!(prompts.iter().all(|prompt| prompt.contains("\"tone\": \"dry\"")));
    assert_eq!(*seen.lock().unwrap(), [(1, json!("dry")), (2, json!("dry"))]);
}

#[test]
fn a3_a4_a27_a28_the_name_is_the_agent_s_unless_one_is_given() {
    let model = model(&[]);
    assert_eq!(base(&model).build().unwrap().name(), "writer");
    assert_eq!(base(&model).name("").build().unwrap().name(), "writer");
    assert_eq!(base(&model).name("publisher").build().unwrap().name(), "publisher");
}

#[tokio::test(start_paused = true)]
async fn a5_a_refinement_that_passes() {
    let model = model(&["one", "two"]);
    let ((result, state), log) = run(until(&model, "two", 1).build().unwrap(), "Write.").await;
    let result = result.unwrap();
    assert_eq!((result.iterations, result.pass, result.refined), (2, 2, true));
    assert_eq!((result.exit_reason, result.result.as_str()), (ExitReason::Passed, "published two"));
    assert_eq!(state, ["before", "published one", "published two"]);
    assert_eq!(prompts(&model)[1], "Write. (no two after published one)");
    let passed: Vec<_> =
        result.history.iter().map(|record| (record.pass, record.passed, record.feedback.as_str())).collect();
    assert_eq!(passed, [(1, Some(false), "no two"), (2, Some(true), "")]);
    // What was judged is in the log too.
    let judged: Vec<Value> = log
        .iter()
        .filter_map(|message| match message.body() {
            MessageBody::StepResult(step) => Some(json!(step.step)),
            _ => None,
        })
        .collect();
    assert_eq!(judged[0], json!({"id": "pass-1", "passed": false, "feedback": "no two"}));
    assert_eq!(judged[1], json!({"id": "pass-2", "passed": true}));
}

#[tokio::test(start_paused = true)]
async fn a6_a_first_pass_that_passes_is_the_only_one() {
    let model = model(&["one"]);
    let compound =
        until(&model, "one", 3).build_refinement_prompt(|_| -> String { panic!("not to be called") });
    let ((result, _), _) = run(compound.build().unwrap(), "Write.").await;
    let result = result.unwrap();
    assert_eq!((result.iterations, result.refined, result.exit_reason), (1, false, ExitReason::Passed));
}

#[tokio::test(start_paused = true)]
async fn a7_refinements_that_are_used_up() {
    let model = model(&["one", "two", "three"]);
    let ((result, state), _) = run(until(&model, "never", 2).build().unwrap(), "Write.").await;
    let result = result.unwrap();
    assert_eq!(
        (result.iterations, result.refined, result.exit_reason),
        (3, true, ExitReason::MaxRefinements)
    );
    assert_eq!(result.result, "published three");
    assert_eq!(state[1..], ["published one", "published two", "published three"]);
}

#[tokio::test(start_paused = true)]
async fn a8_a_refinement_whose_agent_fails_keeps_what_there_was_and_the_error() {
    let model = model(&["one"]);
    let ((result, state), log) = run(until(&model, "two", 2).build().unwrap(), "Write.").await;
    let result = result.unwrap();
    assert_eq!((result.result.as_str(), result.iterations, result.refined), ("published one", 1, false));
    assert_eq!(result.exit_reason, ExitReason::RefinementFailedKeepOriginal);
    assert_eq!(state, ["before", "published one"]);
    let error = result.error.as_ref().unwrap();
    assert_eq!((error.pass, error.stage), (2, Stage::Agent));
    assert!(
        error.to_string().starts_with("writer: the agent of pass 2 failed: the sub-agent failed (error)"),
        "{error}"
    );
    assert_eq!(result.history[1].pass, 2);
    assert!(result.history[1].error.as_deref().unwrap().starts_with("the agent failed: "));
    assert!(timeline(&log).contains("root/Write. task step_failed"));
    let value = result.to_value();
    assert_eq!(value["exit_reason"], json!("refinement_failed_keep_original"));
    assert_eq!(value["error"], json!(error.to_string()));
}

#[test]
fn a9_a10_a11_what_is_missing_is_named() {
    let model = model(&[]);
    let missing = |builder: CompoundBuilder<State, String>| builder.build().unwrap_err().to_string();
    let text = missing(base(&model).max_refinements(1));
    assert_eq!(
        text,
        "\"writer\" cannot be built: it needs evaluator and build_refinement_prompt with max_refinements = 1"
    );
    let text = missing(base(&model).max_refinements(2).evaluator(|_| Evaluation::passed()));
    assert!(text.contains("build_refinement_prompt with") && !text.contains("evaluator"), "{text}");
    let text = missing(base(&model).max_refinements(2).build_refinement_prompt(|_| String::new()));
    assert!(text.contains("needs evaluator with"), "{text}");
    assert_eq!(missing(Compound::builder()), "\"compound\" cannot be built: it needs agent and executor");
    assert_eq!(
        missing(Compound::builder().agent(writer(&model))),
        "\"writer\" cannot be built: it needs executor"
    );
    assert!(base(&model).build().is_ok());
}

/// In the original it was never asked then, and the exit said `passed` all the same.
#[tokio::test(start_paused = true)]
async fn an_evaluator_is_asked_also_where_nothing_is_refined() {
    for (word, exit) in [("one", ExitReason::Passed), ("two", ExitReason::MaxRefinements)] {
        let model = model(&["one"]);
        let ((result, _), _) = run(until(&model, word, 0).build().unwrap(), "Write.").await;
        let result = result.unwrap();
        assert_eq!((result.exit_reason, result.iterations, result.refined), (exit, 1, false));
    }
}

#[tokio::test(start_paused = true)]
async fn a12_a35_prompts_are_noted_in_a_state_that_holds_them() {
    let model = model(&["one", "two"]);
    let latest = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&latest);
    let compound = until(&model, "two", 1)
        .noting_prompts(|state, prompt| state.push(format!("user: {prompt}")))
        .executor(move |action| {
            seen.lock().unwrap().push(action.state.last().unwrap().clone());
            publish(action)
        });
    let ((_, state), _) = run(compound.build().unwrap(), "Write.").await;
    let refined = "user: Write. (no two after published one)";
    assert_eq!(*latest.lock().unwrap(), ["user: Write.", refined]);
    assert_eq!(state, ["before", "user: Write.", "published one", refined, "published two"]);
}

#[tokio::test(start_paused = true)]
async fn a32_without_an_updater_the_state_stays() {
    let model = model(&["one"]);
    let compound = Compound::builder().agent(writer(&model)).executor(publish).build().unwrap();
    let ((result, state), _) = run(compound, "Write.").await;
    assert_eq!((result.unwrap().result.as_str(), state), ("published one", vec!["before".to_owned()]));
}

/// In the original a worse refinement replaced a better result.
#[tokio::test(start_paused = true)]
async fn the_best_is_kept_with_its_state_where_the_evaluator_scores() {
    let model = model(&["one", "three", "two"]);
    let score = |text: &String| Evaluation::failed("more").scored(text.len() as f64);
    let compound = until(&model, "never", 2).evaluator(score).build().unwrap();
    let ((result, state), _) = run(compound, "Write.").await;
    let result = result.unwrap();
    assert_eq!((result.result.as_str(), result.pass, result.iterations), ("published three", 2, 3));
    assert_eq!((result.score, result.exit_reason), (Some(15.0), ExitReason::MaxRefinements));
    assert_eq!(state, ["before", "published one", "published three"], "the state after the pass that counts");
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_compound_at_once_know_nothing_of_each_other() {
    let model = model(&["one", "two"]);
    let compound = until(&model, "two", 1).build().unwrap();
    let (both, _) = inside(|cx, _| async move {
        let parent = Parent::of(&cx);
        let (mut one, mut other) = (vec![], vec![]);
        let calls =
            tokio::join!(compound.run(&parent, &mut one, "A."), compound.run(&parent, &mut other, "B."));
        (calls.0.unwrap().result, calls.1.unwrap().result, one, other)
    })
    .await;
    let expected = vec!["published one".to_owned(), "published two".to_owned()];
    assert_eq!(both, ("published two".into(), "published two".into(), expected.clone(), expected));
}

#[tokio::test(start_paused = true)]
async fn a_frame_can_be_the_agent_and_its_broken_contract_is_a_failure() {
    let good = r#"{"status":"success","summary":"done"}"#;
    for (text, fails) in [(good, false), ("no json", true), (r#"{"status":"done","summary":"x"}"#, true)] {
        let model = model(&[text]);
        let build = {
            let model = Arc::clone(&model);
            move || Ok::<_, String>(writer(&model))
        };
        let frame = as_tool(build, "ask", "Asks.").unwrap();
        let compound = Compound::<State, String>::builder()
            .agent(frame)
            .executor(|action| async move {
                Ok::<_, Infallible>(action.output["summary"].as_str().unwrap().to_owned())
            })
            .build()
            .unwrap();
        let ((result, _), _) = run(compound, "Write.").await;
        assert_eq!(result.is_err(), fails, "{text}");
        match result {
            Ok(result) => assert_eq!(result.result, "done"),
            Err(error) => assert!(
                error.to_string().starts_with("ask: the agent of pass 1 failed: subagent ask: the answer"),
                "{error}"
            ),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_compound_is_a_tool_of_a_model_with_a_fresh_state_for_each_call() {
    let play = Play::new(json!([
        { "when": { "depth": 0 }, "turns": [calls("writer", json!({"prompt": "Write."})), calls("writer", json!({"prompt": "Write."})), calls("writer", json!({"prompt": ""})), { "text": "done" }] },
        { "when": { "title": "pass 1" }, "turns": [{ "text": "one" }] },
        { "when": { "title": "pass 2" }, "turns": [{ "text": "two" }] },
    ]));
    let states = Arc::new(AtomicU32::new(0));
    let made = Arc::clone(&states);
    let tool = until(&play.model, "two", 1).build().unwrap().as_tool("Publishes a text.", move || {
        made.fetch_add(1, Ordering::Relaxed);
        Vec::new()
    });
    let tools = Toolset::new().with(tool).unwrap();
    let played = play.tools(tools).policy(Policy::default().allow(["writer"])).play().await;
    let root: Vec<_> = played.model.requests().into_iter().filter(|request| request.run.depth == 0).collect();
    let replies: Vec<Value> =
        results(root.last().unwrap()).iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    assert_eq!(
        (&replies[0]["result"], &replies[0]["exit_reason"]),
        (&json!("published two"), &json!("passed"))
    );
    assert_eq!(replies[0], replies[1]);
    assert_eq!(replies[2]["error"], json!("missing_prompt"));
    assert_eq!(states.load(Ordering::Relaxed), 2);
}

/// Its executor acts on the world, so a model does not call it unasked.
#[tokio::test(start_paused = true)]
async fn a_compound_as_a_tool_is_asked_for_unless_it_says_that_it_is_harmless() {
    for (risk, reads) in [(Risk::High, "tool_denied"), (Risk::Low, "published one")] {
        let play = Play::new(json!([
            { "when": { "depth": 0 }, "turns": [calls("writer", json!({"prompt": "Write."})), { "text": "done" }] },
            { "turns": [{ "text": "one" }] },
        ]));
        let tool = base(&play.model).risk(risk).build().unwrap().as_tool("Publishes a text.", Vec::new);
        let played = play.tools(Toolset::new().with(tool).unwrap()).play().await;
        let requests = played.model.requests();
        let last = requests.iter().rfind(|request| request.run.depth == 0).unwrap();
        assert!(results(last)[0].contains(reads), "{}", played.timeline());
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_tree_has_no_room_a_compound_says_so() {
    for (depth, stage) in [(0, Stage::Start), (1, Stage::Agent)] {
        let compound = base(&model(&["one"])).build().unwrap();
        let limits = TreeLimits { depth: Limit::At(depth), ..TreeLimits::default() };
        let (error, _) = inside_of(limited(limits), |cx, _| async move {
            compound.run(&Parent::of(&cx), &mut vec![], "Write.").await.unwrap_err()
        })
        .await;
        assert_eq!(error.stage, stage);
        assert!(error.to_string().contains("Cannot start another sub-agent"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_compound_below_a_producer_passes_the_battery() {
    let model = model(&["one", "two"]);
    let compound = until(&model, "two", 2).build().unwrap();
    let report = check_sub_agent(|cx| {
        let compound = compound.clone();
        SubAgentStream::generate(|_| async move {
            match compound.run(&Parent::of(&cx), &mut Vec::new(), "Write.").await {
                Ok(result) => SubAgentOutcome::completed(result.result),
                Err(error) => match error.failure {
                    StepFailure::Cancelled(by) => SubAgentOutcome::cancelled(by),
                    failure => {
                        SubAgentOutcome::failed(anabranch::outcome::FailureKind::Step, failure.to_string())
                    }
                },
            }
        })
    })
    .await;
    assert!(report.is_ok(), "{report}");
}
