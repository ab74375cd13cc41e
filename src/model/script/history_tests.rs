use serde_json::json;

use super::*;
use crate::model::{Images, ToolRequest};

fn user() -> ChatMessage {
    ChatMessage::User { text: "hello".into() }
}

fn calls(ids: &[&str]) -> ChatMessage {
    let call = |id: &&str| ToolRequest { id: (*id).into(), name: "grep".into(), arguments: json!({}) };
    ChatMessage::Assistant { text: String::new(), tool_calls: ids.iter().map(call).collect() }
}

fn result(id: &str) -> ChatMessage {
    ChatMessage::ToolResult {
        id: id.into(),
        name: "grep".into(),
        content: String::new(),
        images: Images::default(),
        is_error: false,
    }
}

#[test]
fn histories_that_a_provider_accepts() {
    for history in [
        vec![],
        vec![user()],
        vec![user(), calls(&[]), user()],
        vec![user(), calls(&["a", "b"]), result("b"), result("a"), calls(&["c"]), result("c"), user()],
    ] {
        assert_eq!(check(&history), Ok(()), "{history:?}");
    }
}

#[test]
fn histories_that_a_provider_refuses() {
    for (history, expected) in [
        (vec![user(), calls(&["a", "b"])], "no result for the calls: a, b"),
        (vec![calls(&["a", "b"]), result("a"), user()], "no result before messages[2] for the calls: b"),
        (vec![calls(&["a"]), calls(&["b"]), result("a")], "no result before messages[1] for the calls: a"),
        (vec![user(), result("a")], "the result of a (messages[1]) answers no call"),
        (
            vec![result("a"), calls(&["a"])],
            "the result of a (messages[0]) stands before its call (messages[1])",
        ),
        (vec![calls(&["a"]), result("a"), result("a")], "a has two results (messages[1] and messages[2])"),
        (vec![calls(&["a", "a"])], "two calls have the id a (the second in messages[0])"),
        (
            vec![calls(&["a"]), result("a"), calls(&["a"]), result("a")],
            "two calls have the id a (the second in messages[2])",
        ),
    ] {
        assert_eq!(check(&history), Err(expected.to_owned()), "{history:?}");
    }
}

#[test]
fn arguments_are_objects() {
    for arguments in [json!(null), json!([1]), json!("{}"), json!(3)] {
        let call = ToolRequest { id: "a".into(), name: "grep".into(), arguments };
        let history = [ChatMessage::Assistant { text: String::new(), tool_calls: vec![call] }, result("a")];
        assert_eq!(check(&history), Err("the arguments of a (messages[0]) are not an object".to_owned()));
    }
}
