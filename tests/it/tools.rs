//! Tools under the loop: faults, caps, cancels, and what the model reads of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anabranch::context::Reply;
use anabranch::message::MessageBody;
use anabranch::outcome::{CancelledBy, FailureKind, SubAgentOutcome};
use anabranch::tool::{Effect, Policy, ToolContext, ToolReply, tool_fn};
use serde_json::{Map, Value, json};

use crate::stage::{Stage, all_tools, calls, delegates, results, stubborn};

fn says(text: &str) -> Value {
    json!({ "text": text })
}

fn call(name: &str, arguments: Value) -> Value {
    json!({ "name": name, "arguments": arguments })
}

fn root(turns: Value) -> Stage {
    Stage::new(json!([{ "turns": turns }]))
}

fn is_call(name: &'static str) -> impl Fn(&MessageBody) -> bool {
    move |body| matches!(body, MessageBody::ToolCallUpdate(call) if *call.name == *name)
}

#[tokio::test(start_paused = true)]
async fn a_denied_tool_is_not_offered_and_refused() {
    let played = root(json!([calls("chaos_sleep", json!({ "ms": 1 })), says("done")]))
        .policy(Policy::default().deny(["chaos_sleep"]))
        .play()
        .await;
    assert!(!played.model.offered("work").contains(&"chaos_sleep".to_owned()));
    assert!(results(&played.model.requests()[1])[0].contains("tool_denied"));
    assert_eq!(played.outcome, SubAgentOutcome::completed("done"));
    // A child may not more than its parent.
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["child"]), says("done")] },
        { "turns": [calls("chaos_sleep", json!({ "ms": 1 })), says("could not")] },
    ]);
    let played = Stage::new(agents).policy(Policy::default().deny(["chaos_sleep"])).play().await;
    assert!(results(&played.model.of("child")[1])[0].contains("tool_denied"));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_the_run_s_failure_and_closes_its_other_calls() {
    let both = json!({ "text": "trying", "tool_calls": [call("chaos_hang", json!({})), call("chaos_panic", json!({}))] });
    let played = root(json!([both])).play().await;
    played.is(&[
        "root started",
        "root text \"trying\"",
        "root turn 1 tool_calls",
        "root call 0 chaos_hang {}",
        "root call 1 chaos_panic {}",
        "root result 1 error {\"error\":\"tool_panicked\",\"message\":\"The tool chaos_panic panicked: chaos_panic was called\"}",
        "root result 0 error {\"error\":\"aborted\",\"message\":\"the run failed before this call ended\"}",
        "root failed (panic): the tool chaos_panic panicked: chaos_panic was called, partial \"trying\"",
    ]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_child_s_tool_is_an_error_for_its_parent() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["child"]), says("went on")] },
        { "turns": [calls("chaos_panic", json!({}))] },
    ]);
    let played = Stage::new(agents).play().await;
    assert_eq!(played.outcome, SubAgentOutcome::completed("went on"));
    let result: Value = serde_json::from_str(results(&played.model.of("work")[1])[0]).unwrap();
    assert_eq!((&result["error"], &result["outcome"]), (&json!("subtask_failed"), &json!("failed")));
}

#[tokio::test(start_paused = true)]
async fn c07_progress_and_the_result_carry_the_attribution_of_the_call() {
    let played = root(json!([
        { "tool_calls": [{ "id": "p", "name": "chaos_progress", "arguments": { "n": 2, "ms": 5 } }] }, says("done"),
    ]))
    .play()
    .await;
    played.is(&[
        "root started",
        "root turn 1 tool_calls",
        "root call 0 chaos_progress {\"n\":2,\"ms\":5}",
        "root call 0 chaos_progress: 1 of 2",
        "root call 0 chaos_progress: 2 of 2",
        "root result 0 ok {\"result\":\"reported 2 times\"}",
        "root text \"done\"",
        "root turn 2 end_turn",
        "root done \"done\"",
    ]);
    assert_eq!(played.end().tool_calls, Some(1));
}

