//! Spec section 2, row by row: AC-1 to AC-7 and the edge cases.

use serde_json::{Value, json};

use super::*;

#[expect(clippy::needless_pass_by_value, reason = "reads better at the call")]
fn settle(error: Option<&str>, result: Value, has_schema: bool) -> Option<SubAgentOutcome> {
    settle_step_result(StepReport { error, result: Some(&result) }, has_schema)
}

fn failure_text(outcome: Option<SubAgentOutcome>) -> String {
    match outcome {
        Some(SubAgentOutcome::Failed { kind: FailureKind::Step, message, .. }) => message,
        other => panic!("not a failure: {other:?}"),
    }
}

#[test]
fn ac1_a_top_level_error_is_a_failure_with_that_text() {
    assert_eq!(failure_text(settle(Some("boom"), json!("x"), false)), "boom");
    assert_eq!(failure_text(settle(Some("boom"), json!({"error": "y"}), true)), "boom");
    assert_eq!(
        failure_text(settle_step_result(StepReport { error: Some("boom"), result: None }, true)),
        "boom"
    );
}

#[test]
fn ac2_a_null_or_absent_result_does_not_settle() {
    assert_eq!(settle(None, Value::Null, false), None);
    assert_eq!(settle(None, Value::Null, true), None);
    assert_eq!(settle_step_result(StepReport::default(), false), None);
    // An empty error text is no error, so the next rule decides.
    assert_eq!(settle(Some(""), Value::Null, false), None);
}

#[test]
fn ac3_ac4_without_a_schema_a_string_error_is_a_failure_and_the_rest_is_kept() {
    assert_eq!(failure_text(settle(None, json!({"error": "no"}), false)), "no");
    assert_eq!(failure_text(settle(None, json!({"error": ""}), false)), "");
    let outcome = settle(None, json!({"error": "no", "rows": 3}), false);
    assert_eq!(outcome.as_ref().and_then(SubAgentOutcome::partial), Some(&json!({"error": "no", "rows": 3})));
    assert_eq!(failure_text(outcome), "no");
}

#[test]
fn ac5_ac6_with_a_schema_error_is_an_ordinary_key() {
    for value in [json!({"error": "no", "rows": 3}), json!({"error": "only"})] {
        assert_eq!(settle(None, value.clone(), true), Some(SubAgentOutcome::completed(value)));
    }
}

#[test]
fn ac7_every_other_value_is_a_success() {
    for value in [
        json!("text"),
        json!(""),
        json!(0),
        json!(false),
        json!([]),
        json!({"error": 5}),
        json!([{"error": "x"}]),
    ] {
        assert_eq!(settle(Some(""), value.clone(), false), Some(SubAgentOutcome::completed(value)));
    }
}

#[test]
fn usage_adds_what_is_known() {
    let mut sum = Usage::of_call(3, 4);
    sum.add(&Usage { cached_tokens: Some(2), cost_usd: Some(0.5), ..Usage::of_call(1, 1) });
    assert_eq!((sum.tokens(), sum.model_calls, sum.cached_tokens, sum.cost_usd), (9, 2, Some(2), Some(0.5)));
    assert_eq!(Usage::default().plus(&Usage::default()).cost_usd, None);
}

#[test]
fn a_partial_never_replaces_one_that_is_there() {
    let outcome =
        SubAgentOutcome::Failed { kind: FailureKind::Tool, message: "m".into(), partial: Some(json!("own")) };
    assert_eq!(outcome.with_partial(Some(json!("other"))).partial(), Some(&json!("own")));
    assert_eq!(
        SubAgentOutcome::cancelled(CancelledBy::User).with_partial(Some(json!("t"))).partial(),
        Some(&json!("t"))
    );
}
