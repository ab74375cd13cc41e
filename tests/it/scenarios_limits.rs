//! Situations reported against other systems that limits, permits and deadlines have to survive, on the tool loop.

use std::collections::BTreeSet;
use std::time::Duration;

use anabranch::agent::{RunSearch, RunSubtask};
use anabranch::budget::{Limit, RunLimits, TreeLimits, WhenFull};
use anabranch::message::MessageBody;
use anabranch::outcome::{CancelledBy, SubAgentOutcome};
use anabranch::tool::{Toolset, chaos};
use serde_json::{Value, json};

use crate::stage::{Stage, calls, delegates, results};

fn says(text: &str) -> Value {
    json!({ "text": text })
}

fn limits(change: impl FnOnce(&mut TreeLimits)) -> TreeLimits {
    let mut limits = TreeLimits::default();
    change(&mut limits);
    limits
}

#[tokio::test(start_paused = true)]
async fn c34_the_table_of_depths() {
    let paths = [
        ("run_subtask", json!({ "description": "x", "prompt": "x" })),
        ("run_search", json!({ "query": "x" })),
        ("chaos_spawn", json!({ "count": 1, "prompt": "x" })),
    ];
    for max in 0..=3_u32 {
        for at in 0..=max {
            for (path, args) in &paths {
                let agents = json!([
                    { "when": { "depth": at, "agent": if at == 0 { "agent" } else { "subtask" } },
                      "turns": [calls(path, args.clone()), says("done")] },
                    { "when": { "depth": at + 1 }, "turns": [says("below")] },
                    { "turns": [delegates(&["deeper"]), says("done")] },
                ]);
                let played = Stage::new(agents)
                    .tree_limits(limits(|limits| limits.depth = Limit::At(max)))
                    .play()
                    .await;
                let allowed = at < max;
                let what = format!("{path} at {at} of {max}:\n{}", played.timeline());
                assert_eq!(played.tree().len() as u32, at + 1 + u32::from(allowed), "{what}");
                let requests = played.model.requests();
                let caller: Vec<_> = requests.iter().filter(|request| request.run.depth == at).collect();
                let offered = |name: &str| caller[0].tools.iter().any(|tool| tool.name == name);
                assert_eq!(offered(path), allowed, "{what}");
                let refused = results(caller[1])[0].contains("max_recursion_depth_reached");
                assert_eq!(refused, !allowed, "{what}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c35_a_runaway_ends() {
    let always =
        json!([{ "turns": [calls("chaos_spawn", json!({ "count": 3, "prompt": "again" })), says("done")] }]);
    for (limits, runs) in [
        (limits(|_| ()), 1 + 3 + 9 + 27),
        (limits(|limits| limits.total = Limit::At(20)), 20),
        (limits(|limits| limits.live = Limit::At(2)), 40),
        (limits(|limits| (limits.live, limits.total) = (Limit::At(1), Limit::At(7))), 7),
    ] {
        let played = Stage::new(always.clone()).tree_limits(limits).play().await;
        assert_eq!(played.outcome, SubAgentOutcome::completed("done"), "{limits:?}");
        assert_eq!(played.tree().len(), runs, "{limits:?}");
    }
    // Where nobody waits, the ones that are too many are refused.
    let full = limits(|limits| (limits.live, limits.when_full) = (Limit::At(2), WhenFull::Refuse));
    let slow = json!([{ "turns": [
        { "delay_ms": 10, "tool_calls": [{ "name": "chaos_spawn", "arguments": { "count": 3, "prompt": "again" } }] },
        says("done"),
    ] }]);
    let played = Stage::new(slow).tree_limits(full).play().await;
    let lines = played.timeline();
    assert_eq!(played.outcome, SubAgentOutcome::completed("done"));
    assert!(played.tree().len() < 40 && lines.contains("max_live_runs_reached"), "{lines}");
    assert!(!lines.contains("(refused)"), "{lines}");
}

#[tokio::test(start_paused = true)]
async fn c36_every_permit_comes_back() {
    let wave = delegates(&["ok", "error", "panic", "cut", "slow"]);
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [wave, wave, wave, says("done")] },
        { "when": { "title": "ok" }, "turns": [says("ok")] },
        { "when": { "title": "error" }, "turns": [{ "error": { "kind": "auth", "message": "no key" } }] },
        { "when": { "title": "panic" }, "turns": [calls("chaos_panic", json!({}))] },
        { "when": { "title": "cut" }, "turns": [{ "text": "ha", "stop": null }] },
        { "when": { "title": "slow" }, "turns": [{ "delay_ms": 50, "text": "slow" }] },
    ]);
    for live in [1, 2, 6] {
        // What a test's root checks at its end: all permits are free.
        let played = Stage::new(agents.clone())
            .tree_limits(limits(|limits| limits.live = Limit::At(live)))
            .play()
            .await;
        assert_eq!(played.outcome, SubAgentOutcome::completed("done"));
        assert_eq!(played.tree().len(), 16);
        // And when the tree is cancelled while some are queued.
        let cancelled = Stage::new(agents.clone())
            .tree_limits(limits(|limits| limits.live = Limit::At(live)))
            .cancel_when(|body| matches!(body, MessageBody::ToolResultUpdate(_)))
            .await;
        assert!(!cancelled.outcome.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn c37_runs_that_wait_for_children_hold_no_permit() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["a", "b", "c", "d", "e"]), says("done")] },
        { "when": { "depth": 1 }, "turns": [delegates(&["child"]), says("up")] },
        { "turns": [{ "delay_ms": 10, "text": "down" }] },
    ]);
    for live in [1, 2, 4] {
        let played = Stage::new(agents.clone())
            .tree_limits(limits(|limits| limits.live = Limit::At(live)))
            .play()
            .await;
        assert_eq!(results(&played.model.of("work")[1]), ["up"; 5]);
    }
}

