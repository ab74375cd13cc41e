//! Frames as library values: typed findings, errors with their causes, the battery.

use std::sync::{Arc, Mutex};

use anabranch::agent::Agent;
use anabranch::frame::{FrameErrorKind, FrameStatus, Parent, as_tool, as_tool_typed};
use anabranch::outcome::SubAgentOutcome;
use anabranch::testing::{TestRoot, check_sub_agent, timeline};
use anabranch::tool::Toolset;
use anabranch::{RunSpec, SubAgentStream};
use serde_json::{Value, json};

use crate::frames::{GOOD, agent};
use crate::stage::{Recorder, calls};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Review {
    /// Each in one sentence.
    defects: Vec<String>,
    /// In the file.
    lines: u8,
}

#[tokio::test(start_paused = true)]
async fn typed_findings_are_checked_and_read_back() {
    let rows = [
        (
            r#"{"status":"success","summary":"x","findings":{"defects":["one"],"lines":3}}"#,
            "success",
            Value::Null,
        ),
        (r#"{"status":"failed","summary":"x"}"#, "failed", Value::Null),
        (r#"{"status":"success","summary":"x"}"#, "failed", json!("/findings")),
        (r#"{"status":"success","summary":"x","findings":{"defects":[]}}"#, "failed", json!("/findings")),
        (
            r#"{"status":"success","summary":"x","findings":{"defects":["one"],"lines":300}}"#,
            "failed",
            json!("/findings"),
        ),
    ];
    for (text, status, path) in rows {
        let model = Recorder::new(&json!([{ "turns": [{ "text": text }] }]));
        let played = Arc::clone(&model);
        let build = move || Ok::<_, String>(agent(&model));
        let frame = as_tool_typed::<Review, _>(build, "review", "Reviews.").unwrap();
        let test = TestRoot::new();
        let slot = Arc::new(Mutex::new(None));
        let kept = Arc::clone(&slot);
        let run = test.root().run(RunSpec::new("host", "review"), |cx| {
            SubAgentStream::generate(|_| async move {
                let result = frame.run(&Parent::of(&cx), "Review it.").await;
                *kept.lock().unwrap() = Some(result);
                SubAgentOutcome::completed("asked")
            })
        });
        assert!(run.settle().await.is_ok());
        test.finish();
        let result = slot.lock().unwrap().take().unwrap().unwrap();
        assert_eq!(result.status.as_str(), status, "{text}");
        let rejected = result
            .rejection
            .as_ref()
            .map(|rejection| serde_json::to_value(rejection).unwrap()["path"].clone());
        assert_eq!(rejected.unwrap_or_default(), path, "{text}: {:?}", result.rejection);
        if result.status == FrameStatus::Success {
            let review: Review = result.findings_as().unwrap();
            assert_eq!((review.defects, review.lines), (vec!["one".to_owned()], 3));
        }
        assert!(played.requests()[0].system.as_deref().unwrap().contains("Each in one sentence."));
    }
}

#[tokio::test(start_paused = true)]
async fn a_frame_is_a_library_value_whose_error_keeps_its_cause() {
    let cause = std::io::Error::other("no seat left");
    let slot = Mutex::new(Some(cause));
    let frame =
        as_tool(move || Err::<Agent, _>(slot.lock().unwrap().take().unwrap()), "ask", "Asks.").unwrap();
    let test = TestRoot::new();
    let run = test.root().run(RunSpec::new("host", "ask"), |cx| {
        SubAgentStream::generate(|_| async move {
            let error = frame.run(&Parent::of(&cx), "Ask.").await.unwrap_err();
            assert!(matches!(error.kind, FrameErrorKind::Factory(_)));
            let source = std::error::Error::source(&error).unwrap();
            assert!(source.downcast_ref::<std::io::Error>().is_some());
            SubAgentOutcome::completed(error.to_string())
        })
    });
    assert_eq!(
        run.settle().await,
        SubAgentOutcome::completed("subagent ask: its factory failed: no seat left")
    );
    assert_eq!(timeline(&test.finish()).lines().count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_frame_below_a_producer_passes_the_battery() {
    let turns = json!([calls("chaos_progress", json!({"n": 2, "ms": 5})), { "text": "no json" }, { "chunks": [&GOOD[..9], &GOOD[9..]] }]);
    let model = Recorder::new(&json!([{ "turns": turns }]));
    let report = check_sub_agent(|cx| {
        let model = Arc::clone(&model);
        let build =
            move || anabranch::tool::chaos::add_to(&Toolset::new()).map(|tools| agent(&model).tools(tools));
        let frame = as_tool(build, "ask", "Asks.").unwrap().correcting_once();
        SubAgentStream::generate(|_| async move {
            match frame.run(&Parent::of(&cx), "Ask.").await {
                Ok(result) => SubAgentOutcome::completed(result.summary),
                Err(error) => match error.kind {
                    FrameErrorKind::Ended(outcome) => outcome,
                    _ => SubAgentOutcome::failed(anabranch::outcome::FailureKind::Step, error.to_string()),
                },
            }
        })
    })
    .await;
    assert!(report.is_ok(), "{report}");
}

/// A type that says of itself what is no schema.
#[derive(serde::Deserialize)]
struct Malformed;

impl schemars::JsonSchema for Malformed {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Malformed".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": 3 })
    }
}

#[test]
fn a_type_without_a_usable_schema_is_refused_when_the_frame_is_made() {
    let error = as_tool_typed::<Malformed, _>(|| Err::<Agent, _>("none"), "ask", "Asks.").unwrap_err();
    assert!(error.to_string().starts_with("schema of ask is not usable: "), "{error}");
}
