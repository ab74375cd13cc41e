//! Situations reported against other systems, each as one timeline on the tool loop.

use std::time::Duration;

use anabranch::budget::{Limit, TreeLimits};
use anabranch::message::MessageBody;
use anabranch::model::ChatMessage;
use anabranch::outcome::{CancelledBy, StopClass, SubAgentOutcome};
use anabranch::tool::{ToolContext, ToolReply, tool_fn};
use serde_json::{Map, Value, json};

use crate::stage::{Stage, all_tools, calls, delegates, results};

fn says(text: &str) -> Value {
    json!({ "text": text })
}

fn root(turns: Value) -> Stage {
    Stage::new(json!([{ "turns": turns }]))
}

fn sleep(id: &str, ms: u64) -> Value {
    json!({ "id": id, "name": "chaos_sleep", "arguments": { "ms": ms } })
}

#[tokio::test(start_paused = true)]
async fn c01_children_whose_provider_reuses_an_id_stay_apart() {
    let agents = json!([
        { "when": { "title": "quick" }, "turns": [{ "tool_calls": [sleep("call_0", 10)] }, says("quick done")] },
        { "when": { "title": "slow" }, "turns": [{ "tool_calls": [sleep("call_0", 5000)] }, says("slow done")] },
        { "turns": [delegates(&["quick", "slow"]), says("done")] },
    ]);
    let played = Stage::new(agents)
        .play_with(|root, message| {
            let slow = message.nesting().filter(|nesting| nesting.origin.subtask_depth == 1);
            let is_second = matches!(message.body(), MessageBody::ToolCallUpdate(call)
                if *call.args == serde_json::Map::from_iter([("ms".to_owned(), json!(5000))]));
            if let Some(slow) = slow.filter(|_| is_second) {
                drop(root.cancel(&slow.origin.run_id, CancelledBy::User).unwrap());
            }
            is_second
        })
        .await;
    played.is(&[
        "root started",
        "root turn 1 tool_calls",
        "root call 0 run_subtask: Running subtask: quick",
        "root call 1 run_subtask: Running subtask: slow",
        "root/quick started",
        "root/quick turn 1 tool_calls",
        "root/quick call 0 chaos_sleep {\"ms\":10}",
        "root/slow started",
        "root/slow turn 1 tool_calls",
        "root/slow call 0 chaos_sleep {\"ms\":5000}",
        "root/slow result 0 error {\"error\":\"cancelled\",\"message\":\"the run was cancelled before this call ended\"}",
        "root/slow cancelled by user",
        "root result 1 error {\"error\":\"subtask_failed\",\"message\":\"cancelled by user\",\"description\":\"slow\",\"outcome\":\"cancelled\"…",
        "root/quick result 0 ok {\"result\":\"slept 10 ms\"}",
        "root/quick text \"quick done\"",
        "root/quick turn 2 end_turn",
        "root/quick done \"quick done\"",
        "root result 0 ok {\"result\":\"quick done\"}",
        "root text \"done\"",
        "root turn 2 end_turn",
        "root done \"done\"",
    ]);
}

