//! The tree where nothing can be redrawn: a line for each event, indented by depth.
//!
//! A pure function of what is applied: a replayed log gives the same bytes as the live run.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::time::Duration;

use super::live::sign;
use super::output::write_result;
use super::text::{count, duration, one_line, plural, several_lines};
use crate::id::RunId;
use crate::message::{MessageBody, Nesting, ProcessingMessage, RunFinished, RunStarted, StepRef, Timestamp};
use crate::tree::{Delivery, Node, RunTree, cut};

/// How many levels are indented; deeper runs stand where these do.
const LEVELS: u32 = 24;

/// How many lines of one text are printed, and how many characters of a line: the whole text is in the log.
const TEXT_LINES: usize = 40;
const LINE_CHARS: usize = 400;

/// Prints the events of a tree as they come. Text is printed when it is complete, not as it streams.
///
/// Each run has a number, in the order of their births: `[2]` tells whose event a line is.
#[derive(Debug, Default)]
pub struct IndentedLines {
    tree: RunTree,
    numbers: HashMap<RunId, usize>,
    /// Runs whose text has begun and is not printed yet.
    open_text: HashSet<RunId>,
    /// The root's latest text, if it was printed whole: a result that says the same is not printed again.
    root_text: Option<String>,
}

impl IndentedLines {
    /// Nothing printed yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The tree so far.
    #[must_use]
    pub fn tree(&self) -> &RunTree {
        &self.tree
    }