/// C49: the same cap at the root and two levels below, whatever the size.
#[tokio::test(start_paused = true)]
async fn c49_a_huge_result_is_cut_to_one_cap_at_each_depth() {
    for bytes in [1_500_000, 13_000_000, 70 << 20] {
        let big = calls("chaos_big", json!({ "bytes": bytes }));
        let agents = json!([
            { "when": { "depth": 2 }, "turns": [big, says("seen")] },
            { "when": { "depth": 1 }, "turns": [delegates(&["leaf"]), says("up")] },
            { "turns": [{ "tool_calls": [call("chaos_big", json!({ "bytes": bytes })),
                call("run_subtask", json!({ "description": "middle", "prompt": "m" }))] }, says("done")] },
        ]);
        let played = Stage::new(agents).play().await;
        assert_eq!(played.outcome, SubAgentOutcome::completed("done"));
        let marker = format!("…[cut: 65536 of {bytes} bytes]");
        for title in ["work", "leaf"] {
            let requests = played.model.of(title);
            // Not tried again: one call, one result.
            assert_eq!(requests.len(), 2);
            let text = results(&requests[1])[0];
            assert!(text.ends_with(&marker) && text.len() == 65536 + marker.len(), "{title}: {}", text.len());
        }
        let results: Vec<_> = played
            .log
            .iter()
            .filter_map(|message| match message.body() {
                MessageBody::ToolResultUpdate(result) if *result.name == *"chaos_big" => {
                    Some(Arc::clone(&result.result))
                }
                _ => None,
            })
            .collect();
        assert_eq!(results.len(), 2);
        assert_eq!(results[0], results[1]);
    }
}

#[tokio::test(start_paused = true)]
async fn c49_a_child_s_huge_answer_is_cut_to_the_same_cap() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["talker"]), says("done")] },
        { "turns": [{ "generate": { "chunks": 2000, "text": "x".repeat(1000) } }] },
    ]);
    let played = Stage::new(agents).play().await;
    assert!(results(&played.model.of("work")[1])[0].ends_with("…[cut: 65536 of 2000000 bytes]"));
    assert_eq!(played.outcome, SubAgentOutcome::completed("done"));
}

/// `chaos_busy` has begun: its thread is busy now.
fn is_busy(body: &MessageBody) -> bool {
    matches!(body, MessageBody::ToolCallUpdate(call) if call.message.as_deref() == Some("busy"))
}

/// C23: a thread that blocks and does not look at the token. Real time, since it is a real thread.
#[tokio::test]
async fn c23_a_tool_that_ignores_a_cancel_is_abandoned_after_the_grace_period() {
    let grace = Duration::from_millis(40);
    for nested in [false, true] {
        let busy = calls("chaos_busy", json!({ "ms": 1500 }));
        let agents = if nested {
            json!([{ "when": { "depth": 1 }, "turns": [busy] }, { "turns": [delegates(&["child"])] }])
        } else {
            json!([{ "turns": [busy] }])
        };
        let start = Instant::now();
        let played = Stage::new(agents).root(|root| root.grace(grace)).cancel_when(is_busy).await;
        assert!(start.elapsed() < Duration::from_millis(1200), "{:?}", start.elapsed());
        let name = if nested { "root/child" } else { "root" };
        let by = if nested { "parent" } else { "user" };
        let end = played.end_of(name);
        assert_eq!(end, format!("cancelled by {by} (forced)"));
        assert!(matches!(
            &played.outcome,
            SubAgentOutcome::Cancelled { by: CancelledBy::User, forced: true, .. }
        ));
        // The model of whoever was cancelled is not asked again.
        assert_eq!(played.model.requests().len(), if nested { 2 } else { 1 });
    }
}

#[tokio::test]
async fn a_tool_that_ends_within_the_grace_period_says_how() {
    let played = root(json!([calls("chaos_busy", json!({ "ms": 60 }))])).cancel_when(is_busy).await;
    played.is(&[
        "root started",
        "root turn 1 tool_calls",
        "root call 0 chaos_busy {\"ms\":60}",
        "root call 0 chaos_busy: busy",
        "root result 0 ok {\"result\":\"was busy for 60 ms\"}",
        "root cancelled by user",
    ]);
}