#[tokio::test(start_paused = true)]
async fn c02_c03_ids_that_are_twice_or_missing() {
    for ids in [["call_0", "call_0"], ["", ""]] {
        let played = root(json!([
            { "tool_calls": [sleep(ids[0], 20), sleep(ids[1], 10)] },
            { "tool_calls": [sleep(ids[0], 30), sleep(ids[1], 40)] },
            says("done"),
        ]))
        .play()
        .await;
        // The script model has accepted the history: every id is there once, every call has one result.
        assert_eq!(played.outcome, SubAgentOutcome::completed("done"));
        let slept = ["slept 20 ms", "slept 10 ms", "slept 30 ms", "slept 40 ms"];
        assert_eq!(results(&played.model.requests()[2]), slept);
        let labels: std::collections::HashSet<String> = played
            .log
            .iter()
            .filter_map(|message| match message.body() {
                MessageBody::ToolCallUpdate(call) => Some(call.tool_call_id.to_string()),
                _ => None,
            })
            .collect();
        assert!(labels.len() == 4 && !labels.contains(""), "{labels:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn c04_the_same_sub_agent_twice_in_one_turn() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [{ "tool_calls": [
            { "name": "run_subtask", "arguments": { "description": "same", "prompt": "A" } },
            { "name": "run_subtask", "arguments": { "description": "same", "prompt": "B" } },
        ] }, says("done")] },
        { "when": { "prompt": "A" }, "turns": [calls("chaos_sleep", json!({ "ms": 20 })), says("a")] },
        { "when": { "prompt": "B" }, "turns": [calls("chaos_sleep", json!({ "ms": 10 })), says("b")] },
    ]);
    let played = Stage::new(agents).play().await;
    assert_eq!(results(&played.model.of("work")[1]), ["a", "b"]);
    assert_eq!(
        (played.end_of("root/same"), played.end_of("root/same#2")),
        ("done \"a\"".into(), "done \"b\"".into())
    );
    // Neither saw anything of the other.
    for request in played.model.of("same") {
        let ChatMessage::User { text } = &request.messages[0] else { panic!() };
        assert_eq!(**text, *request.run.prompt);
        assert!(request.messages.len() == 1 || request.messages.len() == 3);
    }
}

#[tokio::test(start_paused = true)]
async fn c08_texts_that_interleave_stay_with_their_runs() {
    let text = |word: &str| json!({ "thinking": "t".to_owned() + word, "chunks": word.chars().map(String::from).collect::<Vec<_>>(), "chunk_delay_ms": 1 });
    let agents = json!([
        { "when": { "title": "one" }, "turns": [text("abcdefgh")] },
        { "when": { "title": "two" }, "turns": [text("ABCDEFGH")] },
        { "turns": [delegates(&["one", "two"]), says("done")] },
    ]);
    let played = Stage::new(agents).play().await;
    assert_eq!(results(&played.model.of("work")[1]), ["abcdefgh", "ABCDEFGH"]);
    for (title, own) in [("one", "abcdefgh"), ("two", "ABCDEFGH")] {
        let text = |thinking: bool| -> String {
            let tree = played.tree();
            let pieces = played.log.iter().filter_map(|message| match message.body() {
                MessageBody::Chunk(chunk) if chunk.thinking == thinking => {
                    let node = tree.node(&message.nesting()?.origin.run_id)?;
                    (node.title() == title).then(|| chunk.content.to_string())
                }
                _ => None,
            });
            pieces.collect()
        };
        assert_eq!((text(false), text(true)), (own.to_owned(), format!("t{own}")));
    }
}

#[tokio::test(start_paused = true)]
async fn c09_the_parent_s_history_has_nothing_of_its_children_but_their_answers() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["child"]), says("done")] },
        { "turns": [{ "thinking": "secret", "text": "between", "tool_calls": [sleep("x", 1)] }, says("answer")] },
    ]);
    let played = Stage::new(agents).play().await;
    let history = &played.model.of("work")[1].messages;
    assert_eq!(history.len(), 3);
    assert_eq!(results(&played.model.of("work")[1]), ["answer"]);
    let all = format!("{history:?}");
    assert!(!all.contains("secret") && !all.contains("between") && !all.contains("chaos_sleep"), "{all}");
}

#[tokio::test(start_paused = true)]
async fn c10_c14_an_empty_last_turn() {
    let played = root(json!([
        { "text": "It is in a.rs.", "tool_calls": [sleep("a", 1)] },
        { "stop": "end_turn" },
    ]))
    .play()
    .await;
    played.is(&[
        "root started",
        "root text \"It is in a.rs.\"",
        "root turn 1 tool_calls",
        "root call 0 chaos_sleep {\"ms\":1}",
        "root result 0 ok {\"result\":\"slept 1 ms\"}",
        "root turn 2 end_turn",
        "root done \"It is in a.rs.\"",
    ]);
}

#[tokio::test(start_paused = true)]
async fn c12_deltas_without_a_whole_message() {
    let played = root(json!([{ "chunks": ["a", "", "b", "ü"], "chunk_delay_ms": 1 }])).play().await;
    assert_eq!(played.outcome, SubAgentOutcome::completed("abü"));
}

