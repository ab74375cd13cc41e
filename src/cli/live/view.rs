//! The picture of a tree that grows. It always fits: what has no room is summed up.
//!
//! Running runs come before settled ones: each gets its line first, then what is left is dealt among them for what they
//! do (open calls, text, children), then the latest settled ones get a line each. Which runs are shown changes only
//! when one settles, not with each message, so that the picture is calm.

use std::collections::HashSet;

use ratatui::layout::Size;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use super::super::text::{fit, one_line, plural, width, wrap_end};
use super::row::{DIM, figures, node_row, summary, totals_row};
use crate::message::Timestamp;
use crate::tree::{Node, RunTree, Status};

/// How many open calls of one run are shown.
const CALLS: usize = 4;

/// How many lines of text: of a run that works itself, and of one that waits for its children.
const TEXT_LINES: [usize; 2] = [3, 1];

/// How much of a text is looked at for its last lines, in bytes: a few lines of the widest terminal.
const TEXT_TAIL: usize = 4096;

/// The tree at a moment, in at most `size.height` lines of `size.width` columns.
#[must_use]
pub fn lines(tree: &RunTree, now: Timestamp, size: Size) -> Vec<Line<'static>> {
    let (columns, height) = (usize::from(size.width), usize::from(size.height));
    if columns == 0 || height == 0 {
        return Vec::new();
    }
    if tree.is_empty() {
        return vec![Line::from(Span::styled(fit("waiting for the first message", columns), DIM))];
    }
    let mut view = View { tree, now, columns, lines: Vec::new() };
    let mut tops: Vec<&Node> = tree.tops().collect();
    // The root is not always the first that a log names.
    tops.sort_by_key(|node| node.origin.parent_run_id.is_some());
    view.siblings(&tops, None, height - 1);
    view.lines.push(totals_row(tree, now, columns));
    view.lines
}

struct View<'a> {
    tree: &'a RunTree,
    now: Timestamp,
    columns: usize,
    lines: Vec<Line<'static>>,
}

impl<'a> View<'a> {
    /// Draws siblings in at most `budget` lines. `below` is what stands left of all of them; none at the top.
    fn siblings(&mut self, nodes: &[&'a Node], below: Option<&str>, budget: usize) {
        let shares = self.share(nodes, budget);
        let hidden: Vec<&Node> =
            nodes.iter().zip(&shares).filter(|(_, share)| **share == 0).map(|(node, _)| *node).collect();
        let shown = nodes.len() - hidden.len();
        let mut drawn = 0;
        for (node, share) in nodes.iter().zip(&shares).filter(|(_, share)| **share > 0) {
            drawn += 1;
            let last = drawn == shown && hidden.is_empty();
            match below {
                None => self.node(node, "", "", *share),
                Some(below) => {
                    let (head, rest) = if last { ("└ ", "  ") } else { ("├ ", "│ ") };
                    self.node(node, &format!("{below}{head}"), &format!("{below}{rest}"), *share);
                }
            }
        }
        if !hidden.is_empty() && budget > 0 {
            let line = format!("{}└ {}", below.unwrap_or_default(), summary(&hidden, shown == 0));
            self.lines.push(Line::from(Span::styled(fit(&line, self.columns), DIM)));
        }
    }

    /// How many lines each sibling gets. If some get none, one line is left for their summary.
    fn share(&self, nodes: &[&'a Node], budget: usize) -> Vec<usize> {
        let mut wants = Vec::with_capacity(nodes.len().min(budget + 1));
        let mut wanted = 0;
        for node in nodes {
            let want = self.want(node, budget + 1 - wanted.min(budget));
            wanted += want;
            wants.push(want);
            if wanted > budget {
                break;
            }
        }
        if wanted <= budget {
            return wants;
        }
        let running: Vec<usize> = nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| !node.status.is_settled())
            .map(|(at, _)| at)
            .collect();
        let all_fit = running.len() == nodes.len() && nodes.len() <= budget;
        let mut left = if all_fit { budget } else { budget.saturating_sub(1) };
        let mut shares = vec![0; nodes.len()];
        let heads = running.get(..left.min(running.len())).unwrap_or_default();
        left -= heads.len();
        // Each has its line; what they do is dealt in turns, so that no talker takes it all.
        let mut open: Vec<(usize, usize)> = heads
            .iter()
            .filter_map(|at| Some((*at, self.want(nodes.get(*at)?, left + 1).saturating_sub(1))))
            .collect();
        for at in heads {
            give(&mut shares, *at);
        }
        while left > 0 && open.iter().any(|(_, more)| *more > 0) {
            for (at, more) in open.iter_mut().filter(|(_, more)| *more > 0) {
                if left > 0 {
                    (*more, left) = (*more - 1, left - 1);
                    give(&mut shares, *at);
                }
            }
        }
        let mut settled: Vec<(Timestamp, usize)> = nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| node.status.is_settled())
            .map(|(at, node)| (node.last_time, at))
            .collect();
        settled.sort_unstable_by(|one, two| two.cmp(one));
        for (_, at) in settled.into_iter().take(left) {
            give(&mut shares, at);
        }
        shares
    }

