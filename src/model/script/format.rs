//! What a script is, and how it is read.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use regex::Regex;
use serde_json::{Value, json};

use super::read::{self, Fault, Fields, Node};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{ModelError, ModelErrorKind, RunLabel, StopReason};
use crate::outcome::Usage;

/// The version of the format that this program reads.
const VERSION: u64 = 1;

/// The longest script, in bytes. A file that is named by mistake may have no end.
const MAX_BYTES: u64 = 64 << 20;

const ROOT_KEYS: &[&str] = &["anabranch_script", "agents"];
const ENTRY_KEYS: &[&str] = &["when", "turns", "then"];
const WHEN_KEYS: &[&str] = &["depth", "agent", "title", "prompt"];
const TURN_KEYS: &[&str] = &[
    "delay_ms",
    "thinking",
    "text",
    "chunks",
    "generate",
    "chunk_delay_ms",
    "code",
    "tool_calls",
    "usage",
    "hang",
    "error",
    "stop",
];

/// A script that was read and found correct. Cheap to clone.
///
/// The format is described in [`ScriptModel`](crate::model::ScriptModel)'s module and is a contract: scripts live
/// outside this library.
#[derive(Debug, Clone)]
pub struct Script {
    path: PathBuf,
    entries: Arc<[Entry]>,
}

impl Script {
    /// Reads a script from a file.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Read`]: the file cannot be read, or is not UTF-8;
    /// - [`ErrorKind::Script`]: it is not a script; the error names the place and what is wrong there.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let fail = |error: io::Error| {
            Error::caused_by(ErrorKind::Read { path: path.to_owned(), reason: error.to_string() }, error)
        };
        let mut bytes = Vec::new();
        File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes)).map_err(fail)?;
        if bytes.len() as u64 > MAX_BYTES {
            let reason = format!("it has more than {MAX_BYTES} bytes");
            return Err(fail(io::Error::new(io::ErrorKind::FileTooLarge, reason)));
        }
        let text = String::from_utf8(bytes).map_err(|_| {
            fail(io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8"))
        })?;
        Self::parse(&text, path)
    }

    /// Reads a script from text. `name` is what errors call it, usually its path.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Script`]: it is not a script; the error names the place and what is wrong there.
    pub fn parse(text: &str, name: impl AsRef<Path>) -> Result<Self> {
        let path = name.as_ref().to_owned();
        match read::parse(text).and_then(|document| entries(&document)) {
            Ok(entries) => Ok(Self { path, entries: entries.into() }),
            Err(Fault { at, reason }) => Err(ErrorKind::Script { path, at, reason }.into()),
        }
    }

    /// Where it came from.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The first entry that is for this run, and its number.
    pub(super) fn entry_for(&self, run: &RunLabel) -> Option<(usize, &Entry)> {
        self.entries.iter().enumerate().find(|(_, entry)| entry.when.matches(run))
    }
}

/// What the runs that match say.
#[derive(Debug)]
pub(super) struct Entry {
    when: When,
    pub(super) turns: Vec<Arc<Turn>>,
    pub(super) then: Then,
}

/// For which runs an entry is: what is none matches every run.
#[derive(Debug, Default)]
struct When {
    depth: Option<u64>,
    agent: Option<String>,
    title: Option<Regex>,
    prompt: Option<Regex>,
}

impl When {
    fn matches(&self, run: &RunLabel) -> bool {
        self.depth.is_none_or(|depth| depth == u64::from(run.depth))
            && self.agent.as_deref().is_none_or(|agent| agent == &*run.agent)
            && self.title.as_ref().is_none_or(|title| title.is_match(&run.title))
            && self.prompt.as_ref().is_none_or(|prompt| prompt.is_match(&run.prompt))
    }
}

/// What happens when the turns are used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Error,
    Repeat,
    Stop,
}

/// One answer.
#[derive(Debug, PartialEq)]
pub(super) struct Turn {
    pub(super) delay: Duration,
    pub(super) thinking: Option<Arc<str>>,
    pub(super) text: Text,
    pub(super) chunk_delay: Duration,
    pub(super) calls: Vec<Call>,
    pub(super) usage: Option<Usage>,
    pub(super) ending: Ending,
}

