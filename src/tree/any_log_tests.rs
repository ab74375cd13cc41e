//! The fold takes anything: messages of every kind in every envelope, and valid logs cut, shuffled and doubled.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::reducer::tests::walk;
use super::test_log::{log, rich, started};
use super::{Node, RunTree, compact, verify};
use crate::id::{RunId, Seq};
use crate::message::*;
use crate::outcome::{StopReason, Usage};

/// A body of any kind: those of the rich log, and some with extreme values.
fn any_body() -> impl Strategy<Value = MessageBody> {
    let usage = Usage {
        cost_usd: Some(f64::MAX),
        cached_tokens: Some(u64::MAX),
        model_calls: u64::MAX,
        ..Usage::of_call(u64::MAX, u64::MAX)
    };
    let extra = Extra::default;
    let turn = TurnFinished { turn: u64::MAX, stop_reason: StopReason::Missing, usage, extra: extra() };
    let rich: Vec<MessageBody> = rich().into_iter().map(ProcessingMessage::into_body).collect();
    let finished = rich.iter().find_map(|body| match body {
        MessageBody::RunFinished(body) => {
            Some(RunFinished { usage: Some(usage), ..RunFinished::clone(body) })
        }
        _ => None,
    });
    let extreme: Vec<MessageBody> = vec![turn.into(), finished.unwrap().into(), started("x", true)];
    prop_oneof![
        4 => select(rich),
        1 => select(extreme),
        2 => (".{0,8}", any::<bool>(), any::<bool>()).prop_map(|(content, thinking, done)| {
            Chunk { content: content.into(), thinking, done, meta: None }.into()
        }),
        1 => (any::<u32>(), any::<bool>()).prop_map(|(call_index, open)| {
            let verb = if open { "call" } else { "result" };
            log(&format!("root started; root {verb} {call_index}"))[1].body().clone()
        }),
    ]
}

fn any_seq() -> impl Strategy<Value = Seq> {
    prop_oneof![6 => 0u64..40, 1 => any::<u64>(), 1 => (u64::MAX - 3)..=u64::MAX]
}

fn any_message() -> impl Strategy<Value = ProcessingMessage> {
    let run = || select(vec!["root", "a", "b", "c", "d", "e", "018f0000-0000-7000-8000-000000000000"]);
    let root = prop_oneof![9 => Just("root"), 1 => Just("other")];
    let place =
        (root, run(), proptest::option::of(run()), proptest::option::of(select(vec!["call_0", "call_1"])));
    let numbers = (any_seq(), any_seq(), any::<u64>(), prop_oneof![0u32..4, any::<u32>()]);
    (any_body(), place, numbers, 0u8..20).prop_map(|(body, place, (seq, run_seq, time, depth), stamped)| {
        let message = ProcessingMessage::new(body);
        match stamped {
            0 => message,
            1 => message.tagged(&Tag { parent_tool_call_id: Some(None), depth: Some(depth) }),
            _ => {
                let (root, run, parent, label) = place;
                let origin = Arc::new(Origin {
                    root_run_id: root.into(),
                    run_id: run.into(),
                    parent_run_id: parent.map(RunId::from),
                    parent_tool_call_id: label.map(Into::into),
                    subtask_depth: depth,
                });
                message.stamped(Nesting { origin, seq, run_seq, time: Timestamp::from_micros(time) })
            }
        }
    })
}