    /// Takes what a subscription delivers, and prints what is worth a line.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn apply(&mut self, delivery: &Delivery, out: &mut impl Write) -> io::Result<()> {
        match delivery {
            Delivery::Message(message) => self.message(message, out),
            Delivery::Gap(gap) => {
                self.tree.apply(delivery);
                self.open_text.clear();
                writeln!(out, "… messages {} to {} are no longer there", gap.from_seq, gap.to_seq)
            }
        }
    }

    fn message(&mut self, message: &ProcessingMessage, out: &mut impl Write) -> io::Result<()> {
        let Some(nesting) = message.nesting() else {
            self.tree.apply_message(message);
            return Ok(());
        };
        let run = &nesting.origin.run_id;
        // What closes a run takes its text out of the tree, and what opens a new turn replaces it: print it before.
        let ends_text = matches!(message.body(), MessageBody::RunFinished(_) | MessageBody::TurnFinished(_));
        if ends_text && self.open_text.remove(run) {
            self.print_text(nesting, out)?;
        }
        let known_call = match (message.body(), self.tree.node(run)) {
            (MessageBody::ToolCallUpdate(call), Some(node)) => {
                node.calls.iter().rev().any(|known| known.index == call.call_index)
            }
            _ => false,
        };
        let before = self.tree.diagnostics();
        self.tree.apply_message(message);
        let after = self.tree.diagnostics();
        if (before.duplicate, before.foreign, before.late) != (after.duplicate, after.foreign, after.late) {
            return Ok(());
        }
        if let MessageBody::Chunk(chunk) = message.body() {
            if chunk.thinking {
                return Ok(());
            }
            if !chunk.done {
                if !chunk.content.is_empty() && !self.open_text.contains(run) {
                    self.open_text.insert(run.clone());
                }
                return Ok(());
            }
            self.open_text.remove(run);
            return self.print_text(nesting, out);
        }
        if let Some(line) = self.event(nesting, message.body(), known_call) {
            self.print(nesting, &line, out)?;
        }
        match message.body() {
            MessageBody::RunFinished(body) if nesting.origin.parent_run_id.is_none() => {
                self.print_result(body, out)
            }
            _ => Ok(()),
        }
    }

    /// The root's result: whole, and only if its text has not said it already.
    fn print_result(&self, body: &RunFinished, out: &mut impl Write) -> io::Result<()> {
        let mut result = Vec::new();
        if let Some(value) = &body.result {
            write_result(&mut result, value, true)?;
        }
        let result = String::from_utf8_lossy(&result);
        let said = self.root_text.as_deref().is_some_and(|text| text.trim() == result.trim());
        if said || result.trim().is_empty() {
            return Ok(());
        }
        for line in result.trim_end().lines() {
            writeln!(out, "{}", format!("= {line}").trim_end())?;
        }
        Ok(())
    }

    /// What an event says on one line; none if it is not worth one.
    fn event(&self, nesting: &Nesting, body: &MessageBody, known_call: bool) -> Option<String> {
        let node = self.tree.node(&nesting.origin.run_id)?;
        // The one step of a run that is one step says what the run's start and end say.
        let is_own =
            |step: &StepRef| step.id.as_ref().is_some_and(|id| *id == nesting.origin.run_id.to_string());
        Some(match body {
            MessageBody::RunStarted(body) => started(body),
            MessageBody::RunFinished(body) => finished(body, node, nesting.time),
            MessageBody::ToolCallUpdate(body) => {
                let call = node.calls.iter().rev().find(|call| call.index == body.call_index)?;
                let sign = if known_call { "…" } else { "→" };
                format!("{sign} {} {}", call.name, call.summary)
            }
            MessageBody::ToolResultUpdate(body) => {
                let time = duration(Duration::from_millis(body.duration_ms));
                // What is said to people, if that differs from what the model reads.
                let of_result =
                    || ["message", "error"].iter().find_map(|key| body.result.get(*key)?.as_str());
                let error = body.message.as_deref().or_else(of_result);
                match error.filter(|_| body.is_error) {
                    Some(error) => format!("← {} failed · {time} · {}", body.name, cut(error, 200)),
                    None if body.is_error => format!("← {} failed · {time}", body.name),
                    None => format!("← {} · {time}", body.name),
                }
            }
            // The one step of a run that is one step says what its start and its end say.
            MessageBody::TaskUpdate(body) if body.step.as_ref().is_some_and(is_own) => return None,
            MessageBody::StepResult(body) if is_own(&body.step) => return None,
            MessageBody::TaskUpdate(body) => {
                let what = body.step.as_ref().and_then(|step| step.instructions.as_ref());
                let what = what.or(body.task.title.as_ref()).map_or("", String::as_str);
                format!("· {} {}", body.event, cut(what, 200))
            }
            MessageBody::StepResult(body) => match &body.error {
                Some(error) => format!("· step failed: {}", cut(error, 200)),
                None => return None,
            },
            MessageBody::PlanningUpdate(body) => {
                let content = body.content.as_deref().unwrap_or_default();
                format!("· planning: {} {} {}", body.phase, body.status, cut(content, 200))
            }
            MessageBody::LogUpdate(body) => {
                format!("· {}: {}", body.severity, cut(&body.content, LINE_CHARS))
            }
            MessageBody::TodoUpdate(body) => {
                let done = body.todos.iter().filter(|todo| todo.status == "completed").count();
                format!("· to do: {done} of {} done", body.todos.len())
            }
            MessageBody::Retrying(body) => {
                let delay = duration(Duration::from_millis(body.delay_ms));
                format!("↻ attempt {} in {delay}: {}", body.attempt, cut(&body.reason, 200))
            }
            MessageBody::Queued(body) => format!("◌ queued: waits for {}", body.waiting_for),
            MessageBody::Ask(body) => format!("? {}: {}", body.kind, cut(&body.title, 200)),
            MessageBody::AskAnswered(body) => format!("! {} by {}", body.decision, body.by),
            MessageBody::Alert(body) => {
                format!("! {} from {}: {}", body.kind, body.from, cut(&body.text, LINE_CHARS))
            }
            MessageBody::ErrorNotice(body) => format!("! error: {}", cut(&body.message, LINE_CHARS)),
            MessageBody::Other(body) => format!("· {}", body.kind),
            MessageBody::TurnFinished(_) | MessageBody::Chunk(_) => return None,
        })
    }

    fn print_text(&mut self, nesting: &Nesting, out: &mut impl Write) -> io::Result<()> {
        let Some(node) = self.tree.node(&nesting.origin.run_id) else { return Ok(()) };
        if node.status.is_settled() || node.text.trim().is_empty() {
            return Ok(());
        }
        let text = several_lines(node.text.trim_end());
        let (mut lines, all) = (Vec::new(), text.lines().count());
        lines.extend(text.lines().take(TEXT_LINES).map(|line| format!("| {}", cut(line, LINE_CHARS))));
        let whole = all <= TEXT_LINES && text.lines().all(|line| line.len() <= LINE_CHARS);
        if nesting.origin.parent_run_id.is_none() {
            self.root_text = whole.then(|| text.clone());
        }
        if all > TEXT_LINES {
            lines.push(format!("| … {}", plural((all - TEXT_LINES) as u64, "more line")));
        }
        for line in lines {
            self.print(nesting, &line, out)?;
        }
        Ok(())
    }

    fn print(&mut self, nesting: &Nesting, line: &str, out: &mut impl Write) -> io::Result<()> {
        let next = self.numbers.len() + 1;
        let number = *self.numbers.entry(nesting.origin.run_id.clone()).or_insert(next);
        let indent = 2 * nesting.origin.subtask_depth.min(LEVELS) as usize;
        writeln!(out, "{:indent$}[{number}] {}", "", one_line(line).trim_end())
    }
}

fn started(body: &RunStarted) -> String {
    let mut line = format!("▶ {}", body.title);
    let details = [Some(&body.agent), body.model.as_ref()].into_iter().flatten();
    let details: Vec<&str> = details.map(|detail| &**detail).filter(|detail| !detail.is_empty()).collect();
    if !details.is_empty() {
        line += &format!(" ({})", details.join(", "));
    }
    if body.scope == crate::message::Scope::Background {
        line += " in the background";
    }
    line
}

fn finished(body: &RunFinished, node: &Node, now: Timestamp) -> String {
    let (sign, _) = sign(node.status);
    let span = body.duration_ms.map_or_else(|| now.since(node.first_time), Duration::from_millis);
    let mut line = format!("{sign} {} · {}", body.outcome, duration(span));
    if node.usage.tokens() > 0 {
        line += &format!(" · {} tokens", count(node.usage.tokens()));
    }
    if !node.calls.is_empty() {
        line += &format!(" · {}", plural(node.calls.len() as u64, "call"));
    }
    if let Some(error) = &body.error {
        line += &format!(" · {}", cut(error, LINE_CHARS));
    }
    line
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
