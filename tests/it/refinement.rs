//! Refinement loops, and how sure an agent is, by the acceptance criteria of the original.

use std::sync::Arc;
use std::time::Duration;

use anabranch::context::Reply;
use anabranch::frame::compound::{
    Compound, Convergence, Evaluation, ExitReason, RefinementLoop, RefinementLoopBuilder,
};
use anabranch::frame::confidence::{Confidence, ConfidenceProtocol, Enriched, StructuredFields, enrich};
use anabranch::frame::{Asking, FrameError, FrameStatus, Parent, StepFailure, as_tool};
use anabranch::message::MessageBody;
use anabranch::testing::timeline;
use anabranch::tool::Policy;
use serde_json::{Value, json};

use crate::compound::{model, prompts, writer};
use crate::kit::inside;
use crate::stage::{Recorder, all_tools, calls};

/// The time of a loop does not run while a person is waited for.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_person_is_not_charged_to_a_loop() {
    let turns = json!([calls("chaos_sleep", json!({ "ms": 1 })), { "text": "slept" }]);
    let model = Recorder::new(&json!([{ "when": { "title": "pass 1" }, "turns": turns }]));
    let agent = writer(&model).tools(all_tools()).policy(Policy::default().ask(["chaos_sleep"]));
    let refining = RefinementLoop::builder(agent).evaluator(|_: &Value| Evaluation::passed());
    let refining = refining.timeout(Duration::from_secs(1)).build().unwrap();
    let (result, _) = inside(|cx, _| async move {
        let mut asks = cx.root().asks();
        let person = async {
            let ask = asks.next().await.unwrap();
            tokio::time::sleep(Duration::from_secs(60)).await;
            cx.root().answer(&ask.request_id, Reply::allow()).unwrap();
        };
        let parent = Parent::of(&cx);
        let (result, ()) = tokio::join!(refining.run(&parent, "Write."), person);
        result
    })
    .await;
    assert_eq!(result.unwrap().result, json!("slept"));
}

/// The exits that a loop has beside those of a compound.
#[tokio::test(start_paused = true)]
async fn refinement_loops_end_by_time_and_by_convergence() {
    let score =
        |answer: &Value| Evaluation::failed("longer").scored(answer.as_str().unwrap().len() as f64 / 100.0);
    let looped =
        async |agents: Value, build: Box<dyn FnOnce(RefinementLoopBuilder) -> RefinementLoopBuilder>| {
            let model = Recorder::new(&agents);
            let refining = build(RefinementLoop::builder(writer(&model)).evaluator(score)).build().unwrap();
            let (result, log) =
                inside(|cx, _| async move { refining.run(&Parent::of(&cx), "Write.").await }).await;
            (result, log, model)
        };
    let answers = |texts: &[&str]| {
        let entry = |(at, text): (usize, &&str)| json!({ "when": { "title": format!("pass {}", at + 1) }, "turns": [{ "delay_ms": 400, "text": text }] });
        json!(texts.iter().enumerate().map(entry).collect::<Vec<_>>())
    };
    let (result, _, played) =
        looped(answers(&["a", "bb", "bbb", "bbbb", "b"]), Box::new(|loops| loops)).await;
    let result = result.unwrap();
    assert_eq!((result.exit_reason, result.iterations, result.pass), (ExitReason::MaxIterations, 5, 4));
    assert_eq!((result.result, result.score), (json!("bbbb"), Some(0.04)));
    assert!(
        prompts(&played)[1].contains("```text\na\n```")
            && prompts(&played)[1].contains("to be better: longer")
    );

    let converging = Convergence::new(2, Convergence::SPREAD).unwrap();
    let (result, ..) =
        looped(answers(&["a", "bbbb", "cccc"]), Box::new(move |loops| loops.converging(converging))).await;
    let result = result.unwrap();
    assert_eq!((result.exit_reason, result.iterations, result.pass), (ExitReason::Converged, 3, 3));

    let second = Duration::from_secs(1);
    let (result, log, _) =
        looped(answers(&["aa", "b", "ccc"]), Box::new(move |loops| loops.timeout(second))).await;
    let result = result.unwrap();
    assert_eq!((result.exit_reason, result.iterations, result.pass), (ExitReason::Timeout, 2, 1));
    assert_eq!(result.history[2].error.as_deref(), Some("the time was over before it had ended"));
    assert!(timeline(&log).contains("root/Write./pass-3 cancelled by parent"), "{}", timeline(&log));

    let (result, ..) =
        looped(answers(&["aa"]), Box::new(|loops| loops.timeout(Duration::from_millis(1)))).await;
    assert!(result.unwrap_err().to_string().contains("the time was over before there was a result"));

    let (result, ..) =
        looped(answers(&["aaa", "b"]), Box::new(|loops| loops.max_iterations(2).keeping_latest())).await;
    assert_eq!(result.unwrap().pass, 2);
    let nobody = model(&[]);
    let no_rounds = RefinementLoop::builder(writer(&nobody)).evaluator(score).max_iterations(0).build();
    assert!(no_rounds.unwrap_err().to_string().contains("max_iterations is 0"));
    let no_judge = RefinementLoop::builder(writer(&nobody)).build();
    assert!(no_judge.unwrap_err().to_string().contains("it needs evaluator"));
}

