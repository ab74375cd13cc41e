//! The fold. Total: any sequence of messages gives a tree and diagnostics.

use std::collections::HashMap;
use std::sync::Arc;

use super::delivery::Delivery;
use super::node::Node;
use super::positions::{Arrival, Positions};
use crate::id::{RunId, Seq};
use crate::message::{MessageBody, Nesting, Origin, ProcessingMessage, Timestamp};
use crate::outcome::Usage;

/// The tree of one root, as far as the messages so far tell.
#[derive(Debug, Clone, Default)]
pub struct RunTree {
    nodes: Vec<Node>,
    index: HashMap<RunId, usize>,
    root: Option<usize>,
    /// The run of the latest message: most messages come from the same run as the one before.
    latest: Option<(Arc<Origin>, usize)>,
    positions: Positions,
    settled: usize,
    diagnostics: Diagnostics,
}

/// What did not fit, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Diagnostics {
    /// Messages of a run after its terminal.
    pub late: u64,
    /// Messages that came twice.
    pub duplicate: u64,
    /// Messages that came after one with a higher `seq`.
    pub reordered: u64,
    /// Messages that never came, so far.
    pub missing: u64,
    /// Messages of another root.
    pub foreign: u64,
    /// Messages without an envelope.
    pub unstamped: u64,
    /// Messages whose body is not what their kind says.
    pub malformed: u64,
    /// Runs whose parent would be their own descendant.
    pub cyclic: u64,
}

