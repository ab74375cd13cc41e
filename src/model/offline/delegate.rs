//! A run whose task names an agent: it hands the rest of the task to it. And a run that was handed one: it reports.

use regex::Regex;
use serde_json::{Value, json};

use super::answer;
use super::model::{Conversation, Turn};
use super::results;

/// The tool that delegates by name.
const DELEGATE: &str = "delegate";

/// The tool with which a run that was delegated reports.
const FINISH: &str = "finish";

/// The line of a system prompt below which the agents stand.
const AGENTS: &str = "The agents that `delegate` takes:";

/// So many agents at once.
const MOST_AGENTS: usize = 4;

/// Delegates to the agents that the task names, then answers with what they say; none if it names none.
pub(super) fn next(conversation: &Conversation<'_>, system: Option<&str>) -> Option<Turn> {
    let mut results = conversation.results(DELEGATE).peekable();
    if results.peek().is_some() {
        return Some(Turn::say(results.map(|result| said(result.arguments, result.content))));
    }
    if !conversation.may_call(DELEGATE) {
        return None;
    }
    let (named, task) = named(conversation.task, agents(system?));
    if named.is_empty() {
        return None;
    }
    let text = format!("Delegating to {}.", named.join(" and "));
    let calls = named.iter().map(|agent| (DELEGATE.to_owned(), json!({ "agent": agent, "task": task })));
    Some(Turn { text: vec![text], calls: calls.collect() })
}

/// The same turn; where it would answer a run that delegated, it reports instead.
pub(super) fn reported(turn: Turn, conversation: &Conversation<'_>) -> Turn {
    let is_answer = turn.calls.is_empty() && conversation.may_call(FINISH);
    if !is_answer || conversation.results(FINISH).next().is_some() {
        return turn;
    }
    let gives_up = [answer::no_schema(), answer::no_terms(), answer::no_tools()].contains(&turn.text);
    let status = if gives_up { "blocked" } else { "completed" };
    let report = json!({ "status": status, "summary": turn.text.concat() });
    Turn { text: Vec::new(), calls: vec![(FINISH.to_owned(), report)] }
}

/// The names of the agents, as the system prompt has them.
fn agents(system: &str) -> impl Iterator<Item = &str> {
    let lines = system.lines().skip_while(|line| *line != AGENTS).skip(1);
    lines.map_while(|line| line.strip_prefix("- ")).filter_map(|line| Some(line.split_once(": ")?.0))
}

/// The agents that a task asks for (`ask the reviewer …`, `@reviewer …`), and the task without the asking.
fn named<'a>(task: &str, agents: impl Iterator<Item = &'a str>) -> (Vec<&'a str>, String) {
    let (mut named, mut rest) = (Vec::new(), task.to_owned());
    for agent in agents {
        let asks =
            r"(?:@|\b(?:ask|have|let|tell|use|delegate to|hand (?:it|this) to)\s+(?:the\s+)?(?:agent\s+)?`?)";
        let pattern = format!(r"(?i){asks}{}`?(?:\s+to\b|[:,])?(?:\s|[.?!]|$)\s*", regex::escape(agent));
        let Ok(pattern) = Regex::new(&pattern) else { continue };
        if named.len() < MOST_AGENTS && pattern.is_match(&rest) {
            named.push(agent);
            rest = pattern.replace_all(&rest, " ").trim().to_owned();
        }
    }
    let task = if rest.chars().any(char::is_alphanumeric) { rest } else { task.to_owned() };
    (named, task)
}

/// What an agent said, or why it said nothing.
fn said(arguments: &Value, content: &str) -> String {
    let agent = arguments.get("agent").and_then(Value::as_str).unwrap_or("the agent");
    let record: Value = serde_json::from_str(content).unwrap_or_default();
    let text = |key: &str| record.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let status = text("status").unwrap_or("failed");
    match (text("summary"), text("message")) {
        (Some(summary), None) => format!("{agent} ({status}):\n\n{}\n\n", summary.trim_end()),
        (Some(summary), Some(why)) => format!("{agent} ({status}: {why}):\n\n{}\n\n", summary.trim_end()),
        (None, _) => format!("{agent} ({status}): {}\n\n", results::failure(content)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{request, tools, turn};
    use super::*;
    use crate::model::{ChatMessage, Images, ToolRequest};

    fn asks(task: &str) -> Option<Value> {
        let user = ChatMessage::User { text: task.into() };
        let mut request = request(task, vec![user], tools(&["delegate", "run_search"]));
        request.system = Some(
            format!("Be kind.\n\n{AGENTS}\n- reviewer: Reviews.\n- a.b: Does b.\n\nMore.\n- no: agent")
                .into(),
        );
        let (_, calls) = turn(request);
        calls.iter().all(|call| &*call.name == DELEGATE).then(|| calls[0].arguments.clone())
    }

    #[test]
    fn only_who_asks_for_an_agent_gets_one() {
        for (task, left) in [
            ("Ask the reviewer where retry is handled.", "where retry is handled."),
            ("have `Reviewer` look at retry", "look at retry"),
            ("@reviewer: retry?", "retry?"),
            ("use the agent reviewer", "use the agent reviewer"),
        ] {
            assert_eq!(asks(task), Some(json!({ "agent": "reviewer", "task": left })), "{task}");
        }
        assert_eq!(asks("tell a.b to wait"), Some(json!({ "agent": "a.b", "task": "wait" })));
        for task in
            ["where is the reviewer?", "ask the reviewers where retry is", "ask aXb", "ask no about retry"]
        {
            assert_eq!(asks(task), None, "{task}");
        }
    }

    #[test]
    fn what_the_agent_says_is_the_answer() {
        let says = |content: &str| {
            let call =
                ToolRequest { id: "1".into(), name: DELEGATE.into(), arguments: json!({ "agent": "a" }) };
            let messages = vec![
                ChatMessage::User { text: "ask a".into() },
                ChatMessage::Assistant { text: String::new(), tool_calls: vec![call] },
                ChatMessage::ToolResult {
                    id: "1".into(),
                    name: DELEGATE.into(),
                    content: content.into(),
                    images: Images::default(),
                    is_error: false,
                },
            ];
            turn(request("ask a", messages, tools(&["delegate"]))).0
        };
        assert_eq!(
            says(r#"{"status":"completed","summary":"it is so\n"}"#),
            "a (completed):\n\nit is so\n\n"
        );
        let failed =
            r#"{"status":"timed_out","summary":"half","error":"agent_timed_out","message":"too late"}"#;
        assert_eq!(says(failed), "a (timed_out: too late):\n\nhalf\n\n");
        assert!(says(r#"{"error":"unknown_agent","message":"There is none."}"#).contains("There is none."));
    }

    #[test]
    fn a_run_that_was_handed_a_task_reports() {
        let user = ChatMessage::User { text: "do it".into() };
        let (text, calls) = turn(request("do it", vec![user], tools(&["finish"])));
        assert_eq!(
            (text.as_str(), &*calls[0].name, &calls[0].arguments["status"]),
            ("", FINISH, &json!("blocked"))
        );
    }
}
