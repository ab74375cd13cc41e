//! Whole runs, as a person sees them, and the stream of a turn.

use serde_json::json;
use tokio_test::block_on;

use super::super::test_kit::{golden, play, request, tools, turn};
use super::*;

#[test]
fn the_main_job() {
    let mut log = Vec::new();
    let task = "where is cancellation handled, and what tests it?";
    let answer = play(task, &["run_search", "grep", "read_file"], &|_, _| None, &mut log);
    golden("main_job.txt", include_str!("golden/main_job.txt"), &answer);
    // The two searches find the same tree: one golden text is enough.
    let searches = log.iter().filter(|line| line.starts_with("  run_search")).count();
    assert_eq!(searches, 2);
    let grepped = log.iter().filter(|line| line.starts_with("  grep")).count();
    assert!((8..=14).contains(&grepped), "{log:#?}");
}

#[test]
fn a_run_that_cannot_delegate_answers_itself() {
    let mut log = Vec::new();
    let answer = play("what does `retry` do on a 429?", &["grep", "read_file"], &|_, _| None, &mut log);
    golden("alone.txt", include_str!("golden/alone.txt"), &answer);
    let names: Vec<&str> = log.iter().map(|line| line.trim_start().split(" {").next().unwrap()).collect();
    assert_eq!(names[0], "Searching for definitions, documents and uses of `retry`, `429`.");
    assert_eq!(names[1..7], ["grep"; 6]);
    assert_eq!(names[7..], ["2 lines in 1 file match; reading the best 1 place.", "read_file"]);
}

#[test]
fn a_delegated_search_reports() {
    let prompt = "Look around.\n<query>\ntests of `cancellation`\n</query>\nReport.";
    let mut log = Vec::new();
    let report = play(prompt, &["grep", "read_file"], &|_, _| None, &mut log);
    golden("report.txt", include_str!("golden/report.txt"), &report);
}

#[test]
fn without_read_file_the_matching_lines_are_quoted() {
    let answer = play("where is retry?", &["grep"], &|_, _| None, &mut Vec::new());
    golden("grep_only.txt", include_str!("golden/grep_only.txt"), &answer);
}

#[test]
fn events_of_a_turn() {
    let user = ChatMessage::User { text: "where is cancel?".into() };
    let mut first = request("where is cancel?", vec![user.clone()], tools(&["run_search"]));
    first.call = 3;
    let events: Vec<_> = block_on(OfflineModel::new().chat(first.clone()).collect());
    let arguments = r#"{"query":"`cancel` (for: where is cancel?)"}"#.to_owned();
    let expected = [
        ChatEvent::Text("Looking for `cancel`: 1 search.".into()),
        ChatEvent::ToolCallStart { index: 0, id: "call_3_0".into(), name: "run_search".into() },
        ChatEvent::ToolCallArgs { index: 0, delta: arguments },
        ChatEvent::End {
            stop_reason: StopReason::ToolCalls,
            usage: Some(Usage { model_calls: 1, ..Usage::default() }),
        },
    ];
    assert_eq!(events, expected.map(Ok));
    // The same request, the same turn.
    let again: Vec<_> = block_on(OfflineModel::new().chat(first).collect());
    assert_eq!(again, events);
    let last: Vec<_> = block_on(OfflineModel::new().chat(request("x", vec![user], tools(&[]))).collect());
    assert_eq!(last.len(), 3);
    assert!(matches!(last.last(), Some(Ok(ChatEvent::End { stop_reason: StopReason::EndTurn, .. }))));
}

#[test]
fn nothing_happens_before_the_first_poll_and_the_history_is_released_by_it() {
    let request = request("cancel", vec![ChatMessage::User { text: "cancel".into() }], tools(&["grep"]));
    let messages = Arc::clone(&request.messages);
    let mut stream = OfflineModel::new().chat(request);
    assert_eq!(Arc::strong_count(&messages), 2);
    assert!(block_on(stream.next()).is_some());
    assert_eq!(Arc::strong_count(&messages), 1);
}

#[test]
fn without_tools_it_says_what_it_needs() {
    let user = || vec![ChatMessage::User { text: "where is cancel?".into() }];
    let (text, calls) = turn(request("", user(), tools(&["read_file"])));
    assert!(text.contains("it needs the tools `grep` and `read_file`") && calls.is_empty(), "{text}");
    let mut structured = request("", user(), tools(&["grep"]));
    structured.output_schema = Some(Arc::new(json!({})));
    let (text, calls) = turn(structured);
    assert!(text.contains("cannot fill a schema") && calls.is_empty(), "{text}");
}

#[test]
fn no_calls_where_none_are_allowed() {
    let mut request =
        request("", vec![ChatMessage::User { text: "cancel".into() }], tools(&["run_search", "grep"]));
    request.tool_choice = ToolChoice::None;
    let (text, calls) = turn(request);
    assert!(text.starts_with("Nothing was found for `cancel`.") && calls.is_empty(), "{text}");
}

#[test]
fn the_query_of_a_delegated_search() {
    assert_eq!(
        query("Look.\n<query>\n`a` <query> </query> b\n</query>\nReport."),
        Some("`a` <query> </query> b")
    );
    assert_eq!(query("no tags"), None);
    assert_eq!(query("</query> <query>"), None);
}

#[test]
fn a_message_that_only_urges_on_is_not_the_task() {
    let messages = vec![
        ChatMessage::User { text: "Task: where is cancel?".into() },
        ChatMessage::Assistant { text: "hm".into(), tool_calls: vec![] },
        ChatMessage::User { text: "Your answer was empty; answer now.".into() },
    ];
    let mut request = request("where is cancel?", messages, tools(&["grep"]));
    assert_eq!(Conversation::new(&request).task, "Task: where is cancel?");
    request.run = Arc::new(crate::model::RunLabel { prompt: "".into(), ..(*request.run).clone() });
    assert_eq!(Conversation::new(&request).task, "Your answer was empty; answer now.");
    request.messages = Arc::new(vec![]);
    assert_eq!(Conversation::new(&request).task, "");
}

#[test]
fn arguments_fit_the_tool() {
    let grep = ToolSpec {
        name: "grep".into(),
        description: String::new(),
        parameters: json!({ "properties": { "pattern": {}, "max_results": { "maximum": 50 } } }),
    };
    let request = request("x", vec![], [Arc::new(grep)].into());
    let conversation = Conversation::new(&request);
    let arguments = json!({ "pattern": "p", "max_results": 300, "glob": "*.rs" });
    assert_eq!(conversation.fitting("grep", arguments.clone()), json!({ "pattern": "p", "max_results": 50 }));
    assert_eq!(conversation.fitting("unknown", arguments.clone()), arguments);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]

    /// Whatever is asked and whatever the tools answer, the run ends, and nothing panics.
    #[test]
    fn any_task_and_any_answers_end(
        task in "(\\PC| |`|cancel|tests|größe|\"){0,40}",
        found in "((a|ü|src/x\\.rs)(:|-)[0-9]{0,21}(:|-)\\PC{0,30}(cancel)?\n){0,9}\\PC*",
        read in "([0-9]{0,21}\t\\PC*\n){0,9}",
        is_error: bool,
    ) {
        let answer = move |name: &str, _: &Value| match name {
            "grep" => Some((found.clone(), is_error)),
            "read_file" => Some((read.clone(), is_error)),
            _ => None,
        };
        let text = play(&task, &["run_search", "grep", "read_file"], &answer, &mut Vec::new());
        proptest::prop_assert!(text.ends_with("`--model` takes a real one.\n"));
    }
}
