//! The soak in the small: no timing is asserted, but a fold that is not linear does not come to an end here.

use std::sync::Arc;

use super::test_log::{log, renumbered, run_of, started, with_body};
use super::{Delivery, Diagnostics, Gap, Node, RunTree, compact, verify};
use crate::id::RunId;
use crate::message::*;
use crate::outcome::Usage;

/// A log of canonical ids, written by hand since the timeline would be the slow part.
struct Bulk {
    log: Vec<ProcessingMessage>,
    root: RunId,
}

impl Bulk {
    fn id(number: usize) -> RunId {
        RunId::parse(&format!("018f0000-0000-7000-8000-{number:012x}"))
    }

    fn new() -> Self {
        Self { log: Vec::new(), root: Self::id(0) }
    }

    fn origin(&self, run: usize, parent: Option<usize>, depth: usize, label: Option<usize>) -> Arc<Origin> {
        Arc::new(Origin {
            root_run_id: self.root.clone(),
            run_id: Self::id(run),
            parent_run_id: parent.map(Self::id),
            parent_tool_call_id: label.map(|label| format!("call_{label}").as_str().into()),
            subtask_depth: depth as u32,
        })
    }

    fn push(&mut self, origin: &Arc<Origin>, body: &MessageBody) {
        let nesting =
            Nesting { origin: Arc::clone(origin), seq: 0, run_seq: 0, time: Timestamp::from_micros(1) };
        self.log.push(ProcessingMessage::new(body.clone()).stamped(nesting));
    }
}

/// `n` runs, each the child of the one before.
fn chain(n: usize) -> Vec<ProcessingMessage> {
    let mut bulk = Bulk::new();
    let origins: Vec<_> = (0..n).map(|run| bulk.origin(run, run.checked_sub(1), run, None)).collect();
    let (start, end) = (started("link", false), log("root started; root failed")[1].body().clone());
    let MessageBody::RunFinished(end) = end else { panic!() };
    let end = RunFinished { subtree_usage: None, ..RunFinished::clone(&end) }.into();
    origins.iter().for_each(|origin| bulk.push(origin, &start));
    origins.iter().rev().for_each(|origin| bulk.push(origin, &end));
    renumbered(bulk.log)
}

/// Root with `n` children, each with a call of its own; all at once or one after the other.
fn fan(n: usize, at_once: bool) -> Vec<ProcessingMessage> {
    let mut bulk = Bulk::new();
    let root = bulk.origin(0, None, 0, None);
    let template = log("root started; root call 0; root result 0; root text x; root end; root done");
    let bodies: Vec<MessageBody> = template.into_iter().map(ProcessingMessage::into_body).collect();
    let numbered = |body: &MessageBody, index: usize| match body.clone() {
        MessageBody::ToolCallUpdate(body) => {
            let mut body = Arc::unwrap_or_clone(body);
            (body.call_index, body.tool_call_id) = (index as u32, format!("call_{index}").as_str().into());
            MessageBody::from(body)
        }
        MessageBody::ToolResultUpdate(body) => {
            let mut body = Arc::unwrap_or_clone(body);
            (body.call_index, body.tool_call_id) = (index as u32, format!("call_{index}").as_str().into());
            MessageBody::from(body)
        }
        body => body,
    };
    bulk.push(&root, &bodies[0]);
    let origins: Vec<_> = (0..n).map(|child| bulk.origin(child + 1, Some(0), 1, Some(child))).collect();
    let MessageBody::RunFinished(done) = &bodies[5] else { panic!() };
    let done = |calls: usize| -> MessageBody {
        RunFinished { tool_calls: Some(calls as u64), ..RunFinished::clone(done) }.into()
    };
    let child_log = [&bodies[0], &bodies[3], &bodies[4], &done(0)];
    if at_once {
        (0..n).for_each(|child| bulk.push(&root, &numbered(&bodies[1], child)));
        for body in child_log {
            origins.iter().for_each(|origin| bulk.push(origin, body));
        }
        (0..n).for_each(|child| bulk.push(&root, &numbered(&bodies[2], child)));
    } else {
        for (child, origin) in origins.iter().enumerate() {
            bulk.push(&root, &numbered(&bodies[1], child));
            child_log.iter().for_each(|body| bulk.push(origin, body));
            bulk.push(&root, &numbered(&bodies[2], child));
        }
    }
    bulk.push(&root, &done(n));
    renumbered(bulk.log)
}

#[test]
fn c50_a_hundred_thousand_children() {
    for (n, at_once) in [(20_000, false), (100_000, true)] {
        let log = fan(n, at_once);
        let tree = RunTree::of(&log);
        assert_eq!((tree.len(), tree.settled(), tree.diagnostics()), (n + 1, n + 1, Diagnostics::default()));
        // A settled run holds its outcome, and nothing that grows with what it said.
        assert!(size_of::<Node>() <= 512, "{}", size_of::<Node>());
        for (at, node) in tree.nodes().enumerate().skip(1) {
            assert_eq!(node.spawned_by, Some(at as u32 - 1));
            assert_eq!((node.text.capacity(), node.thinking.capacity(), node.calls.capacity()), (0, 0, 0));
        }
        assert_eq!(verify(&log), []);
        let short = compact(&log);
        assert_eq!(short.len(), log.len() - n);
        assert_eq!(verify(&short), []);
    }
}

#[test]
fn a_chain_of_fifty_thousand_runs_needs_no_stack() {
    let work = || {
        let log = chain(50_000);
        let tree = RunTree::of(&log);
        let last = Bulk::id(49_999);
        assert_eq!((tree.len(), tree.path(&last).len()), (50_000, 50_000));
        assert_eq!(tree.subtree(tree.root().unwrap()).count(), 50_000);
        assert!(tree.to_json().to_string().contains("children_left_out"));
        assert_eq!(tree.usage(), Usage::default());
        assert_eq!(verify(&log), []);
        assert!(tree.clone() == tree);
        drop(tree);
        let short = compact(&log[..50_000]);
        assert_eq!((short.len(), verify(&short)), (100_000, Vec::new()));
        // The children before their parents: each run is first known as somebody's parent.
        let starts: Vec<_> = log[..50_000].iter().rev().cloned().collect();
        let tree = RunTree::of(&starts);
        assert_eq!((tree.path(&last).len(), tree.diagnostics().cyclic), (50_000, 0));
        assert_eq!(run_of(&starts[0]), last);
    };
    // Half of what a test gets, 20 bytes a run: any recursion along the chain overflows it.
    std::thread::Builder::new().stack_size(1024 * 1024).spawn(work).unwrap().join().unwrap();
}

#[test]
fn deep_results_do_not_make_the_json_unreadable() {
    let mut deep = serde_json::json!("bottom");
    for _ in 0..120 {
        deep = serde_json::json!([deep]);
    }
    let mut log = chain(60);
    for message in &mut log {
        if let MessageBody::RunFinished(body) = message.body() {
            let body = RunFinished { result: Some(deep.clone()), ..RunFinished::clone(body) };
            *message = with_body(message, body);
        }
    }
    let gap = Delivery::Gap(Gap { from_seq: 0, to_seq: 1, snapshot: Arc::new(RunTree::of(&log)) });
    let json = serde_json::to_string(&gap).unwrap();
    assert!(json.contains("children_left_out") && json.contains("bottom"));
    serde_json::from_str::<serde_json::Value>(&json).unwrap();
}
