//! What is read, and each malformed script with the exact text of its error.

use super::*;

fn script_of(turn: &str) -> String {
    format!(r#"{{"anabranch_script":1,"agents":[{{"turns":[{turn}]}}]}}"#)
}

/// The only turn of a script.
fn read(turn: &str) -> Arc<Turn> {
    let script = Script::parse(&script_of(turn), "s.json").unwrap();
    Arc::clone(&script.entries[0].turns[0])
}

/// The error of a script, without the prefix that all of them share.
#[track_caller]
fn error(text: &str) -> String {
    let text = Script::parse(text, "s.json").unwrap_err().to_string();
    text.strip_prefix("script s.json: at ").unwrap().to_owned()
}

/// Checks the errors of turns; the path inside the turn comes first.
#[track_caller]
fn turn_errors(cases: &[(&str, &str)]) {
    for (turn, expected) in cases {
        let text = error(&script_of(turn));
        assert_eq!(text.strip_prefix("agents[0].turns[0]").unwrap(), *expected, "{turn}");
    }
}

#[test]
fn a_whole_turn_is_read() {
    let turn = read(
        r#"{ "delay_ms": 5, "thinking": "hm", "chunks": ["a", "b"], "chunk_delay_ms": 7, "code": "return 1",
             "tool_calls": [ { "id": "x", "name": "grep", "arguments": { "pattern": "p" } },
                             { "name": "glob", "arguments": "not json" }, { "name": "bare" } ],
             "usage": { "input_tokens": 3, "output_tokens": 4, "cached_tokens": 1, "cost_usd": 0.5 } }"#,
    );
    let call = |id: Option<&str>, name: &str, arguments: &str| Call {
        id: id.map(str::to_owned),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    };
    assert_eq!(turn.calls[0].name, "execute_code");
    assert_eq!(
        serde_json::from_str::<Value>(&turn.calls[0].arguments).unwrap(),
        json!({ "title": "Run the scripted code", "risk": "low", "description": "", "code": "return 1" })
    );
    assert_eq!(
        turn.calls[1..],
        [
            call(Some("x"), "grep", r#"{"pattern":"p"}"#),
            call(None, "glob", "not json"),
            call(None, "bare", "{}")
        ]
    );
    assert_eq!((turn.delay, turn.chunk_delay), (Duration::from_millis(5), Duration::from_millis(7)));
    assert_eq!(turn.thinking.as_deref(), Some("hm"));
    assert_eq!(turn.text, Text::Chunks(vec!["a".into(), "b".into()]));
    assert_eq!(
        turn.usage,
        Some(Usage {
            input_tokens: 3,
            output_tokens: 4,
            cached_tokens: Some(1),
            cost_usd: Some(0.5),
            model_calls: 1
        })
    );
    assert_eq!(turn.ending, Ending::Stop(StopReason::ToolCalls));
}

#[test]
fn endings_are_read() {
    assert_eq!(*read("{}"), Turn::empty());
    assert_eq!(read(r#"{"stop":"length"}"#).ending, Ending::Stop(StopReason::Length));
    assert_eq!(read(r#"{"stop":"content_filter"}"#).ending, Ending::Stop(StopReason::ContentFilter));
    assert_eq!(read(r#"{"stop":"tool_calls"}"#).ending, Ending::Stop(StopReason::ToolCalls));
    assert_eq!(
        read(r#"{"tool_calls":[{"name":"a"}],"stop":"end_turn"}"#).ending,
        Ending::Stop(StopReason::EndTurn)
    );
    assert_eq!(read(r#"{"stop":null}"#).ending, Ending::Cut);
    assert_eq!(read(r#"{"hang":true}"#).ending, Ending::Hang);
    assert_eq!(read(r#"{"hang":false,"stop":null}"#).ending, Ending::Cut);
    for (word, kind) in [
        ("rate_limit", ModelErrorKind::RateLimit),
        ("server", ModelErrorKind::Server),
        ("auth", ModelErrorKind::Auth),
        ("context_length", ModelErrorKind::ContextLength),
        ("network", ModelErrorKind::Network),
        ("timeout", ModelErrorKind::Timeout),
    ] {
        let turn = read(&format!(r#"{{"error":{{"message":"m","kind":"{word}","retry_after_ms":9}}}}"#));
        let error = ModelError { kind, message: "m".into(), retry_after: Some(Duration::from_millis(9)) };
        assert_eq!(turn.ending, Ending::Fail(error));
    }
}

#[test]
fn generate_is_read() {
    let turn = read(r#"{"generate":{"chunks":100000,"text":"ab"}}"#);
    assert_eq!(turn.text, Text::Same { count: 100_000, text: "ab".into() });
}

#[test]
fn not_json() {
    assert_eq!(error("{\n  \"agents\": [,]\n}"), "line 2, column 14: not JSON: expected value");
    assert_eq!(error(""), "line 1, column 0: not JSON: EOF while parsing a value");
    assert_eq!(
        error("{\"anabranch_script\":1,\n\"agents\":[],\"agents\":[]}"),
        "line 2, column 20: not JSON: the key \"agents\" is there twice"
    );
}

#[test]
fn wrong_at_the_top() {
    for (text, expected) in [
        ("[]", "the top level: expected an object, found an array"),
        ("{}", "anabranch_script: is missing"),
        (r#"{"anabranch_script":"1"}"#, "anabranch_script: expected a whole number from 0, found a string"),
        (r#"{"anabranch_script":2,"flows":[]}"#, "anabranch_script: version 2 is not known; write 1"),
        (r#"{"anabranch_script":1}"#, "agents: is missing"),
        (r#"{"anabranch_script":1,"agents":{}}"#, "agents: expected an array, found an object"),
        (r#"{"anabranch_script":1,"agent":[]}"#, r#"agent: unknown key "agent"; did you mean "agents"?"#),
        (
            r#"{"anabranch_script":1,"a b":[]}"#,
            r#"["a b"]: unknown key "a b"; known here: anabranch_script, agents"#,
        ),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
}

#[test]
fn wrong_in_an_entry() {
    for (entry, expected) in [
        ("7", "agents[0]: expected an object, found 7"),
        ("{}", "agents[0].turns: is missing"),
        (r#"{"turn":[]}"#, r#"agents[0].turn: unknown key "turn"; did you mean "turns"?"#),
        (
            r#"{"turns":[],"then":"again"}"#,
            r#"agents[0].then: unknown way to go on "again"; known here: error, repeat, stop"#,
        ),
        (
            r#"{"turns":[],"then":"repaet"}"#,
            r#"agents[0].then: unknown way to go on "repaet"; did you mean "repeat"?"#,
        ),
        (r#"{"turns":[],"then":"repeat"}"#, "agents[0].then: there is no turn to repeat"),
        (r#"{"turns":[],"when":[]}"#, "agents[0].when: expected an object, found an array"),
        (
            r#"{"turns":[],"when":{"depht":1}}"#,
            r#"agents[0].when.depht: unknown key "depht"; did you mean "depth"?"#,
        ),
        (
            r#"{"turns":[],"when":{"depth":-1}}"#,
            "agents[0].when.depth: expected a whole number from 0, found -1",
        ),
        (r#"{"turns":[],"when":{"agent":null}}"#, "agents[0].when.agent: expected a string, found null"),
        (
            r#"{"turns":[],"when":{"title":"a(b"}}"#,
            r#"agents[0].when.title: "a(b" is not a regular expression: unclosed group"#,
        ),
        (
            r#"{"turns":[],"when":{"prompt":"[z-a]"}}"#,
            "agents[0].when.prompt: \"[z-a]\" is not a regular expression: invalid character class range, the \
             start must be <= the end",
        ),
    ] {
        assert_eq!(error(&format!(r#"{{"anabranch_script":1,"agents":[{entry}]}}"#)), expected, "{entry}");
    }
}

#[test]
fn wrong_in_a_turn() {
    turn_errors(&[
        ("null", ": expected an object, found null"),
        (r#"{"tool_call":[]}"#, r#".tool_call: unknown key "tool_call"; did you mean "tool_calls"?"#),
        (
            r#"{"colour":1}"#,
            ".colour: unknown key \"colour\"; known here: delay_ms, thinking, text, chunks, generate, \
             chunk_delay_ms, code, tool_calls, usage, hang, error, stop",
        ),
        (r#"{"delay_ms":1.5}"#, ".delay_ms: expected a whole number from 0, found 1.5"),
        (r#"{"chunk_delay_ms":"1"}"#, ".chunk_delay_ms: expected a whole number from 0, found a string"),
        (r#"{"thinking":true}"#, ".thinking: expected a string, found true"),
        (r#"{"text":["a"]}"#, ".text: expected a string, found an array"),
        (r#"{"chunks":"a"}"#, ".chunks: expected an array, found a string"),
        (r#"{"chunks":["a",2]}"#, ".chunks[1]: expected a string, found 2"),
        (r#"{"generate":3}"#, ".generate: expected an object, found 3"),
        (r#"{"generate":{"chunks":3}}"#, ".generate.text: is missing"),
        (
            r#"{"generate":{"text":"a","chunk":3}}"#,
            r#".generate.chunk: unknown key "chunk"; did you mean "chunks"?"#,
        ),
        (r#"{"code":{}}"#, ".code: expected a string, found an object"),
        (r#"{"tool_calls":{}}"#, ".tool_calls: expected an array, found an object"),
        (r#"{"tool_calls":[{}]}"#, ".tool_calls[0].name: is missing"),
        (r#"{"tool_calls":[{"name":"a","id":1}]}"#, ".tool_calls[0].id: expected a string, found 1"),
        (
            r#"{"tool_calls":[{"name":"a","args":{}}]}"#,
            r#".tool_calls[0].args: unknown key "args"; known here: id, name, arguments"#,
        ),
        (
            r#"{"tool_calls":[{"name":"a"},{"name":"b","arguments":[1]}]}"#,
            ".tool_calls[1].arguments: expected an object, or a string that is sent as it is",
        ),
        (
            r#"{"usage":{"input":1}}"#,
            r#".usage.input: unknown key "input"; known here: input_tokens, output_tokens, cached_tokens, cost_usd"#,
        ),
        (r#"{"usage":{"cost_usd":-1}}"#, ".usage.cost_usd: expected a number from 0, found -1"),
        (r#"{"hang":1}"#, ".hang: expected true or false, found 1"),
        (r#"{"error":"boom"}"#, ".error: expected an object, found a string"),
        (r#"{"error":{"message":"boom"}}"#, ".error.kind: is missing"),
        (r#"{"error":{"kind":"server"}}"#, ".error.message: is missing"),
        (
            r#"{"error":{"message":"m","kind":"ratelimit"}}"#,
            r#".error.kind: unknown kind of error "ratelimit"; did you mean "rate_limit"?"#,
        ),
        (
            r#"{"stop":"done"}"#,
            r#".stop: unknown stop reason "done"; known here: end_turn, tool_calls, length, content_filter"#,
        ),
        (r#"{"stop":false}"#, ".stop: expected a string, found false"),
    ]);
}

#[test]
fn contradictions() {
    turn_errors(&[
        (r#"{"text":"a","chunks":["a"]}"#, ".chunks: cannot stand beside `text`: keep one of the two"),
        (
            r#"{"text":"a","generate":{"chunks":1,"text":"a"}}"#,
            ".generate: cannot stand beside `text`: keep one of the two",
        ),
        (
            r#"{"chunks":["a"],"generate":{"chunks":1,"text":"a"}}"#,
            ".generate: cannot stand beside `chunks`: keep one of the two",
        ),
        (
            r#"{"hang":true,"error":{"message":"m","kind":"server"}}"#,
            ".error: cannot stand beside `hang`: keep one of the two",
        ),
        (r#"{"hang":true,"stop":"length"}"#, ".stop: cannot stand beside `hang`: keep one of the two"),
        (
            r#"{"stop":null,"error":{"message":"m","kind":"server"}}"#,
            ".stop: cannot stand beside `error`: keep one of the two",
        ),
    ]);
}

#[test]
fn the_second_mistake_has_its_own_place() {
    let text = r#"{"anabranch_script":1,"agents":[{"turns":[{},{},{"tool_call":[]}]}]}"#;
    assert_eq!(
        error(text),
        r#"agents[0].turns[2].tool_call: unknown key "tool_call"; did you mean "tool_calls"?"#
    );
}

#[test]
fn files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    std::fs::write(&path, r#"{"anabranch_script":1,"agents":[]}"#).unwrap();
    assert!(Script::load(&path).unwrap().entries.is_empty());
    std::fs::write(&path, b"\xff").unwrap();
    let text = Script::load(&path).unwrap_err().to_string();
    assert_eq!(text, format!("cannot read {}: stream did not contain valid UTF-8", path.display()));
    let missing = folder.path().join("b.json");
    let error = Script::load(&missing).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Read { path, .. } if *path == missing));
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn entries_are_chosen_in_order() {
    let script = Script::parse(
        r#"{"anabranch_script":1,"agents":[
            {"when":{"depth":1,"agent":"searcher"},"turns":[]},
            {"when":{"title":"^find"},"turns":[]},
            {"when":{"prompt":"(?i)COUNT"},"turns":[]},
            {"when":{"depth":2},"turns":[]}]}"#,
        "s.json",
    )
    .unwrap();
    let number = |depth, agent: &str, title: &str, prompt: &str| {
        let run_id = crate::id::RunId::parse("r");
        let run = RunLabel { run_id, depth, agent: agent.into(), title: title.into(), prompt: prompt.into() };
        script.entry_for(&run).map(|(number, _)| number)
    };
    assert_eq!(number(1, "searcher", "find it", "count"), Some(0));
    assert_eq!(number(2, "searcher", "find it", "count"), Some(1));
    assert_eq!(number(2, "searcher", "do not find it", "please count"), Some(2));
    assert_eq!(number(2, "x", "x", "x"), Some(3));
    assert_eq!(number(0, "x", "x", "x"), None);
}
