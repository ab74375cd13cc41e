use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anabranch::message::{MessageBody, Retrying};
use anabranch::model::{ChatModel, ChatRequest, ChatStream, Gated, ProviderModel, Script, ScriptModel};
use anabranch::outcome::CancelledBy;
use anabranch::testing::TestRoot;
use anabranch::tool::Toolset;
use anabranch::{Agent, RunTree};
use futures::StreamExt;
use serde_json::{Value, json};

use super::mock::{Answer, Mock, ask, event, hello, quick_loop, run, says};
use crate::stage::{all_tools, delegates};

#[tokio::test]
async fn a_cancel_closes_the_socket() {
    let mut mock = Mock::new(vec![Answer::sse(event(json!({"content": "one"}), None)).stalls()]).await;
    let test = TestRoot::new();
    let agent = Agent::with_producer(Arc::new(mock.model("openai:m")), quick_loop());
    let mut run = agent.run(test.root(), "work");
    while let Some(delivery) = run.next().await {
        if delivery.message().is_some_and(|message| matches!(message.body(), MessageBody::Chunk(_))) {
            break;
        }
    }
    let before = Instant::now();
    let (_, _) = tokio::join!(test.root().cancel_all(CancelledBy::User), run.settle());
    mock.closed(1).await;
    assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
    test.finish();
}

#[tokio::test]
async fn a_dropped_stream_closes_the_socket_in_every_protocol() {
    let bodies = [
        ("openai:m", event(json!({"content": "one"}), None)),
        ("ollama:m", "{\"message\":{\"content\":\"one\"},\"done\":false}\n".to_owned()),
        (
            "gemini:m",
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"one\"}]}}]}\n\n".to_owned(),
        ),
    ];
    for (name, body) in bodies {
        let mut mock = Mock::new(vec![Answer::sse(body).stalls()]).await;
        let mut events = mock.model(name).chat(hello());
        let first = events.next().await;
        assert!(format!("{first:?}").contains("one"), "{name}: {first:?}");
        drop(events);
        mock.closed(1).await;
    }
}

#[tokio::test]
async fn silence_has_a_bound_that_the_message_names() {
    for (name, body) in [
        ("openai:m", String::new()),
        ("openai:m", event(json!({"content": "half"}), None)),
        ("anthropic:m", String::new()),
        ("ollama:m", String::new()),
    ] {
        let mock = Mock::new(vec![Answer::sse(body).stalls()]).await;
        let model = mock.builder(name).idle_timeout(Duration::from_millis(150)).build_with(|_| None).unwrap();
        let told = ask(&model, hello()).await;
        assert!(
            told.end.starts_with("timeout: no byte from http://127.0.0.1") && told.end.ends_with("for 150ms"),
            "{}",
            told.end
        );
    }
    // Keep-alives are not silence, and the counters of a whole answer are not waited for that long.
    let mock = Mock::new(vec![Answer::sse(says("a").replace("data: [DONE]\n\n", "")).stalls()]).await;
    let model =
        mock.builder("openai:m").idle_timeout(Duration::from_millis(150)).build_with(|_| None).unwrap();
    assert_eq!(ask(&model, hello()).await.end, "end_turn");
}

#[tokio::test]
async fn a_server_that_only_keeps_the_connection_alive_is_waited_for_so_long_and_no_longer() {
    let half = event(json!({"content": "half"}), None);
    // At the same time, so that the bound can be one that a busy machine does not meet between two drips.
    let cases = [
        ("openai:m", "", ": ping\n\n"),
        ("openai:m", half.as_str(), ": ping\n\n"),
        ("openai:m", "", "data: {\"choices\":[{\"index\":0,\"delta\":{}}]}\n\n"),
        ("openai:m", "", "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\n"),
        ("anthropic:m", "", "event: ping\ndata: {\"type\":\"ping\"}\n\n"),
        ("ollama:m", "", "{\"message\":{\"content\":\"\"},\"done\":false}\n"),
    ];
    // And their clients are there before the first is asked: to make one takes the thread for longer than a drip.
    let made = cases.map(async |(name, body, drip)| {
        let mock = Mock::new(vec![Answer::sse(body).drips(drip)]).await;
        let model = mock.builder(name).idle_timeout(Duration::from_millis(500)).build_with(|_| None).unwrap();
        (name, body, drip, mock, model)
    });
    let made = futures::future::join_all(made).await;
    let asked = made.into_iter().map(async |(name, body, drip, _mock, model)| {
        let told = ask(&model, hello()).await;
        assert!(
            told.end.starts_with("timeout: nothing of the answer from http://127.0.0.1")
                && told.end.ends_with("for 3s, although it sends"),
            "{name} {drip}: {}",
            told.end
        );
        assert_eq!(told.text, if body.is_empty() { "" } else { "half" });
    });
    futures::future::join_all(asked).await;
    // An answer that is whole is one, whatever is sent after it.
    let whole = says("a").replace("data: [DONE]\n\n", "");
    let mock = Mock::new(vec![Answer::sse(whole).drips(": ping\n\n")]).await;
    let model =
        mock.builder("openai:m").idle_timeout(Duration::from_millis(100)).build_with(|_| None).unwrap();
    assert_eq!(ask(&model, hello()).await.line(), "end_turn |  | \"a\" | ");
}

