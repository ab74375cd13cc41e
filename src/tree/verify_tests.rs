//! Each invariant with the shortest log that breaks it, and a rich log with every single mutation.

use serde_json::json;

use super::super::test_log::{log, map, renumbered, restamped, rich, run_of, with_body};
use super::*;
use crate::message::{Chunk, MessageBody, RunFinished, ToolResultUpdate};
use crate::outcome::FailureKind;

/// An invariant and where it is broken.
type Found = (&'static str, Seq);
type ChangeEnvelope = fn(&mut Nesting);
type ChangeEnd = fn(&mut RunFinished);

/// Invariant and position of each violation.
fn found(log: &[ProcessingMessage]) -> Vec<Found> {
    verify(log).iter().map(|violation| (violation.invariant, violation.seq)).collect()
}

/// Changes the terminal at `seq`.
fn ending(log: &mut [ProcessingMessage], seq: usize, change: impl FnOnce(&mut RunFinished)) {
    let MessageBody::RunFinished(body) = log[seq].body() else { panic!("{:?}", log[seq]) };
    let mut body = RunFinished::clone(body);
    change(&mut body);
    log[seq] = with_body(&log[seq], body);
}

#[test]
fn a_rich_log_holds() {
    assert_eq!(verify(&rich()), []);
}

#[test]
fn each_invariant_is_seen_where_it_breaks() {
    let cases: &[(&str, &[Found])] = &[
        // I1: one start, first; one end.
        ("root started; root text x; root end", &[("I1", 2)]),
        ("root started; root started; root done", &[("I1", 1)]),
        ("root started; a started by root; root done", &[("I9", 2), ("I1", 2)]),
        // I3: nothing after the end, also no second end.
        ("root started; root done; root log x", &[("I3", 2)]),
        ("root started; root failed; root done", &[("I3", 2)]),
        // I7: a child starts while its call is open.
        ("root started; a started by root 0; a done; root call 0; root result 0; root done", &[("I7", 1)]),
        ("root started; root call 0; root result 0; a started by root 0; a done; root done", &[("I7", 3)]),
        (
            "root started; root call 0 as x; a started by root 0 as y; a done; root result 0; root done",
            &[("I7", 2)],
        ),
        // I8: each call has one result.
        ("root started; root call 0; root done", &[("I8", 2)]),
        ("root started; root result 0; root done", &[("I8", 1)]),
        ("root started; root call 0; root result 0; root result 0; root done", &[("I8", 3)]),
        (
            "root started; root call 1; root result 1; root call 0; root result 0; root done",
            &[("I8", 3), ("I8", 4), ("I20", 5)],
        ),
        ("root started; root call 0; root call 1; root result 1; root cancelled", &[("I8", 4)]),
        (
            "root started; root call 0; root call 0 as other; root result 0; root done",
            &[("I8", 2), ("I8", 3)],
        ),
        // I9: children before parents, text closed, nothing after the root.
        ("root started; a started by root; root done; a done", &[("I9", 2)]),
        ("root started; a started by root; b started by a; a done; b done; root done", &[("I9", 3)]),
        ("root started; a started by root; a done; b started by a; b done; root done", &[("I9", 3)]),
        ("root started; a started by root background; root done; a done", &[("I9", 2)]),
        ("root started; root done; a started by root background; a done", &[("I9", 2)]),
        ("root started; root text x; root done", &[("I9", 2)]),
        ("root started; root think x; root end; root done", &[("I9", 3)]),
        // A body that is not what its kind says.
        ("root started; root malformed queued; root done", &[("wire", 1)]),
        ("root started; root malformed run_finished; root done", &[("wire", 1)]),
    ];
    for (timeline, expected) in cases {
        assert_eq!(found(&log(timeline)), *expected, "{timeline}: {:#?}", verify(&log(timeline)));
    }
}

#[test]
fn what_is_allowed_is_not_held_against_a_log() {
    for timeline in [
        "root started; root done",
        "root started; root queued; root failed",
        // A call may have many children, and a second update is its status text.
        "root started; root call 0; a started by root 0; b started by root 0; root call 0; b done; a done; root result 0; root done",
        // A background run may outlive its parent, and may spawn then.
        "root started; a started by root; b started by a background; a turn 1 1; a done; c started by b; c turn 2 2; c done; b turn 3 3; b done; root turn 4 4; root done",
        // Results in any order; gaps between indices.
        "root started; root call 0; root call 5; root result 5; root result 0; root done",
        // One of two calls under one label is still open.
        "root started; root call 0 as x; root call 1 as x; root result 0; a started by root 1 as x; a done; root result 1; root done",
        // No call spawned it.
        "root started; a started by root; a done; root done",
    ] {
        assert_eq!(verify(&log(timeline)), [], "{timeline}");
    }
}

#[test]
fn i1_a_first_message_that_is_no_start() {
    assert_eq!(found(&renumbered(log("root started; root log x; root done").split_off(1))), [("I1", 0)]);
    assert_eq!(found(&renumbered(log("root started; root done").split_off(1))), [("I1", 0)]);
    let mut late = log("root started; root done");
    late[0] = restamped(&late[0], |nesting| nesting.run_seq = 3);
    late[1] = restamped(&late[1], |nesting| nesting.run_seq = 4);
    assert_eq!(found(&late), [("I1", 0)]);
    // A broken start is a start.
    let mut broken = log("root started; root malformed run_started; root done");
    broken.remove(0);
    assert_eq!(found(&renumbered(broken)), [("wire", 0)]);
    // Both are told of a child: it did not start, and it does not end.
    let mut headless = log("root started; a started by root; a log x; root done");
    headless.remove(1);
    assert_eq!(found(&renumbered(headless)), [("I1", 1), ("I9", 2), ("I1", 2)]);
}

#[test]
fn what_a_cut_head_hides_is_not_held_against_the_rest() {
    let mut log = log(
        "root started; root call 0; root log x; a started by root 0; a turn 1 1; a done; root turn 1 1; root done",
    );
    log.drain(..2);
    assert_eq!(found(&renumbered(log)), [("I1", 0)]);
}

#[test]
fn i5_failure_is_no_success() {
    let changes: [ChangeEnd; 2] = [|body| body.ok = false, |body| body.failure = Some(FailureKind::Tool)];
    for change in changes {
        let mut done = log("root started; root done");
        ending(&mut done, 1, change);
        assert_eq!(found(&done), [("I5", 1)]);
    }
    let changes: [ChangeEnd; 2] = [|body| body.ok = true, |body| body.result = Some(json!("x"))];
    for verb in ["failed", "cancelled", "stopped"] {
        for change in changes {
            let mut done = log(&format!("root started; root {verb}"));
            ending(&mut done, 1, change);
            assert_eq!(found(&done), [("I5", 1)], "{verb}");
        }
    }
}

#[test]
fn i6_envelopes() {
    let base =
        || log("root started; root call 0; a started by root 0; a log x; a done; root result 0; root done");
    let cases: [(usize, ChangeEnvelope, &[Found]); 9] = [
        (1, |n| n.seq = 7, &[("I6", 7), ("I6", 2)]),
        (3, |n| n.run_seq = 7, &[("I6", 3), ("I6", 4)]),
        (3, |n| Arc::make_mut(&mut n.origin).parent_run_id = None, &[("I6", 3)]),
        (3, |n| Arc::make_mut(&mut n.origin).parent_tool_call_id = None, &[("I6", 3)]),
        (3, |n| Arc::make_mut(&mut n.origin).subtask_depth = 2, &[("I6", 3)]),
        // Then its run lacks a message, too.
        (3, |n| Arc::make_mut(&mut n.origin).root_run_id = "other".into(), &[("I6", 3), ("I6", 4)]),
        (0, |n| Arc::make_mut(&mut n.origin).subtask_depth = 1, &[("I6", 0), ("I6", 1), ("I6", 2)]),
        (2, |n| Arc::make_mut(&mut n.origin).parent_run_id = Some("a".into()), &[("I6", 2), ("I6", 3)]),
        (2, |n| Arc::make_mut(&mut n.origin).parent_run_id = Some("b".into()), &[("I6", 2), ("I6", 3)]),
    ];
    for (at, change, expected) in cases {
        let mut log = base();
        log[at] = restamped(&log[at], change);
        let mut found = found(&log);
        found.truncate(expected.len());
        assert_eq!(found, expected, "{at}: {:#?}", verify(&log));
    }
    let mut unstamped = base();
    unstamped.insert(2, Chunk::text("x").into());
    assert_eq!(found(&unstamped), [("I6", 2)]);
    // A second run without a parent.
    let mut two = log("root started; other started; other done; root done");
    assert_eq!(found(&two), [("I6", 1)]);
    two.drain(..1);
    assert!(!verify(&two).is_empty());
}

#[test]
fn i8_a_result_that_names_another_call() {
    let mut log = log("root started; root call 0; root result 0; root done");
    let MessageBody::ToolResultUpdate(body) = log[2].body() else { panic!() };
    let body = ToolResultUpdate { tool_call_id: "other".into(), ..ToolResultUpdate::clone(body) };
    log[2] = with_body(&log[2], ToolResultUpdate { result: map(&json!({})), ..body });
    assert_eq!(found(&log), [("I8", 2)]);
}

#[test]
fn i20_usage() {
    let base = || log("root started; a started by root; a turn 5 5; a done; root turn 1 1; root done");
    let cases: [(usize, ChangeEnd, Seq); 8] = [
        (5, |body| body.usage = Some(Usage::default()), 5),
        (5, |body| body.subtree_usage = body.usage, 5),
        (5, |body| body.subtree_usage.as_mut().unwrap().cost_usd = Some(0.3), 5),
        (5, |body| body.subtree_usage.as_mut().unwrap().cached_tokens = Some(3), 5),
        (5, |body| body.usage.as_mut().unwrap().cost_usd = None, 5),
        (5, |body| body.turns = Some(2), 5),
        (5, |body| body.tool_calls = Some(1), 5),
        (3, |body| body.subtree_usage = Some(Usage::of_call(50, 50)), 3),
    ];
    for (at, change, seq) in cases {
        let mut log = base();
        ending(&mut log, at, change);
        assert!(!verify(&log).is_empty());
        for violation in verify(&log) {
            assert_eq!((violation.invariant, violation.seq), ("I20", seq), "{violation}");
        }
    }
    // What a foreign writer does not say is not held against it, but its turns count above.
    let mut silent = base();
    ending(&mut silent, 3, |body| (body.usage, body.subtree_usage, body.turns) = (None, None, None));
    assert_eq!(verify(&silent), []);
    // While a background run below it is live, a subtree may count of it what it likes.
    let mut early = log(
        "root started; a started by root; b started by a; bg started by b background; b done; a done; bg turn 5 5; bg done; root done",
    );
    ending(&mut early, 5, |body| body.subtree_usage = Some(Usage::of_call(3, 3)));
    assert_eq!(verify(&early), []);
    // A failed child's tokens count, and so do those of a background run that outlives its parent.
    for timeline in [
        "root started; a started by root; a turn 5 5; a failed; root done",
        "root started; a started by root; b started by a background; a done; b turn 5 5; b done; root done",
    ] {
        let mut log = log(timeline);
        assert_eq!(verify(&log), [], "{timeline}");
        let last = log.len() - 1;
        ending(&mut log, last, |body| body.subtree_usage = body.usage);
        assert_eq!(found(&log), [("I20", last as Seq)], "{timeline}");
    }
}

/// A change of one place of the log.
#[derive(Debug, Clone, Copy)]
enum Mutation {
    Dropped(usize),
    Doubled(usize),
    /// With the next message of the same run.
    Swapped(usize, usize),
}

/// Why a mutation breaks no invariant. The log is numbered anew after each, so that only its meaning can tell.
fn harmless(mutation: Mutation, log: &[ProcessingMessage]) -> Option<&'static str> {
    use MessageBody as B;
    let remark = |body: &B| {
        matches!(
            body,
            B::LogUpdate(_)
                | B::Queued(_)
                | B::Retrying(_)
                | B::Ask(_)
                | B::AskAnswered(_)
                | B::Other(_)
                | B::TodoUpdate(_)
                | B::StepResult(_)
                | B::PlanningUpdate(_)
                | B::TaskUpdate(_)
                | B::ErrorNotice(_)
                | B::Alert(_)
        )
    };
    let delta = |body: &B| matches!(body, B::Chunk(chunk) if !chunk.done);
    let end = |body: &B| matches!(body, B::Chunk(chunk) if chunk.done);
    let turn = |body: &B| matches!(body, B::TurnFinished(_));
    let call = |body: &B| matches!(body, B::ToolCallUpdate(_));
    let edge = |body: &B| matches!(body, B::RunStarted(_) | B::RunFinished(_));
    let text = |body: &B| delta(body) || end(body);
    let body = |at: usize| log[at].body();
    match mutation {
        Mutation::Dropped(at) if remark(body(at)) => Some("no invariant asks for a remark"),
        Mutation::Dropped(at) if delta(body(at)) => Some("no invariant knows what the text should be"),
        Mutation::Dropped(at) if is_reopened(at, log) => {
            Some("the run closes the later text, and this with it")
        }
        Mutation::Dropped(_) => None,
        Mutation::Doubled(at) if remark(body(at)) => Some("a remark may be made twice"),
        Mutation::Doubled(at) if text(body(at)) => {
            Some("a text may repeat itself; what is closed may be closed")
        }
        Mutation::Doubled(at) if call(body(at)) => Some("a second update of an open call is its status text"),
        Mutation::Doubled(_) => None,
        Mutation::Swapped(at, next) => {
            let (one, two) = (body(at), body(next));
            if edge(one) || edge(two) || spawns_between(at, next, log) {
                None
            } else if remark(one) || remark(two) {
                Some("a remark may stand anywhere")
            } else if turn(one) || turn(two) {
                Some("a turn's end is bound to no call and no text")
            } else if text(one) != text(two) {
                Some("texts and calls are independent")
            } else if let (B::Chunk(one), B::Chunk(two)) = (one, two) {
                let reason = Some("no invariant knows what the text should be");
                reason.filter(|_| {
                    one.thinking != two.thinking || one.done == two.done || is_reopened(next, log)
                })
            } else {
                match (one, two) {
                    (B::ToolCallUpdate(_), B::ToolCallUpdate(_)) => None,
                    (B::ToolCallUpdate(call), B::ToolResultUpdate(result))
                    | (B::ToolResultUpdate(result), B::ToolCallUpdate(call)) => {
                        (call.call_index != result.call_index).then_some("calls may run at once")
                    }
                    _ => Some("parallel calls finish in any order"),
                }
            }
        }
    }
}

