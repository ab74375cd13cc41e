use std::time::Duration;

use anabranch::message::MessageBody;
use anabranch::tool::Toolset;
use serde_json::{Value, json};

use super::mock::{Answer, Mock, Told, ask, event, hello, request, run};

/// Each way to a provider: chat completions, and each protocol that is spoken through genai.
const ALL: [&str; 8] = [
    "openai:m",
    "anthropic:m",
    "gemini:m",
    "ollama:m",
    "openai_resp:m",
    "gemini_ix:m",
    "bedrock_api:m",
    "vertex:gemini-m",
];

const MIB: usize = 1 << 20;

async fn told(name: &str, answer: Answer) -> (Told, Mock) {
    let mut mock = Mock::new(vec![answer]).await;
    let told = ask(&mock.model(name), hello()).await;
    mock.closed(1).await;
    (told, mock)
}

#[tokio::test]
async fn an_event_without_an_end_is_given_up_and_the_bound_is_named() {
    for name in ALL {
        let begin = match name {
            "ollama:m" => "{\"text\":\"",
            // Its events say their lengths themselves: two gigabytes.
            "bedrock_api:m" => "\u{7f}\u{0}\u{0}\u{0}",
            _ => "data: {\"text\":\"",
        };
        let (told, mock) = told(name, Answer::sse(begin).floods("no end of it ")).await;
        assert_eq!(told.end, "protocol: the server sent an event of more than 16 MiB", "{name}");
        assert!(mock.flooded() < 32 * MIB, "{name}: {} bytes", mock.flooded());
    }
    let (told, _) = told("anthropic:m", Answer::sse("<html>").floods("no end of it ")).await;
    assert!(told.end.contains("an event of more than 16 MiB"), "{}", told.end);
}

#[tokio::test]
async fn events_that_say_nothing_are_given_up_too() {
    // A call that is put together, and told of only when it has ended.
    let begun = json!({"event_type": "step.start", "index": 0, "step": {"type": "function_call", "id": "c", "name": "f"}});
    let delta = json!({"type": "arguments_delta", "arguments": "x".repeat(16 << 10)});
    let piece = json!({"event_type": "step.delta", "index": 0, "delta": delta});
    let piece = Box::leak(format!("data: {piece}\n\n").into_boxed_str());
    let (told, mock) = told("gemini_ix:m", Answer::sse(format!("data: {begun}\n\n")).floods(piece)).await;
    assert!(
        told.end.contains("more than 32 MiB of events that say nothing"),
        "{} {}",
        told.end,
        mock.flooded()
    );
    assert!(mock.flooded() < 64 * MIB, "{} bytes", mock.flooded());
}

#[tokio::test]
async fn the_body_of_an_error_is_read_to_its_bound() {
    for name in ALL {
        let answer = Answer::with("400 Bad Request", "", "{\"error\":\"").floods("no end of it ");
        let (told, mock) = told(name, answer).await;
        assert!(
            told.end.starts_with("bad_request: the server answered 400 Bad Request: "),
            "{name}: {}",
            told.end
        );
        assert!(told.end.len() < 2000 && mock.flooded() < 16 * MIB, "{name}: {} bytes", mock.flooded());
    }
}

#[tokio::test]
async fn headers_without_an_end_are_given_up() {
    for name in ALL {
        let (told, mock) =
            told(name, Answer::with("200 OK", "", "").floods_head("x-more: and more\r\n")).await;
        assert!(told.end.starts_with("network: the connection to http://127.0.0.1"), "{name}: {}", told.end);
        assert!(mock.flooded() < 16 * MIB, "{name}: {} bytes", mock.flooded());
    }
}

#[tokio::test]
async fn a_redirect_is_followed_nowhere() {
    for name in ALL {
        let (told, mock) =
            told(name, Answer::with("307 Temporary Redirect", "location: /v1/again\r\n", "")).await;
        assert!(told.end.contains("a redirect is not followed"), "{name}: {}", told.end);
        assert_eq!(mock.requests().len(), 1, "{name}");
    }
}

fn anthropic(event: Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())
}

fn text_block(text: &str) -> String {
    anthropic(json!({"type": "message_start", "message": {"usage": {"input_tokens": 7, "output_tokens": 1}}}))
        + &anthropic(
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        )
        + &anthropic(
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
        )
        + &anthropic(json!({"type": "content_block_stop", "index": 0}))
}

fn reason() -> String {
    anthropic(
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}),
    )
}

#[tokio::test]
async fn an_answer_that_said_why_it_ends_is_whole_whatever_comes_after_it() {
    let ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
    let whole = format!("{}{}", text_block("whole"), reason());
    let stop = event(json!({"content": "whole"}), Some("stop"));
    for (name, answer) in [
        ("anthropic:m", Answer::sse(&whole).drips(ping)),
        ("anthropic:m", Answer::sse(&whole).stalls()),
        ("anthropic:m", Answer::sse(&whole)),
        ("anthropic:m", Answer::sse(&whole).breaks()),
        ("minimax:m", Answer::sse(&whole).drips(ping)),
        ("openai:m", Answer::sse(stop).drips(": ping\n\n")),
    ] {
        let mock = Mock::new(vec![answer]).await;
        // The end is waited for as long as silence is, where that is less than five seconds.
        let model = mock.builder(name).idle_timeout(Duration::from_millis(300)).build_with(|_| None).unwrap();
        let told = ask(&model, hello()).await;
        let usage = if name == "openai:m" { "" } else { "7/3/None" };
        assert_eq!(
            (told.end.as_str(), told.text.as_str(), told.usage.as_str()),
            ("end_turn", "whole", usage),
            "{name}"
        );
    }
}