/// Subtasks that may take a second each.
fn timed() -> Toolset {
    let second = RunLimits { wall: Limit::At(Duration::from_secs(1)), ..RunLimits::default() };
    let tools = chaos::add_to(&Toolset::new()).unwrap();
    let tools = tools.with_sub_agent(RunSubtask::default().limited(second)).unwrap();
    tools.with_sub_agent(RunSearch::default().limited(second)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn c38_children_with_a_deadline() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["ok", "hang", "ok", "hang", "hang"]), says("done")] },
        { "when": { "title": "ok" }, "turns": [{ "delay_ms": 200, "text": "in time" }] },
        { "turns": [{ "text": "so far", "hang": true }] },
    ]);
    let start = tokio::time::Instant::now();
    let played = Stage::new(agents).tools(timed()).play().await;
    assert!((1000..1100).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    assert_eq!(played.outcome, SubAgentOutcome::completed("done"));
    let request = &played.model.of("work")[1];
    let texts = results(request);
    assert_eq!((texts[0], texts[2]), ("in time", "in time"));
    for at in [1, 3, 4] {
        let result: Value = serde_json::from_str(texts[at]).unwrap();
        assert_eq!((&result["stop_class"], &result["partial"]), (&json!("timeout"), &json!("so far")));
    }
}

#[tokio::test(start_paused = true)]
async fn c39_siblings_harm_each_other_in_no_way() {
    let busy = json!({ "error": { "kind": "rate_limit", "message": "slow down", "retry_after_ms": 100 } });
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["ok", "error", "panic", "hang", "busy"]), says("done")] },
        { "when": { "title": "ok" }, "turns": [{ "delay_ms": 300, "text": "fine" }] },
        { "when": { "title": "error" }, "turns": [{ "error": { "kind": "auth", "message": "no key" } }] },
        { "when": { "title": "panic" }, "turns": [calls("chaos_panic", json!({}))] },
        { "when": { "title": "hang" }, "turns": [calls("chaos_hang", json!({}))] },
        { "when": { "title": "busy" }, "turns": [busy], "then": "repeat" },
    ]);
    let played = Stage::new(agents).tools(timed()).play().await;
    let ends = ["ok", "error", "panic", "hang", "busy"].map(|name| played.end_of(&format!("root/{name}")));
    assert_eq!(
        ends,
        [
            "done \"fine\"",
            "failed (provider): the model call failed (auth): no key",
            "failed (panic): the tool chaos_panic panicked: chaos_panic was called",
            "stopped (wall)",
            "failed (provider): the model call failed (rate_limit): slow down",
        ]
    );
    assert_eq!(results(&played.model.of("work")[1])[0], "fine");
    assert_eq!(played.outcome, SubAgentOutcome::completed("done"));
}

