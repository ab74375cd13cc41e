//! Any JSON object is refused or comes back byte for byte; any body fits under any cap.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

use super::size::cap_text;
use super::wire::tests::{ENV, every_kind};
use super::*;
use crate::outcome::{StopReason, Usage};

/// JSON text, in the spellings that a reader that rebuilds it would lose.
fn any_json() -> impl Strategy<Value = String> {
    let number = select(vec![
        "0",
        "-0",
        "-0.0",
        "1.0",
        "1e5",
        "1E+05",
        "2.50",
        "1e-400",
        "0.30000000000000004",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775809",
        "123456789012345678901234567890",
        "1e400",
        "4294967296",
    ]);
    let leaf = prop_oneof![
        3 => number.prop_map(str::to_owned),
        2 => select(vec!["null", "true", "false"]).prop_map(str::to_owned),
        3 => any_string(),
        1 => any::<f64>().prop_filter("JSON has no others", |f| f.is_finite()).prop_map(|f| f.to_string()),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let space = || select(vec!["", "", "", " ", "\t"]);
        let members = vec((any_key(), inner.clone()), 0..4);
        prop_oneof![
            (vec(inner, 0..4), space())
                .prop_map(|(items, space)| format!("[{space}{}]", items.join(&format!("{space},")))),
            (members, space()).prop_map(|(members, space)| object(&members, space)),
        ]
    })
}

fn any_string() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => ".{0,6}".prop_map(|text| Value::String(text).to_string()),
        1 => select(vec![
            r#""\u0061""#, r#""\/""#, r#""\ud83d\ude00""#, r#""\ud83d""#, r#""\u0000""#, r#""\n""#, "\"\u{2028}\u{7f}\"",
            r#""2026-11-30T15:14:19Z""#, r#""call_0""#, r#""completed""#, r#""end_turn""#, r#""info""#, r#""foreground""#,
        ])
        .prop_map(str::to_owned),
    ]
}

/// Keys that mean something, and others.
fn any_key() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => select(vec![
            "content", "done", "thinking", "node_id", "content_type", "result", "step", "error", "ok", "outcome", "args",
            "tool_call_id", "call_index", "name", "usage", "turn", "stop_reason", "severity", "seq", "run_seq", "time",
            "run_id", "root_run_id", "parent_run_id", "parent_tool_call_id", "subtask_depth", "type", "message", "\\u0074ype",
        ])
        .prop_map(|key| format!("\"{key}\"")),
        1 => any_string(),
    ]
}

fn object(members: &[(String, String)], space: &str) -> String {
    let members: Vec<String> =
        members.iter().map(|(key, value)| format!("{key}{space}:{space}{value}")).collect();
    format!("{{{space}{}{space}}}", members.join(&format!("{space},{space}")))
}

/// An object with a string `type`, at any place among any members; half of them with a whole envelope.
fn any_object() -> impl Strategy<Value = String> {
    let kinds: Vec<String> =
        every_kind().filter_map(|line| line.split('"').nth(3).map(|kind| format!("\"{kind}\""))).collect();
    let kind = prop_oneof![4 => select(kinds), 1 => any_string()];
    let envelope: Vec<(String, String)> = ENV
        .split(",\"")
        .filter_map(|member| member.trim_start_matches('"').split_once("\":"))
        .map(|(key, value)| (format!("\"{key}\""), value.to_owned()))
        .collect();
    let space = select(vec!["", "", " ", "  "]);
    (kind, vec((any_key(), any_json()), 0..8), any::<bool>(), any::<u16>(), space).prop_map(
        move |(kind, mut members, stamped, at, space)| {
            members.insert(usize::from(at) % (members.len() + 1), ("\"type\"".to_owned(), kind));
            if stamped {
                members.splice(0..0, envelope.iter().cloned());
                let turns = usize::from(at) % members.len();
                members.rotate_left(turns);
            }
            object(&members, space)
        },
    )
}

/// One of the bodies of [`every_kind`], with other keys, other values or another order.
fn varied_object() -> impl Strategy<Value = String> {
    let lines: Vec<String> = every_kind().collect();
    (select(lines), vec((any_key(), any_json(), any::<prop::sample::Index>()), 0..4)).prop_map(
        |(line, changes)| {
            let Value::Object(map) = serde_json::from_str(&line).unwrap() else { panic!() };
            let mut members: Vec<(String, String)> = map
                .iter()
                .map(|(key, value)| (Value::from(key.as_str()).to_string(), value.to_string()))
                .collect();
            for (key, value, at) in changes {
                let at = at.index(members.len() + 1);
                match members.get_mut(at) {
                    Some(member) if value.len() % 2 == 0 => member.1 = value,
                    _ => members.insert(at, (key, value)),
                }
            }
            object(&members, "")
        },
    )
}

