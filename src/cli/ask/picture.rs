//! How a question looks.

use std::time::Duration;

use ratatui::layout::Size;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use serde_json::{Map, Value};

use super::super::text::{count, duration, fit, one_line, plural, width, wrap_line};
use super::choice::lasts;
use crate::context::{AskKind, OpenAsk};
use crate::message::cap_text;

/// The most that is printed of arguments at once, in bytes.
const VIEW_BYTES: usize = 256 * 1024;

const DIM: Style = Style::new().fg(Color::DarkGray);
const LOUD: Style = Style::new().fg(Color::Magenta).add_modifier(Modifier::BOLD);

/// A question that is open, as far as it is drawn.
pub(super) struct Shown<'a> {
    pub(super) ask: &'a OpenAsk,
    /// How long an answer is still waited for.
    pub(super) left: Duration,
    /// How many other questions wait.
    pub(super) others: usize,
    /// The person writes other arguments.
    pub(super) edits: bool,
    /// What was wrong with the last line.
    pub(super) hint: Option<&'a str>,
}

impl Shown<'_> {
    /// In at most `size.height` lines of `size.width` columns: who asks, what for, and what may be typed. What there is no room for is
    /// said to be missing.
    pub(super) fn lines(&self, size: Size) -> Vec<Line<'static>> {
        let columns = usize::from(size.width);
        let mut head = vec![self.who(columns), self.what(columns)];
        let mut foot: Vec<Line<'static>> = self.choices(columns).into_iter().map(Line::from).collect();
        if let Some(hint) = self.hint {
            let style = Style::new().fg(Color::Yellow);
            foot.push(Line::from(Span::styled(fit(&one_line(hint), columns), style)));
        }
        let height = usize::from(size.height);
        // What may be typed is the last to go, who asks the one before.
        let foot = foot.split_off(foot.len().saturating_sub(height));
        head.truncate(height - foot.len());
        let body = self.body(columns, height - foot.len() - head.len());
        head.into_iter().chain(body).chain(foot).collect()
    }

    fn who(&self, columns: usize) -> Line<'static> {
        let mut facts = vec![format!("waits {}", duration(self.left))];
        if self.others > 0 {
            facts.push(plural(self.others as u64, "more question"));
        }
        let who = who(self.ask);
        // Who asks has the first half, and what the facts leave of the other.
        let least = (2 + width(&who) + width(ASKS)).min(columns / 2);
        let facts = (0..=facts.len())
            .rev()
            .map(|count| facts.iter().take(count).map(|fact| format!(" · {fact}")).collect::<String>());
        let facts = facts.into_iter().find(|facts| least + width(facts) <= columns).unwrap_or_default();
        let room = columns.saturating_sub(2 + width(&facts) + width(ASKS));
        let asks = fit_end(&who, room) + ASKS;
        Line::from(vec![
            Span::styled(fit("? ", columns), LOUD),
            Span::styled(fit(&asks, columns.saturating_sub(2)), LOUD),
            Span::styled(fit(&facts, columns.saturating_sub(2 + width(&asks))), DIM),
        ])
    }

    fn what(&self, columns: usize) -> Line<'static> {
        let question = &self.ask.question;
        let mut parts: Vec<String> = question.tool.iter().map(|tool| one_line(tool)).collect();
        parts.extend(question.risk.iter().map(|risk| format!("{} risk", one_line(risk))));
        if question.kind == AskKind::Permission {
            parts.push(one_line(&question.title));
        }
        if parts.is_empty() {
            parts.push("a question to you".to_owned());
        }
        Line::from(fit(&format!("  {}", parts.join(" · ")), columns))
    }

    /// The arguments, or the question: from its beginning, as far as there is room.
    fn body(&self, columns: usize, rows: usize) -> Vec<Line<'static>> {
        let question = &self.ask.question;
        let texts: Vec<String> = match &question.args {
            Some(args) if self.edits => vec![Value::Object(Map::clone(args)).to_string()],
            Some(args) => args.iter().map(|entry| argument(entry).replace('\n', "\n  ")).collect(),
            None if question.kind == AskKind::Input => vec![question.title.clone()],
            None => Vec::new(),
        };
        let bytes: usize = texts.iter().map(String::len).sum();
        let mut lines = texts
            .iter()
            .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .flat_map(|line| wrap_line(&one_line(&line), columns.saturating_sub(4).max(1)));
        let mut body: Vec<String> = lines.by_ref().take(rows).collect();
        if lines.next().is_some() && body.pop().is_some() {
            let all = if question.args.is_some() { "; v shows all of it" } else { "" };
            body.push(format!("… cut: {} bytes in all{all}", count(bytes as u64)));
        }
        body.into_iter().map(|line| Line::from(fit(&format!("    {line}"), columns))).collect()
    }

    fn choices(&self, columns: usize) -> Vec<String> {
        let question = &self.ask.question;
        let choices: &[&str] = match question.kind {
            _ if self.edits => &["type all arguments as one line of JSON", "an empty line goes back"],
            AskKind::Input => &["type the answer and Enter", "Ctrl-D declines"],
            AskKind::Permission => match (lasts(question), question.args.is_some()) {
                (true, true) => &[YES, FOR_RUN, FOR_ROOT, NO, EDIT, VIEW],
                (true, false) => &[YES, FOR_RUN, FOR_ROOT, NO],
                (false, true) => &[YES, NO, EDIT, VIEW],
                (false, false) => &[YES, NO],
            },
        };
        let mut lines: Vec<String> = Vec::new();
        for choice in choices {
            match lines.last_mut() {
                Some(line) if width(line) + 3 + width(choice) <= columns => {
                    line.push_str(&format!(" · {choice}"))
                }
                _ => lines.push(fit(choice, columns)),
            }
        }
        lines
    }
}