/// Whether the message closes a text, and its run closes the same kind of text once more.
fn is_reopened(at: usize, log: &[ProcessingMessage]) -> bool {
    let closes = |message: &ProcessingMessage| match message.body() {
        MessageBody::Chunk(chunk) if chunk.done => Some((run_of(message), chunk.thinking)),
        _ => None,
    };
    let this = closes(&log[at]);
    this.is_some() && log[at + 1..].iter().any(|message| closes(message) == this)
}

/// Whether one of the two belongs to a call of which a child comes between them.
fn spawns_between(at: usize, next: usize, log: &[ProcessingMessage]) -> bool {
    let labels = [at, next].map(|at| match log[at].body() {
        MessageBody::ToolCallUpdate(call) => Some(&call.tool_call_id),
        MessageBody::ToolResultUpdate(result) => Some(&result.tool_call_id),
        _ => None,
    });
    log[at..next].iter().filter(|message| matches!(message.body(), MessageBody::RunStarted(_))).any(|start| {
        let origin = &start.nesting().unwrap().origin;
        let label = origin.parent_tool_call_id.as_ref();
        origin.parent_run_id == Some(run_of(&log[at])) && label.is_some() && labels.contains(&label)
    })
}

fn at_of(mutation: Mutation) -> usize {
    let (Mutation::Dropped(at) | Mutation::Doubled(at) | Mutation::Swapped(at, _)) = mutation;
    at
}