impl Turn {
    /// A turn that says nothing.
    pub(super) fn empty() -> Self {
        Self {
            delay: Duration::ZERO,
            thinking: None,
            text: Text::Chunks(Vec::new()),
            chunk_delay: Duration::ZERO,
            calls: Vec::new(),
            usage: None,
            ending: Ending::Stop(StopReason::EndTurn),
        }
    }
}

/// The deltas of a turn's text.
#[derive(Debug, PartialEq)]
pub(super) enum Text {
    Chunks(Vec<Arc<str>>),
    Same { count: u64, text: Arc<str> },
}

/// A tool call as it is sent: the arguments may be anything.
#[derive(Debug, PartialEq)]
pub(super) struct Call {
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) arguments: String,
}

/// How a turn ends.
#[derive(Debug, PartialEq)]
pub(super) enum Ending {
    Stop(StopReason),
    /// The stream ends without a reason.
    Cut,
    /// The stream never ends.
    Hang,
    Fail(ModelError),
}

fn entries(document: &Value) -> Result<Vec<Entry>, Fault> {
    let root = Node::root(document).fields()?;
    // The version comes before the keys: a script of another version may have other keys.
    let version = root.require("anabranch_script")?;
    if version.whole_number()? != VERSION {
        return Err(version.fault(format!("version {} is not known; write {VERSION}", version.value())));
    }
    root.only(ROOT_KEYS)?;
    root.require("agents")?.array()?.iter().map(entry).collect()
}

