//! What comes back of each way in which a run ends.

use super::*;
use crate::outcome::{CancelledBy, FailureKind};

fn record(outcome: &SubAgentOutcome, said: Option<(RunStatus, &str)>, has_schema: bool) -> Value {
    let counters = FinalCounters { turns: 2, duration_ms: 7, ..FinalCounters::default() };
    let said = said.map(|(status, summary)| Report { status, summary: summary.into(), value: None });
    let record = Record::new("a".into(), RunId::parse("r"), outcome, counters, said, has_schema);
    let reply = record.to_reply();
    assert_eq!(reply.is_error, record.error.is_some());
    let mut value = reply.for_model;
    for (key, expected) in
        [("agent", json!("a")), ("session", json!("r")), ("steps", json!(2)), ("duration_ms", json!(7))]
    {
        assert_eq!(value.as_object_mut().unwrap().remove(key), Some(expected));
    }
    assert!(value.as_object_mut().unwrap().remove("usage").is_some());
    value
}

#[test]
fn what_the_run_said_of_itself_counts() {
    let done = SubAgentOutcome::completed("  text ");
    assert_eq!(record(&done, None, false), json!({ "status": "stopped", "summary": "text" }));
    let said = Some((RunStatus::Completed, "summed up"));
    assert_eq!(record(&done, said, false), json!({ "status": "completed", "summary": "summed up" }));
    let said = Some((RunStatus::Blocked, "no way in"));
    assert_eq!(record(&done, said, false), json!({ "status": "blocked", "summary": "no way in" }));
    let nothing = SubAgentOutcome::completed(Value::Null);
    assert_eq!(record(&nothing, said, true), json!({ "status": "blocked", "summary": "no way in" }));
    assert_eq!(record(&nothing, None, false)["error"], "agent_no_result");
}

#[test]
fn a_value_that_was_asked_for_is_completed() {
    let done = SubAgentOutcome::completed(json!({ "n": 1 }));
    assert_eq!(
        record(&done, None, true),
        json!({ "status": "completed", "summary": "", "value": { "n": 1 } })
    );
}

/// Beside the original, where an error makes the caller drop what there was of a result.
#[test]
fn errors_and_partial_results_come_together() {
    let partial = Some(json!("half of it"));
    let failed = SubAgentOutcome::failed(FailureKind::Provider, "it broke").with_partial(partial.clone());
    let expected = json!({ "status": "failed", "summary": "half of it", "error": "agent_failed", "message": "it broke", "stop_class": "error" });
    assert_eq!(record(&failed, None, false), expected);
    // What it had said of itself is better than what it wrote; that it failed stays.
    let said = Some((RunStatus::Completed, "done before it broke"));
    assert_eq!(record(&failed, said, false)["summary"], "done before it broke");
    assert_eq!(record(&failed, said, false)["status"], "failed");
    let status = |outcome: SubAgentOutcome| {
        let value = record(&outcome.with_partial(partial.clone()), None, false);
        assert_eq!(value["summary"], "half of it");
        (value["status"].as_str().unwrap().to_owned(), value["error"].as_str().unwrap().to_owned())
    };
    let pair = |status: &str, error: &str| (status.to_owned(), error.to_owned());
    assert_eq!(
        status(SubAgentOutcome::stopped_by(LimitKind::Wall, "late")),
        pair("timed_out", "agent_timed_out")
    );
    assert_eq!(
        status(SubAgentOutcome::stopped_by(LimitKind::Idle, "idle")),
        pair("timed_out", "agent_timed_out")
    );
    assert_eq!(
        status(SubAgentOutcome::stopped_by(LimitKind::Turns, "turns")),
        pair("stopped", "agent_stopped")
    );
    assert_eq!(status(SubAgentOutcome::cancelled(CancelledBy::User)), pair("cancelled", "agent_cancelled"));
}