/// Every mutation of the rich log, with what it is.
fn mutations(log: &[ProcessingMessage]) -> Vec<(Mutation, Vec<ProcessingMessage>)> {
    let mut all = Vec::new();
    for at in 0..log.len() {
        let mut dropped = log.to_vec();
        dropped.remove(at);
        all.push((Mutation::Dropped(at), dropped));
        let mut doubled = log.to_vec();
        doubled.insert(at, log[at].clone());
        all.push((Mutation::Doubled(at), doubled));
        let next = (at + 1..log.len()).find(|next| run_of(&log[*next]) == run_of(&log[at]));
        if let Some(next) = next {
            let mut swapped = log.to_vec();
            swapped.swap(at, next);
            all.push((Mutation::Swapped(at, next), swapped));
        }
    }
    all
}

#[test]
fn every_mutation_of_a_rich_log_is_seen_by_its_numbers() {
    let log = rich();
    for (mutation, mutated) in mutations(&log) {
        assert!(!verify(&mutated).is_empty(), "{mutation:?}");
    }
}

#[test]
fn every_mutation_of_a_rich_log_is_seen_by_its_meaning_or_harmless_for_a_reason() {
    let log = rich();
    let (mut seen, mut unseen) = (0, 0);
    for (mutation, mutated) in mutations(&log) {
        let violations = verify(&renumbered(mutated));
        match harmless(mutation, &log) {
            None => {
                assert!(!violations.is_empty(), "not seen: {mutation:?}, {:?}", log[at_of(mutation)].body())
            }
            Some(reason) => assert_eq!(
                violations,
                [],
                "{mutation:?} should be harmless: {reason}, {:?}",
                log[at_of(mutation)].body()
            ),
        }
        *(if violations.is_empty() { &mut unseen } else { &mut seen }) += 1;
    }
    assert!(seen > 100 && unseen > 100, "{seen} {unseen}");
}