fn check_round_trip(line: &str) -> std::result::Result<(), TestCaseError> {
    let read = ProcessingMessage::from_json(line);
    let by_serde = serde_json::from_str::<ProcessingMessage>(line);
    prop_assert_eq!(read.is_ok(), by_serde.is_ok());
    let (Ok(message), Ok(by_serde)) = (read, by_serde) else { return Ok(()) };
    prop_assert_eq!(message.to_json(), line);
    prop_assert_eq!(serde_json::to_string(&by_serde).unwrap(), line);
    prop_assert_eq!(serde_json::to_string(&vec![&message]).unwrap(), format!("[{line}]"));
    prop_assert_eq!(&message, &by_serde);
    // In another envelope it still says the same, also to the next reader.
    let origin = Origin {
        root_run_id: "r".into(),
        run_id: "r".into(),
        parent_run_id: None,
        parent_tool_call_id: None,
        subtask_depth: 0,
    };
    let time = Timestamp::from_micros(7);
    let stamped = message.clone().stamped(Nesting { origin: Arc::new(origin), seq: 1, run_seq: 1, time });
    let again = ProcessingMessage::from_json(&stamped.to_json());
    prop_assert_eq!(again.as_ref().map_err(ToString::to_string), Ok(&stamped));
    prop_assert_eq!(again.unwrap().to_json(), stamped.to_json());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    #[test]
    fn any_object_is_refused_or_comes_back(line in any_object()) {
        check_round_trip(&line)?;
    }

    #[test]
    fn any_variation_of_a_message_comes_back(line in varied_object()) {
        check_round_trip(&line)?;
    }

    #[test]
    fn any_text_is_refused_or_read(text in ".{0,40}") {
        let _ = ProcessingMessage::from_json(&text);
    }

    #[test]
    fn money_is_the_same_after_reading(cost in 0.0..1e6f64) {
        let usage = Usage { cost_usd: Some(cost), ..Usage::of_call(1, 1) };
        let turn = TurnFinished { turn: 1, stop_reason: StopReason::EndTurn, usage, extra: Extra::default() };
        let message = ProcessingMessage::new(turn);
        prop_assert_eq!(ProcessingMessage::from_json(&message.to_json()).unwrap(), message);
    }

    #[test]
    fn a_cut_text_is_a_prefix_and_a_marker(text in ".{0,80}", max in 0usize..100) {
        let cut = cap_text(&text, max);
        if text.len() <= max {
            prop_assert_eq!(cut, text);
        } else {
            let (kept, marker) = cut.rsplit_once("…[cut: ").unwrap();
            prop_assert!(text.starts_with(kept) && kept.len() <= max && kept.len() + 4 > max);
            prop_assert_eq!(marker, format!("{} of {} bytes]", kept.len(), text.len()));
        }
    }

    #[test]
    fn any_message_fits_under_any_cap(line in prop_oneof![any_object(), varied_object()], max in 0usize..600) {
        if let Ok(message) = ProcessingMessage::from_json(&line) {
            check_cap(message.body(), max);
        }
    }
}

/// How much more than its cap a body may be: small parts that are left whole, and a marker for each that is cut.
const SLACK: usize = 1536;

fn check_cap(body: &MessageBody, max: usize) {
    let (kind, size) = (body.kind().to_owned(), body.approx_bytes());
    let unknown = matches!(body, MessageBody::Other(_));
    let capped = body.clone().capped(max);
    assert!(
        capped.approx_bytes() <= size.min(max) + SLACK,
        "{} for {max}: {capped:?}",
        capped.approx_bytes()
    );
    if size <= max {
        assert_eq!(capped, *body);
    }
    // What a log needs to stay whole is never replaced by a remark.
    assert!(unknown || capped.kind() == kind);
    let line = ProcessingMessage::new(capped.clone()).to_json();
    assert_eq!(ProcessingMessage::from_json(&line).unwrap().body(), &capped, "{line}");
}

#[test]
fn each_part_of_each_kind_is_cut_when_it_is_huge() {
    for line in every_kind() {
        let paths = string_paths(&serde_json::from_str(&line).unwrap(), "");
        let huge = |paths: &[String]| {
            let mut json: Value = serde_json::from_str(&line).unwrap();
            paths.iter().for_each(|path| *json.pointer_mut(path).unwrap() = "é".repeat(3_000).into());
            ProcessingMessage::from_json(&json.to_string())
        };
        let mut sets: Vec<Vec<String>> = paths.iter().map(|path| vec![path.clone()]).collect();
        // All at once that may be anything.
        sets.push(
            paths
                .into_iter()
                .filter(|path| {
                    huge(std::slice::from_ref(path))
                        .is_ok_and(|message| !matches!(message.body(), MessageBody::Other(_)))
                })
                .collect(),
        );
        for set in sets {
            // A key of the envelope may be refused; a word that is none makes the body an unknown one.
            let Ok(message) = huge(&set) else { continue };
            for max in [0, 1, 100, 999, 5000, 20_000] {
                check_cap(message.body(), max);
            }
        }
    }
}

