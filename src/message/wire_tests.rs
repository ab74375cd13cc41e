//! WIRE.md section 1: round trips, what is kept, what is refused.

use serde_json::json;

use super::super::*;
use super::*;
use crate::outcome::*;

pub(in crate::message) const ENV: &str = r#""seq":7,"run_seq":3,"time":"2026-11-30T15:14:19.000123Z","root_run_id":"018f0000-0000-7000-8000-000000000000","run_id":"r2","parent_run_id":"r1","parent_tool_call_id":null,"subtask_depth":2"#;

/// A body of each kind, with all keys that go together; `E` is the envelope.
const KINDS: [&str; 18] = [
    r#""run_started",E,"agent":"a","title":"t","task":"do","scope":"foreground","producer":"tool_loop","model":"m","attempt":2"#,
    r#""run_finished",E,"ok":true,"outcome":"completed","result":null,"stop_class":"no_return","usage":{"input_tokens":1,"output_tokens":2,"model_calls":1},"turns":1"#,
    r#""run_finished",E,"ok":false,"outcome":"cancelled","error":"x","stop_class":"stopped","by":"self","forced":true,"partial":"p""#,
    r#""task_update",E,"event":"step_started","task":{"id":"t","title":"T","zeta":[1,2.5]},"step":{"id":"s","instructions":"i"}"#,
    r#""step_result",E,"step":{},"result":{"b":1,"a":2},"error":"no","is_task_result":true"#,
    r#""chunk",E,"content":"héllo\n","done":false,"thinking":true,"content_type":"audio","node_id":"n""#,
    r#""tool_call_update",E,"tool_call_id":"call_0","call_index":0,"name":"grep","args":{"pattern":"x"},"message":"Searching","via":3"#,
    r#""tool_result_update",E,"tool_call_id":"call_0","call_index":0,"name":"grep","is_error":false,"result":{"result":1},"duration_ms":5"#,
    r#""turn_finished",E,"turn":1,"stop_reason":"missing","usage":{"input_tokens":1,"output_tokens":2,"cached_tokens":1,"cost_usd":0.25,"model_calls":1}"#,
    r#""planning_update",E,"phase":"generation","status":"running","content":"c""#,
    r#""log_update",E,"content":"c","severity":"warning","node_id":"n","node_name":"N""#,
    r#""todo_update",E,"todos":[{"content":"c","status":"weird"}]"#,
    r#""retrying",E,"attempt":2,"delay_ms":100,"reason":"429""#,
    r#""queued",E,"waiting_for":"permit""#,
    r#""ask",E,"request_id":"q","kind":"permission","title":"t","deadline_ms":5,"tool":"w","args":{},"risk":"high""#,
    r#""ask_answered",E,"request_id":"q","decision":"deny","by":"nobody","text":"t""#,
    r#""alert",E,"from":"f","kind":"completed","text":"t""#,
    r#""error",E,"message":"m","severity":"warning""#,
];

pub(in crate::message) fn every_kind() -> impl Iterator<Item = String> {
    KINDS.iter().map(|body| format!("{{\"type\":{}}}", body.replace('E', ENV)))
}

fn round(line: &str) -> ProcessingMessage {
    let message = ProcessingMessage::from_json(line).unwrap();
    assert_eq!(message.to_json(), line);
    let again: ProcessingMessage = serde_json::from_str(line).unwrap();
    assert_eq!(again, message);
    assert_eq!(serde_json::to_string(&again).unwrap(), line);
    message
}

#[test]
fn every_kind_survives_a_round_trip() {
    for line in every_kind() {
        let message = round(&line);
        assert!(!matches!(message.body(), MessageBody::Other(_)), "{line}: {:?}", message.body());
        assert!(message.verbatim().is_none(), "{line} is not in canonical form");
        assert!(message.body().approx_bytes() > 0);
    }
}

