//! Whole turns as timelines.

use futures::StreamExt;
use tokio_test::{assert_pending, assert_ready, block_on, task};

use super::*;
use crate::id::RunId;
use crate::model::{ChatMessage, Images, ToolChoice};

fn model(agents: &str) -> ScriptModel {
    let text = format!(r#"{{"anabranch_script":1,"agents":[{agents}]}}"#);
    ScriptModel::new(Script::parse(&text, "s.json").unwrap())
}

fn request(call: u32) -> ChatRequest {
    ChatRequest {
        run: Arc::new(RunLabel {
            run_id: RunId::parse("r"),
            depth: 1,
            agent: "searcher".into(),
            title: "find \"it\"".into(),
            prompt: "Find it.".into(),
        }),
        call,
        system: None,
        messages: Arc::new(vec![ChatMessage::User { text: "Find it.".into() }]),
        tools: Arc::new([]),
        tool_choice: ToolChoice::Auto,
        output_schema: None,
        max_output_tokens: None,
    }
}

fn line(event: &Result<ChatEvent, ModelError>) -> String {
    match event {
        Ok(ChatEvent::Text(text)) => format!("text {text:?}"),
        Ok(ChatEvent::Thinking(text)) => format!("thinking {text:?}"),
        Ok(ChatEvent::ToolCallStart { index, id, name }) => format!("call {index} {id} {name}"),
        Ok(ChatEvent::ToolCallArgs { index, delta }) => format!("args {index} {delta}"),
        Ok(ChatEvent::Usage(usage)) => format!("usage {}/{}", usage.input_tokens, usage.output_tokens),
        Ok(ChatEvent::End { stop_reason, usage }) => {
            let usage = usage.unwrap();
            assert_eq!(usage.model_calls, 1);
            format!("end {stop_reason} {}/{}", usage.input_tokens, usage.output_tokens)
        }
        Ok(other) => format!("{other:?}"),
        Err(error) => format!("{}: {error} {:?}", error.kind, error.retry_after),
    }
}

/// The timeline of one turn without delays.
fn play(agents: &str, call: u32) -> Vec<String> {
    block_on(model(agents).chat(request(call)).map(|event| line(&event)).collect())
}

#[test]
fn a_turn_is_played_in_order() {
    let turn = r#"{"turns":[{
        "tool_calls":[{"name":"grep","arguments":{"pattern":"x"}},{"id":"mine","name":"glob","arguments":"{oops"}],
        "thinking":"hm","chunks":["a","","b"],"usage":{"input_tokens":3,"output_tokens":4}}]}"#;
    assert_eq!(
        play(turn, 0),
        [
            "thinking \"hm\"",
            "text \"a\"",
            "text \"\"",
            "text \"b\"",
            "call 0 call_0_0 grep",
            "args 0 {\"pattern\":\"x\"}",
            "call 1 mine glob",
            "args 1 {oops",
            "end tool_calls 3/4",
        ]
    );
}

