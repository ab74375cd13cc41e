//! A small source tree, tools over it, and a loop that plays a run and its children.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use regex::Regex;
use serde_json::{Value, json};
use tokio_test::block_on;

use super::lines::{self, FileKind};
use crate::id::RunId;
use crate::model::{
    ChatEvent, ChatMessage, ChatModel, ChatRequest, Images, OfflineModel, RunLabel, ToolChoice, ToolRequest,
    ToolSpec,
};

/// The tree: a bit of Rust, Python and Markdown.
pub(super) const TREE: &[(&str, &str)] = &[
    ("Cargo.lock", "name = \"cancel\"\n"),
    ("README.md", "# Token\n\nSays how.\n\n## Cancellation\n\nA token is cancelled once.\n"),
    (
        "src/token.rs",
        "//! Tokens.\n\nuse crate::cancel;\n\n/// A token.\npub struct Token {\n    cancelled: bool,\n}\n\nimpl Token {\n    \
         /// Cancels this token,\n    /// and wakes who waits.\n    pub fn cancel(&mut self) {\n        \
         self.cancelled = true;\n    }\n}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn cancel_inside() {\n        \
         Token::new().cancel();\n    }\n}\n",
    ),
    ("src/main.rs", "fn main() {\n    let mut token = Token::new();\n    token.cancel();\n}\n"),
    ("tests/token.rs", "#[test]\nfn cancels_once() {\n    token.cancel();\n}\n"),
    ("vendor/x.rs", "fn cancel() {}\n"),
    (
        "tools/retry.py",
        "import time\n\ndef retry(call):\n    \"\"\"Retries on 429.\"\"\"\n    return call()\n",
    ),
];

pub(super) fn spec(name: &str, parameters: &[&str]) -> Arc<ToolSpec> {
    let properties: serde_json::Map<String, Value> =
        parameters.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
    let parameters = json!({ "type": "object", "properties": properties });
    Arc::new(ToolSpec { name: name.into(), description: String::new(), parameters })
}

/// The tools of a workspace, those of these names.
pub(super) fn tools(names: &[&str]) -> Arc<[Arc<ToolSpec>]> {
    let all = [
        spec("run_search", &["query", "breadth"]),
        spec("grep", &["pattern", "path", "glob", "ignore_case", "context", "max_results"]),
        spec("read_file", &["path", "offset", "limit"]),
        spec("list_nodes", &[]),
        spec("add_node", &["id", "agent", "prompt"]),
        spec("add_edge", &["from", "to"]),
        spec("finish_graph", &[]),
        spec("delegate", &["agent", "task"]),
        spec("finish", &["status", "summary"]),
        spec("finish_plan", &["title", "tasks"]),
    ];
    all.into_iter().filter(|spec| names.contains(&spec.name.as_str())).collect()
}

pub(super) fn request(prompt: &str, messages: Vec<ChatMessage>, tools: Arc<[Arc<ToolSpec>]>) -> ChatRequest {
    let run_id = RunId::parse("r");
    ChatRequest {
        run: Arc::new(RunLabel {
            run_id,
            depth: 0,
            agent: "main".into(),
            title: "t".into(),
            prompt: prompt.into(),
        }),
        call: 0,
        system: None,
        messages: Arc::new(messages),
        tools,
        tool_choice: ToolChoice::Auto,
        output_schema: None,
        max_output_tokens: None,
    }
}

/// One turn: its text, and its calls.
pub(super) fn turn(request: ChatRequest) -> (String, Vec<ToolRequest>) {
    let events: Vec<_> = block_on(OfflineModel::new().chat(request).collect());
    let (mut text, mut calls): (String, Vec<ToolRequest>) = (String::new(), Vec::new());
    for event in events {
        match event.unwrap() {
            ChatEvent::Text(delta) => text.push_str(&delta),
            ChatEvent::ToolCallStart { id, name, .. } => {
                calls.push(ToolRequest { id: id.as_str().into(), name: name.into(), arguments: Value::Null });
            }
            ChatEvent::ToolCallArgs { index, delta } => {
                calls[index as usize].arguments = serde_json::from_str(&delta).unwrap();
            }
            ChatEvent::End { .. } => {}
            other => panic!("unexpected {other:?}"),
        }
    }
    (text, calls)
}