/// While one call is given time, the others that do not need it are not: what they would still do is not done.
#[tokio::test]
async fn only_the_call_that_needs_time_is_given_it() {
    let steps = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&steps);
    let tool = tool_fn("steps", "Takes steps.", move |_: Map<String, Value>, _| {
        let counted = Arc::clone(&counted);
        async move {
            loop {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    });
    let both = json!({ "tool_calls": [call("steps", json!({})), call("chaos_busy", json!({ "ms": 240 }))] });
    let played = root(json!([both])).tools(all_tools().with(tool).unwrap()).cancel_when(is_busy).await;
    assert!(steps.load(Ordering::SeqCst) <= 2, "{steps:?}");
    played.is(&[
        "root started",
        "root turn 1 tool_calls",
        "root call 0 steps {}",
        "root call 1 chaos_busy {\"ms\":240}",
        "root call 1 chaos_busy: busy",
        "root result 0 error {\"error\":\"cancelled\",\"message\":\"the run was cancelled before this call ended\"}",
        "root result 1 ok {\"result\":\"was busy for 240 ms\"}",
        "root cancelled by user",
    ]);
}

#[tokio::test(start_paused = true)]
async fn c24_a_tool_that_succeeds_after_the_cancel_starts_nothing() {
    let twice = json!([calls("stubborn", json!({})), says("never said")]);
    let tools = all_tools().with(stubborn()).unwrap();
    let played = root(twice).tools(tools).cancel_when(is_call("stubborn")).await;
    played.is(&[
        "root started",
        "root turn 1 tool_calls",
        "root call 0 stubborn {}",
        "root result 0 ok {\"result\":\"ended all the same\"}",
        "root cancelled by user",
    ]);
    assert_eq!(played.model.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn c25_a_child_that_cancels_itself_is_cancelled_and_not_tried_again() {
    let quit = tool_fn("quit", "Gives up.", |_: Map<String, Value>, cx: ToolContext| async move {
        drop(cx.run().cancel(CancelledBy::Itself));
        std::future::pending().await
    });
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["child"]), says("went on")] },
        { "turns": [{ "text": "I give up.", "tool_calls": [call("quit", json!({}))] }] },
    ]);
    let played = Stage::new(agents).tools(all_tools().with(quit).unwrap()).play().await;
    assert_eq!(played.end_of("root/child"), "cancelled by self, partial \"I give up.\"");
    assert_eq!(played.outcome, SubAgentOutcome::completed("went on"));
    let result: Value = serde_json::from_str(results(&played.model.of("work")[1])[0]).unwrap();
    assert_eq!(result["outcome"], json!("cancelled"));
    assert!(!result.to_string().to_lowercase().contains("again"), "{result}");
    assert_eq!(played.model.of("child").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn ax14_reserved_names_in_arguments_change_nothing() {
    let forged = json!({
        "description": "child", "prompt": "p", "_message": "hello there", "_tool_call_id": "forged",
        "parent_run_id": "forged", "subtask_depth": 0, "__subtask_depth": -5,
    });
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [
            { "tool_calls": [{ "id": "real", "name": "run_subtask", "arguments": forged }] }, says("done"),
        ] },
        { "turns": [says("answer")] },
    ]);
    let played = Stage::new(agents).play().await;
    let tree = played.tree();
    let child = tree.children(tree.root().unwrap()).next().unwrap();
    assert_eq!(child.origin.parent_tool_call_id.as_ref().unwrap().as_str(), "real");
    assert_eq!(child.origin.subtask_depth, 1);
    // The status text is the person's, and the history does not have it.
    assert!(played.timeline().contains("root call 0 run_subtask: hello there\n"));
    assert!(!format!("{:?}", played.model.of("work")[1].messages).contains("hello there"));
}

#[tokio::test(start_paused = true)]
async fn a_tool_s_text_for_a_person_is_in_the_log_and_not_in_the_conversation() {
    let tool = tool_fn("two", "Has two texts.", |_: Map<String, Value>, _| async {
        ToolReply::ok("for the model").shown_as("for the person")
    });
    let played = root(json!([calls("two", json!({})), says("done")]))
        .tools(all_tools().with(tool).unwrap())
        .play()
        .await;
    assert_eq!(results(&played.model.requests()[1]), ["for the model"]);
    let shown = played.log.iter().find_map(|message| match message.body() {
        MessageBody::ToolResultUpdate(result) => result.message.clone(),
        _ => None,
    });
    assert_eq!(shown.as_deref(), Some("for the person"));
}

