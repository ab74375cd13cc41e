use anabranch::SubAgentOutcome;
use anabranch::message::MessageBody;
use anabranch::tool::Toolset;
use serde_json::{Value, json};

use super::mock::{Answer, Mock, Ran, call, event, run, says};
use crate::stage::all_tools;

/// A run of the loop on these answers, and the requests that it made.
async fn play(answers: Vec<Answer>, tools: Toolset) -> (Ran, Vec<Value>) {
    let mock = Mock::new(answers).await;
    let ran = run(mock.model("openai:m"), tools).await;
    let requests = mock.requests();
    requests.iter().for_each(assert_valid);
    (ran, requests)
}

/// A history that the strictest provider takes: ids are unique, each call has its result behind it, arguments are objects.
fn assert_valid(request: &Value) {
    let mut open: Vec<String> = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    for message in request["messages"].as_array().unwrap() {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap();
            let at =
                open.iter().position(|open| open == id).unwrap_or_else(|| panic!("{id} answers nothing"));
            open.remove(at);
            continue;
        }
        assert!(open.is_empty(), "{open:?} have no result in {request}");
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let id = call["id"].as_str().unwrap().to_owned();
            assert!(!id.is_empty() && !seen.contains(&id), "{id:?} twice");
            let arguments = call["function"]["arguments"].as_str().unwrap();
            assert!(serde_json::from_str::<Value>(arguments).unwrap().is_object(), "{arguments}");
            seen.push(id.clone());
            open.push(id);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

fn results(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().unwrap().iter();
    messages
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].to_string())
        .collect()
}

fn retries(ran: &Ran) -> usize {
    ran.log.iter().filter(|message| matches!(message.body(), MessageBody::Retrying(_))).count()
}

fn error() -> String {
    let error = json!({"error": {"message": "the provider is on fire", "type": "server_error", "code": 500}});
    format!("data: {error}\n\n")
}

#[tokio::test]
async fn c17_an_error_inside_a_200_fails_the_run_with_the_providers_words() {
    let (ran, requests) = play(vec![Answer::sse(error())], Toolset::new()).await;
    assert!(ran.outcome.error_text().unwrap().contains("the provider is on fire"), "{:?}", ran.outcome);
    // Nothing had been said: it was tried again.
    assert_eq!((requests.len(), retries(&ran)), (3, 2));

    let late = format!(
        "{}{}{}data: [DONE]\n\n",
        event(json!({"content": "half "}), None),
        event(json!({"content": "an answer"}), None),
        error()
    );
    let (ran, requests) = play(vec![Answer::sse(late)], Toolset::new()).await;
    assert!(matches!(&ran.outcome, SubAgentOutcome::Failed { .. }), "{:?}", ran.outcome);
    assert_eq!(ran.outcome.partial(), Some(&json!("half an answer")));
    assert_eq!(requests.len(), 1);
}

#[tokio::test]
async fn c17_a_parent_goes_on_when_a_childs_provider_fails() {
    let delegates =
        call(0, "c", "run_subtask", json!(json!({"description": "a", "prompt": "b"}).to_string()));
    let first = format!("{delegates}{}", event(json!({}), Some("tool_calls")));
    let late = format!("{}{}", event(json!({"content": "half"}), None), error());
    let answers = vec![Answer::sse(first), Answer::sse(late), Answer::sse(says("never mind"))];
    let (ran, requests) = play(answers, all_tools()).await;
    assert_eq!(ran.outcome.result(), Some(&json!("never mind")));
    assert!(results(&requests[2])[0].contains("the provider is on fire"), "{:?}", results(&requests[2]));
}

#[tokio::test]
async fn c15_an_answer_without_a_reason_was_cut() {
    let text = event(json!({"content": "half"}), None);
    for answer in [Answer::sse(&text), Answer::sse(&text).breaks()] {
        let (ran, _) = play(vec![answer], Toolset::new()).await;
        assert_eq!(ran.outcome.stop_class().as_str(), "truncated", "{:?}", ran.outcome);
        assert_eq!(ran.outcome.partial(), Some(&json!("half")));
    }
    // In a call's arguments, and just behind its name: the call is closed with an error, and no child is born.
    for arguments in [json!("{\"description\":\"a\",\"pro"), Value::Null] {
        let (ran, _) = play(vec![Answer::sse(call(0, "c", "run_subtask", arguments))], all_tools()).await;
        assert_eq!(ran.outcome.stop_class().as_str(), "truncated", "{:?}", ran.outcome);
        let timeline = ran.timeline();
        assert!(timeline.contains("truncated at"), "{timeline}");
        assert_eq!(timeline.matches("started").count(), 1, "{timeline}");
    }
    // In a call's name nothing of it is there yet.
    let cut = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"run_su";
    let (ran, _) = play(vec![Answer::sse(format!("{text}{cut}"))], all_tools()).await;
    assert_eq!(ran.outcome.stop_class().as_str(), "truncated");
}