fn entry(node: &Node<'_>) -> Result<Entry, Fault> {
    let fields = node.object(ENTRY_KEYS)?;
    let when = fields.read("when", when)?.unwrap_or_default();
    let turns = fields.require("turns")?;
    let turns = turns.array()?.iter().map(|node| turn(node).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
    let then = fields.read("then", |node| {
        Ok(match node.word("way to go on", &["error", "repeat", "stop"])? {
            "repeat" if turns.is_empty() => return Err(node.fault("there is no turn to repeat")),
            "repeat" => Then::Repeat,
            "stop" => Then::Stop,
            _ => Then::Error,
        })
    })?;
    Ok(Entry { when, turns, then: then.unwrap_or(Then::Error) })
}

fn when(node: &Node<'_>) -> Result<When, Fault> {
    let fields = node.object(WHEN_KEYS)?;
    Ok(When {
        depth: fields.read("depth", Node::whole_number)?,
        agent: fields.read("agent", |node| node.string().map(str::to_owned))?,
        title: fields.read("title", regex)?,
        prompt: fields.read("prompt", regex)?,
    })
}

fn regex(node: &Node<'_>) -> Result<Regex, Fault> {
    let pattern = node.string()?;
    Regex::new(pattern).map_err(|error| {
        // The last line of the report says what is wrong; the lines before it draw where.
        let report = error.to_string();
        let last = report.lines().last().unwrap_or_default();
        let reason = last.strip_prefix("error: ").unwrap_or(last);
        node.fault(format!("{pattern:?} is not a regular expression: {reason}"))
    })
}

fn turn(node: &Node<'_>) -> Result<Turn, Fault> {
    let fields = node.object(TURN_KEYS)?;
    let mut calls: Vec<Call> = fields.read("code", code)?.into_iter().collect();
    if let Some(list) = fields.get("tool_calls") {
        for node in &list.array()? {
            calls.push(call(node)?);
        }
    }
    Ok(Turn {
        delay: fields.read("delay_ms", millis)?.unwrap_or_default(),
        thinking: fields.read("thinking", |node| node.string().map(Arc::from))?,
        text: text(&fields)?,
        chunk_delay: fields.read("chunk_delay_ms", millis)?.unwrap_or_default(),
        usage: fields.read("usage", usage)?,
        ending: ending(&fields, !calls.is_empty())?,
        calls,
    })
}

fn millis(node: &Node<'_>) -> Result<Duration, Fault> {
    node.whole_number().map(Duration::from_millis)
}

fn text(fields: &Fields<'_>) -> Result<Text, Fault> {
    fields.at_most_one(&["text", "chunks", "generate"])?;
    if let Some(node) = fields.get("generate") {
        let generate = node.object(&["chunks", "text"])?;
        let count = generate.require("chunks")?.whole_number()?;
        return Ok(Text::Same { count, text: generate.require("text")?.string()?.into() });
    }
    let chunks = match fields.get("chunks") {
        Some(node) => node.array()?,
        None => fields.get("text").into_iter().collect(),
    };
    Ok(Text::Chunks(chunks.iter().map(|chunk| chunk.string().map(Arc::from)).collect::<Result<_, _>>()?))
}

fn code(node: &Node<'_>) -> Result<Call, Fault> {
    let arguments = json!({
        "title": "Run the scripted code",
        "risk": "low",
        "description": "",
        "code": node.string()?,
    });
    Ok(Call { id: None, name: "execute_code".to_owned(), arguments: arguments.to_string() })
}

fn call(node: &Node<'_>) -> Result<Call, Fault> {
    let fields = node.object(&["id", "name", "arguments"])?;
    let arguments = fields.read("arguments", |node| match node.value() {
        Value::String(raw) => Ok(raw.clone()),
        object @ Value::Object(_) => Ok(object.to_string()),
        _ => Err(node.fault("expected an object, or a string that is sent as it is")),
    })?;
    Ok(Call {
        id: fields.read("id", |node| node.string().map(str::to_owned))?,
        name: fields.require("name")?.string()?.to_owned(),
        arguments: arguments.unwrap_or_else(|| "{}".to_owned()),
    })
}

fn usage(node: &Node<'_>) -> Result<Usage, Fault> {
    let fields = node.object(&["input_tokens", "output_tokens", "cached_tokens", "cost_usd"])?;
    let tokens = |key| fields.read(key, Node::whole_number);
    Ok(Usage {
        cached_tokens: tokens("cached_tokens")?,
        cost_usd: fields.read("cost_usd", Node::number)?,
        ..Usage::of_call(
            tokens("input_tokens")?.unwrap_or_default(),
            tokens("output_tokens")?.unwrap_or_default(),
        )
    })
}

fn ending(fields: &Fields<'_>, has_calls: bool) -> Result<Ending, Fault> {
    let hangs = fields.read("hang", Node::boolean)?.unwrap_or(false);
    // `hang: false` says nothing, so it contradicts nothing.
    fields.at_most_one(if hangs { &["hang", "error", "stop"] } else { &["error", "stop"] })?;
    if hangs {
        return Ok(Ending::Hang);
    }
    if let Some(node) = fields.get("error") {
        return failure(&node).map(Ending::Fail);
    }
    let fitting = if has_calls { StopReason::ToolCalls } else { StopReason::EndTurn };
    let Some(node) = fields.get("stop") else { return Ok(Ending::Stop(fitting)) };
    if node.value().is_null() {
        return Ok(Ending::Cut);
    }
    Ok(Ending::Stop(
        match node.word("stop reason", &["end_turn", "tool_calls", "length", "content_filter"])? {
            "tool_calls" => StopReason::ToolCalls,
            "length" => StopReason::Length,
            "content_filter" => StopReason::ContentFilter,
            _ => StopReason::EndTurn,
        },
    ))
}

fn failure(node: &Node<'_>) -> Result<ModelError, Fault> {
    let fields = node.object(&["message", "kind", "retry_after_ms"])?;
    let kinds = ["rate_limit", "server", "auth", "context_length", "network", "timeout"];
    let kind = match fields.require("kind")?.word("kind of error", &kinds)? {
        "rate_limit" => ModelErrorKind::RateLimit,
        "auth" => ModelErrorKind::Auth,
        "context_length" => ModelErrorKind::ContextLength,
        "network" => ModelErrorKind::Network,
        "timeout" => ModelErrorKind::Timeout,
        _ => ModelErrorKind::Server,
    };
    Ok(ModelError {
        kind,
        message: fields.require("message")?.string()?.to_owned(),
        retry_after: fields.read("retry_after_ms", millis)?,
    })
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
