//! CodeAct: what code may do, what a watcher sees of it, and that what it starts ends with it.

use std::sync::Arc;
use std::time::Duration;

use anabranch::agent::RunSubtask;
use anabranch::agent::codeact::{ActionLimits, CodeAct};
use anabranch::budget::{Limit, RunLimits, TreeLimits};
use anabranch::message::MessageBody;
use anabranch::outcome::FailureKind;
use anabranch::testing::check_sub_agent;
use anabranch::tool::{AgentRuntime, Job, Producer, ToolReply, Toolset, tool_fn};
use serde_json::{Map, Value, json};

use crate::stage::{Played, Recorder, Stage, all_tools, results};

fn stage(agents: Value) -> Stage {
    Stage::new(agents).produced_by(CodeAct::default())
}

/// A root that runs these actions, then answers; its children answer.
fn actions(codes: &[&str]) -> Stage {
    let turns = codes.iter().map(|code| json!({ "code": code }));
    let turns: Vec<Value> = turns.chain([json!({ "text": "done" })]).collect();
    stage(json!([
        { "when": { "depth": 0 }, "turns": turns },
        { "turns": [{ "text": "the child's answer" }] },
    ]))
}

/// What the root's model read of its actions.
fn observations(played: &Played) -> Vec<Value> {
    let requests = played.model.requests();
    let last = requests.iter().rfind(|request| request.run.depth == 0).unwrap();
    results(last).iter().map(|text| serde_json::from_str(text).unwrap()).collect()
}

async fn observe(code: &str) -> Value {
    observations(&actions(&[code]).play().await).remove(0)
}

fn quick() -> CodeAct {
    CodeAct::default()
        .with_limits(ActionLimits { wall: Duration::from_millis(300), ..ActionLimits::default() })
}

