//! One run on one line, and the line of totals.

use std::time::Duration;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::super::text::{count, dollars, duration, fit, one_line, plural, width};
use crate::message::Timestamp;
use crate::outcome::{OutcomeKind, Usage};
use crate::tree::{Node, RunTree, Status};

/// What a run's title keeps, in columns, however much else is to be said.
const TITLE: usize = 16;

/// For what is beside the point.
pub(super) const DIM: Style = Style::new().fg(Color::DarkGray);

/// A run's sign and its colour. Where the colour is lost, the sign tells.
pub(crate) fn sign(status: Status) -> (&'static str, Style) {
    let colour = |colour| Style::new().fg(colour);
    match status {
        Status::Unseen => ("·", DIM),
        Status::Queued => ("◌", colour(Color::Blue)),
        Status::Running => ("●", colour(Color::Cyan)),
        Status::Retrying => ("↻", colour(Color::Yellow)),
        Status::Asking => ("?", colour(Color::Magenta).add_modifier(Modifier::BOLD)),
        Status::Settled(OutcomeKind::Completed) => ("✓", colour(Color::Green)),
        Status::Settled(OutcomeKind::Stopped) => ("■", colour(Color::Yellow)),
        Status::Settled(OutcomeKind::Cancelled) => ("⊘", colour(Color::Magenta)),
        Status::Settled(OutcomeKind::Failed) => ("✗", colour(Color::Red)),
    }
}

/// A run on one line: sign, title, agent, figures, and how it ended, in at most `columns`.
pub(super) fn node_row(prefix: &str, node: &Node, figures: &[String], columns: usize) -> Line<'static> {
    let (glyph, style) = sign(node.status);
    let prefix = fit(prefix, columns / 2);
    let glyph = fit(&format!("{glyph} "), columns - width(&prefix));
    let room = columns.saturating_sub(width(&prefix) + 2);
    let mut title = one_line(node.title());
    let agent = one_line(node.agent());
    if title.trim().is_empty() {
        title.clone_from(&agent);
    } else if !agent.is_empty() && agent != title {
        title = format!("{title} ({agent})");
    }
    let ending = ending(node);
    let joined = figures.iter().map(|figure| width(figure) + 3).sum::<usize>();
    // Where not all has room, why it failed says more than what it used.
    let cramped = room < TITLE + joined + width(&ending).min(TITLE);
    let figures =
        figures.get(..if cramped && !ending.is_empty() { 1 } else { figures.len() }).unwrap_or(figures);
    let figures: String = figures.iter().map(|figure| format!(" · {figure}")).collect();
    let figures_room = width(&figures);
    let taken = figures_room + width(&ending).min(TITLE);
    let title = fit(&title, room.saturating_sub(taken).max(TITLE.min(room)));
    let mut left = room.saturating_sub(width(&title));
    let figures = fit(&figures, left);
    left -= width(&figures).min(left);
    let ending = fit(&ending, left);
    let weight = if node.status.is_settled() { Modifier::empty() } else { Modifier::BOLD };
    Line::from(vec![
        Span::styled(prefix, DIM),
        Span::styled(glyph, style),
        Span::styled(title, Style::new().add_modifier(weight)),
        Span::styled(figures, DIM),
        Span::styled(ending, style),
    ])
}

/// How a run ended, if it did not complete, or what it waits for.
fn ending(node: &Node) -> String {
    match node.status {
        Status::Unseen | Status::Running | Status::Settled(OutcomeKind::Completed) => String::new(),
        Status::Queued | Status::Retrying | Status::Asking => format!(" · {}", node.status.as_str()),
        Status::Settled(kind) => {
            let error = node.finished.as_ref().and_then(|finished| finished.error.as_deref());
            match error.map(one_line).filter(|error| !error.trim().is_empty()) {
                // "cancelled by user" says it all.
                Some(error) if error.starts_with(kind.as_str()) => format!(" · {error}"),
                Some(error) => format!(" · {kind}: {error}"),
                None => format!(" · {kind}"),
            }
        }
    }
}

/// Duration, tokens and calls of a run. Once it has settled, the tokens are those of its whole branch.
pub(super) fn figures(node: &Node, now: Timestamp) -> Vec<String> {
    let finished = node.finished.as_ref();
    let until = if node.status.is_settled() { node.last_time } else { now };
    let span = finished.and_then(|finished| finished.duration_ms).map(Duration::from_millis);
    let usage = finished.and_then(|finished| finished.subtree_usage).unwrap_or(node.usage);
    let calls = finished.and_then(|finished| finished.tool_calls).unwrap_or(node.calls.len() as u64);
    let mut figures = vec![duration(span.unwrap_or_else(|| until.since(node.first_time)))];
    if usage.tokens() > 0 {
        figures.push(format!("{} tokens", count(usage.tokens())));
    }
    if calls > 0 {
        figures.push(plural(calls, "call"));
    }
    figures
}

/// The last line: how many runs, what they used, how long it took, and what was lost.
pub(super) fn totals_row(tree: &RunTree, now: Timestamp, columns: usize) -> Line<'static> {
    let (total, live) = (tree.len(), tree.len() - tree.settled().min(tree.len()));
    let usage: Usage = tree.usage();
    let mut parts = vec![match live {
        0 => plural(total as u64, "run"),
        live => format!("{live} of {} live", plural(total as u64, "run")),
    }];
    if usage.tokens() > 0 {
        parts.push(format!("{} tokens", count(usage.tokens())));
    }
    parts.extend(usage.cost_usd.map(dollars));
    if let Some(root) = tree.root() {
        let until = if root.status.is_settled() { root.last_time } else { now };
        parts.push(duration(until.since(root.first_time)));
    }
    let lost = tree.diagnostics();
    let lost = [
        (lost.missing, "missing"),
        (lost.late, "late"),
        (lost.malformed, "malformed"),
        (lost.cyclic, "misplaced"),
    ];
    parts.extend(
        lost.iter().filter(|(number, _)| *number > 0).map(|(number, word)| format!("{number} {word}")),
    );
    Line::from(Span::styled(fit(&parts.join(" · "), columns), DIM))
}

/// What stands for siblings that are not shown: `… 212 more: 200 completed, 12 running`.
pub(super) fn summary(hidden: &[&Node], all_hidden: bool) -> String {
    let mut kinds: Vec<(Status, u64)> = Vec::new();
    for node in hidden {
        match kinds.iter_mut().find(|(status, _)| *status == node.status) {
            Some((_, number)) => *number += 1,
            None => kinds.push((node.status, 1)),
        }
    }
    // The most frequent first; of equally many, in the order of the words.
    kinds.sort_by_key(|(status, number)| (std::cmp::Reverse(*number), status.as_str()));
    let kinds: Vec<String> =
        kinds.iter().map(|(status, number)| format!("{number} {}", status.as_str())).collect();
    let more = if all_hidden { "runs" } else { "more" };
    format!("… {} {more}: {}", hidden.len(), kinds.join(", "))
}