#[tokio::test(start_paused = true)]
async fn c15_a_stream_that_ends_without_a_reason() {
    let played = root(json!([{ "text": "half an ans", "stop": null }])).play().await;
    played.is(&[
        "root started",
        "root text \"half an ans\"",
        "root turn 1 missing",
        "root stopped (truncated), partial \"half an ans\"",
    ]);
    assert_eq!(played.outcome.stop_class(), StopClass::Truncated);
    for arguments in ["", "{\"description\":\"x\",\"prompt\":\"Cou"] {
        let cut = json!({ "name": "run_subtask", "arguments": arguments });
        let played = root(json!([{ "text": "first", "tool_calls": [cut], "stop": null }])).play().await;
        let bytes = arguments.len();
        played.is(&[
            "root started",
            "root text \"first\"",
            "root turn 1 missing",
            "root call 0 run_subtask: Running subtask",
            &format!("root result 0 error {{\"error\":\"truncated\",\"message\":\"The call was cut off: its arguments were truncated at {bytes} bytes, so it was not made. Call again, with shorter arguments.\"}}"),
            "root stopped (truncated), partial \"first\"",
        ]);
        assert_eq!(played.tree().len(), 1);
    }
    // As the child of a run that goes on.
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["cut"]), says("went on")] },
        { "turns": [{ "text": "half", "stop": null }] },
    ]);
    let played = Stage::new(agents).play().await;
    let result: Value = serde_json::from_str(results(&played.model.of("work")[1])[0]).unwrap();
    assert_eq!((&result["stop_class"], &result["partial"]), (&json!("truncated"), &json!("half")));
    assert_eq!(played.outcome, SubAgentOutcome::completed("went on"));
}

#[tokio::test(start_paused = true)]
async fn c16_the_output_limit_inside_a_delegation() {
    let cut = json!({ "name": "run_subtask", "arguments": "{\"description\":\"x\",\"prompt\":\"Cou" });
    let played = root(json!([{ "tool_calls": [sleep("a", 1), cut], "stop": "length" }, says("shorter now")]))
        .play()
        .await;
    assert_eq!(played.outcome, SubAgentOutcome::completed("shorter now"));
    assert_eq!(played.tree().len(), 1);
    let request = &played.model.requests()[1];
    let texts = results(request);
    assert_eq!(texts[0], "slept 1 ms");
    assert!(texts[1].contains("truncated at 32 bytes"), "{}", texts[1]);
}

#[tokio::test(start_paused = true)]
async fn c17_an_error_inside_the_stream() {
    let broken = |chunks: Value| json!({ "chunks": chunks, "error": { "kind": "server", "message": "the provider's words" } });
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["late", "early"]), says("went on")] },
        { "when": { "title": "late" }, "turns": [broken(json!(["good ", "chunks"]))] },
        { "when": { "title": "early" }, "turns": [broken(json!([]))], "then": "repeat" },
    ]);
    let played = Stage::new(agents).play().await;
    let words = "the model call failed (server): the provider's words";
    assert_eq!(played.end_of("root/late"), format!("failed (provider): {words}, partial \"good chunks\""));
    assert_eq!(played.end_of("root/early"), format!("failed (provider): {words}"));
    // What has said something is not said again; what has not is tried again.
    assert_eq!((played.model.of("late").len(), played.model.of("early").len()), (1, 3));
    assert_eq!(played.outcome, SubAgentOutcome::completed("went on"));
}

#[tokio::test(start_paused = true)]
async fn c20_malformed_arguments() {
    let raw = |arguments: &str| json!({ "name": "chaos_hang", "arguments": arguments });
    let long = format!("{{\"a\":\"{}", "x".repeat(1 << 20));
    let played = root(json!([
        { "tool_calls": [raw("{\"a\":"), raw("{\"{\"x\":1}"), raw(&long),
            { "name": "chaos_error", "arguments": "" }] },
        says("done"),
    ]))
    .play()
    .await;
    assert_eq!(played.outcome, SubAgentOutcome::completed("done"));
    let request = &played.model.requests()[1];
    for text in results(request) {
        assert!(text.contains("invalid_tool_arguments") && text.len() < 1000, "{text}");
    }
    // The empty text was read as no arguments: what is wrong then is what the tool's schema says.
    assert!(results(request)[3].contains("required property"));
}