#[tokio::test(start_paused = true)]
async fn c40_a_herd_that_was_told_to_wait() {
    let titles = ["a", "b", "c", "d", "e"];
    let busy = json!({ "error": { "kind": "rate_limit", "message": "slow down", "retry_after_ms": 1000 } });
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&titles), says("done")] },
        { "turns": [busy, says("answer")] },
    ]);
    let played = Stage::new(agents).play().await;
    assert_eq!(results(&played.model.of("work")[1]), ["answer"; 5]);
    let waits: BTreeSet<u64> = played
        .log
        .iter()
        .filter_map(|message| match message.body() {
            MessageBody::Retrying(wait) => Some(wait.delay_ms),
            _ => None,
        })
        .collect();
    // Nobody comes back earlier than asked, and they do not come all at once.
    assert!(waits.len() > 1 && waits.iter().all(|wait| (1000..=1250).contains(wait)), "{waits:?}");
    for title in titles {
        assert_eq!(played.model.of(title).len(), 2);
    }
}

/// C53: a child's messages are at the root when they are said, not when the child is done, by every way to spawn.
#[tokio::test(start_paused = true)]
async fn c53_the_first_message_of_a_child_is_live() {
    for (name, args) in [
        ("run_subtask", json!({ "description": "x", "prompt": "x" })),
        ("run_search", json!({ "query": "x" })),
        ("chaos_spawn", json!({ "count": 1, "prompt": "x" })),
    ] {
        let tick = json!({ "name": "chaos_sleep", "arguments": { "ms": 3000 } });
        let mut turns =
            vec![json!({ "chunks": ["a", "b"], "chunk_delay_ms": 500, "tool_calls": [tick] }); 10];
        turns.push(says("done"));
        let agents = json!([{ "when": { "depth": 0 }, "turns": [calls(name, args), says("done")] }, { "turns": turns }]);
        let start = tokio::time::Instant::now();
        let seen = std::sync::Mutex::new(Vec::new());
        let played = Stage::new(agents)
            .play_with(|_, message| {
                let nesting = message.nesting().unwrap();
                seen.lock().unwrap().push((nesting.time, start.elapsed(), nesting.origin.subtask_depth));
                false
            })
            .await;
        let seen = seen.into_inner().unwrap();
        assert_eq!(seen.len(), played.log.len());
        let begun = seen[0].0;
        for (said, seen, _) in &seen {
            let lag = seen.as_millis().abs_diff(said.since(begun).as_millis());
            assert!(lag < 100, "{name}: said at {:?}, seen at {seen:?}", said.since(begun));
        }
        let first = seen.iter().find(|(_, _, depth)| *depth == 1).unwrap();
        assert!(first.1 < Duration::from_millis(100));
    }
}

#[tokio::test(start_paused = true)]
async fn ax5_a_deadline_of_the_root_ends_its_children_as_its_own() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["a"]), says("done")] },
        { "turns": [{ "text": "so far", "hang": true }] },
    ]);
    let mut agents = agents;
    agents[0]["turns"][0]["delay_ms"] = json!(10);
    let limit = RunLimits { wall: Limit::At(Duration::from_secs(5)), ..RunLimits::default() };
    let played = Stage::new(agents).run_limits(limit).play().await;
    assert_eq!(played.end_of("root"), "stopped (wall)");
    let by = CancelledBy::DeadlineOfParent;
    assert_eq!(played.end_of("root/a"), format!("cancelled by {by}, partial \"so far\""));
}