#[tokio::test]
async fn c16_a_delegating_call_that_reached_the_output_limit_bears_no_child() {
    let cut = call(0, "c", "run_subtask", json!("{\"description\":\"a\",\"prompt\":\"count all"));
    let answers = vec![
        Answer::sse(format!("{cut}{}data: [DONE]\n\n", event(json!({}), Some("length")))),
        Answer::sse(says("then not")),
    ];
    let (ran, requests) = play(answers, all_tools()).await;
    assert_eq!(ran.outcome.result(), Some(&json!("then not")));
    assert!(results(&requests[1])[0].contains("truncated at 38 bytes"), "{:?}", results(&requests[1]));
    assert_eq!(ran.timeline().matches("started").count(), 1, "{}", ran.timeline());
}

#[tokio::test]
async fn c18_a_body_that_is_no_stream_is_quoted_and_an_empty_one_tried_again() {
    for (body, said) in [
        ("{\"choices\":[{\"message\":{\"content\":\"whole\"}}]}", "it begins with: {\"choices\""),
        ("<!doctype html>\n<title>Bad gateway</title>", "it begins with: <!doctype html> <title>Bad gateway"),
    ] {
        let (ran, requests) = play(vec![Answer::sse(body)], Toolset::new()).await;
        let error = ran.outcome.error_text().unwrap();
        assert!(error.contains(said), "{error}");
        assert_eq!(requests.len(), 1);
    }
    let (ran, requests) = play(vec![Answer::sse(""), Answer::sse(says("here"))], Toolset::new()).await;
    assert_eq!(ran.outcome.result(), Some(&json!("here")));
    assert_eq!((requests.len(), retries(&ran)), (2, 1));
}

#[tokio::test]
async fn c02_c03_calls_with_any_labels_and_places_run_once_each() {
    let progress = |index, id| call(index, id, "chaos_progress", json!("{\"n\":0,\"ms\":0}"));
    let turns = [
        // Interleaved; one place twice; labels that are missing; labels that repeat.
        format!("{}{}", progress(1, "a"), progress(0, "b")),
        format!("{}{}", progress(0, "a"), progress(0, "b")),
        format!("{}{}", progress(0, ""), progress(1, "")),
        format!("{}{}", progress(0, "a"), progress(1, "a")),
    ];
    for turn in turns {
        let first = format!("{turn}{}", event(json!({}), Some("tool_calls")));
        let (ran, requests) = play(vec![Answer::sse(first), Answer::sse(says("done"))], all_tools()).await;
        assert_eq!(ran.outcome.result(), Some(&json!("done")), "{turn}");
        assert_eq!(results(&requests[1]).len(), 2, "{turn}");
    }
}

#[tokio::test]
async fn c20_malformed_arguments_are_told_to_the_model_and_the_run_goes_on() {
    let huge = format!("{{\"message\":\"{}", "x".repeat(1 << 20));
    for (arguments, said) in [
        (json!("{\"a\":"), "not valid JSON"),
        (json!("{\"{\"x\":1}"), "not valid JSON"),
        (json!("[1]"), "no JSON object"),
        (json!([1, 2]), "no JSON object"),
        (json!(7), "no JSON object"),
        (json!(huge), "not valid JSON"),
        // No arguments are an empty object, which this tool then finds wanting.
        (json!(""), "message"),
        (json!({}), "message"),
        (json!({"message": "as an object"}), "as an object"),
    ] {
        let first = format!(
            "{}{}",
            call(0, "c", "chaos_error", arguments.clone()),
            event(json!({}), Some("tool_calls"))
        );
        let (ran, requests) = play(vec![Answer::sse(first), Answer::sse(says("done"))], all_tools()).await;
        assert_eq!(ran.outcome.result(), Some(&json!("done")));
        let results = results(&requests[1]);
        assert!(
            results[0].contains(said) && results[0].len() < 10_000,
            "{said}: {}",
            &results[0][..200.min(results[0].len())]
        );
    }
}

#[tokio::test]
async fn a_filtered_answer_and_an_unknown_reason_are_what_they_say() {
    let answer = |reason| {
        Answer::sse(format!("{}{}", event(json!({"content": "a"}), None), event(json!({}), Some(reason))))
    };
    let (ran, _) = play(vec![answer("content_filter")], Toolset::new()).await;
    assert!(matches!(ran.outcome, SubAgentOutcome::Failed { .. }), "{:?}", ran.outcome);
    let (ran, _) = play(vec![answer("eos_token")], Toolset::new()).await;
    assert_eq!(ran.outcome.result(), Some(&json!("a")));
}

/// An event of Anthropic's protocol.
fn anthropic(kind: &str, mut event: Value) -> String {
    event["type"] = json!(kind);
    format!("event: {kind}\ndata: {event}\n\n")
}