/// What a tool answers, and whether it is an error. None asks the kit.
pub(super) type Answer = dyn Fn(&str, &Value) -> Option<(String, bool)>;

/// Plays a run to its end and gives its last text. The timeline of all turns and calls goes to `log`.
pub(super) fn play(prompt: &str, names: &[&str], answer: &Answer, log: &mut Vec<String>) -> String {
    let mut messages = vec![ChatMessage::User { text: prompt.into() }];
    for call in 0..5 {
        let mut request = request(prompt, messages.clone(), tools(names));
        request.call = call;
        let (text, calls) = turn(request);
        if calls.is_empty() {
            return text;
        }
        log.push(text.clone());
        let results: Vec<ChatMessage> = calls
            .iter()
            .map(|call| {
                log.push(format!("  {} {}", call.name, call.arguments));
                let answered = answer(&call.name, &call.arguments);
                let (content, is_error) =
                    answered.unwrap_or_else(|| (execute(call, names, answer, log), false));
                ChatMessage::ToolResult {
                    id: call.id.clone(),
                    name: Arc::clone(&call.name),
                    content,
                    images: Images::default(),
                    is_error,
                }
            })
            .collect();
        messages.push(ChatMessage::Assistant { text, tool_calls: calls });
        messages.extend(results);
    }
    panic!("no end: {log:?}");
}

fn execute(call: &ToolRequest, names: &[&str], answer: &Answer, log: &mut Vec<String>) -> String {
    let argument = |name: &str| call.arguments[name].as_str().unwrap_or_default();
    let number = |name: &str| usize::try_from(call.arguments[name].as_u64().unwrap_or(0)).unwrap();
    match &*call.name {
        "run_search" => {
            let inner: Vec<&str> = names.iter().copied().filter(|name| *name != "run_search").collect();
            let prompt = format!("Look around.\n<query>\n{}\n</query>\nReport.", argument("query"));
            play(&prompt, &inner, answer, log)
        }
        "grep" => grep(argument("pattern"), argument("path"), argument("glob"), number("context")),
        _ => {
            let files: BTreeMap<_, _> = TREE.iter().copied().collect();
            let lines =
                files[argument("path")].lines().zip(1..).skip(number("offset") - 1).take(number("limit"));
            lines.map(|(line, number)| format!("{number}\t{line}\n")).collect::<String>() + "[lines]"
        }
    }
}

fn grep(pattern: &str, only: &str, glob: &str, context: usize) -> String {
    let regex = Regex::new(pattern).unwrap();
    let chosen = |path: &str| {
        let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
        let listed = glob.split(['{', ',', '}']).any(|word| word == extension);
        match glob.chars().next() {
            None => true,
            Some('!') => !listed,
            Some('{') => lines::file_kind(path) == FileKind::Test,
            Some(_) => listed || glob.strip_prefix("*.") == Some(extension),
        }
    };
    let mut found = String::new();
    for (path, text) in TREE.iter().filter(|(path, _)| chosen(path) && (only.is_empty() || only == *path)) {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let near = lines[at.saturating_sub(context)..(at + context + 1).min(lines.len())].iter();
            if regex.is_match(line) {
                found += &format!("{path}:{}:{line}\n", at + 1);
            } else if context > 0 && near.clone().any(|line| regex.is_match(line)) {
                found += &format!("{path}-{}-{line}\n", at + 1);
            }
        }
    }
    if found.is_empty() { "[no hits]".to_owned() } else { found }
}

/// Compares with a file of `golden/`; with `UPDATE_GOLDEN` set it is written instead.
#[track_caller]
pub(super) fn golden(name: &str, expected: &str, text: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/model/offline/golden").join(name);
        std::fs::write(path, text).unwrap();
    } else {
        assert_eq!(text, expected, "{name}; UPDATE_GOLDEN=1 writes it anew");
    }
}
