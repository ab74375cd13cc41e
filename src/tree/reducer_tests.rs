//! The fold: what it says of a log, that it takes any, and that it stays plain when the tree is huge.

use super::super::node::{CallState, Status};
use super::super::test_log::{log, map, renumbered, restamped, rich, with_body};
use super::super::{Gap, compact};
use super::*;
use crate::message::{Chunk, ToolCallUpdate};
use crate::outcome::OutcomeKind;

fn tree(timeline: &str) -> RunTree {
    RunTree::of(&log(timeline))
}

fn node<'a>(tree: &'a RunTree, name: &str) -> &'a Node {
    tree.node(&name.into()).unwrap_or_else(|| panic!("no run {name}"))
}

/// One line a run: depth, name, the call it came of, status, calls, tokens of it and of its subtree.
fn picture(tree: &RunTree) -> Vec<String> {
    let line = |node: &Node| {
        let calls: Vec<String> = node
            .calls
            .iter()
            .map(|call| match call.state {
                CallState::Open => format!("{}?", call.index),
                CallState::Done { is_error: false, .. } => call.index.to_string(),
                CallState::Done { is_error: true, .. } => format!("{}!", call.index),
            })
            .collect();
        let by = node.spawned_by.map_or_else(|| "-".to_owned(), |index| index.to_string());
        format!(
            "{} {} by {by} {} [{}] {}/{}",
            node.origin.subtask_depth,
            node.title(),
            node.status.as_str(),
            calls.join(" "),
            node.usage.tokens(),
            tree.subtree_usage(node).tokens(),
        )
    };
    tree.root().map(|root| tree.subtree(root).map(line).collect()).unwrap_or_default()
}

/// Goes every way through a tree; each way ends and leads to all runs.
pub(in crate::tree) fn walk(tree: &RunTree) {
    let mut below_tops = 0;
    for top in tree.tops() {
        below_tops += tree.subtree(top).count();
    }
    assert_eq!((below_tops, tree.nodes().count()), (tree.len(), tree.len()));
    for node in tree.nodes() {
        let path = tree.path(&node.origin.run_id);
        assert!(path.len() <= tree.len() && path.last().is_some_and(|last| std::ptr::eq(*last, node)));
        for child in tree.children(node) {
            assert!(tree.parent(child).is_some_and(|parent| std::ptr::eq(parent, node)));
        }
        assert!(tree.subtree_usage(node).tokens() >= node.usage.tokens());
    }
    let json = tree.to_json().to_string();
    assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "a reader refuses {json}");
    assert_eq!(tree.root().is_some(), !tree.is_empty());
    assert_eq!(tree.settled(), tree.nodes().filter(|node| node.status.is_settled()).count());
    assert!(tree.nodes().all(|node| tree.usage().tokens() >= node.usage.tokens()));
}

#[test]
fn what_the_rich_log_says() {
    let tree = RunTree::of(&rich());
    assert_eq!(
        picture(&tree),
        [
            "0 root by - completed [0 1! 2 3! 4! 5] 44/93",
            "1 a by 0 completed [0] 10/14",
            "2 aa by 0 completed [] 4/4",
            "1 b by 1 failed [0!] 5/7",
            "2 ba by 0 failed [] 2/2",
            "1 bg by 2 completed [0 1] 11/11",
            "1 c by 3 cancelled [0!] 0/0",
            "1 d by 4 failed [] 0/0",
            "1 e by 5 stopped [0] 14/17",
            "2 e-bg by 0 completed [] 3/3",
        ]
    );
    assert_eq!(tree.diagnostics(), Diagnostics::default());
    assert_eq!((tree.len(), tree.settled(), tree.next_seq()), (10, 10, rich().len() as Seq));
    // I20: the total is the sum over runs, and what the root's terminal says.
    let said = node(&tree, "root").finished.as_ref().unwrap().subtree_usage.unwrap();
    assert_eq!((tree.usage().tokens(), tree.usage().model_calls), (93, said.model_calls));
    assert_eq!(
        tree.path(&"ba".into()).iter().map(|node| node.title()).collect::<Vec<_>>(),
        ["root", "b", "ba"]
    );
    assert!(tree.path(&"nobody".into()).is_empty());
    walk(&tree);
}

#[test]
fn status_follows_the_events() {
    let steps = [
        ("root started", Status::Running),
        ("root queued", Status::Queued),
        ("root text x", Status::Running),
        ("root retrying", Status::Retrying),
        ("root ask q", Status::Asking),
        ("root log x", Status::Asking),
        ("root ask r", Status::Asking),
        ("root answered q", Status::Asking),
        ("root answered r", Status::Running),
        ("root cancelled", Status::Settled(OutcomeKind::Cancelled)),
        ("root text late", Status::Settled(OutcomeKind::Cancelled)),
    ];
    let timeline: Vec<&str> = steps.iter().map(|(step, _)| *step).collect();
    let log = log(&timeline.join(";"));
    for (at, (step, status)) in steps.iter().enumerate() {
        assert_eq!(RunTree::of(&log[..=at]).root().unwrap().status, *status, "{step}");
    }
    let late = RunTree::of(&log);
    assert_eq!((late.diagnostics().late, late.settled()), (1, 1));
    assert_eq!(node(&tree("root started; a started by root; a done"), "root").status, Status::Running);
}