#[tokio::test]
async fn what_a_provider_says_that_is_not_known_is_passed_on_as_it_came() {
    let searched = json!({"type": "content_block_start", "index": 1, "content_block": {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}});
    let query = json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"query\""}});
    let cited = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"url": "u"}}});
    let news = json!({"type": "news", "of": "the day"});
    let body = [
        text_block("whole"),
        anthropic(searched.clone()),
        anthropic(query.clone()),
        anthropic(json!({"type": "content_block_stop", "index": 1})),
        anthropic(cited.clone()),
        anthropic(news.clone()),
        reason(),
        anthropic(json!({"type": "message_stop"})),
    ]
    .concat();
    let (said, _) = told("anthropic:m", Answer::sse(&body)).await;
    assert_eq!((said.end.as_str(), said.text.as_str()), ("end_turn", "whole"));
    let kinds: Vec<&str> = said.others.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["server_tool_use", "input_json_delta", "citations_delta", "news"]);
    let events: Vec<&Value> = said.others.iter().map(|(_, event)| event).collect();
    assert_eq!(events, [&searched, &query, &cited, &news]);

    // A watcher sees it in the log, and the answer is what it was.
    let mock = Mock::new(vec![Answer::sse(&body)]).await;
    let ran = run(mock.model("anthropic:m"), Toolset::new()).await;
    assert_eq!(ran.outcome.result(), Some(&json!("whole")));
    let passed: Vec<String> = ran
        .log
        .iter()
        .filter_map(|message| match message.body() {
            MessageBody::Other(body) if body.kind == "provider_event" => {
                Some(format!("{} {}", body.fields.get("kind")?, body.fields.get("event")?))
            }
            _ => None,
        })
        .collect();
    assert_eq!(passed.len(), 4, "{}", ran.timeline());
    assert_eq!(passed[3], format!("\"news\" {news}"));
}

#[tokio::test]
async fn parts_of_a_chat_completion_that_are_not_known_are_passed_on() {
    let picture = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}});
    let parts = json!({"content": [{"type": "text", "text": "look: "}, picture]});
    let named = "event: thread.created\ndata: {\"id\":\"t\"}\n\n";
    let body =
        [event(parts, None), named.to_owned(), event(json!({"content": "there"}), Some("stop"))].concat();
    let (told, _) = told("openai:m", Answer::sse(body)).await;
    assert_eq!((told.end.as_str(), told.text.as_str()), ("end_turn", "look: there"));
    assert_eq!(
        told.others,
        [("image_url".to_owned(), picture), ("thread.created".to_owned(), json!({"id": "t"}))]
    );
}

/// What each provider that has an own way of being asked is asked, at another address.
#[tokio::test]
async fn each_provider_is_asked_in_its_own_way() {
    for (name, line, header, model) in [
        ("anthropic:m", "POST /v1/messages HTTP", "x-api-key: sk-1", Some("m")),
        ("minimax:m", "POST /v1/messages HTTP", "x-api-key: sk-1", Some("m")),
        ("opencode_go:minimax-m2", "POST /v1/messages HTTP", "x-api-key: sk-1", Some("minimax-m2")),
        ("opencode_go:glm", "POST /v1/chat/completions HTTP", "authorization: bearer sk-1", Some("glm")),
        ("gemini:m", "POST /v1/models/m:streamGenerateContent?alt=sse HTTP", "x-goog-api-key: sk-1", None),
        ("gemini_ix:m", "POST /v1/interactions", "x-goog-api-key: sk-1", Some("m")),
        ("ollama_cloud:m", "POST /v1/api/chat HTTP", "authorization: bearer sk-1", Some("m")),
        ("openai_resp:m", "POST /v1/responses HTTP", "authorization: bearer sk-1", Some("m")),
        (
            "vertex:gemini-m",
            "POST /v1/publishers/google/models/gemini-m:streamGenerateContent?alt=sse HTTP",
            "authorization: bearer sk-1",
            None,
        ),
        (
            "vertex:claude-m",
            "POST /v1/publishers/anthropic/models/claude-m:streamRawPredict HTTP",
            "authorization: bearer sk-1",
            None,
        ),
        (
            "bedrock_api:a.m-v1:0",
            "POST /v1/model/a.m-v1%3A0/converse-stream HTTP",
            "authorization: bearer sk-1",
            None,
        ),
        ("cloudgpu:m", "POST /v1/chat/completions HTTP", "authorization: bearer sk-1", Some("m")),
        ("heabsy:m", "POST /v1/chat/completions HTTP", "authorization: bearer sk-1", Some("m")),
        ("runcrate:m", "POST /v1/chat/completions HTTP", "authorization: bearer sk-1", Some("m")),
        ("api_route:m", "POST /v1/chat/completions HTTP", "authorization: bearer sk-1", Some("m")),
        ("omlx:m", "POST /v1/chat/completions HTTP", "authorization: bearer sk-1", Some("m")),
    ] {
        let mock = Mock::new(vec![Answer::with("400 Bad Request", "", "no")]).await;
        let mut asked = request(vec![anabranch::model::ChatMessage::User { text: "hello".to_owned() }]);
        asked.system = Some("be brief".into());
        let told = ask(&mock.builder(name).api_key("sk-1").build().unwrap(), asked).await;
        assert!(told.end.starts_with("bad_request: the server answered 400"), "{name}: {}", told.end);
        let (head, body) = (&mock.heads()[0], &mock.requests()[0]);
        assert!(head.starts_with(line), "{name}: {head}");
        assert!(head.to_ascii_lowercase().lines().any(|found| found == header), "{name}: {head}");
        assert!(
            body.to_string().contains("hello") && body.to_string().contains("be brief"),
            "{name}: {body}"
        );
        assert_eq!(body.get("model").and_then(Value::as_str), model, "{name}: {body}");
    }
}