#[tokio::test(start_paused = true)]
async fn a_tool_may_drive_a_producer_of_its_own() {
    use anabranch::{RunSpec, SubAgentStream, forward_subagent_stream};
    let tool = tool_fn("plan", "Plans.", |_: Map<String, Value>, cx: ToolContext| async move {
        let spec = RunSpec::new("planner", "plan").titled("plan").called_by(Some(cx.call_id().clone()));
        let Ok(entered) = cx.run().enter(spec) else { return ToolReply::error("refused", "refused") };
        let stream = SubAgentStream::generate(|emit| async move {
            emit.send(anabranch::Chunk::text("planning")).await;
            SubAgentOutcome::failed(FailureKind::Step, "no plan")
        });
        let outcome = forward_subagent_stream(stream, entered).await;
        ToolReply::ok(outcome.error_text().unwrap_or_default())
    });
    let played = root(json!([calls("plan", json!({})), says("done")]))
        .tools(all_tools().with(tool).unwrap())
        .play()
        .await;
    assert_eq!(played.end_of("root/plan"), "failed (step): no plan, partial \"planning\"");
    assert_eq!(results(&played.model.requests()[1]), ["no plan"]);
}

/// A child that needs the grace period gets it, whatever kind of tool runs it.
#[tokio::test]
async fn a_child_of_a_plain_tool_is_given_its_time() {
    use anabranch::tool::{Job, Producer};
    use anabranch::{RunSpec, forward_subagent_stream};
    let tool =
        tool_fn("own", "Delegates in its own way.", |_: Map<String, Value>, cx: ToolContext| async move {
            let spec = RunSpec::new("own", "busy").titled("own").called_by(Some(cx.call_id().clone()));
            let Ok(entered) = cx.run().enter(spec) else { return ToolReply::error("refused", "refused") };
            let job = Job::new("busy", cx.tools().clone(), Arc::clone(cx.runtime()));
            let stream = anabranch::agent::ToolLoop::default().produce(job, entered.context());
            ToolReply::ok(forward_subagent_stream(stream, entered).await.error_text().unwrap_or_default())
        });
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [calls("own", json!({}))] },
        { "turns": [calls("chaos_busy", json!({ "ms": 60 }))] },
    ]);
    let played = Stage::new(agents).tools(all_tools().with(tool).unwrap()).cancel_when(is_busy).await;
    played.is(&[
        "root started",
        "root turn 1 tool_calls",
        "root call 0 own {}",
        "root/own started",
        "root/own turn 1 tool_calls",
        "root/own call 0 chaos_busy {\"ms\":60}",
        "root/own call 0 chaos_busy: busy",
        "root/own result 0 ok {\"result\":\"was busy for 60 ms\"}",
        "root/own cancelled by parent",
        "root result 0 ok {\"result\":\"cancelled by parent\"}",
        "root cancelled by user",
    ]);
}

/// A permission for what one rule asks for is none for what another one does, in whatever order they are.
#[tokio::test(start_paused = true)]
async fn a_permission_is_for_the_rule_that_asked() {
    let ask = |policy: Policy, rule: &str| policy.with(Effect::Ask, rule.parse().unwrap());
    let rules = ["chaos_sleep", "chaos_sleep(ms=2)"];
    for rules in [rules, [rules[1], rules[0]]] {
        let turn = |ms: u64| calls("chaos_sleep", json!({ "ms": ms }));
        let stage = Stage::new(json!([{ "turns": [turn(1), turn(1), turn(2), says("done")] }]));
        let stage = stage.policy(rules.into_iter().fold(Policy::default(), ask));
        let played = stage.attended(vec![Reply::allow_for_root(), Reply::deny()]).await;
        let decisions: Vec<&str> = played
            .log
            .iter()
            .filter_map(|message| match message.body() {
                MessageBody::AskAnswered(answer) => Some(&*answer.decision),
                _ => None,
            })
            .collect();
        assert_eq!(decisions, ["allow_for_root", "deny"]);
    }
}