#[tokio::test]
async fn ac58_code_calls_tools_and_the_log_shows_each_call_before_its_result() {
    let played =
        actions(&["const a = await tools.chaos_sleep({ ms: 0 });\nconsole.log('seen');\nreturn 1 + 1"])
            .play()
            .await;
    played.is(&[
        "root started",
        "root task step_started",
        "root turn 1 tool_calls",
        "root call 0 execute_code: Run the scripted code",
        "root call 1 chaos_sleep {\"ms\":0}",
        "root result 1 ok…",
        "root log info \"seen\"",
        "root result 0 ok {\"ok\":true,\"toolCalls\":1,\"result\":2,\"logs\":[\"seen\"]}",
        "root text \"done\"",
        "root turn 2 end_turn",
        "root task step_completed",
        "root step result \"done\"",
        "root done \"done\"",
    ]);
    assert_eq!(observations(&played), [json!({ "ok": true, "toolCalls": 1, "result": 2, "logs": ["seen"] })]);
    let calls: Vec<_> = played
        .log
        .iter()
        .filter_map(|message| match message.body() {
            MessageBody::ToolCallUpdate(call) => Some((call.call_index, call.via, call.message.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(calls, [(0, None, Some("Run the scripted code".into())), (1, Some(0), None)]);
}

#[tokio::test]
async fn a_call_stands_after_the_result_that_its_program_went_on_with() {
    let played = actions(&["for (let i = 0; i < 40; i++) await tools.chaos_sleep({ ms: 0 })"]).play().await;
    let said = played.log.iter().filter_map(|message| match message.body() {
        MessageBody::ToolCallUpdate(call) => Some(("call", call.call_index)),
        MessageBody::ToolResultUpdate(result) => Some(("result", result.call_index)),
        _ => None,
    });
    let expected = (1..=40).flat_map(|index| [("call", index), ("result", index)]);
    assert!(said.filter(|(_, index)| *index > 0).eq(expected), "{}", played.timeline());
}

#[tokio::test(start_paused = true)]
async fn children_of_code_run_at_once_and_stand_below_their_calls() {
    let code = "return await Promise.all(['a', 'b'].map(name => tools.run_subtask({ description: name, prompt: name })))";
    let played = stage(json!([
        { "when": { "depth": 0 }, "turns": [{ "code": code }, { "text": "done" }] },
        { "turns": [{ "chunks": ["an ", "answer"], "chunk_delay_ms": 5 }] },
    ]))
    .play()
    .await;
    assert_eq!(observations(&played)[0]["result"], json!(["an answer", "an answer"]));
    let timeline = played.timeline();
    let at = |line: &str| timeline.find(line).unwrap_or_else(|| panic!("{line} is not in\n{timeline}"));
    // Each was announced before it began (AX-3), and both began before either ended.
    assert!(at("root call 1 run") < at("root/a started") && at("root call 2 run") < at("root/b started"));
    assert!(at("root/b started") < at("root/a done"), "{timeline}");
    let tree = played.tree();
    let parents: Vec<_> = tree.nodes().filter_map(|node| node.origin.parent_tool_call_id.clone()).collect();
    assert_eq!(parents.len(), 2);
    assert_ne!(parents[0], parents[1]);
}

#[tokio::test]
async fn ax6_siblings_that_spawn_from_code_have_distinct_call_ids() {
    let code = "return await tools.run_subtask({ description: 'leaf', prompt: 'leaf' })";
    let both = "return await Promise.all(['a', 'b'].map(name => tools.run_subtask({ description: name, prompt: name })))";
    let played = stage(json!([
        { "when": { "depth": 0 }, "turns": [{ "code": both }, { "text": "done" }] },
        { "when": { "depth": 1 }, "turns": [{ "code": code }, { "text": "middle" }] },
        { "turns": [{ "text": "leaf" }] },
    ]))
    .play()
    .await;
    let mut ids: Vec<String> = played
        .log
        .iter()
        .filter_map(|message| match message.body() {
            MessageBody::ToolCallUpdate(call) if call.via.is_some() => Some(call.tool_call_id.to_string()),
            _ => None,
        })
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4);
}

#[tokio::test]
async fn ac61_ac62_a_crashed_action_does_not_end_the_run() {
    let played = actions(&[
        "try { await tools.chaos_error({ message: 'so be it' }) } catch (error) { return [error.code, error.message, error.data.error] }",
        "const x = 1;\nawait tools.chaos_error({ message: 'loud' })",
        "return 7",
    ])
    .play()
    .await;
    let seen = observations(&played);
    assert_eq!(seen[0]["result"][1], json!("tools.chaos_error: so be it"));
    assert_eq!(seen[0]["result"][0], seen[0]["result"][2]);
    assert_eq!((&seen[1]["ok"], &seen[1]["error"]), (&json!(false), &json!("tools.chaos_error: loud")));
    let stack = seen[1]["stack"].as_str().unwrap();
    assert!(
        stack.contains("action:2:") && stack.contains("your code, line 2: await tools.chaos_error"),
        "{stack}"
    );
    assert_eq!(seen[2]["result"], json!(7));
    assert_eq!(played.end_of("root"), "done \"done\"");
}

#[tokio::test]
async fn unknown_tools_bad_arguments_and_code_in_code_are_exceptions_with_a_result_each() {
    let code = "const seen = [];
        for (const call of [() => tools.nope({}), () => tools.chaos_sleep({ ms: 'x' }), () => tools.chaos_sleep(5), () => tools.execute_code({ code: 'return 1' })]) {
            try { await call(); seen.push('fine') } catch (error) { seen.push(error.code) }
        }
        return seen";
    let played = actions(&[code]).play().await;
    let expected =
        json!(["unknown_tool", "invalid_tool_arguments", "invalid_tool_arguments", "unknown_tool"]);
    assert_eq!(observations(&played)[0]["result"], expected);
    let results =
        played.log.iter().filter(|message| matches!(message.body(), MessageBody::ToolResultUpdate(_)));
    assert_eq!(results.count(), 5);
}

#[tokio::test]
async fn an_action_calls_so_many_tools_and_no_more() {
    let code = "let calls = 0; try { for (;;) { await tools.chaos_sleep({ ms: 0 }); calls++ } } catch (error) { return [calls, error.code] }";
    assert_eq!(observe(code).await["result"], json!([50, "max_tool_calls_reached"]));
}

fn structured(codes: &[Value]) -> Stage {
    let schema = json!({ "type": "object", "required": ["n"], "properties": { "n": { "type": "integer" } } });
    stage(json!([{ "turns": codes }])).agent(|agent| agent.output_schema(schema))
}

#[tokio::test]
async fn ac60_a_result_that_violates_the_schema_is_refused_and_mended_in_the_same_action() {
    let code =
        "try { await finish({ n: 'x' }) } catch (error) { console.log(error.code); await finish({ n: 3 }) }";
    let played = structured(&[json!({ "code": code })]).play().await;
    assert_eq!(played.end_of("root"), "done {\"n\":3}");
    assert!(
        played.timeline().contains("root log info \"schema\"") || played.timeline().contains("\"schema\"")
    );
    // Finished is finished, also where the action then throws; the later value counts.
    let code = "await finish({ n: 1 }); await finish({ n: 2 }); throw new Error('late')";
    let played = structured(&[json!({ "code": code })]).play().await;
    assert_eq!(played.end_of("root"), "done {\"n\":2}");
}

#[tokio::test]
async fn a_finish_that_nobody_awaits_counts() {
    let played = structured(&[json!({ "code": "finish({ n: 5 })" })]).play().await;
    assert_eq!(played.end_of("root"), "done {\"n\":5}");
}

#[tokio::test]
async fn ac64_a_structured_run_that_only_returns_is_reminded_and_fails() {
    let turns = [
        json!({ "code": "return { n: 1 }" }),
        json!({ "text": "I am done." }),
        json!({ "text": "Really." }),
        json!({ "text": "So." }),
    ];
    let played = structured(&turns).play().await;
    let observation: Value = serde_json::from_str(results(&played.model.requests()[1])[0]).unwrap();
    assert_eq!(observation["finished"], json!(false));
    assert!(observation["note"].as_str().unwrap().contains("pass it to finish(value)"), "{observation}");
    assert_eq!(played.end().failure, Some(FailureKind::Schema));
    let error = played.log.iter().find_map(|message| match message.body() {
        MessageBody::StepResult(step) => step.error.clone(),
        _ => None,
    });
    assert!(error.unwrap().starts_with("Step failed"));
    assert_eq!(played.model.requests().len(), 4);
    // An answer that is the value counts too.
    let played = structured(&[json!({ "text": "```json\n{\"n\": 4}\n```" })]).play().await;
    assert_eq!(played.end_of("root"), "done {\"n\":4}");
}

#[tokio::test]
async fn ac63_without_a_schema_a_plain_answer_or_a_value_ends_the_run() {
    assert_eq!(actions(&[]).play().await.end_of("root"), "done \"done\"");
    let played = actions(&["await finish({ list: [1, 2] })"]).play().await;
    assert_eq!(played.end_of("root"), "done {\"list\":[1,2]}");
    assert_eq!(played.model.requests().len(), 1);
}

#[tokio::test]
async fn the_same_failure_twice_is_not_told_at_length_again() {
    let played = actions(&[
        "console.log('x'); boom()",
        " console.log('x'); boom()",
        "return 1",
        "console.log('x'); boom()",
    ])
    .play()
    .await;
    let seen = observations(&played);
    assert!(seen[0].get("repeated").is_none() && seen[0]["logs"] == json!(["x"]), "{}", seen[0]);
    assert_eq!(seen[1]["repeated"], json!(true));
    assert!(
        seen[1].get("logs").is_none() && seen[1]["note"].as_str().unwrap().contains("Do not send it again")
    );
    assert!(seen[3].get("repeated").is_none());
}

#[tokio::test]
async fn code_that_is_none_is_refused() {
    for arguments in [json!({}), json!({ "code": " " }), json!({ "code": 5 })] {
        let call = json!({ "tool_calls": [{ "name": "execute_code", "arguments": arguments }] });
        let played = stage(json!([{ "turns": [call, { "text": "done" }] }])).play().await;
        let seen = observations(&played);
        assert!(seen[0]["error"].as_str().unwrap().starts_with("`code` is missing"), "{}", seen[0]);
    }
}

#[tokio::test]
async fn what_nobody_awaits_ends_with_its_action() {
    let code = "tools.run_subtask({ description: 'left', prompt: 'left' }); tools.chaos_hang(); await tools.chaos_sleep({ ms: 0 }); return 1";
    let played = stage(json!([
        { "when": { "depth": 0 }, "turns": [{ "code": code }, { "text": "done" }] },
        { "turns": [{ "hang": true }] },
    ]))
    .play()
    .await;
    assert_eq!(observations(&played)[0]["result"], json!(1));
    assert_eq!(played.end_of("root/left"), "cancelled by parent");
    let timeline = played.timeline();
    let at = |line: &str| timeline.find(line).unwrap_or_else(|| panic!("{line} is not in\n{timeline}"));
    assert!(at("root/left cancelled") < at("root result 1 error"), "{timeline}");
    let errors = played.log.iter().filter(|message| match message.body() {
        MessageBody::ToolResultUpdate(result) => result.result.get("error") == Some(&json!("cancelled")),
        _ => false,
    });
    assert_eq!(errors.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn ax5_the_end_of_its_time_ends_what_an_action_started() {
    let code = "console.log('before'); await Promise.all([tools.run_subtask({ description: 'slow', prompt: 'slow' }), tools.chaos_hang()])";
    let played = stage(json!([
        { "when": { "depth": 0 }, "turns": [{ "code": code }, { "text": "done" }] },
        { "turns": [{ "hang": true }] },
    ]))
    .play()
    .await;
    let seen = observations(&played);
    assert_eq!(seen[0]["error"], json!("the program ran for its 10m and was ended"));
    assert_eq!(seen[0]["logs"], json!(["before"]));
    assert_eq!(played.end_of("root/slow"), "cancelled by parent");
    assert_eq!(played.end_of("root"), "done \"done\"");
}

#[tokio::test]
async fn runaway_code_ends_within_its_time_and_harms_nobody() {
    let hostile = [
        "while (true) {}",
        "(function again() { Promise.resolve().then(again) })(); await new Promise(() => {})",
        "await new Promise(() => {})",
        "const all = []; for (;;) all.push(new Array(1000).fill(all.length))",
        "const deep = (n) => deep(n + 1) + 1; return deep(0)",
        "for (let i = 0; i < 100; i++) console.log('x'.repeat(1 << 20))",
        "for (;;) tools.chaos_sleep({ ms: 1 })",
        "return new Array(3e7) + ''",
    ];
    let children: Vec<String> = (0..hostile.len()).map(|n| format!("h{n}")).collect();
    let calls = children
        .iter()
        .map(|name| json!({ "name": "run_subtask", "arguments": { "description": name, "prompt": name } }));
    let good = json!({ "name": "run_subtask", "arguments": { "description": "good", "prompt": "good" } });
    let calls: Vec<Value> = calls.chain([good]).collect();
    let mut agents = vec![
        json!({ "when": { "depth": 0 }, "turns": [{ "tool_calls": calls }, { "text": "done" }] }),
        json!({ "when": { "title": "good" }, "turns": [{ "code": "return await Promise.all([1, 2].map(n => tools.chaos_sleep({ ms: n })))" }, { "text": "fine" }] }),
    ];
    for (name, code) in children.iter().zip(hostile) {
        agents
            .push(json!({ "when": { "title": name }, "turns": [{ "code": code }, { "text": "survived" }] }));
    }
    let started = std::time::Instant::now();
    let played = stage(json!(agents)).produced_by(quick()).play().await;
    // All at once, each with its time and a second: many times that on a busy machine would still be far from ten minutes.
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    for name in &children {
        assert_eq!(played.end_of(&format!("root/{name}")), "done \"survived\"", "{}", played.timeline());
    }
    assert_eq!(played.end_of("root/good"), "done \"fine\"");
}

#[test]
fn ax10_three_levels_of_code_complete_with_one_thread_for_sandboxes() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    let code = "return await tools.run_subtask({ description: 'next', prompt: 'next' })";
    let stage = stage(json!([
        { "when": { "depth": 3 }, "turns": [{ "code": "return 'the bottom'" }, { "text": "deep" }] },
        { "turns": [{ "code": code }, { "text": "up" }] },
    ]));
    let played = runtime.block_on(stage.play());
    assert_eq!(played.end_of("root/next/next/next"), "done \"deep\"");
    assert_eq!(played.end_of("root"), "done \"up\"");
}

#[tokio::test]
async fn c22_c54_a_cancel_ends_code_and_all_below() {
    for code in [
        "while (true) {}",
        "await tools.run_subtask({ description: 'child', prompt: 'child' })",
        "await tools.chaos_hang()",
        "await sleep(1e9)",
        "await Promise.all([tools.chaos_hang(), tools.run_subtask({ description: 'child', prompt: 'child' })])",
    ] {
        let stage = stage(json!([
            { "when": { "depth": 0 }, "turns": [{ "code": code }, { "text": "done" }] },
            { "turns": [{ "text": "half", "hang": true }] },
        ]));
        let waits_for_child = code.contains("run_subtask");
        let played = stage
            .cancel_when(|body| match body {
                MessageBody::Chunk(chunk) => waits_for_child && !chunk.content.is_empty(),
                MessageBody::ToolCallUpdate(call) => {
                    !waits_for_child && (call.via.is_some() || !code.contains("tools."))
                }
                _ => false,
            })
            .await;
        // Never forced: code heeds a cancel.
        assert_eq!(played.end_of("root"), "cancelled by user", "{code}");
        if waits_for_child {
            assert_eq!(played.end_of("root/child"), "cancelled by parent, partial \"half\"", "{code}");
        }
    }
}

#[tokio::test]
async fn i21_a_panic_of_a_tool_that_code_calls_is_the_runs_failure() {
    let played = actions(&["try { await tools.chaos_panic() } catch {} return 1"]).play().await;
    assert_eq!(played.end().failure, Some(FailureKind::Panic));
}

#[tokio::test]
async fn limits_reach_what_code_calls() {
    let calls = RunLimits { tool_calls: Limit::At(3), ..RunLimits::default() };
    let code = "for (;;) await tools.chaos_sleep({ ms: 0 })";
    let played = actions(&[code]).run_limits(calls).play().await;
    assert!(played.end_of("root").starts_with("stopped (tool_calls)"), "{}", played.timeline());
    // The refusal of the choke point is an exception with its code (C34).
    let flat = TreeLimits { depth: Limit::At(0), ..TreeLimits::default() };
    let code = "try { await tools.run_subtask({ description: 'x', prompt: 'x' }) } catch (error) { return [error.code, error.data.max_depth] }";
    let played = actions(&[code]).tree_limits(flat).play().await;
    assert_eq!(observations(&played)[0]["result"], json!(["max_recursion_depth_reached", 0]));
}

#[tokio::test]
async fn permits_are_back_after_nested_code() {
    let live = TreeLimits { live: Limit::At(1), ..TreeLimits::default() };
    let code = "return await Promise.all(['a', 'b', 'c'].map(name => tools.run_subtask({ description: name, prompt: name })))";
    let played = actions(&[code]).tree_limits(live).play().await;
    assert_eq!(played.end_of("root"), "done \"done\"");
}

#[tokio::test]
async fn a_child_does_not_get_its_parents_execute_code() {
    // A tool loop below a CodeAct run: its model asks for code in vain.
    let tools = Toolset::new().with_sub_agent(RunSubtask::default()).unwrap();
    let plain = tool_fn("plain", "Nothing.", |_: Map<String, Value>, cx| async move {
        let names: Vec<String> = cx.tools().inheritable().names().map(str::to_owned).collect();
        ToolReply::ok(json!(names))
    });
    let tools = tools.with(plain).unwrap();
    let played = actions(&["return await tools.plain()"]).tools(tools).play().await;
    assert_eq!(observations(&played)[0]["result"], json!(["run_subtask", "plain"]));
}

#[tokio::test]
async fn ac65_ac67_of_many_tools_the_usual_ones_are_described_and_the_others_found() {
    let mut tools = all_tools();
    for number in 0..20 {
        let tool = tool_fn(
            &format!("special_{number}"),
            &format!("Weighs number {number} on the scales. More."),
            |_: Map<String, Value>, _| async { ToolReply::ok("weighed") },
        );
        tools = tools.with(tool).unwrap();
    }
    let code = "const [hit] = await search_tools('scales 7', 1); return [hit.name, hit.signature, hit.description, await tools[hit.name]()]";
    let played = actions(&[code]).tools(tools).play().await;
    let expected =
        json!(["special_7", "tools.special_7()", "Weighs number 7 on the scales. More.", "weighed"]);
    assert_eq!(observations(&played)[0]["result"], expected);
    let request = &played.model.requests()[0];
    let system = request.system.as_deref().unwrap();
    assert!(system.contains("tools.run_subtask({description: string, prompt: string})"), "{system}");
    assert!(system.contains("special_3") && !system.contains("Weighs number 3"), "{system}");
    let offered: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert!(
        offered.contains(&"execute_code")
            && offered.contains(&"run_subtask")
            && !offered.contains(&"special_3")
    );
    // A model that calls another one directly is not refused.
    let call = json!({ "tool_calls": [{ "name": "chaos_sleep", "arguments": { "ms": 0 } }] });
    let played = stage(json!([{ "turns": [call, { "text": "done" }] }])).play().await;
    assert!(!results(&played.model.requests()[1])[0].contains("error"));
}

#[tokio::test]
async fn ac66_both_prompts_advise_concurrent_calls() {
    for schema in [None, Some(json!({ "type": "object" }))] {
        let stage = stage(json!([{ "turns": [{ "text": "{}" }] }]));
        let stage = match schema {
            Some(schema) => stage.agent(|agent| agent.output_schema(schema).system_prompt("Be brief.")),
            None => stage.agent(|agent| agent.system_prompt("Be brief.")),
        };
        let played = stage.play().await;
        let system = played.model.requests()[0].system.clone().unwrap();
        assert!(
            system.starts_with("Be brief.\n\n")
                && system.contains("Promise.all")
                && !system.contains("{tools}"),
            "{system}"
        );
    }
}

#[tokio::test]
async fn large_results_and_logs_are_cut_with_their_sizes() {
    let seen =
        observe("for (let i = 0; i < 900; i++) console.log('line ' + i); return 'x'.repeat(50000)").await;
    assert!(
        seen["result"].as_str().unwrap().ends_with("[cut: 14000 of 50002 characters; return less of it]")
    );
    let logs = seen["logs"].as_array().unwrap();
    assert!(logs.last().unwrap().as_str().unwrap().ends_with("more lines are left out)"));
    let seen = observe("return await tools.chaos_big({ bytes: 1000000 })").await;
    assert!(seen.to_string().len() < 40_000);
}

#[tokio::test]
async fn codeact_is_a_conforming_producer() {
    let turns = json!([{ "code": "return await tools.chaos_progress({ n: 2, ms: 1 })" }, { "text": "done" }]);
    let model = Recorder::new(&json!([{ "turns": turns, "then": "repeat" }]));
    let runtime = Arc::new(AgentRuntime::new(model, Arc::new(CodeAct::default())));
    let report = check_sub_agent(|cx| {
        CodeAct::default().produce(Job::new("work", all_tools(), Arc::clone(&runtime)), cx)
    })
    .await;
    assert!(report.is_ok(), "{report}");
}