const ASKS: &str = " asks";
const YES: &str = "y yes, once";
const FOR_RUN: &str = "r yes, in this run";
const FOR_ROOT: &str = "a yes, in all runs";
const NO: &str = "n no, or n WHY";
const EDIT: &str = "e edit";
const VIEW: &str = "v view all";

/// All arguments, for who wants to see them.
pub(super) fn whole(ask: &OpenAsk) -> String {
    let args = ask.question.args.iter().flat_map(|args| args.iter().map(argument));
    let text: Vec<String> = args.map(|text| text.replace('\n', "\n      ")).collect();
    let text = cap_text(&text.join("\n    "), VIEW_BYTES);
    format!("? {} asks for {}:\n    {text}", who(ask), what(ask))
}

/// The question with what came of it, on a line of which the answer has at least a half if it needs that.
pub(super) fn record(ask: &OpenAsk, answer: &str, columns: usize) -> String {
    let answer = format!(" → {}", one_line(answer));
    let room = columns.saturating_sub(width(&answer)).max(columns / 2);
    let asked = if ask.question.kind == AskKind::Permission { "asked for" } else { "asked" };
    // Who asks has at most a half of it.
    let who = fit_end(&who(ask), (room / 2).saturating_sub(width(asked)));
    let question = fit(&format!("? {who} {asked} {}", what(ask)), room);
    fit(&(question + &answer), columns.max(1))
}

/// The tool with what it is to do.
fn what(ask: &OpenAsk) -> String {
    match &ask.question.tool {
        Some(tool) => format!("{} ({})", one_line(tool), one_line(&ask.question.title)),
        None => one_line(&ask.question.title),
    }
}

/// The way from the root to the run that asks.
fn who(ask: &OpenAsk) -> String {
    // A title is no way.
    let title = |title: &str| one_line(title).replace('›', ">");
    let mut steps: Vec<String> = ask.path.iter().map(|step| title(&step.title)).collect();
    if let (Some(name), Some(last)) = (steps.last_mut(), ask.path.last())
        && last.agent != last.title
    {
        name.push_str(&format!(" ({})", one_line(&last.agent)));
    }
    steps.join(" › ")
}

/// One argument: a text as it is, another value as JSON.
fn argument((name, value): (&String, &Value)) -> String {
    match value {
        Value::String(text) if text.contains('\n') => format!("{name}:\n{text}"),
        Value::String(text) => format!("{name}: {text}"),
        other => format!("{name}: {other}"),
    }
}

/// The end of a text in at most `columns`: of a long way the last part says most.
fn fit_end(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let parts: Vec<&str> = text.split(" › ").collect();
    let short = |from: usize| format!("… › {}", parts.get(from..).unwrap_or_default().join(" › "));
    let found = (1..parts.len()).map(short).find(|text| width(text) <= columns);
    found.unwrap_or_else(|| fit(parts.last().unwrap_or(&text), columns))
}

#[cfg(test)]
#[path = "picture_tests.rs"]
mod tests;