#[test]
fn turns_follow_the_number_of_calls() {
    let turns = r#"{"turns":[{"text":"one"},{"text":"two"}]"#;
    let error = format!("{turns}}}");
    assert_eq!(play(&error, 1), ["text \"two\"", "end end_turn 0/0"]);
    assert_eq!(
        play(&error, 2),
        [
            "exhausted: script exhausted: agents[0] of s.json has 2 turns, this is call 3 of the run with depth 1, \
          agent \"searcher\", title \"find \\\"it\\\"\" None"
        ]
    );
    let repeat = format!(r#"{turns},"then":"repeat"}}"#);
    assert_eq!(play(&repeat, 2), ["text \"one\"", "end end_turn 0/0"]);
    assert_eq!(play(&repeat, u32::MAX), ["text \"two\"", "end end_turn 0/0"]);
    let stop = format!(r#"{turns},"then":"stop"}}"#);
    assert_eq!(play(&stop, 2), ["end end_turn 0/0"]);
}

#[test]
fn no_entry_matches() {
    assert_eq!(
        play(r#"{"when":{"depth":0},"turns":[{}]}"#, 0),
        ["exhausted: no entry of script s.json matches the run with depth 1, agent \"searcher\", title \
          \"find \\\"it\\\"\" None"]
    );
}

#[test]
fn endings_other_than_a_reason() {
    let used = r#""text":"a","usage":{"input_tokens":3}"#;
    assert_eq!(play(&format!(r#"{{"turns":[{{{used},"stop":null}}]}}"#), 0), ["text \"a\"", "usage 3/0"]);
    assert_eq!(play(r#"{"turns":[{"stop":null}]}"#, 0), [""; 0]);
    assert_eq!(
        play(
            &format!(
                r#"{{"turns":[{{{used},"error":{{"message":"slow down","kind":"rate_limit","retry_after_ms":1500}}}}]}}"#
            ),
            0
        ),
        ["text \"a\"", "usage 3/0", "rate_limit: slow down Some(1.5s)"]
    );
    assert_eq!(play(r#"{"turns":[{"text":"a","stop":"length"}]}"#, 0), ["text \"a\"", "end length 0/0"]);
}

#[test]
fn a_wrong_history_is_refused_before_anything_is_said() {
    let mut request = request(0);
    let result = ChatMessage::ToolResult {
        id: "x".into(),
        name: "grep".into(),
        content: String::new(),
        images: Images::default(),
        is_error: false,
    };
    request.messages = Arc::new(vec![result]);
    let events: Vec<_> = block_on(model(r#"{"turns":[{"text":"a"}]}"#).chat(request).collect());
    let error = ModelError::new(
        ModelErrorKind::BadRequest,
        "the history is wrong: the result of x (messages[0]) answers no call",
    );
    assert_eq!(events, [Err(error)]);
}

#[test]
fn a_hanging_turn_stays_pending_and_keeps_no_waker() {
    let mut stream = task::spawn(model(r#"{"turns":[{"text":"a","hang":true}]}"#).chat(request(0)));
    assert!(assert_ready!(stream.poll_next()).is_some());
    assert_pending!(stream.poll_next());
    assert_pending!(stream.poll_next());
    assert!(!stream.is_woken());
}

#[tokio::test(start_paused = true)]
async fn delays_stand_before_what_they_delay() {
    let model = model(
        r#"{"turns":[{"delay_ms":100,"thinking":"hm","chunks":["a","b"],"chunk_delay_ms":10,
            "tool_calls":[{"name":"grep"}]}]}"#,
    );
    let stream = model.chat(request(0));
    // Cold: time that passes before the first poll is not part of the delay.
    tokio::time::advance(Duration::from_secs(5)).await;
    let start = tokio::time::Instant::now();
    let timeline: Vec<String> =
        stream.map(|event| format!("{} {}", start.elapsed().as_millis(), line(&event))).collect().await;
    assert_eq!(
        timeline,
        [
            "100 thinking \"hm\"",
            "110 text \"a\"",
            "120 text \"b\"",
            "120 call 0 call_0_0 grep",
            "120 args 0 {}",
            "120 end tool_calls 0/0",
        ]
    );
}

#[test]
fn the_history_is_released_with_the_first_event() {
    let request = request(0);
    let messages = Arc::clone(&request.messages);
    let mut stream = model(r#"{"turns":[{"text":"a"}]}"#).chat(request);
    assert_eq!(Arc::strong_count(&messages), 2);
    assert!(block_on(stream.next()).is_some());
    assert_eq!(Arc::strong_count(&messages), 1);
}

#[test]
fn generated_deltas_share_one_text() {
    let mut stream = model(r#"{"turns":[{"generate":{"chunks":100000,"text":"abc"}}]}"#).chat(request(0));
    let events: Vec<_> = block_on(stream.by_ref().collect());
    assert_eq!(events.len(), 100_001);
    let (Ok(ChatEvent::Text(first)), Ok(ChatEvent::Text(last))) = (&events[0], &events[99_999]) else {
        panic!("not text: {:?}", events[0]);
    };
    assert!(Arc::ptr_eq(first, last));
}

#[test]
fn its_name_says_where_it_came_from() {
    assert_eq!(model("").name(), "script:s.json");
}