#[test]
fn text_is_that_of_the_open_or_latest_turn() {
    let text = |timeline: &str| {
        let tree = tree(timeline);
        (tree.root().unwrap().text.clone(), tree.root().unwrap().thinking.clone())
    };
    let pair = |text: &str, thinking: &str| (text.to_owned(), thinking.to_owned());
    assert_eq!(text("root started; root text a; root think t; root text b"), pair("ab", "t"));
    assert_eq!(text("root started; root text a; root end; root turn 1 1"), pair("a", ""));
    assert_eq!(text("root started; root text a; root end; root text b"), pair("b", ""));
    // C13: once, whether it came in pieces or whole.
    assert_eq!(text("root started; root text a; root text b; root end"), pair("ab", ""));
    assert_eq!(text("root started; root whole ab"), pair("ab", ""));
    // A producer that closes nothing still begins a text with each turn.
    assert_eq!(text("root started; root text a; root think t; root turn 1 1; root text b"), pair("b", "t"));
    assert_eq!(text("root started; root text a; root done"), pair("", ""));
}

#[test]
fn text_beyond_the_cap_is_counted_and_never_skipped() {
    let cap = 64 * 1024;
    let pieces = ["x".repeat(cap - 1), "é".to_owned(), "y".to_owned(), "z".repeat(10)];
    let mut log =
        log("root started; root text a; root text b; root text c; root text d; root end; root text new");
    for (message, piece) in log[1..].iter_mut().zip(pieces) {
        *message = with_body(message, Chunk::text(piece));
    }
    let full = RunTree::of(&log[..5]);
    assert_eq!(full.root().unwrap().text, "x".repeat(cap - 1), "no later piece follows one that is left out");
    assert_eq!(full.root().unwrap().omitted_bytes, 2 + 1 + 10);
    assert_eq!(RunTree::of(&log).root().unwrap().text, "new");
    // The same text in one piece gives the same.
    assert_eq!(RunTree::of(&compact(&log[..5])).root().unwrap().omitted_bytes, 13);
}

#[test]
fn c01_runs_under_one_label_stay_apart() {
    let tree = tree(
        "root started; root call 0 as call_0; root call 1 as call_0; root call 2 as call_0
        a started by root 0 as call_0; b started by root 1 as call_0; b2 started by root 1 as call_0
        a call 0 as call_0; b call 0 as call_0; a result 0; b failed; a text mine",
    );
    assert_eq!(
        picture(&tree),
        [
            "0 root by - running [0? 1? 2?] 0/0",
            "1 a by 0 running [0] 0/0",
            "1 b by 1 failed [0?] 0/0",
            "1 b2 by 2 running [] 0/0",
        ]
    );
    assert_eq!(node(&tree, "a").text, "mine");
    // Two roots share nothing but the label.
    let mut two = tree.clone();
    let other = log("root started; root call 0 as call_0; root result 0");
    for message in &other {
        let moved =
            restamped(message, |nesting| Arc::make_mut(&mut nesting.origin).root_run_id = "other".into());
        two.apply_message(&moved);
    }
    assert_eq!((two.diagnostics().foreign, two.nodes == tree.nodes), (3, true));
}

#[test]
fn calls_of_a_part_of_a_log() {
    let call = |timeline: &str| {
        let tree = tree(timeline);
        let calls = tree.root().unwrap().calls.iter();
        calls
            .map(|call| (call.index, call.summary.clone(), call.state != CallState::Open))
            .collect::<Vec<_>>()
    };
    // A result whose call is not in the log is a call that ended; what comes later completes it.
    assert_eq!(call("root started; root result 3"), [(3, String::new(), true)]);
    assert_eq!(call("root started; root result 3; root call 3"), [(3, "n=3".into(), true)]);
    // Under a used index nothing changes.
    assert_eq!(call("root started; root call 0; root result 0; root call 0"), [(0, "n=0".into(), true)]);
    // By index, whatever the order.
    let order: Vec<u32> = call("root started; root call 2; root call 0; root result 1; root call 5")
        .iter()
        .map(|(index, ..)| *index)
        .collect();
    assert_eq!(order, [0, 1, 2, 5]);
    // One call, many children; a child of a call that is over belongs to none.
    let tree = tree(
        "root started; root call 0; a started by root 0; b started by root 0; root result 0; c started by root 0",
    );
    let by = |name| node(&tree, name).spawned_by;
    assert_eq!((by("a"), by("b"), by("c")), (Some(0), Some(0), None));
}