/// C22: the run is cancelled in each phase; it gets one terminal, its children before it, and no call of the model follows.
mod c22_cancel {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn while_queued() {
        let agents = json!([
            { "when": { "depth": 0 }, "turns": [delegates(&["a", "b"]), says("done")] },
            { "turns": [{ "hang": true }] },
        ]);
        let limits = TreeLimits { live: Limit::At(1), ..TreeLimits::default() };
        let played = Stage::new(agents)
            .tree_limits(limits)
            .cancel_when(|body| matches!(body, MessageBody::Queued(_)))
            .await;
        assert_eq!(played.end_of("root/b"), "cancelled by parent");
        assert_eq!(played.end_of("root"), "cancelled by user");
        assert!(played.model.of("b").is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_model_is_silent() {
        let played = root(json!([{ "hang": true }]))
            .cancel_when(|body| matches!(body, MessageBody::RunStarted(_)))
            .await;
        played.is(&["root started", "root cancelled by user"]);
    }

    #[tokio::test(start_paused = true)]
    async fn between_two_tokens() {
        let played = root(json!([{ "generate": { "chunks": 100, "text": "x" }, "chunk_delay_ms": 10 }]))
            .cancel_when(|body| matches!(body, MessageBody::Chunk(_)))
            .await;
        played.is(&["root started", "root text \"x\"", "root cancelled by user, partial \"x\""]);
    }

    #[tokio::test(start_paused = true)]
    async fn while_tools_and_children_run() {
        let both = json!({ "tool_calls": [
            sleep("s", 60_000),
            { "name": "run_subtask", "arguments": { "description": "child", "prompt": "p" } },
        ] });
        let agents = json!([
            { "when": { "depth": 0 }, "turns": [both] },
            { "turns": [{ "text": "thinking aloud", "hang": true }] },
        ]);
        let played = Stage::new(agents).cancel_when(|body| matches!(body, MessageBody::Chunk(_))).await;
        played.is(&[
            "root started",
            "root turn 1 tool_calls",
            "root call 0 chaos_sleep {\"ms\":60000}",
            "root call 1 run_subtask: Running subtask: child",
            "root/child started",
            "root/child text \"thinking aloud\"",
            "root/child cancelled by parent, partial \"thinking aloud\"",
            "root result 0 error {\"error\":\"cancelled\",\"message\":\"the run was cancelled before this call ended\"}",
            "root result 1 error {\"error\":\"cancelled\",\"message\":\"the run was cancelled before this call ended\"}",
            "root cancelled by user",
        ]);
    }

    #[tokio::test(start_paused = true)]
    async fn while_it_waits_to_try_again() {
        let busy = json!({ "error": { "kind": "rate_limit", "message": "busy", "retry_after_ms": 60_000 } });
        let start = tokio::time::Instant::now();
        let played = root(json!([busy, says("never")]))
            .cancel_when(|body| matches!(body, MessageBody::Retrying(_)))
            .await;
        assert!(start.elapsed() < Duration::from_secs(1));
        assert_eq!(played.end_of("root"), "cancelled by user");
        assert_eq!(played.model.requests().len(), 1);
    }

    /// At every message of a run with everything in it, from inside the append: also while it settles.
    #[tokio::test(start_paused = true)]
    async fn while_it_settles_and_everywhere_else() {
        let agents = json!([
            { "when": { "depth": 0 }, "turns": [{ "text": "a", "tool_calls": [sleep("x", 5),
                { "name": "run_subtask", "arguments": { "description": "child", "prompt": "p" } }] }, says("done")] },
            { "turns": [{ "chunks": ["b", "c"], "chunk_delay_ms": 1 }] },
        ]);
        let whole = Stage::new(agents.clone()).play().await.log.len();
        for place in 0..whole as u64 {
            let played = Stage::new(agents.clone())
                .play_with(move |root, message| {
                    let hit = message.nesting().unwrap().seq == place;
                    if hit {
                        drop(root.cancel_all(CancelledBy::User));
                    }
                    hit
                })
                .await;
            let end = played.end_of("root");
            assert!(end.starts_with("cancelled by user") || end == "done \"done\"", "{place}: {end}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c26_what_there_was_is_kept_when_a_run_is_cancelled() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["talker", "worker"]), says("kept")] },
        { "when": { "title": "talker" },
          "turns": [{ "generate": { "chunks": 200, "text": "tok " }, "hang": true }] },
        { "when": { "title": "worker" },
          "turns": [{ "text": "step", "tool_calls": [{ "name": "chaos_sleep", "arguments": { "ms": 1 } }] }],
          "then": "repeat" },
    ]);
    let limits = anabranch::budget::RunLimits { turns: Limit::At(1000), ..Default::default() };
    let played = Stage::new(agents)
        .run_limits(limits)
        .play_with(|root, message| {
            let is_tenth =
                matches!(message.body(), MessageBody::ToolCallUpdate(call) if call.call_index == 9);
            if is_tenth {
                let tree = root.snapshot();
                for child in tree.children(tree.root().unwrap()) {
                    drop(root.cancel(&child.origin.run_id, CancelledBy::User).unwrap());
                }
            }
            is_tenth
        })
        .await;
    assert_eq!(played.outcome, SubAgentOutcome::completed("kept"));
    let request = &played.model.of("work")[1];
    let read: Vec<Value> = results(request).iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    assert_eq!(read[0]["partial"], json!("tok ".repeat(200)));
    assert_eq!(read[1]["partial"], json!("step"));
    let tree = played.tree();
    for (child, result) in tree.children(tree.root().unwrap()).zip(&read) {
        assert_eq!(
            (&result["outcome"], &result["run_id"]),
            (&json!("cancelled"), &json!(child.origin.run_id))
        );
    }
    assert_eq!(
        tree.children(tree.root().unwrap()).nth(1).unwrap().finished.as_ref().unwrap().tool_calls,
        Some(10)
    );
}

#[tokio::test(start_paused = true)]
async fn c27_calls_that_a_cancel_left_open_are_closed() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["two"]), says("went on"), says("unused")] },
        { "turns": [{ "tool_calls": [sleep("a", 10), sleep("b", 60_000)] }] },
    ]);
    let played = Stage::new(agents)
        .play_with(|root, message| {
            let is_first = matches!(message.body(), MessageBody::ToolResultUpdate(_));
            if is_first {
                let run = message.nesting().unwrap().origin.run_id.clone();
                drop(root.cancel(&run, CancelledBy::User).unwrap());
            }
            is_first
        })
        .await;
    // The parent's history was accepted after it, and each of the child's calls has its result.
    assert_eq!(played.outcome, SubAgentOutcome::completed("went on"));
    let lines = played.timeline();
    assert!(lines.contains("root/two result 0 ok {\"result\":\"slept 10 ms\"}\n"), "{lines}");
    assert!(lines.contains("root/two result 1 error {\"error\":\"cancelled\""), "{lines}");
}

#[tokio::test(start_paused = true)]
async fn c29_no_turn_begins_after_the_tree_was_stopped() {
    // All ten results are there at once; the last tool to end has stopped the tree.
    let stop = tool_fn("stop", "Stops the tree.", |_: Map<String, Value>, cx: ToolContext| async move {
        tokio::time::sleep(Duration::from_millis(10)).await;
        drop(cx.run().root().cancel_all(CancelledBy::User));
        ToolReply::ok("stopped")
    });
    let mut ten: Vec<Value> = (0..9).map(|number| sleep(&format!("c{number}"), 10)).collect();
    ten.push(json!({ "id": "stop", "name": "stop" }));
    let played = root(json!([{ "tool_calls": ten }, says("never")]))
        .tools(all_tools().with(stop).unwrap())
        .play()
        .await;
    assert_eq!(played.end_of("root"), "cancelled by user");
    assert_eq!(played.model.requests().len(), 1);
}
