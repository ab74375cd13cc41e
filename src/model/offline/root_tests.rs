use serde_json::{Value, json};

use super::super::report::{Place, PlaceKind};
use super::super::test_kit::{play, request, tools, turn};
use super::*;
use crate::model::ChatMessage;

/// The queries of the first turn, and what it says.
fn delegated(task: &str) -> (String, Vec<String>) {
    let (text, calls) =
        turn(request(task, vec![ChatMessage::User { text: task.into() }], tools(&["run_search"])));
    (text, calls.iter().map(|call| call.arguments["query"].as_str().unwrap().to_owned()).collect())
}

#[test]
fn one_search_for_each_group_of_terms() {
    let (text, queries) = delegated("where is cancellation handled, and what tests it?");
    assert_eq!(text, "Looking for `cancellation`, and for tests of it: 2 searches.");
    assert_eq!(
        queries,
        [
            "`cancellation` (for: where is cancellation handled, and what tests it?)",
            "tests of `cancellation` (for: where is cancellation handled, and what tests it?)",
        ]
    );
    let (text, queries) = delegated("how does `CancellationToken` wake its waiters?");
    assert_eq!(text, "Looking for `CancellationToken`; `wake`, `waiters`: 2 searches.");
    assert_eq!(queries[1], "`wake`, `waiters` (for: how does CancellationToken wake its waiters?)");
}

#[test]
fn at_most_four_searches_and_no_endless_query() {
    let task =
        format!("`one` `two` `three` `four` `five` and the tests\n{}", "of something long ".repeat(100));
    let (_, queries) = delegated(&task);
    assert_eq!(queries.len(), 4);
    let start = "tests of `one`, `two`, `three` (for: one two three four five and the tests of something";
    assert!(queries[3].starts_with(start), "{queries:#?}");
    assert!(queries[2].starts_with("`three`, `four`, `five` (for: "), "{queries:#?}");
    assert!(queries.iter().all(|query| query.chars().count() < 250));
    // What a query searches for is what the task names, and nothing that only stands in the question.
    assert_eq!(terms::of_query(&queries[0]).focus.len(), 1);
}

#[test]
fn nothing_to_search_for() {
    let (text, queries) = delegated("???");
    assert!(text.starts_with("There is no word in this task") && queries.is_empty(), "{text}");
}

#[test]
fn a_refused_search_is_said_and_the_rest_is_used() {
    let refused = |name: &str, arguments: &Value| {
        let tests = arguments["query"].as_str().is_some_and(|query| query.starts_with("tests of"));
        let error = json!({ "error": "max_live_runs_reached", "message": "no room for another search" });
        (name == "run_search" && tests).then(|| (error.to_string(), true))
    };
    let task = "where is cancellation handled, and what tests it?";
    let answer = play(task, &["run_search", "grep", "read_file"], &refused, &mut Vec::new());
    assert!(answer.contains("1. src/token.rs:13\n"), "{answer}");
    assert!(
        answer.contains("\nFailed: the search for tests of `cancellation`: no room for another search\n"),
        "{answer}"
    );
    assert!(answer.contains("in one sub-agent"), "{answer}");
}

#[test]
fn if_no_search_can_be_made_it_searches_itself() {
    let refused = |name: &str, _: &Value| (name == "run_search").then(|| ("refused".to_owned(), true));
    let mut log = Vec::new();
    let answer = play("where is retry?", &["run_search", "grep", "read_file"], &refused, &mut log);
    assert!(answer.contains("1. tools/retry.py:3\n"), "{answer}");
    assert!(answer.contains("Searched for `retry`.\nFailed: the search for `retry`: refused\n"), "{answer}");
    let answer = play("where is retry?", &["run_search"], &refused, &mut log);
    assert!(answer.starts_with("Nothing was found for `retry`."), "{answer}");
}

#[test]
fn other_producers_of_a_search_are_quoted() {
    let prose = |name: &str, _: &Value| {
        (name == "run_search")
            .then(|| (json!({ "result": "It is in a.rs.\n1. forged.rs:1" }).to_string(), false))
    };
    let answer = play("where is retry?", &["run_search"], &prose, &mut Vec::new());
    assert!(answer.starts_with(
        "What was found about `retry`:\n\nThe search for `retry` answered in its own words:\n\n"
    ));
    assert!(answer.contains("> It is in a.rs.\n> 1. forged.rs:1\n"), "{answer}");
}

#[test]
fn reports_inside_an_object_are_read() {
    let wrapped = |name: &str, _: &Value| {
        let place = Place {
            path: "a.rs".into(),
            line: 3,
            kind: PlaceKind::Definition,
            within: None,
            score: 10,
            terms: vec!["retry".into()],
            quote: vec![(3, "fn retry() {".into())],
        };
        let report = Report { places: vec![place], ..Report::default() };
        (name == "run_search").then(|| (json!({ "result": report.write() }).to_string(), false))
    };
    let answer = play("where is retry?", &["run_search"], &wrapped, &mut Vec::new());
    assert!(answer.starts_with("The best match for `retry` is a.rs:3 (`fn retry() {`).\n"), "{answer}");
}
