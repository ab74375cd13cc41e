//! Every row of the table of a child's outputs, and the class that is ours.

use serde_json::json;

use super::*;
use crate::frame::result::{FrameStatus, result_schema};

fn contract() -> Contract {
    let schema = Schema::compile(std::sync::Arc::new(result_schema()), "frame").unwrap();
    Contract { schema, fits: None, unwraps_fence: false }
}

fn read(text: &str) -> Result<FrameResult, Rejection> {
    contract().read(&json!(text))
}

/// The class in one word, with the place of what violates the schema.
fn class(text: &str) -> String {
    match read(text) {
        Ok(result) => result.status.to_string(),
        Err(Rejection::Empty) => "empty".to_owned(),
        Err(Rejection::NotJson { .. }) => "not json".to_owned(),
        Err(Rejection::NotSchema { path, .. }) => format!("not schema {path:?}"),
    }
}

#[track_caller]
fn all(expected: &str, texts: &[&str]) {
    for text in texts {
        assert_eq!(class(text), expected, "{text}");
    }
}

const GOOD: &str = r#"{"status":"success","summary":"done","findings":{"n":1}}"#;

#[test]
fn b12_no_text_and_blanks_are_empty() {
    all("empty", &["", " ", "\n\t\n"]);
    assert_eq!(contract().read(&Value::Null), Err(Rejection::Empty));
}

#[test]
fn b8_what_is_not_one_json_value_is_not_json() {
    let fenced = format!("```json\n{GOOD}\n```");
    let rows = [
        "done",
        &format!("Here it is: {GOOD}"),
        &format!("{GOOD} That is all."),
        &format!("{GOOD}{GOOD}"),
        &GOOD[..GOOD.len() - 1],
        r#"{"status":"success","summary":"done",}"#,
        &format!("\u{feff}{GOOD}"),
        &fenced,
    ];
    all("not json", &rows);
    let Err(Rejection::NotJson { reason }) = read("done") else { panic!() };
    assert!(reason.contains("line 1 column 1"), "{reason}");
}

#[test]
fn b2_b7_one_object_is_a_result_with_blanks_around_it_or_not() {
    let result = read(&format!(" \n{GOOD}\t\n")).unwrap();
    assert_eq!((result.status, result.summary.as_str()), (FrameStatus::Success, "done"));
    assert_eq!((result.findings, result.rejection), (json!({"n": 1}), None));
    let result = read(r#"{"status":"partial","summary":"half","findings":{"left":2,"why":"time"}}"#).unwrap();
    assert_eq!((result.status, result.findings), (FrameStatus::Partial, json!({"left": 2, "why": "time"})));
    all(
        "success",
        &[
            r#"{"status":"success","summary":"done"}"#,
            r#"{"status":"success","summary":"done","findings":null}"#,
            r#"{"status":"success","summary":" "}"#,
            r#"{"status":"failed","status":"success","summary":"the last of two keys counts"}"#,
        ],
    );
    // Of an agent that hands over a value instead of a text.
    assert_eq!(
        contract().read(&json!({"status": "failed", "summary": "no"})).unwrap().status,
        FrameStatus::Failed
    );
}

#[test]
fn values_that_are_no_objects_violate_the_schema_as_a_whole() {
    all(r#"not schema """#, &["[]", "\"text\"", "7", "true", "null", "[1]"]);
}

#[test]
fn b9_b10_b11_status_and_summary_that_are_missing_or_wrong() {
    all(r#"not schema """#, &["{}", r#"{"summary":"x"}"#, r#"{"status":"success"}"#]);
    all(
        r#"not schema "/status""#,
        &[
            r#"{"status":null,"summary":"x"}"#,
            r#"{"status":"","summary":"x"}"#,
            r#"{"status":"done","summary":"x"}"#,
            r#"{"status":"Success","summary":"x"}"#,
            r#"{"status":1,"summary":"x"}"#,
            r#"{"status":{},"summary":"x"}"#,
        ],
    );
    all(
        r#"not schema "/summary""#,
        &[
            r#"{"status":"success","summary":null}"#,
            r#"{"status":"success","summary":""}"#,
            r#"{"status":"success","summary":7}"#,
            r#"{"status":"success","summary":["x"]}"#,
        ],
    );
}

#[test]
fn extra_keys_and_keys_in_another_case_violate_the_schema() {
    all(
        r#"not schema """#,
        &[
            r#"{"status":"success","summary":"x","more":1}"#,
            r#"{"STATUS":"success","summary":"x"}"#,
            r#"{"status":"success","Summary":"x"}"#,
            r#"{"status":"success","summary":"x","rejection":{"class":"empty"}}"#,
        ],
    );
    let Err(Rejection::NotSchema { reason, .. }) = read(r#"{"status":"success","summary":"x","more":1}"#)
    else {
        panic!()
    };
    assert!(reason.contains("'more'"), "{reason}");
}

#[test]
fn findings_are_an_object_or_null() {
    all(
        r#"not schema "/findings""#,
        &[
            r#"{"status":"success","summary":"x","findings":[1]}"#,
            r#"{"status":"success","summary":"x","findings":"text"}"#,
            r#"{"status":"success","summary":"x","findings":3}"#,
        ],
    );
}

#[test]
fn numbers_of_findings_keep_all_digits_or_are_refused() {
    let text = |number: &str| format!(r#"{{"status":"success","summary":"x","findings":{{"n":{number}}}}}"#);
    let result = read(&text("9007199254740993")).unwrap();
    assert_eq!(result.to_value()["findings"].to_string(), r#"{"n":9007199254740993}"#);
    let Err(Rejection::NotSchema { path, reason }) = read(&text("123456789012345678901234567890")) else {
        panic!()
    };
    assert_eq!(path, "/findings/n");
    assert!(reason.contains("123456789012345678901234567890") && reason.contains("as a string"), "{reason}");
}

#[test]
fn one_fence_around_the_whole_is_taken_off_if_that_is_asked_for() {
    let contract = Contract { unwraps_fence: true, ..contract() };
    for text in [GOOD.to_owned(), format!("```json\n{GOOD}\n```"), format!("\n```\n{GOOD}\n```\n")] {
        assert_eq!(contract.read(&json!(text)).unwrap().status, FrameStatus::Success, "{text}");
    }
    for text in [format!("Here:\n```json\n{GOOD}\n```"), format!("```json\n{GOOD}\n```\nThat is all.")] {
        assert!(matches!(contract.read(&json!(text)), Err(Rejection::NotJson { .. })), "{text}");
    }
}

#[test]
fn what_is_nested_too_deep_to_be_read_is_no_json() {
    let deep =
        format!(r#"{{"status":"success","summary":"x","findings":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    assert_eq!(class(&deep), "not json");
}