/// What asking an agent with a protocol gives; its runs are played by title.
async fn enriched(
    agents: Value,
    protocol: Option<ConfidenceProtocol>,
) -> (Result<Enriched, StepFailure>, String, Arc<Recorder>) {
    let model = Recorder::new(&agents);
    let agent = writer(&model).output_schema(json!({}));
    let (result, log) = inside(|cx, _| async move {
        let asking = Asking { title: Some("ask".into()), ..Asking::new("Write.") };
        enrich(&agent, &asking, &Parent::of(&cx), protocol.as_ref()).await
    })
    .await;
    (result, timeline(&log), model)
}

fn answers(text: &str) -> Value {
    json!([{ "turns": [{ "text": text }] }])
}

#[tokio::test(start_paused = true)]
async fn a104_a106_a108_without_a_protocol_there_is_the_answer_alone() {
    let said = r#"{"text": "x", "self_confidence": 0.9}"#;
    let (record, ..) = enriched(answers(said), None).await;
    let record = record.unwrap();
    assert_eq!(record, Enriched::new(json!({"text": "x", "self_confidence": 0.9})));
    let (record, ..) = enriched(answers(said), Some(ConfidenceProtocol::structured())).await;
    assert_eq!(record.unwrap().confidence.map(Confidence::get), Some(0.9));
}