#[tokio::test]
async fn c02_calls_with_one_label_are_as_many_calls_in_every_protocol() {
    let start = anthropic("message_start", json!({"message": {"usage": {"input_tokens": 1}}}));
    let block = |index: u64, pieces: &[&str]| {
        let begun = json!({"type": "tool_use", "id": "same", "name": "chaos_error", "input": {}});
        let begin = anthropic("content_block_start", json!({"index": index, "content_block": begun}));
        let piece = |piece: &&str| {
            let delta = json!({"type": "input_json_delta", "partial_json": piece});
            anthropic("content_block_delta", json!({"index": index, "delta": delta}))
        };
        let pieces: String = pieces.iter().map(piece).collect();
        format!("{begin}{pieces}{}", anthropic("content_block_stop", json!({"index": index})))
    };
    let end = |reason: &str| {
        let delta = anthropic("message_delta", json!({"delta": {"stop_reason": reason}, "usage": {}}));
        format!("{delta}{}", anthropic("message_stop", json!({})))
    };
    let calls = [
        block(0, &["{\"mess", "age\":\"one\"}"]),
        block(1, &["{\"message\":\"two\"}"]),
        block(2, &["{\"message\":\"two\"}"]),
    ];
    let text = json!({"type": "text", "text": "done"});
    let done = anthropic("content_block_start", json!({"index": 0, "content_block": text.clone()}))
        + &anthropic(
            "content_block_delta",
            json!({"index": 0, "delta": {"type": "text_delta", "text": "done"}}),
        )
        + &anthropic("content_block_stop", json!({"index": 0}));
    let mock = Mock::new(vec![
        Answer::sse(format!("{start}{}{}", calls.concat(), end("tool_use"))),
        Answer::sse(format!("{start}{done}{}", end("end_turn"))),
    ])
    .await;
    let ran = run(mock.model("anthropic:m"), all_tools()).await;
    let said = |text: &str| ran.timeline().matches(text).count();
    assert_eq!(
        (said("chaos_error {\"message\":\"one\"}"), said("chaos_error {\"message\":\"two\"}")),
        (1, 2),
        "{}",
        ran.timeline()
    );
    let results = mock.requests()[1]["messages"][2]["content"].as_array().cloned().unwrap_or_default();
    let ids: std::collections::HashSet<String> =
        results.iter().map(|result| result["tool_use_id"].to_string()).collect();
    assert_eq!((results.len(), ids.len()), (3, 3), "{}", mock.requests()[1]);
}

#[tokio::test]
async fn what_a_provider_does_not_answer_is_told_with_its_reason_and_not_asked_again() {
    let gemini = |value: Value| Answer::sse(format!("data: {value}\n\n"));
    let blocked = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {}});
    let html = || Answer::with("200 OK", "content-type: text/html\r\n", "<html>busy</html>");
    for (name, answer, said) in [
        (
            "gemini:m",
            gemini(blocked),
            "(bad_request): the provider does not answer this prompt: PROHIBITED_CONTENT",
        ),
        (
            "gemini:m",
            gemini(json!({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]})),
            "the provider ended the turn with an error",
        ),
        (
            "gemini:m",
            gemini(json!({"candidates": [{"finishReason": "RECITATION"}]})),
            "the provider withheld the rest of the answer",
        ),
        ("anthropic:m", html(), "(protocol): the answer is no event stream (asked at http://127.0.0.1"),
        ("ollama:m", html(), "the answer begins with: <html>busy</html>"),
    ] {
        let mock = Mock::new(vec![answer]).await;
        let ran = run(mock.model(name), Toolset::new()).await;
        let error = ran.outcome.error_text().unwrap_or_default();
        assert!(error.contains(said), "{name}: {error}");
        assert_eq!(mock.requests().len(), 1, "{name}: {error}");
    }
}

#[tokio::test]
async fn the_ends_of_openais_responses_are_what_they_say() {
    let answer = |last: Value| {
        let delta = |kind: &str, text: &str| json!({"type": kind, "output_index": 0, "content_index": 0, "delta": text});
        let events =
            [delta("response.output_text.delta", "half"), delta("response.refusal.delta", " no"), last];
        Answer::sse(events.map(|event| format!("data: {event}\n\n")).concat())
    };
    let end = |status: &str, more: Value| {
        let mut response = json!({"id": "r", "model": "m", "status": status, "output": []});
        response.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        answer(json!({"type": format!("response.{status}"), "response": response}))
    };
    let incomplete = |reason: &str| end("incomplete", json!({"incomplete_details": {"reason": reason}}));
    let broken = json!({"error": {"code": "server_error", "message": "it broke"}});
    for (answer, told, partial) in [
        (end("completed", json!({})), "completed", Value::Null),
        (end("failed", broken), "the model call failed (server): it broke", json!("half no")),
        (end("failed", json!({})), "(server): the provider does not say why it failed", json!("half no")),
        (incomplete("max_output_tokens"), "the answer reached the output limit", json!("half no")),
        (incomplete("content_filter"), "the provider withheld the rest", json!("half no")),
    ] {
        let mock = Mock::new(vec![answer]).await;
        let ran = run(mock.model("openai_resp:m"), Toolset::new()).await;
        let text = ran.outcome.error_text().unwrap_or_else(|| "completed".to_owned());
        assert!(text.contains(told), "{text}");
        assert_eq!(ran.outcome.partial().cloned().unwrap_or_default(), partial, "{text}");
        if told == "completed" {
            assert_eq!(ran.outcome.result(), Some(&json!("half no")));
        }
    }
}