#[tokio::test]
async fn what_may_succeed_later_is_tried_again_and_the_rest_is_not() {
    let json = "content-type: application/json\r\n";
    for (status, requests) in [
        ("408 Request Timeout", 2),
        ("409 Conflict", 2),
        ("500 Internal Server Error", 2),
        ("503 Service Unavailable", 2),
        ("400 Bad Request", 1),
        ("401 Unauthorized", 1),
        ("404 Not Found", 1),
    ] {
        let refused = Answer::with(status, json, "{\"error\":{\"message\":\"because\"}}");
        let mock = Mock::new(vec![refused, Answer::sse(says("yes"))]).await;
        let ran = run(mock.model("openai:m"), Toolset::new()).await;
        assert_eq!(mock.requests().len(), requests, "{status}");
        match ran.outcome.error_text() {
            Some(error) => assert!(error.contains(status) && error.contains("because"), "{error}"),
            None => assert_eq!(requests, 2, "{status}"),
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    for name in ["openai:m", "anthropic:m", "ollama:m"] {
        let model =
            ProviderModel::builder(name.parse().unwrap()).base_url(&url).build_with(|_| None).unwrap();
        let told = ask(&model, hello()).await;
        assert!(told.end.starts_with(&format!("network: cannot reach {url}: ")), "{}", told.end);
        assert!(told.end.contains("refused"), "{}", told.end);
    }
}

#[tokio::test]
async fn an_address_that_may_be_wrong_is_named() {
    for (status, said) in [
        ("404 Not Found", "are this address and the name of the model right?)"),
        ("301 Moved Permanently", "a redirect is not followed: is it the address that the server has now?)"),
    ] {
        for name in ["openai:m", "anthropic:m", "ollama:m"] {
            let headers = "location: http://127.0.0.1:1/elsewhere\r\n";
            let mock = Mock::new(vec![Answer::with(status, headers, "no page")]).await;
            let told = ask(&mock.model(name), hello()).await;
            let expected = format!(
                "bad_request: the server answered {status}: no page (asked at {}; {said}",
                mock.url()
            );
            assert_eq!(told.end, expected, "{name}");
        }
    }
}

#[tokio::test]
async fn a_key_that_a_server_quotes_is_taken_out() {
    let body = "{\"error\":{\"message\":\"sk-very-secret is no key\"}}";
    for name in ["openai:m", "anthropic:m"] {
        let mock = Mock::new(vec![Answer::with("401 Unauthorized", "", body)]).await;
        let model = mock.builder(name).api_key("sk-very-secret").build().unwrap();
        let ran = run(model, Toolset::new()).await;
        let log: Vec<String> =
            ran.log.iter().map(|message| serde_json::to_string(message).unwrap()).collect();
        assert!(log.concat().contains("[key] is no key") && !log.concat().contains("very-secret"), "{log:?}");
    }
}

#[tokio::test]
async fn a_model_without_tools_says_so() {
    let body = "{\"error\":{\"message\":\"gemma does not support tools\"}}";
    let mock = Mock::new(vec![Answer::with("400 Bad Request", "", body)]).await;
    for name in ["openai:m", "ollama:m"] {
        let ran = run(mock.model(name), all_tools()).await;
        let error = ran.outcome.error_text().unwrap();
        assert!(
            error.contains("gemma does not support tools (the model takes no tools: choose another one)"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_429_shuts_the_gate_of_every_protocol() {
    for name in ["openai:m", "anthropic:m", "ollama:m"] {
        let refused = Answer::with(
            "429 Too Many Requests",
            "retry-after-ms: 60000\r\n",
            "{\"error\":{\"message\":\"slow\"}}",
        );
        let mock = Mock::new(vec![refused]).await;
        let model = mock.model(name);
        assert_eq!(model.pause(), None);
        assert!(ask(&model, hello()).await.end.starts_with("rate_limit: the server answered 429"));
        assert!(model.pause().is_some_and(|pause| pause > Duration::from_secs(50)), "{:?}", model.pause());
        // A clone has the same gate; whoever asks all the same is refused without a request.
        assert!(
            ask(&model.clone(), hello())
                .await
                .end
                .starts_with("rate_limit: the provider asked all runs to wait")
        );
        assert_eq!(mock.requests().len(), 1);
    }
}

/// A scripted model that counts its calls.
struct Counted(ScriptModel, Arc<AtomicUsize>);

impl ChatModel for Counted {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn chat(&self, request: ChatRequest) -> ChatStream {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.chat(request)
    }
}

/// Five children on one gate; each of those in `refused` is told "429, in a second" at its first call. What was said of
/// waiting, how long it took, and how many calls there were.
async fn herd(refused: &[&str], delay_ms: u64) -> (Vec<Retrying>, Duration, usize) {
    let titles = ["a", "b", "c", "d", "e"];
    let mut agents = vec![json!({"when": {"depth": 0}, "turns": [delegates(&titles), {"text": "all"}]})];
    for title in titles {
        let limit = json!({"delay_ms": delay_ms, "error": {"message": "too many requests", "kind": "rate_limit", "retry_after_ms": 1000}});
        let mut turns: Vec<Value> = refused.contains(&title).then_some(limit).into_iter().collect();
        turns.push(json!({"text": title}));
        agents.push(json!({"when": {"title": title}, "turns": turns}));
    }
    let text = json!({"anabranch_script": 1, "agents": agents}).to_string();
    let calls = Arc::new(AtomicUsize::new(0));
    let model =
        Gated::new(Counted(ScriptModel::new(Script::parse(&text, "herd.json").unwrap()), Arc::clone(&calls)));
    let test = TestRoot::new();
    let before = tokio::time::Instant::now();
    let agent = Agent::with_producer(Arc::new(model), Arc::new(anabranch::agent::ToolLoop::default()))
        .tools(all_tools());
    let outcome = agent.run(test.root(), "work").settle().await;
    let took = before.elapsed();
    assert_eq!(outcome.result(), Some(&json!("all")));
    let log = test.finish();
    assert_eq!(RunTree::of(&log).nodes().count(), 6);
    let retrying = log.iter().filter_map(|message| match message.body() {
        MessageBody::Retrying(retrying) => Some(Retrying::clone(retrying)),
        _ => None,
    });
    (retrying.collect(), took, calls.load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn c40_one_429_makes_all_wait_visibly_and_no_other_asks_in_vain() {
    // The root's two calls, one that is refused, five that are answered.
    let (retrying, took, calls) = herd(&["a"], 0).await;
    assert_eq!(calls, 8);
    assert_eq!(retrying.len(), 5, "{retrying:?}");
    let mut delays: Vec<u64> = retrying.iter().map(|retrying| retrying.delay_ms).collect();
    assert!(delays.iter().all(|delay| (1000..=1250).contains(delay)), "{delays:?}");
    delays.sort_unstable();
    delays.dedup();
    assert!(delays.len() > 2, "no jitter: {delays:?}");
    assert!(retrying.iter().all(|retrying| retrying.reason.starts_with("rate_limit")), "{retrying:?}");
    // The one that was refused is at its second attempt, the others have made none.
    assert_eq!(retrying.iter().map(|retrying| retrying.attempt).max(), Some(2));
    assert_eq!(retrying.iter().filter(|retrying| retrying.attempt == 1).count(), 4);
    assert!((1000..=1260).contains(&took.as_millis()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn c40_five_that_are_refused_at_once_come_back_within_their_attempts() {
    let (retrying, took, calls) = herd(&["a", "b", "c", "d", "e"], 10).await;
    assert_eq!(calls, 2 + 10);
    assert_eq!(retrying.len(), 5, "{retrying:?}");
    assert!(retrying.iter().all(|retrying| retrying.attempt == 2), "{retrying:?}");
    assert!((1010..=1270).contains(&took.as_millis()), "{took:?}");
}