impl RunTree {
    /// A tree without runs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The tree of a whole log.
    pub fn of<'a>(log: impl IntoIterator<Item = &'a ProcessingMessage>) -> Self {
        let mut tree = Self::new();
        for message in log {
            tree.apply_message(message);
        }
        tree
    }

    /// Applies what a subscription delivers.
    pub fn apply(&mut self, delivery: &Delivery) {
        match delivery {
            Delivery::Message(message) => self.apply_message(message),
            // A snapshot of less than what is already here would take it back.
            Delivery::Gap(gap) if gap.snapshot.next_seq() < self.next_seq() => {}
            Delivery::Gap(gap) => self.clone_from(&gap.snapshot),
        }
    }

    /// Applies one message.
    pub fn apply_message(&mut self, message: &ProcessingMessage) {
        let Some(nesting) = message.nesting() else {
            self.diagnostics.unstamped += 1;
            return;
        };
        let Nesting { origin, seq, run_seq, time } = nesting;
        self.apply_body(origin, *seq, *run_seq, *time, message.body());
    }

    /// As `apply_message`, for a log that keeps the parts of its messages.
    pub(crate) fn apply_body(
        &mut self,
        origin: &Arc<Origin>,
        seq: Seq,
        run_seq: Seq,
        time: Timestamp,
        body: &MessageBody,
    ) {
        let node = match &self.latest {
            Some((latest, node)) if Arc::ptr_eq(latest, origin) => *node,
            _ => match self.locate(origin, time) {
                Some(node) => node,
                None => return,
            },
        };
        match self.positions.note(seq) {
            Arrival::Next => {}
            Arrival::Filling => self.diagnostics.reordered += 1,
            Arrival::Repeated => {
                self.diagnostics.duplicate += 1;
                return;
            }
        }
        if let MessageBody::Other(body) = body
            && body.problem.is_some()
        {
            self.diagnostics.malformed += 1;
        }
        self.apply_to(node, run_seq, time, body);
    }

    fn apply_to(&mut self, at: usize, run_seq: Seq, time: Timestamp, body: &MessageBody) {
        if matches!(body, MessageBody::RunStarted(_)) {
            self.link_to_call(at);
        }
        let Some(node) = self.nodes.get_mut(at) else { return };
        if node.apply(body, time) {
            node.next_run_seq = node.next_run_seq.max(run_seq.saturating_add(1));
            self.settled += usize::from(node.status.is_settled());
        } else {
            self.diagnostics.late += 1;
        }
    }

    /// The node of a run, made if it is new. None if the run belongs to another root.
    fn locate(&mut self, origin: &Arc<Origin>, time: Timestamp) -> Option<usize> {
        let root_id = self.root_run_id().unwrap_or(&origin.root_run_id);
        if *root_id != origin.root_run_id {
            self.diagnostics.foreign += 1;
            return None;
        }
        let at = match self.index.get(&origin.run_id) {
            Some(at) => *at,
            None => self.add(Arc::clone(origin), time),
        };
        // A run that was known only as somebody's parent learns its own place with its first message.
        if let Some(node) = self.nodes.get_mut(at)
            && !node.placed
        {
            node.placed = true;
            node.origin = Arc::clone(origin);
            match &origin.parent_run_id {
                Some(parent) => self.place(at, parent.clone(), time),
                None if self.root.is_none() || origin.run_id == origin.root_run_id => self.root = Some(at),
                None => {}
            }
        }
        self.latest = Some((Arc::clone(origin), at));
        Some(at)
    }

    fn add(&mut self, origin: Arc<Origin>, time: Timestamp) -> usize {
        let at = self.nodes.len();
        self.index.insert(origin.run_id.clone(), at);
        self.nodes.push(Node::new(origin, time));
        at
    }

    fn place(&mut self, at: usize, parent_id: RunId, time: Timestamp) {
        let parent = match self.index.get(&parent_id) {
            Some(parent) => *parent,
            None => {
                let Some(child) = self.nodes.get(at) else { return };
                let origin = Origin {
                    root_run_id: child.origin.root_run_id.clone(),
                    parent_run_id: None,
                    parent_tool_call_id: None,
                    subtask_depth: child.origin.subtask_depth.saturating_sub(1),
                    run_id: parent_id,
                };
                self.add(Arc::new(origin), time)
            }
        };
        // Only a run that others already hang under can close a circle.
        let has_children = self.nodes.get(at).is_some_and(|node| !node.children.is_empty());
        if at == parent || has_children && self.ancestors(parent).any(|ancestor| ancestor == at) {
            self.diagnostics.cyclic += 1;
            return;
        }
        if let Some(node) = self.nodes.get_mut(at) {
            node.parent = Some(parent);
        }
        if let Some(node) = self.nodes.get_mut(parent) {
            node.children.push(at);
        }
    }

    fn ancestors(&self, from: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(from), |at| self.nodes.get(*at).and_then(|node| node.parent))
    }

    /// Notes the call that spawned a run. Once: the same call cannot spawn it twice.
    fn link_to_call(&mut self, at: usize) {
        let Some(node) = self.nodes.get(at) else { return };
        if node.started.is_some() || node.status.is_settled() {
            return;
        }
        let (Some(label), Some(parent)) = (node.origin.parent_tool_call_id.clone(), node.parent) else {
            return;
        };
        let index = self.nodes.get_mut(parent).and_then(|parent| parent.claim(&label));
        if let Some(node) = self.nodes.get_mut(at) {
            node.spawned_by = index;
        }
    }

    /// The run without a parent; if the log begins in the middle, the topmost one above the first message.
    #[must_use]
    pub fn root(&self) -> Option<&Node> {
        let known = || self.root_run_id().and_then(|id| self.index.get(id)).copied();
        self.nodes.get(self.root.or_else(known).or_else(|| self.ancestors(0).last())?)
    }

    /// The id that all messages share.
    #[must_use]
    pub fn root_run_id(&self) -> Option<&RunId> {
        self.nodes.first().map(|node| &node.origin.root_run_id)
    }

    /// A run by its id.
    #[must_use]
    pub fn node(&self, run: &RunId) -> Option<&Node> {
        self.index.get(run).and_then(|at| self.nodes.get(*at))
    }

    /// All runs in the order in which they were first seen.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    /// The children of a run in the order of their birth.
    #[must_use]
    pub fn children<'a>(&'a self, node: &'a Node) -> impl DoubleEndedIterator<Item = &'a Node> {
        node.children.iter().filter_map(|at| self.nodes.get(*at))
    }

    /// The parent of a run.
    #[must_use]
    pub fn parent(&self, node: &Node) -> Option<&Node> {
        node.parent.and_then(|at| self.nodes.get(at))
    }

    /// Runs that hang under nothing: the root, and those whose ancestors the log does not place.
    pub fn tops(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.parent.is_none())
    }

    /// From the top to the run itself.
    #[must_use]
    pub fn path(&self, run: &RunId) -> Vec<&Node> {
        let Some(at) = self.index.get(run) else { return Vec::new() };
        let mut path: Vec<&Node> = self.ancestors(*at).filter_map(|at| self.nodes.get(at)).collect();
        path.reverse();
        path
    }

    /// A run and its descendants, parents before children.
    pub fn subtree<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Node> {
        let mut open = vec![node];
        std::iter::from_fn(move || {
            let node = open.pop()?;
            open.extend(self.children(node).rev());
            Some(node)
        })
    }

    /// What a run and its descendants used.
    #[must_use]
    pub fn subtree_usage(&self, node: &Node) -> Usage {
        self.subtree(node).fold(Usage::default(), |sum, node| sum.plus(&node.usage))
    }

    /// What the whole tree used.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.nodes.iter().fold(Usage::default(), |sum, node| sum.plus(&node.usage))
    }

    /// How many runs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True before the first run.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many runs have settled.
    #[must_use]
    pub fn settled(&self) -> usize {
        self.settled
    }

    /// The `seq` that comes next.
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        self.positions.next()
    }

    /// What did not fit.
    #[must_use]
    pub fn diagnostics(&self) -> Diagnostics {
        Diagnostics { missing: self.positions.missing(), ..self.diagnostics }
    }
}

impl PartialEq for RunTree {
    /// Equal in what they show; which message came last does not count.
    fn eq(&self, other: &Self) -> bool {
        self.nodes == other.nodes
            && self.root == other.root
            && self.next_seq() == other.next_seq()
            && self.diagnostics() == other.diagnostics()
    }
}

#[cfg(test)]
#[path = "reducer_tests.rs"]
pub(super) mod tests;