#[tokio::test(start_paused = true)]
async fn a105_a112_structured_reads_the_answer_s_own_keys() {
    let said = r#"{"self_confidence": 0.7, "uncertain_about": ["dates", 3], "outside_my_capability": true}"#;
    let (record, log, _) = enriched(answers(said), Some(ConfidenceProtocol::structured())).await;
    let record = record.unwrap();
    assert_eq!(record.protocol_name.as_deref(), Some("structured"));
    assert_eq!((record.confidence.map(Confidence::get), record.capability_boundary), (Some(0.7), true));
    assert_eq!(record.uncertainty_targets, ["dates"]);
    assert_eq!(log.lines().filter(|line| line.ends_with(" started")).count(), 2, "no further run");
    for said in ["{}", r#"{"self_confidence": "high"}"#] {
        let (record, ..) = enriched(answers(said), Some(ConfidenceProtocol::structured())).await;
        let record = record.unwrap();
        assert_eq!(
            (record.confidence, record.uncertainty_targets.len(), record.capability_boundary),
            (None, 0, false)
        );
    }
    let fields = StructuredFields { confidence: "sure".into(), ..StructuredFields::default() };
    let (record, ..) =
        enriched(answers(r#"{"sure": 4}"#), Some(ConfidenceProtocol::Structured(fields))).await;
    assert_eq!(record.unwrap().confidence.map(Confidence::get), Some(1.0));
}

fn rated(rating: Value) -> Value {
    json!([
        { "when": { "agent": "writer" }, "turns": [{ "text": "\"x\"" }] },
        { "when": { "agent": "writer-rating" }, "turns": [rating] },
    ])
}

#[tokio::test(start_paused = true)]
async fn a107_a114_self_rating_asks_the_agent_s_model_in_a_run_of_its_own() {
    let rating = json!({ "text": "```json\n{\"confidence\": 0.4, \"uncertainty_targets\": [\"all\"], \"capability_boundary\": false}\n```" });
    let (record, log, played) = enriched(rated(rating), Some(ConfidenceProtocol::SelfRating)).await;
    let record = record.unwrap();
    assert_eq!((record.output, record.confidence.map(Confidence::get)), (json!("x"), Some(0.4)));
    assert_eq!(
        (record.protocol_name.as_deref(), record.uncertainty_targets),
        (Some("self_rating"), vec!["all".to_owned()])
    );
    assert!(log.contains("root/rating-of-ask started"), "{log}");
    assert!(played.requests()[1].tools.is_empty() && played.requests()[1].system.is_none());
    // A rating that fails leaves the answer as it is.
    for rating in
        [json!({ "text": "quite sure" }), json!({ "error": { "kind": "auth", "message": "no key" } })]
    {
        let (record, ..) = enriched(rated(rating), Some(ConfidenceProtocol::SelfRating)).await;
        let record = record.unwrap();
        assert_eq!((record.output, record.confidence), (json!("x"), None));
        assert!(record.metadata["protocol_error"].is_string());
    }
}

#[tokio::test(start_paused = true)]
async fn a113_an_ensemble_compares_answers_that_are_given_at_once() {
    assert!(ConfidenceProtocol::ensemble(1).unwrap_err().to_string().contains("k = 1"));
    let three = || Some(ConfidenceProtocol::ensemble(ConfidenceProtocol::SAMPLES).unwrap());
    let of = |texts: [Value; 3]| {
        let entry = |(at, turn): (usize, Value)| json!({ "when": { "title": format!("ask \\({} of 3\\)", at + 1) }, "turns": [turn] });
        json!(texts.into_iter().enumerate().map(entry).collect::<Vec<_>>())
    };
    let says = |text: &str| json!({ "delay_ms": 10, "text": text });
    let fails = || json!({ "error": { "kind": "auth", "message": "no key" } });
    let rows = [
        ([says("1"), says("1"), says("1")], Some(1.0), 3),
        ([says("1"), says("2"), says("3")], Some(0.0), 3),
        ([says("1"), fails(), says("1")], Some(1.0), 2),
        ([says("1"), fails(), fails()], None, 1),
    ];
    for (turns, confidence, count) in rows {
        let (record, log, _) = enriched(of(turns), three()).await;
        let record = record.unwrap();
        assert_eq!(record.output, json!(1), "the first answer, whatever the others say");
        assert_eq!(record.confidence.map(Confidence::get), confidence, "{log}");
        assert_eq!((&record.metadata["sample_count"], &record.metadata["k"]), (&json!(count), &json!(3)));
        let starts = log.lines().filter(|line| line.ends_with(" started")).count();
        assert!(starts == 4 && log.contains("root/ask-(3-of-3) started"), "{log}");
    }
    let (record, ..) = enriched(of([fails(), says("1"), says("1")]), three()).await;
    assert!(record.is_err());
}

/// In the original the figures could be those of another pass than the result.
#[tokio::test(start_paused = true)]
async fn a13_a14_figures_are_those_of_the_pass_whose_result_is_returned() {
    let turn = |pass: u32, sure: f64| json!({ "when": { "title": format!("pass {pass}") }, "turns": [{ "text": json!({"n": pass, "self_confidence": sure, "uncertain_about": [format!("of {pass}")]}).to_string() }] });
    for protocol in [None, Some(ConfidenceProtocol::structured())] {
        let is_asked = protocol.is_some();
        let model = Recorder::new(&json!([turn(1, 0.7), turn(2, 0.2)]));
        let mut compound = Compound::<(), u64>::builder()
            .agent(writer(&model).output_schema(json!({})))
            .executor(|action| async move {
                assert!(action.output.get("protocol_name").is_none(), "the executor gets the answer alone");
                if action.pass == 2 {
                    Err("out of order".to_owned())
                } else {
                    Ok(action.output["n"].as_u64().unwrap())
                }
            })
            .evaluator(|_| Evaluation::failed("more"))
            .max_refinements(1)
            .build_refinement_prompt(|_| "Again.".to_owned());
        if let Some(protocol) = protocol {
            compound = compound.confidence(protocol);
        }
        let compound = compound.build().unwrap();
        let (result, log) =
            inside(|cx, _| async move { compound.run(&Parent::of(&cx), &mut (), "Write.").await }).await;
        let result = result.unwrap();
        let judged = log.iter().find_map(|message| match message.body() {
            MessageBody::StepResult(step) => step.step.other.get("confidence").and_then(Value::as_f64),
            _ => None,
        });
        assert_eq!(judged, is_asked.then_some(0.7), "in the log too");
        assert_eq!((result.result, result.exit_reason), (1, ExitReason::RefinementFailedKeepOriginal));
        assert_eq!(result.confidence.map(Confidence::get), is_asked.then_some(0.7));
        assert_eq!(result.uncertainty_targets, if is_asked { vec!["of 1".to_owned()] } else { vec![] });
    }
}

#[tokio::test(start_paused = true)]
async fn a115_a117_an_agent_that_is_confident_enough_ends_the_loop() {
    let turn = |pass: u32, sure: f64| json!({ "when": { "title": format!("pass {pass}") }, "turns": [{ "text": json!({"n": pass, "self_confidence": sure}).to_string() }] });
    let played = async |sure: [f64; 2], itself: bool| {
        let model = Recorder::new(&json!([turn(1, sure[0]), turn(2, sure[1])]));
        let mut refining = RefinementLoop::builder(writer(&model).output_schema(json!({})))
            .confidence(ConfidenceProtocol::structured())
            .confident_at(0.8)
            .max_iterations(2);
        refining = if itself {
            refining.judging_itself()
        } else {
            refining.evaluator(|_| Evaluation::failed("more"))
        };
        let refining = refining.build().unwrap();
        let (result, _) = inside(|cx, _| async move { refining.run(&Parent::of(&cx), "Write.").await }).await;
        let result = result.unwrap();
        (result.exit_reason, result.iterations, result.pass, result.score)
    };
    assert_eq!(played([0.9, 0.1], false).await, (ExitReason::Confident, 1, 1, None));
    assert_eq!(played([0.5, 0.6], false).await, (ExitReason::MaxIterations, 2, 2, None));
    assert_eq!(played([0.5, 0.9], true).await, (ExitReason::Confident, 2, 2, Some(0.9)));
    assert_eq!(played([0.5, 0.4], true).await, (ExitReason::MaxIterations, 2, 1, Some(0.5)));
    let nobody = model(&[]);
    let builder = || RefinementLoop::builder(writer(&nobody));
    let refused = |builder: RefinementLoopBuilder| builder.build().unwrap_err().to_string();
    let structured = ConfidenceProtocol::structured;
    assert!(refused(builder().judging_itself().confidence(structured())).contains("no confidence threshold"));
    assert!(refused(builder().judging_itself().confident_at(0.5)).contains("no protocol"));
    for at in [-0.1, 1.1, f64::NAN] {
        let text = refused(builder().judging_itself().confidence(structured()).confident_at(at));
        assert!(text.contains("from 0 to 1"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_frame_can_be_the_evaluator() {
    let model = Recorder::new(&json!([
        { "when": { "title": "pass 1" }, "turns": [{ "text": "short" }] },
        { "when": { "title": "pass 2" }, "turns": [{ "text": "long enough" }] },
        { "when": { "prompt": "^Judge: \"short" }, "turns": [{ "text": "{\"status\":\"failed\",\"summary\":\"too short\"}" }] },
        { "when": { "agent": "writer" }, "turns": [{ "text": "{\"status\":\"success\",\"summary\":\"fine\"}" }] },
    ]));
    let judges = Arc::clone(&model);
    let judge = as_tool(move || Ok::<_, String>(writer(&judges)), "judge", "Judges.").unwrap();
    let refining = RefinementLoop::builder(writer(&model)).async_evaluator(move |judging| {
        let judge = judge.clone();
        async move {
            let said = judge.run(&judging.parent, &format!("Judge: {}", judging.result)).await?;
            let passed = said.status == FrameStatus::Success;
            Ok::<_, FrameError>(Evaluation { passed, feedback: said.summary, score: None })
        }
    });
    let refining = refining.build().unwrap();
    let (result, log) = inside(|cx, _| async move { refining.run(&Parent::of(&cx), "Write.").await }).await;
    let result = result.unwrap();
    assert_eq!((result.result, result.exit_reason), (json!("long enough"), ExitReason::Passed));
    assert!(timeline(&log).contains("root/Write./Judge:-\"short\" started"), "{}", timeline(&log));
    assert!(prompts(&model)[2].contains("What is to be better: too short"));
}