#[test]
fn unknown_kinds_and_keys_survive_byte_for_byte() {
    let numbers = r#"{"b":1e5,"a":[2.50,123456789012345678901234567890, null],"b":"é"}"#;
    let unknown = round(&format!(r#"{{"type":"brand_new",{ENV},"x":{numbers},"y":true}}"#));
    let MessageBody::Other(body) = unknown.body() else { panic!("{unknown:?}") };
    assert_eq!(
        (body.kind.as_str(), body.fields.get("x"), &body.problem),
        ("brand_new", Some(numbers), &None)
    );
    let known = round(&format!(r#"{{"type":"queued",{ENV},"waiting_for":"permit","since":{numbers}}}"#));
    let MessageBody::Queued(body) = known.body() else { panic!("{known:?}") };
    assert_eq!(body.extra.get("since"), Some(numbers));
    round(&format!(r#"{{"type":"chunk",{ENV},"content":"a","done":false,"lang":"de"}}"#));
    // Another order, other spacing and other spellings of the same values are kept as well.
    round(&format!(r#"{{ "content": "\u0061", "done": true, "type": "chunk", {ENV} }}"#));
    round(&format!(r#"{{"type":"chunk",{ENV},"content":"a","done":false,"thinking":false}}"#));
    round(
        &ENV.replace("19.000123Z", "19Z")
            .split_inclusive('}')
            .map(|e| format!(r#"{{"type":"x",{e}}}"#))
            .collect::<String>(),
    );
}

#[test]
fn stamping_anew_keeps_unknown_keys_and_drops_the_old_line() {
    let message = round(&format!(r#"{{ "type":"chunk",{ENV},"content":"a","done":false,"lang":"de"}}"#));
    let nesting = Nesting { seq: 9, ..message.nesting().unwrap().clone() };
    let line = message.stamped(nesting).to_json();
    assert_eq!(
        line,
        format!(
            r#"{{"type":"chunk",{},"content":"a","done":false,"lang":"de"}}"#,
            ENV.replace("\"seq\":7", "\"seq\":9")
        )
    );
}

#[test]
fn a_known_kind_with_a_wrong_body_is_kept_with_the_problem() {
    let message = round(&format!(r#"{{"type":"run_finished",{ENV},"ok":true,"outcome":"exploded"}}"#));
    let MessageBody::Other(body) = message.body() else { panic!("{message:?}") };
    assert!(body.problem.as_ref().unwrap().contains("exploded"), "{body:?}");
}

#[test]
fn what_is_not_a_message_is_refused_with_a_reason() {
    let reason = |line: &str| ProcessingMessage::from_json(line).unwrap_err().to_string();
    assert!(reason("[1]").contains("a JSON object"), "{}", reason("[1]"));
    assert!(reason(r#"{"type":"chunk","content":"#).contains("EOF"));
    assert_eq!(reason(r#"{"seq":1}"#), "not a message: no key \"type\"");
    assert_eq!(
        reason(r#"{"type":"x","seq":1}"#),
        "not a message: an envelope with \"seq\" but no \"run_id\""
    );
    assert!(reason(r#"{"type":"x","seq":-1,"run_id":"r"}"#).contains("key \"seq\""));
    let bad_time = format!(r#"{{"type":"x",{}}}"#, ENV.replace("2026-11", "2026-99"));
    assert!(reason(&bad_time).contains("RFC 3339"), "{}", reason(&bad_time));
}

#[test]
fn ac8_ac9_ac10_tagging() {
    let original: ProcessingMessage = StepResult {
        step: StepRef::default(),
        result: json!({"big": 1}),
        error: None,
        is_task_result: None,
        extra: Extra::default(),
    }
    .into();
    let same = |a: &ProcessingMessage, b: &ProcessingMessage| match (a.body(), b.body()) {
        (MessageBody::StepResult(a), MessageBody::StepResult(b)) => Arc::ptr_eq(a, b),
        _ => false,
    };
    let untouched = original.tagged(&Tag::default());
    assert!(same(&untouched, &original) && untouched.tag().is_none());
    let tagged = original.tagged(&Tag { parent_tool_call_id: Some(Some("call_1".into())), depth: Some(2) });
    assert_eq!(
        tagged.to_json(),
        r#"{"type":"step_result","parent_tool_call_id":"call_1","subtask_depth":2,"step":{},"result":{"big":1}}"#
    );
    assert!(same(&tagged, &original) && original.tag().is_none());
    let null_parent = original.tagged(&Tag { parent_tool_call_id: Some(None), depth: None });
    assert_eq!(
        null_parent.to_json(),
        r#"{"type":"step_result","parent_tool_call_id":null,"step":{},"result":{"big":1}}"#
    );
    // What is nearer to the source stays.
    let again = tagged.tagged(&Tag { parent_tool_call_id: Some(Some("outer".into())), depth: Some(1) });
    assert_eq!(again, tagged);
    assert_eq!(ProcessingMessage::from_json(&tagged.to_json()).unwrap(), tagged);
}

#[test]
fn outcomes_survive_their_wire_form() {
    let outcomes = [
        SubAgentOutcome::completed(json!({"a": 1})),
        SubAgentOutcome::completed(json!(null)),
        SubAgentOutcome::stopped_by(LimitKind::Turns, "no more turns").with_partial(Some(json!("p"))),
        SubAgentOutcome::Cancelled { by: CancelledBy::DeadlineOfParent, forced: true, partial: None },
        SubAgentOutcome::failed(FailureKind::Vanished, "gone"),
    ];
    for outcome in outcomes {
        let body = RunFinished::new(outcome.clone(), Default::default());
        let line = ProcessingMessage::new(body).to_json();
        let back = ProcessingMessage::from_json(&line).unwrap();
        let MessageBody::RunFinished(body) = back.body() else { panic!("{back:?}") };
        assert_eq!(body.to_outcome(), outcome, "{line}");
        assert_eq!(body.ok, outcome.is_ok());
    }
}

#[test]
fn large_bodies_are_cut_with_a_marker() {
    let chunk = MessageBody::from(Chunk::text("é".repeat(1000))).capped(500);
    let MessageBody::Chunk(chunk) = &chunk else { panic!() };
    assert!(chunk.content.ends_with("…[cut: 500 of 2000 bytes]"), "{}", chunk.content);
    let args = json!({"path": "a.rs", "content": "x".repeat(10_000)});
    let call = ToolCallUpdate {
        tool_call_id: "c".into(),
        call_index: 0,
        name: "write_file".into(),
        args: Arc::new(args.as_object().unwrap().clone()),
        message: None,
        via: None,
        extra: Extra::default(),
    };
    let MessageBody::ToolCallUpdate(call) = MessageBody::from(call).capped(2000) else { panic!() };
    assert_eq!(call.args["path"], json!("a.rs"));
    assert!(call.args["content"].as_str().unwrap().ends_with("…[cut: 1000 of 10000 bytes]"));
    let small = MessageBody::from(Chunk::text("x"));
    assert_eq!(small.clone().capped(1000), small);
}
