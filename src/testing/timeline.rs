//! A log as text that a person reads and a test compares.

use std::collections::HashMap;

use serde_json::Value;

use crate::id::RunId;
use crate::message::{MessageBody, Origin, ProcessingMessage, RunFinished, RunStarted, Scope};
use crate::outcome::SubAgentOutcome;
use crate::tree::cut;

/// How long a name or a piece of text is, in characters: a line of a timeline is to fit a terminal.
const NAME_CHARS: usize = 32;
const TEXT_CHARS: usize = 200;

/// One line for each message that says something new, with stable short names for runs and without times.
///
/// The first run is `root`; a child is its parent's name and its own title (or agent), with a number from the second of that
/// name on. Deltas of one run are one line, where nothing else of that run is between them. The end of a text has no line.
///
/// # Examples
///
/// ```
/// use anabranch::context::RunSpec;
/// use anabranch::testing::TestRoot;
/// use anabranch::{Chunk, SubAgentOutcome, SubAgentStream};
///
/// # tokio_test::block_on(async {
/// let test = TestRoot::new();
/// let run = test.root().run(RunSpec::new("greeter", "greet"), |_| {
///     SubAgentStream::generate(|emit| async move {
///         emit.send(Chunk::text("hel")).await;
///         emit.send(Chunk::text("lo")).await;
///         SubAgentOutcome::completed("greeted")
///     })
/// });
/// run.settle().await;
/// let log = test.finish();
/// assert_eq!(
///     anabranch::testing::timeline(&log),
///     "root started\nroot text \"hello\"\nroot done \"greeted\"\n"
/// );
/// # });
/// ```
#[must_use]
pub fn timeline<'a>(log: impl IntoIterator<Item = &'a ProcessingMessage>) -> String {
    let mut lines = Lines::default();
    for message in log {
        lines.push(message);
    }
    lines.finish()
}

#[derive(Default)]
struct Lines {
    lines: Vec<Line>,
    names: HashMap<RunId, String>,
    /// How many children of one name a run has, by the full name.
    taken: HashMap<String, u32>,
    /// Where each run's text is that the next delta joins.
    open_text: HashMap<RunId, usize>,
}

enum Line {
    Said(String),
    Text { start: String, text: String, thinking: bool },
}

impl Lines {
    fn push(&mut self, message: &ProcessingMessage) {
        let Some(nesting) = message.nesting() else {
            self.lines.push(Line::Said(format!("(not stamped) {}", message.body().kind())));
            return;
        };
        let run = &nesting.origin.run_id;
        let started = match message.body() {
            MessageBody::RunStarted(started) => Some(&**started),
            _ => None,
        };
        let name = self.name(&nesting.origin, started);
        if let MessageBody::Chunk(chunk) = message.body() {
            if let Some(Line::Text { text, thinking, .. }) =
                self.open_text.get(run).and_then(|at| self.lines.get_mut(*at))
                && *thinking == chunk.thinking
            {
                text.push_str(&chunk.content);
            } else if !(chunk.done && chunk.content.is_empty()) {
                let verb = if chunk.thinking { "thinks" } else { "text" };
                let text = chunk.content.to_string();
                self.open_text.insert(run.clone(), self.lines.len());
                self.lines.push(Line::Text {
                    start: format!("{name} {verb}"),
                    text,
                    thinking: chunk.thinking,
                });
            }
            if chunk.done {
                self.open_text.remove(run);
            }
            return;
        }
        self.open_text.remove(run);
        self.lines.push(Line::Said(format!("{name} {}", said(message.body()))));
    }

    fn name(&mut self, origin: &Origin, started: Option<&RunStarted>) -> String {
        if let Some(name) = self.names.get(&origin.run_id) {
            return name.clone();
        }
        let parent = origin.parent_run_id.as_ref().and_then(|parent| self.names.get(parent));
        let name = match parent {
            Some(parent) => {
                let own = started.map_or_else(|| "unknown".to_owned(), own_name);
                let full = format!("{parent}/{own}");
                let taken = self.taken.entry(full.clone()).or_insert(0);
                *taken += 1;
                if *taken == 1 { full } else { format!("{full}#{taken}") }
            }
            None if self.names.is_empty() => "root".to_owned(),
            None => format!("orphan-{}", self.names.len()),
        };
        self.names.insert(origin.run_id.clone(), name.clone());
        name
    }