/// What every fold must say of any messages; the others must end, at least.
fn check_any(log: &[ProcessingMessage]) {
    let tree = RunTree::of(log);
    walk(&tree);
    let stamped: Vec<&Nesting> = log.iter().filter_map(ProcessingMessage::nesting).collect();
    let root = stamped.first().map(|nesting| nesting.origin.root_run_id.clone());
    let foreign = stamped.iter().filter(|nesting| Some(&nesting.origin.root_run_id) != root.as_ref()).count();
    let said = tree.diagnostics();
    assert_eq!((said.unstamped, said.foreign), ((log.len() - stamped.len()) as u64, foreign as u64));
    let mut own: Vec<&Nesting> = stamped;
    own.retain(|nesting| Some(&nesting.origin.root_run_id) == root.as_ref());
    for nesting in own {
        assert!(tree.node(&nesting.origin.run_id).is_some());
    }
    // Only the end of the range of numbers is not told apart.
    let seqs = log.iter().filter_map(ProcessingMessage::nesting);
    if seqs.clone().all(|nesting| nesting.seq < u64::MAX) {
        let mut seen = BTreeSet::new();
        let own = seqs.filter(|nesting| Some(&nesting.origin.root_run_id) == root.as_ref());
        let repeated = own.filter(|nesting| !seen.insert(nesting.seq)).count() as u64;
        let missing = seen.last().map_or(0, |last| last + 1 - seen.len() as u64);
        assert_eq!((said.duplicate, said.missing), (repeated, missing));
    }
    let _ = verify(log);
    walk(&RunTree::of(&compact(log)));
}

/// Where each run hangs.
fn places(tree: &RunTree) -> HashMap<RunId, Option<RunId>> {
    let place = |node: &Node| {
        (node.origin.run_id.clone(), tree.parent(node).map(|parent| parent.origin.run_id.clone()))
    };
    tree.nodes().map(place).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(250) })]

    #[test]
    fn any_messages_give_a_tree(log in proptest::collection::vec(any_message(), 0..40)) {
        check_any(&log);
    }

    #[test]
    fn a_valid_log_in_any_order_gives_the_same_runs(log in Just(rich()).prop_shuffle()) {
        let tree = RunTree::of(&log);
        walk(&tree);
        prop_assert_eq!(places(&tree), places(&RunTree::of(&rich())));
        prop_assert_eq!(&tree.root().unwrap().origin.run_id, &"root".into());
        let said = tree.diagnostics();
        prop_assert_eq!((said.missing, said.duplicate, said.foreign, said.cyclic), (0, 0, 0, 0));
        check_any(&log);
    }

    #[test]
    fn what_is_cut_out_is_missing_and_what_is_doubled_is_left_out(
        cuts in proptest::collection::vec(any::<Index>(), 0..10),
        doubles in proptest::collection::vec((any::<Index>(), any::<Index>()), 0..10),
    ) {
        let mut log = rich();
        let end = log.pop().unwrap();
        cuts.iter().for_each(|cut| { log.remove(cut.index(log.len())); });
        let missing = cuts.len() as u64;
        log.push(end);
        let once = RunTree::of(&log);
        prop_assert_eq!(once.diagnostics().missing, missing);
        for (at, to) in &doubles {
            let at = at.index(log.len());
            let to = at + 1 + to.index(log.len() - at);
            log.insert(to, log[at].clone());
        }
        let twice = RunTree::of(&log);
        prop_assert_eq!(twice.diagnostics().duplicate, doubles.len() as u64);
        prop_assert!(twice.nodes().eq(once.nodes()));
        check_any(&log);
    }

    #[test]
    fn c08_interleaved_text_stays_with_its_run(turns in proptest::collection::vec((0usize..6, any::<bool>()), 1..300)) {
        let names = ["root", "a", "b", "c", "d", "e"];
        let mut timeline = "root started; a started by root; b started by root; c started by a; d started by c; e started by d".to_owned();
        let mut expected: HashMap<(usize, bool), String> = HashMap::new();
        for (count, (run, thinking)) in turns.iter().enumerate() {
            let letter = char::from(b'a' + (count % 26) as u8);
            let verb = if *thinking { "think" } else { "text" };
            timeline.push_str(&format!("; {} {verb} {letter}", names[*run]));
            expected.entry((*run, *thinking)).or_default().push(letter);
        }
        let tree = RunTree::of(&log(&timeline));
        for (run, name) in names.iter().enumerate() {
            let said = |thinking| expected.get(&(run, thinking)).cloned().unwrap_or_default();
            prop_assert_eq!(&tree.node(&(*name).into()).unwrap().text, &said(false));
            prop_assert_eq!(&tree.node(&(*name).into()).unwrap().thinking, &said(true));
        }
    }
}
