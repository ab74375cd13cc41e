//! The picture of a tree that is done: a line for each run, nested. What stays in the scrollback, and what `replay`
//! prints.

use std::rc::Rc;

use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use super::super::text::fit;
use super::row::{DIM, figures, node_row, summary, totals_row};
use crate::message::Timestamp;
use crate::outcome::OutcomeKind;
use crate::tree::{Node, RunTree, Status};

/// How many siblings are listed: so many of those that completed, and so many of the others. Above that they are
/// summed up; the JSON form of a tree has them all.
const SIBLINGS: usize = 50;

/// How many levels are indented; deeper ones say their depth instead.
const LEVELS: u32 = 24;

/// The whole tree in lines of at most `columns`. Its time ends with its last message: runs that have not settled then
/// are shown as interrupted.
#[must_use]
pub fn final_lines(tree: &RunTree, columns: usize) -> Vec<Line<'static>> {
    let now = tree.nodes().map(|node| node.last_time).max().unwrap_or_default();
    let mut tops: Vec<&Node> = tree.tops().collect();
    tops.sort_by_key(|node| node.origin.parent_run_id.is_some());
    let mut lines = Vec::new();
    // A stack of its own: a log may nest deeper than the program's.
    let mut open: Vec<Item<'_>> = Vec::new();
    push_siblings(&mut open, &tops, None);
    while let Some(item) = open.pop() {
        match item {
            Item::Summary(text) => lines.push(Line::from(Span::styled(fit(&text, columns), DIM))),
            Item::Node { node, head, below } => {
                lines.push(row(node, &head, now, columns));
                let children: Vec<&Node> = tree.children(node).collect();
                push_siblings(&mut open, &children, Some((&below, node.origin.subtask_depth)));
            }
        }
    }
    if !tree.is_empty() {
        lines.push(totals_row(tree, now, columns));
    }
    lines
}

enum Item<'a> {
    Node { node: &'a Node, head: Rc<str>, below: Rc<str> },
    Summary(String),
}

fn row(node: &Node, head: &str, now: Timestamp, columns: usize) -> Line<'static> {
    let mut figures = figures(node, now);
    if node.status.is_settled() {
        return node_row(head, node, &figures, columns);
    }
    figures.push("interrupted".into());
    let mut row = node_row(head, node, &figures, columns);
    if let Some(sign) = row.spans.get_mut(1) {
        *sign = Span::styled("! ", Style::new().fg(Color::Red));
    }
    row
}

/// Puts siblings on the stack, the first on top. `parent` is what stands left of them, and the parent's depth.
fn push_siblings<'a>(open: &mut Vec<Item<'a>>, nodes: &[&'a Node], parent: Option<(&Rc<str>, u32)>) {
    let (mut shown, mut hidden) = (Vec::new(), Vec::new());
    let (mut completed, mut others) = (0, 0);
    for node in nodes {
        let counter = match node.status {
            Status::Settled(OutcomeKind::Completed) => &mut completed,
            _ => &mut others,
        };
        *counter += 1;
        if *counter <= SIBLINGS { shown.push(*node) } else { hidden.push(*node) }
    }
    let below = parent.map_or("", |(below, _)| below);
    if !hidden.is_empty() {
        open.push(Item::Summary(format!("{below}└ {}", summary(&hidden, shown.is_empty()))));
    }
    for (at, node) in shown.iter().enumerate().rev() {
        let last = at + 1 == shown.len() && hidden.is_empty();
        let (head, below): (Rc<str>, Rc<str>) = match parent {
            None => ("".into(), "".into()),
            Some((below, depth)) if depth >= LEVELS => {
                (format!("{below}└ [depth {}] ", depth.saturating_add(1)).into(), Rc::clone(below))
            }
            Some((below, _)) if last => (format!("{below}└ ").into(), format!("{below}  ").into()),
            Some((below, _)) => (format!("{below}├ ").into(), format!("{below}│ ").into()),
        };
        open.push(Item::Node { node, head, below });
    }
}

#[cfg(test)]
#[path = "whole_tests.rs"]
mod tests;