    /// How many lines a run would fill; what is above `cap` does not count.
    fn want(&self, node: &'a Node, cap: usize) -> usize {
        if node.status.is_settled() || cap <= 1 {
            return 1;
        }
        let mut want = 1 + self.details(node).len();
        for child in self.tree.children(node) {
            if want >= cap {
                break;
            }
            want += self.want(child, cap - want);
        }
        want.min(cap)
    }

    fn node(&mut self, node: &'a Node, prefix: &str, below: &str, budget: usize) {
        let settled = node.status.is_settled();
        let mut figures = figures(node, self.now);
        let under = if settled { self.tree.subtree(node).skip(1).count() as u64 } else { 0 };
        if under > 0 {
            figures.push(plural(under, "run") + " below");
        }
        self.lines.push(node_row(prefix, node, &figures, self.columns));
        let left = budget - 1;
        if settled || left == 0 {
            return;
        }
        let children: Vec<&Node> = self.tree.children(node).collect();
        let mut details = self.details(node);
        let below_details = if children.is_empty() { format!("{below}  ") } else { format!("{below}│ ") };
        if !children.is_empty() && details.len() + children.len() > left {
            // Children that run come before what this run does itself, up to two thirds of the room.
            let running = children.iter().filter(|child| !child.status.is_settled()).count();
            let summed_up = usize::from(running < children.len());
            details.truncate(left.saturating_sub(running + summed_up).max(left / 3));
        }
        details.truncate(left);
        let left = left - details.len();
        for (style, text) in details {
            let room = self.columns.saturating_sub(width(&below_details));
            self.lines.push(Line::from(vec![
                Span::styled(fit(&below_details, self.columns), DIM),
                Span::styled(fit(&text, room), style),
            ]));
        }
        self.siblings(&children, Some(below), left);
    }

    /// What a running run does, the most telling first.
    fn details(&self, node: &'a Node) -> Vec<(Style, String)> {
        let mut details = Vec::new();
        let note = node.note.as_deref().map(one_line).filter(|note| !note.trim().is_empty());
        match (node.status, &note) {
            (Status::Asking, _) => details.push((
                Style::new().fg(Color::Magenta),
                format!("{} for an answer", waits(node.open_asks.len() as u64)),
            )),
            (Status::Retrying, Some(note)) => {
                details.push((Style::new().fg(Color::Yellow), format!("↻ {note}")))
            }
            _ => {}
        }
        let busy: Vec<&Node> = self.tree.children(node).filter(|child| !child.status.is_settled()).collect();
        // A call that spawned a child which is shown says nothing that the child's line does not.
        let spawning: HashSet<u32> = busy.iter().filter_map(|child| child.spawned_by).collect();
        let calls: Vec<_> = node.open_calls().filter(|call| !spawning.contains(&call.index)).collect();
        for call in calls.iter().take(CALLS) {
            let line = format!("→ {} {}", one_line(&call.name), one_line(&call.summary));
            details.push((Style::new().fg(Color::Blue), line));
        }
        if calls.len() > CALLS {
            details.push((DIM, format!("→ {}", plural((calls.len() - CALLS) as u64, "more open call"))));
        }
        if let (Some(note), false) = (note, node.status == Status::Retrying) {
            details.push((DIM, format!("· {note}")));
        }
        let [alone, waiting] = TEXT_LINES;
        let rows = if busy.is_empty() { alone } else { waiting };
        let columns =
            self.columns.saturating_sub(2 * (node.origin.subtask_depth.min(20) as usize) + 4).max(1);
        if !node.text.is_empty() {
            let text = wrap_end(&node.text, TEXT_TAIL, columns, rows);
            details.extend(text.into_iter().map(|line| (Style::new(), line)));
        } else if !node.thinking.is_empty() {
            let text = wrap_end(&node.thinking, TEXT_TAIL, columns, 1);
            details.extend(text.into_iter().map(|line| (DIM, format!("~ {line}"))));
        }
        details
    }
}

fn give(shares: &mut [usize], at: usize) {
    if let Some(share) = shares.get_mut(at) {
        *share += 1;
    }
}

fn waits(asks: u64) -> String {
    if asks == 1 { "1 question waits".into() } else { format!("{asks} questions wait") }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