#[test]
fn a_call_says_its_latest_word() {
    let mut log = log("root started; root call 0; root call 0; root call 0");
    let update = |at: usize, message: Option<&str>, args: serde_json::Value| {
        let MessageBody::ToolCallUpdate(body) = log[at].body() else { panic!() };
        let mut body = ToolCallUpdate::clone(body);
        (body.message, body.args) = (message.map(Into::into), map(&args));
        with_body(&log[at], body)
    };
    let args = serde_json::json!({"path": "a.rs", "lines": [1, 2]});
    let updates = [
        update(1, None, serde_json::json!({"path": "a."})),
        update(2, None, args),
        update(3, None, serde_json::json!({})),
        update(3, Some("Reading"), serde_json::json!({})),
    ];
    log.truncate(1);
    let expected =
        ["path=\"a.\"", "path=\"a.rs\" lines=[2 items]", "path=\"a.rs\" lines=[2 items]", "Reading"];
    for (update, expected) in updates.into_iter().zip(expected) {
        log.push(update);
        assert_eq!(RunTree::of(&renumbered(log.clone())).root().unwrap().calls[0].summary, expected);
    }
}

#[test]
fn a_log_that_begins_in_the_middle_has_a_root() {
    let log = log("root started; a started by root; b started by a; b log x; a log x; root log x");
    let titles = |from: usize, to: usize| {
        let tree = RunTree::of(&log[from..to]);
        walk(&tree);
        tree.root().unwrap().origin.run_id.to_string()
    };
    assert_eq!(titles(3, 4), "a", "the topmost run above the first message");
    assert_eq!(titles(3, 5), "root");
    assert_eq!(titles(3, 6), "root");
    assert_eq!(RunTree::of(&log[3..]).diagnostics().missing, 3);
    // A run without a parent that is not the root does not take its place.
    let log = self::log("root started; other started");
    assert_eq!(RunTree::of(log.iter().rev()).root().unwrap().title(), "root");
}

#[test]
fn a_circle_is_counted_once() {
    let mut log = log("root started; a started by root; b started by a; a log x; b log x; a log y; b log y");
    for message in &mut log {
        *message = restamped(message, |nesting| {
            if nesting.origin.run_id == "a".into() {
                Arc::make_mut(&mut nesting.origin).parent_run_id = Some("b".into());
            }
        });
    }
    let tree = RunTree::of(&log);
    assert_eq!((tree.len(), tree.diagnostics().cyclic), (3, 1));
    walk(&tree);
    let own =
        restamped(&log[0], |nesting| Arc::make_mut(&mut nesting.origin).parent_run_id = Some("root".into()));
    let tree = RunTree::of([&own]);
    assert_eq!((tree.len(), tree.diagnostics().cyclic), (1, 1));
    walk(&tree);
}

#[test]
fn c05_i10_the_tree_of_the_written_log_is_the_live_tree() {
    let lines: Vec<String> = rich().iter().map(ProcessingMessage::to_json).collect();
    let read: Vec<_> = lines.iter().map(|line| ProcessingMessage::from_json(line).unwrap()).collect();
    assert_eq!(RunTree::of(&read), RunTree::of(&rich()));
    assert_eq!(RunTree::of(&read).to_json(), RunTree::of(&rich()).to_json());
}

#[test]
fn a_gap_and_the_rest_give_the_whole_tree() {
    let log = rich();
    let whole = RunTree::of(&log);
    for to in 0..log.len() {
        let snapshot = Arc::new(RunTree::of(&log[..=to]));
        for seen in [0, to / 2, to] {
            let gap = Gap { from_seq: seen as Seq, to_seq: to as Seq, snapshot: Arc::clone(&snapshot) };
            let mut tree = RunTree::of(&log[..seen]);
            tree.apply(&Delivery::Gap(gap.clone()));
            assert_eq!(tree, *snapshot);
            log[to + 1..].iter().for_each(|message| tree.apply(&Delivery::Message(message.clone())));
            assert_eq!(tree, whole, "seen {seen}, gap to {to}");
            // A snapshot of less takes nothing back.
            tree.apply(&Delivery::Gap(gap));
            assert_eq!(tree, whole);
        }
    }
}

#[test]
fn a_gap_says_so_on_the_wire() {
    let snapshot = Arc::new(tree("root started; root text x"));
    let gap = Delivery::Gap(Gap { from_seq: 0, to_seq: 1, snapshot });
    let json = serde_json::to_value(&gap).unwrap();
    assert_eq!((&json["type"], &json["from_seq"], &json["to_seq"]), (&"gap".into(), &0.into(), &1.into()));
    assert_eq!((&json["snapshot"]["seq"], &json["snapshot"]["root"]["text"]), (&1.into(), &"x".into()));
}
