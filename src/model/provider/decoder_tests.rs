use super::*;

/// What comes of a body: the events, as short as they can be written, and how it ends.
fn read(body: &str) -> String {
    read_in(&[body.as_bytes()])
}

fn read_in(pieces: &[&[u8]]) -> String {
    let mut decoder = ChatCompletions::new();
    pieces.iter().for_each(|piece| decoder.push(piece));
    decoder.close(None);
    let mut lines = Vec::new();
    while let Some(event) = decoder.next_event() {
        lines.push(match event {
            Ok(ChatEvent::Text(text)) => format!("text {text:?}"),
            Ok(ChatEvent::Thinking(text)) => format!("thinking {text:?}"),
            Ok(ChatEvent::ToolCallStart { index, id, name }) => format!("call {index} {id:?} {name:?}"),
            Ok(ChatEvent::ToolCallArgs { index, delta }) => format!("args {index} {delta}"),
            Ok(ChatEvent::Usage(usage)) => format!("usage {}/{}", usage.input_tokens, usage.output_tokens),
            Ok(ChatEvent::End { stop_reason, .. }) => format!("end {stop_reason}"),
            Ok(other) => format!("{other:?}"),
            Err(error) => format!("error {}: {error}", error.kind),
        });
    }
    lines.join("\n")
}

fn text(content: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{content:?}}}}}]}}\n\n")
}

const STOP: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const ERROR: &str =
    "data: {\"error\":{\"message\":\"overloaded\",\"type\":\"server_error\",\"code\":503}}\n\n";

#[test]
fn an_answer_is_its_deltas_and_one_end() {
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":5}}}\n\n";
    let body = format!(": hi\n\n{}{}{STOP}{usage}{DONE}{}", text("a"), text("b"), text("late"));
    assert_eq!(read(&body), "text \"a\"\ntext \"b\"\nusage 7/2\nend end_turn");
}

#[test]
fn c17_an_error_in_a_200_fails_the_turn_wherever_it_stands() {
    assert_eq!(read(ERROR), "error server: overloaded");
    assert_eq!(
        read(&format!("{}{}{ERROR}{DONE}", text("a"), text("b"))),
        "text \"a\"\ntext \"b\"\nerror server: overloaded"
    );
    let named = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"slow down\"}}\n\n";
    assert_eq!(read(named), "error rate_limit: slow down");
    assert_eq!(read("event: error\ndata: out of memory\n\n"), "error server: out of memory");
    assert_eq!(read("error: {\"code\":500,\"message\":\"boom\"}\n\n"), "error server: boom");
    assert_eq!(read("data: {\"error\":\"just words\"}\n\n"), "error server: just words");
}

#[test]
fn c18_a_body_that_is_no_event_stream_is_quoted() {
    assert_eq!(read(""), "error network: the server's answer was empty (0 bytes)");
    assert_eq!(
        read("{\"error\":{\"message\":\"no such model\",\"code\":404}}"),
        "error bad_request: no such model"
    );
    assert_eq!(
        read("{\"hello\":\n1}"),
        "error protocol: the answer is no event stream; it begins with: {\"hello\": 1}"
    );
    assert_eq!(
        read("<html>\n<body>busy</body>"),
        "error protocol: the answer is no event stream; it begins with: <html> <body>busy</body>"
    );
    assert_eq!(read(": ping\n\n"), "error network: the server closed the stream before the answer began");
    assert_eq!(read(DONE), "error protocol: the server ended the answer before it began");
    assert!(
        read("data: {\"type\":\"message_start\"}\n\n")
            .starts_with("error protocol: the answer is no chat completion; its first event is: {\"type")
    );
    assert!(
        read("data: {\"choices\":[{\"text\":\"x\"}]}\n\n")
            .starts_with("error protocol: the server speaks the protocol of plain")
    );
    assert!(
        read("data: {oops\n\ndata: {}\n\n")
            .starts_with("error protocol: an event of the answer is not of a chat completion")
    );
}

#[test]
fn c15_without_a_reason_there_is_no_end() {
    assert_eq!(read(&text("a")), "text \"a\"");
    assert_eq!(read(&format!("{}data: {{\"choi", text("a"))), "text \"a\"");
    assert_eq!(read(&format!("{}{DONE}", text("a"))), "text \"a\"\nend missing");
    let call = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"read\",\"arguments\":\"{\\\"p\"}}]}}]}\n\n";
    assert_eq!(read(call), "call 0 \"c\" \"read\"\nargs 0 {\"p");
    // What a server has called whole is whole, with or without the last word.
    assert_eq!(read(&format!("{}{STOP}", text("a"))), "text \"a\"\nend end_turn");
    let mut decoder = ChatCompletions::new();
    decoder.push(b"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n");
    decoder.close(Some(ModelError::new(ModelErrorKind::Network, "reset")));
    assert_eq!(decoder.next_event(), Some(Err(ModelError::new(ModelErrorKind::Network, "reset"))));
}