/// Where the strings of a body are.
fn string_paths(json: &Value, at: &str) -> Vec<String> {
    match json {
        Value::String(_) if at != "/type" => vec![at.to_owned()],
        Value::Object(map) => {
            map.iter().flat_map(|(key, value)| string_paths(value, &format!("{at}/{key}"))).collect()
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .flat_map(|(index, item)| string_paths(item, &format!("{at}/{index}")))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

#[test]
fn many_small_parts_are_cut_like_one_large_one() {
    let todos: Vec<Todo> =
        (0..1000).map(|n| Todo { content: format!("line {n}"), status: "pending".into() }).collect();
    let MessageBody::TodoUpdate(cut) =
        MessageBody::from(TodoUpdate { todos, extra: Extra::default() }).capped(1000)
    else {
        panic!()
    };
    assert_eq!(cut.todos.last().unwrap().content, format!("…[cut: {} of 1000 lines]", cut.todos.len() - 1));
    assert!(cut.todos.len() > 10, "{}", cut.todos.len());
    let keys: String = (0..1000).map(|n| format!(",\"key_{n}\":{n}")).collect();
    let queued =
        ProcessingMessage::from_json(&format!("{{\"type\":\"queued\",\"waiting_for\":\"permit\"{keys}}}"))
            .unwrap();
    let MessageBody::Queued(cut) = queued.into_body().capped(1000) else { panic!() };
    assert_eq!((cut.waiting_for.as_str(), cut.extra.iter().count()), ("permit", 1));
    assert!(cut.extra.get("unknown_keys").unwrap().contains("[cut: 0 of "));
    // A small part keeps its place beside a huge one.
    let started = format!(
        "{{\"type\":\"run_started\",\"agent\":\"a\",\"title\":\"short\",\"task\":\"{}\",\"scope\":\"foreground\",\"producer\":\"p\"}}",
        "x".repeat(9000)
    );
    let MessageBody::RunStarted(cut) =
        ProcessingMessage::from_json(&started).unwrap().into_body().capped(1000)
    else {
        panic!()
    };
    assert_eq!((&*cut.title, cut.task.contains("…[cut: 1000 of 9000 bytes]")), ("short", true));
}

#[test]
fn what_one_part_leaves_free_is_the_others() {
    let (title, task) = ("t".repeat(400), "x".repeat(9000));
    let line = format!(
        r#"{{"type":"run_started","agent":"a","title":"{title}","task":"{task}","scope":"foreground","producer":"p"}}"#
    );
    let body = ProcessingMessage::from_json(&line).unwrap().into_body();
    let MessageBody::RunStarted(cut) = body.capped(1000) else { panic!() };
    assert_eq!((&*cut.title, cut.task.contains("…[cut: 600 of 9000 bytes]")), (&*title, true));
}

#[test]
fn unknown_keys_of_a_chunk_are_under_the_cap() {
    let line = format!(r#"{{"type":"chunk","content":"a","done":false,"x":"{}"}}"#, "é".repeat(5000));
    let body = ProcessingMessage::from_json(&line).unwrap().into_body();
    check_cap(&body, 1000);
    let MessageBody::Chunk(cut) = body.capped(1000) else { panic!() };
    assert_eq!(&*cut.content, "a");
}

#[test]
fn white_space_around_and_line_breaks_between_are_not_part_of_a_message() {
    let pretty = "\n{\r\n  \"type\": \"queued\",\n  \"waiting_for\": \"permit\",\n  \"x\": [\n1,\r2 ]\n}\r\n";
    let message = ProcessingMessage::from_json(pretty).unwrap();
    let line = "{  \"type\": \"queued\",  \"waiting_for\": \"permit\",  \"x\": [1,2 ]}";
    assert_eq!(message.to_json(), line);
    assert_eq!(serde_json::to_string(&message).unwrap(), line);
    let Some(MessageBody::Queued(body)) = Some(message.body()) else { panic!() };
    assert_eq!(body.extra.get("x"), Some("[1,2 ]"));
}

#[test]
fn of_a_key_that_comes_twice_the_last_counts() {
    let message = ProcessingMessage::from_json(
        r#"{"type":"x","content":"a","type":"chunk","content":"b","y":1,"y":2}"#,
    )
    .unwrap();
    let MessageBody::Chunk(chunk) = message.body() else { panic!("{message:?}") };
    assert_eq!((&*chunk.content, chunk.meta.as_ref().unwrap().extra.get("y")), ("b", Some("2")));
}

#[test]
fn a_message_can_be_read_from_a_value_too() {
    for line in every_kind() {
        let message = ProcessingMessage::from_json(&line).unwrap();
        let value = serde_json::to_value(&message).unwrap();
        assert_eq!(serde_json::from_value::<ProcessingMessage>(value).unwrap(), message);
    }
}