    fn finish(self) -> String {
        let mut text = String::new();
        for line in self.lines {
            match line {
                Line::Said(line) => text.push_str(&line),
                Line::Text { start, text: said, .. } => {
                    text.push_str(&start);
                    text.push_str(&format!(" {:?}", cut(&said, TEXT_CHARS)));
                }
            }
            text.push('\n');
        }
        text
    }
}

fn own_name(started: &RunStarted) -> String {
    let name = if started.title.trim().is_empty() { &started.agent } else { &started.title };
    let words: Vec<&str> = name.split(|letter: char| letter.is_whitespace() || letter == '/').collect();
    cut(&words.join("-"), NAME_CHARS)
}

fn said(body: &MessageBody) -> String {
    match body {
        MessageBody::RunStarted(body) => match body.scope {
            Scope::Foreground => "started".to_owned(),
            Scope::Background => "started (background)".to_owned(),
        },
        MessageBody::RunFinished(body) => ended(body),
        MessageBody::ToolCallUpdate(body) => match &body.message {
            Some(message) => format!("call {} {}: {}", body.call_index, body.name, cut(message, TEXT_CHARS)),
            None => {
                format!(
                    "call {} {} {}",
                    body.call_index,
                    body.name,
                    json(&Value::Object((*body.args).clone()))
                )
            }
        },
        MessageBody::ToolResultUpdate(body) => {
            let verdict = if body.is_error { "error" } else { "ok" };
            format!("result {} {verdict} {}", body.call_index, json(&Value::Object((*body.result).clone())))
        }
        MessageBody::TurnFinished(body) => format!("turn {} {}", body.turn, body.stop_reason),
        MessageBody::StepResult(body) => match &body.error {
            Some(error) => format!("step error {:?}", cut(error, TEXT_CHARS)),
            None => format!("step result {}", json(&body.result)),
        },
        MessageBody::TaskUpdate(body) => format!("task {}", body.event),
        MessageBody::PlanningUpdate(body) => format!("planning {} {}", body.phase, body.status),
        MessageBody::LogUpdate(body) => format!("log {} {:?}", body.severity, cut(&body.content, TEXT_CHARS)),
        MessageBody::TodoUpdate(body) => format!("todo {}", body.todos.len()),
        MessageBody::Retrying(body) => {
            format!("retrying {} in {} ms: {}", body.attempt, body.delay_ms, cut(&body.reason, TEXT_CHARS))
        }
        MessageBody::Queued(body) => format!("queued for {}", body.waiting_for),
        MessageBody::Ask(body) => format!("asks {}: {}", body.request_id, cut(&body.title, TEXT_CHARS)),
        MessageBody::AskAnswered(body) => {
            format!("answer {} {} by {}", body.request_id, body.decision, body.by)
        }
        MessageBody::Alert(body) => {
            format!("alert {} from {}: {}", body.kind, body.from, cut(&body.text, TEXT_CHARS))
        }
        MessageBody::ErrorNotice(body) => format!("error {:?}", cut(&body.message, TEXT_CHARS)),
        MessageBody::Chunk(_) | MessageBody::Other(_) => body.kind().to_owned(),
    }
}

fn ended(body: &RunFinished) -> String {
    let mut line = match body.to_outcome() {
        SubAgentOutcome::Completed { result, .. } => format!("done {}", json(&result)),
        SubAgentOutcome::Stopped { limit: Some(limit), .. } => format!("stopped ({limit})"),
        SubAgentOutcome::Stopped { stop_class, .. } => format!("stopped ({stop_class})"),
        SubAgentOutcome::Cancelled { by, forced, .. } => {
            format!("cancelled by {by}{}", if forced { " (forced)" } else { "" })
        }
        SubAgentOutcome::Failed { kind, message, .. } => {
            format!("failed ({kind}): {}", cut(&message, TEXT_CHARS))
        }
    };
    if let Some(partial) = &body.partial {
        line.push_str(&format!(", partial {}", json(partial)));
    }
    if let Some(late) = body.late {
        line.push_str(&format!(", {late} late"));
    }
    line
}

fn json(value: &Value) -> String {
    cut(&value.to_string(), TEXT_CHARS)
}