#[test]
fn fields_of_unexpected_types_and_unknown_events_end_nothing() {
    let odd = "data: {\"choices\":[{\"index\":\"0\",\"delta\":{\"content\":[{\"type\":\"thinking\",\"thinking\":[{\"type\":\"text\",\"text\":\"hm\"}]},{\"type\":\"text\",\"text\":\"a\"}],\"role\":7},\"finish_reason\":false}],\"usage\":{\"prompt_tokens\":-1,\"completion_tokens\":2.0}}\n\ndata: {\"type\":\"ping\"}\n\n";
    assert_eq!(read(&format!("{odd}{STOP}{DONE}")), "thinking \"hm\"\ntext \"a\"\nusage 0/2\nend end_turn");
    let other =
        "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"no\"},\"finish_reason\":\"length\"}]}\n\n";
    assert_eq!(read(&format!("{}{other}{STOP}", text("a"))), "text \"a\"\nend end_turn");
}

#[test]
fn what_is_said_beside_an_answer_does_not_end_it() {
    for odd in ["\"none\"", "[]", "5", "{\"prompt_tokens\":{},\"prompt_tokens_details\":5}"] {
        let usage = format!("data: {{\"choices\":[],\"usage\":{odd}}}\n\n");
        assert_eq!(read(&format!("{}{STOP}{usage}{DONE}", text("a"))), "text \"a\"\nend end_turn", "{odd}");
    }
    let details =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"prompt_tokens_details\":\"x\"}}\n\n";
    assert_eq!(read(&format!("{}{STOP}{details}", text("a"))), "text \"a\"\nusage 3/0\nend end_turn");
    for none in ["null", "false", "\"\"", "{}"] {
        let quiet = text("a").replace("\"choices\"", &format!("\"error\":{none},\"choices\""));
        assert_eq!(read(&format!("{quiet}{STOP}")), "text \"a\"\nend end_turn", "{none}");
    }
}

#[test]
fn the_one_call_of_older_servers_is_a_call() {
    let piece =
        |call: &str| format!("data: {{\"choices\":[{{\"delta\":{{\"function_call\":{call}}}}}]}}\n\n");
    let body = format!(
        "{}{}{}",
        piece("{\"name\":\"read\",\"arguments\":\"{\\\"p\"}"),
        piece("{\"arguments\":\"\\\":1}\"}"),
        STOP.replace("stop", "function_call")
    );
    assert_eq!(read(&body), "call 0 \"\" \"read\"\nargs 0 {\"p\nargs 0 \":1}\nend tool_calls");
}

#[test]
fn arguments_without_an_end_are_bounded() {
    let mut decoder = ChatCompletions::new();
    let piece = format!(
        "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":0,\"function\":{{\"arguments\":\"{}\"}}}}]}}}}]}}\n\n",
        "x".repeat(1 << 20)
    );
    let mut ended = None;
    for _ in 0..20 {
        decoder.push(piece.as_bytes());
        while let Some(event) = decoder.next_event() {
            ended = event.err().or(ended);
        }
    }
    let text = "the server sent more than 1024 calls, or more than 16 MiB of arguments, in one turn";
    assert_eq!(ended, Some(ModelError::new(ModelErrorKind::Protocol, text)));
}

#[test]
fn c19_a_body_means_the_same_however_it_is_split() {
    let body = format!("{}{}{STOP}{DONE}", text("日本語 🦀👩\u{200d}💻"), text("naïve")).into_bytes();
    let whole = read_in(&[&body]);
    assert!(whole.contains("🦀👩") && !whole.contains('\u{fffd}'), "{whole}");
    for size in 1..8 {
        let pieces: Vec<&[u8]> = body.chunks(size).collect();
        assert_eq!(read_in(&pieces), whole, "in pieces of {size}");
    }
    for at in 0..body.len() {
        let (one, two) = body.split_at(at);
        assert_eq!(read_in(&[one, two]), whole, "split at {at}");
    }
    // A server that counts in UTF-16 cuts a letter in two.
    let halves = r#"data: {"choices":[{"delta":{"content":"a\ud83d"}}]}

data: {"choices":[{"delta":{"content":"\ude00b"}}]}

"#;
    assert_eq!(read(&format!("{halves}{STOP}")), "text \"a\"\ntext \"😀b\"\nend end_turn");
    let mut invalid = body.clone();
    invalid[50] = 0xff;
    assert!(read_in(&[&invalid]).starts_with("error protocol"), "{}", read_in(&[&invalid]));
}
