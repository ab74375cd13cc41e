//! C47: the shorter log says the same, and a cut one becomes whole.

use super::super::test_log::{log, renumbered, restamped, rich, run_of, texts, with_body};
use super::super::{CallState, Node, RunTree, verify};
use super::*;
use crate::message::ChunkMeta;
use crate::outcome::OutcomeKind;

/// What a compacted log must still say of a run: all but times and positions.
fn essence(node: &Node) -> impl PartialEq + std::fmt::Debug {
    let calls: Vec<_> = node.calls.iter().map(|call| (call.index, call.id.clone(), call.state)).collect();
    let outcome = node.finished.as_ref().map(|finished| finished.to_outcome());
    (
        (node.origin.clone(), node.started.clone(), node.status, outcome, node.usage, node.turns),
        (calls, node.text.clone(), node.thinking.clone(), node.note.clone(), node.spawned_by),
    )
}

fn same_story(one: &RunTree, two: &RunTree) {
    assert_eq!(one.len(), two.len());
    for (one, two) in one.nodes().zip(two.nodes()) {
        assert_eq!(essence(one), essence(two));
    }
}

#[test]
fn a_whole_log_says_the_same_in_fewer_messages() {
    let log = rich();
    let short = compact(&log);
    assert_eq!(verify(&short), []);
    assert!(short.len() < log.len(), "{} of {}", short.len(), log.len());
    assert_eq!(texts(&short), texts(&log));
    same_story(&RunTree::of(&short), &RunTree::of(&log));
    assert_eq!(compact(&short), short);
}

#[test]
fn every_prefix_becomes_a_whole_log() {
    let log = rich();
    for cut in 0..=log.len() {
        let prefix = &log[..cut];
        let short = compact(prefix);
        assert_eq!(verify(&short), [], "cut at {cut}");
        assert_eq!(compact(&short), short, "cut at {cut}");
        assert_eq!(texts(&short), texts(prefix), "cut at {cut}");
        let (before, after) = (RunTree::of(prefix), RunTree::of(&short));
        assert_eq!((before.len(), before.usage().tokens()), (after.len(), after.usage().tokens()));
        assert_eq!(after.settled(), after.len());
        for (before, after) in before.nodes().zip(after.nodes()) {
            if before.status.is_settled() {
                assert_eq!(essence(before), essence(after));
            } else {
                let finished = after.finished.as_ref().unwrap();
                assert_eq!(finished.failure, Some(FailureKind::Vanished));
                assert!(after.calls.iter().all(|call| call.state != CallState::Open));
            }
        }
    }
}

#[test]
fn an_interrupted_run_is_closed_in_order() {
    let short =
        compact(&log("root started; root text x; root call 0; a started by root 0; a text y; a text z"));
    let timeline: Vec<(String, &str)> =
        short.iter().map(|message| (run_of(message).to_string(), message.body().kind())).collect();
    let timeline: Vec<(&str, &str)> = timeline.iter().map(|(run, kind)| (run.as_str(), *kind)).collect();
    assert_eq!(
        timeline,
        [
            ("root", "run_started"),
            ("root", "chunk"),
            ("root", "tool_call_update"),
            ("a", "run_started"),
            ("a", "chunk"),
            ("a", "run_finished"),
            ("root", "tool_result_update"),
            ("root", "chunk"),
            ("root", "run_finished"),
        ]
    );
    assert_eq!(short[4].body(), &Chunk { done: true, ..Chunk::text("yz") }.into());
    let MessageBody::ToolResultUpdate(result) = short[6].body() else { panic!() };
    assert_eq!((result.is_error, result.call_index), (true, 0));
}

#[test]
fn a_failed_run_does_not_poison() {
    let log = log("root started; root call 0; a started by root 0; a text x; a end; a done; root result 0
        root call 1; b started by root 1; b failed; root result 1 error
        root call 2; c started by root 2; c text y; c text z");
    let tree = RunTree::of(&compact(&log));
    let outcomes: Vec<_> = tree.nodes().map(|node| node.finished.as_ref().unwrap().outcome).collect();
    use OutcomeKind::{Completed, Failed};
    assert_eq!(outcomes, [Failed, Completed, Failed, Failed]);
    assert_eq!(verify(&compact(&log)), []);
}

#[test]
fn only_text_of_one_kind_with_nothing_between_is_joined() {
    let joined = |timeline: &str| {
        let short = compact(&log(timeline));
        let chunk = |message: &ProcessingMessage| match message.body() {
            MessageBody::Chunk(chunk) => Some((chunk.content.to_string(), chunk.thinking, chunk.done)),
            _ => None,
        };
        short.iter().filter_map(chunk).collect::<Vec<_>>()
    };
    let text = |content: &str, done| (content.to_owned(), false, done);
    assert_eq!(
        joined("root started; root text a; root text b; root end; root text c; root end; root done"),
        [text("ab", true), text("c", true)]
    );
    assert_eq!(
        joined("root started; root text a; root log x; root text b; root end; root done"),
        [text("a", false), text("b", true)]
    );
    let thought = ("t".to_owned(), true, true);
    assert_eq!(
        joined("root started; root text a; root think t; root think-end; root text b; root end; root done"),
        [text("a", false), thought, text("b", true)]
    );
    // Nor are texts of two kinds of content.
    let mut log = log("root started; root text a; root text b; root end; root done");
    let meta = ChunkMeta { content_type: Some("audio".into()), ..ChunkMeta::default() };
    log[1] = with_body(&log[1], Chunk { meta: Some(Arc::new(meta)), ..Chunk::text("a") });
    assert_eq!(compact(&log).len(), 4);
    // What another run says is not between.
    assert_eq!(
        joined(
            "root started; a started by root; root text a; a text x; root text b; a end; root end; a done; root done"
        ),
        [text("ab", true), text("x", true)]
    );
}

#[test]
fn what_the_reducer_does_not_count_is_left_out() {
    let clean = rich();
    let mut noisy = clean.clone();
    let foreign =
        restamped(&clean[5], |nesting| Arc::make_mut(&mut nesting.origin).root_run_id = "other".into());
    noisy.insert(10, foreign);
    noisy.insert(10, Chunk::text("unstamped").into());
    for at in [40, 20, 3, 2] {
        noisy.insert(at + 5, clean[at].clone());
    }
    let mut late = clean.last().unwrap().clone();
    late = restamped(&with_body(&late, Chunk::text("late")), |nesting| nesting.seq += 1);
    noisy.push(late);
    assert_eq!(compact(&noisy), compact(&clean));
}

#[test]
fn a_cut_head_stays_a_cut_head() {
    let log = rich();
    let short = compact(&log[3..]);
    assert!(verify(&short).iter().any(|violation| violation.invariant == "I1"));
    assert_eq!(short.first().unwrap().nesting().unwrap().seq, 0);
    assert_eq!(compact(&[]), []);
}

#[test]
fn a_run_of_many_deltas_is_one_text() {
    let mut log = log("root started; root text x; root end; root done");
    let end = log.split_off(2);
    log.extend(std::iter::repeat_n(log[1].clone(), 300_000));
    log.extend(end);
    let short = compact(&renumbered(log));
    assert_eq!(short.len(), 3);
    assert_eq!(short[1].body(), &Chunk { done: true, ..Chunk::text("x".repeat(300_001)) }.into());
}
