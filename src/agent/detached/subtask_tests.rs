use super::*;
use crate::outcome::{CancelledBy, FailureKind, LimitKind};

fn subtask(name: &str) -> Subtask {
    Subtask::new(RunId::parse(name), "count the files".into(), vec![RunId::parse("root")])
}

fn run() -> SubAgentRun {
    SubAgentRun::new("subtask", "Count.")
}

/// The row of a wait with this much room.
fn row(subtask: &Subtask, room: &mut Room) -> Value {
    let (mut row, has_settled) = subtask.row();
    if has_settled {
        subtask.hand_over(&mut row, room);
    }
    Value::Object(row)
}

#[test]
fn ac36_the_first_settlement_stays() {
    let subtask = subtask("a");
    assert!(subtask.is_running());
    subtask.settle(&run(), &SubAgentOutcome::cancelled(CancelledBy::User));
    subtask.settle(&run(), &SubAgentOutcome::completed("late"));
    let row = row(&subtask, &mut Room::new(1000));
    assert_eq!((&row["status"], row.get("result")), (&json!("cancelled"), None));
    assert_eq!(row["error"], json!("cancelled by user"));
}

#[test]
fn every_outcome_has_its_row() {
    let base = |status: &str| json!({ "subtask_id": "a", "depth": 1, "description": "count the files", "status": status });
    let with = |status: &str, more: Value| {
        let mut row = base(status);
        row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        row
    };
    assert_eq!(row(&subtask("a"), &mut Room::new(1000)), base("running"));
    let stopped = SubAgentOutcome::stopped_by(LimitKind::Turns, "stopped by the limit on turns");
    for (outcome, expected) in [
        (SubAgentOutcome::completed(json!({ "n": 4 })), with("completed", json!({ "result": { "n": 4 } }))),
        (
            SubAgentOutcome::completed(Value::Null),
            with(
                "failed",
                json!({ "code": "subtask_no_result", "error": "The sub-agent ended without a result." }),
            ),
        ),
        (
            SubAgentOutcome::failed(FailureKind::Panic, "it panicked").with_partial(Some(json!("half"))),
            with(
                "failed",
                json!({ "code": "subtask_failed", "error": "it panicked", "outcome": "failed", "stop_class": "error", "partial": "half" }),
            ),
        ),
        (
            stopped,
            with(
                "stopped",
                json!({ "code": "subtask_failed", "error": "stopped by the limit on turns", "outcome": "stopped", "stop_class": "max_steps" }),
            ),
        ),
    ] {
        let subtask = subtask("a");
        subtask.settle(&run(), &outcome);
        assert_eq!(row(&subtask, &mut Room::new(1000)), expected);
        // The second time there is only the word of it.
        let again = row(&subtask, &mut Room::new(1000));
        assert_eq!(again, with(expected["status"].as_str().unwrap(), json!({ "delivered": true })));
    }
}

#[test]
fn what_does_not_fit_is_held_back_and_nothing_is_lost() {
    let long = "x".repeat(400);
    let subtasks = ["a", "b", "c"].map(subtask);
    for subtask in &subtasks {
        subtask.settle(&run(), &SubAgentOutcome::completed(long.clone()));
    }
    let rows = |bytes| {
        let mut room = Room::new(bytes);
        let rows: Vec<Value> = subtasks.iter().map(|subtask| row(subtask, &mut room)).collect();
        (rows, room.holds_back)
    };
    let (first, holds_back) = rows(1100);
    assert_eq!((&first[0]["result"], &first[1]["result"]), (&json!(long), &json!(long)));
    assert_eq!((&first[2]["held_back"], first[2].get("result"), holds_back), (&json!(true), None, true));
    let (second, holds_back) = rows(1100);
    assert_eq!((&second[0]["delivered"], &second[1]["delivered"]), (&json!(true), &json!(true)));
    assert_eq!((&second[2]["result"], holds_back), (&json!(long), false));
}

#[test]
fn one_that_is_too_large_by_itself_is_cut_with_both_sizes() {
    let subtask = subtask("a");
    subtask.settle(&run(), &SubAgentOutcome::completed("x".repeat(10_000)));
    let row = row(&subtask, &mut Room::new(1000));
    let text = row["result"].as_str().unwrap();
    assert!(text.len() < 1000 && text.ends_with("[cut: 500 of 10000 bytes]"), "{text}");
    assert_eq!(row["status"], json!("completed"));
}
