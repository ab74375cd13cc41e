//! Orchestration scripts: what they may ask for, what a watcher sees, and that what they start ends with them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anabranch::Agent;
use anabranch::agent::ToolLoop;
use anabranch::agent::script::{
    PlanOrchestrationScript, ScriptLimits, ScriptPlanner, ScriptRun, check_script,
};
use anabranch::budget::{Limit, TreeLimits};
use anabranch::message::MessageBody;
use anabranch::outcome::{CancelledBy, FailureKind, OutcomeKind};
use anabranch::testing::{TestRoot, check_sub_agent, timeline};
use anabranch::tool::{AgentRuntime, Job, Producer};
use anabranch::tree::Status;
use serde_json::{Value, json};

use crate::stage::{Recorder, Stage, all_tools, calls, results};

/// A script on a model of which each agent answers with its title, unless the script of it says otherwise.
struct Script {
    run: ScriptRun,
    agents: Value,
    limits: TreeLimits,
}

struct Ended {
    outcome: anabranch::SubAgentOutcome,
    log: Vec<anabranch::ProcessingMessage>,
    model: Arc<Recorder>,
}

impl Script {
    fn new(code: &str) -> Self {
        let agents = json!([{ "turns": [{ "text": "an answer" }] }]);
        Self { run: ScriptRun::new(code), agents, limits: TreeLimits::default() }
    }

    fn agents(mut self, agents: Value) -> Self {
        self.agents = agents;
        self
    }

    fn with(mut self, change: impl FnOnce(ScriptRun) -> ScriptRun) -> Self {
        self.run = change(self.run);
        self
    }

    async fn play(self) -> Ended {
        self.play_until(|_| false).await
    }

    async fn play_until(self, cancels: impl Fn(&MessageBody) -> bool) -> Ended {
        use futures::StreamExt;
        let model = Recorder::new(&self.agents);
        let test = TestRoot::of(anabranch::Root::builder().tree_limits(self.limits));
        let agent = Agent::with_producer(Arc::<Recorder>::clone(&model), Arc::new(ToolLoop::default()));
        let run = agent.tools(all_tools()).run_with(Arc::new(self.run), test.root(), "a script");
        let mut events = test.root().subscribe(anabranch::bus::From::Start);
        let watcher = async {
            while let Some(delivery) = events.next().await {
                if delivery.message().is_some_and(|message| cancels(message.body())) {
                    drop(test.root().cancel_all(CancelledBy::User));
                    break;
                }
            }
        };
        let (outcome, ()) = tokio::join!(run.settle(), watcher);
        Ended { outcome, log: test.finish(), model }
    }
}

async fn result(code: &str) -> Value {
    let ended = Script::new(code).play().await;
    ended.outcome.result().cloned().unwrap_or_else(|| panic!("{:?}", ended.outcome))
}

#[tokio::test]
async fn ac73_ac80_agents_are_children_of_the_script() {
    let code = "const a = await agent('Say something.', { label: 'speaker' });
        const b = await agent('Count.', { schema: { type: 'object', required: ['n'] } });
        return { a, n: b.n }";
    let script = Script::new(code).agents(json!([
        { "when": { "title": "speaker" }, "turns": [{ "text": "hello" }] },
        { "turns": [{ "text": "{\"n\": 3}" }] },
    ]));
    let ended = script.play().await;
    assert_eq!(ended.outcome.result(), Some(&json!({ "a": "hello", "n": 3 })));
    let lines = timeline(&ended.log);
    assert_eq!(
        lines.trim_end(),
        "root started
root log info \"the script begins: 3 lines\"
root/speaker started
root/speaker text \"hello\"
root/speaker turn 1 end_turn
root/speaker done \"hello\"
root/agent-2 started
root/agent-2 text \"{\\\"n\\\": 3}\"
root/agent-2 turn 1 end_turn
root/agent-2 done {\"n\":3}
root log info \"the script ends, after 2 agent calls\"
root done {\"a\":\"hello\",\"n\":3}"
    );
}

#[tokio::test(start_paused = true)]
async fn ac74_no_more_agents_run_at_once_than_may() {
    let code = "return (await parallel([1, 2, 3, 4, 5].map(n => () => agent('work ' + n, { label: 'w' + n })))).length";
    let limits = ScriptLimits { max_concurrent_agents: 2, ..ScriptLimits::default() };
    let script = Script::new(code)
        .agents(json!([{ "turns": [{ "chunks": ["a", "b"], "chunk_delay_ms": 5 }] }]))
        .with(|run| run.with_limits(limits));
    let ended = script.play().await;
    assert_eq!(ended.outcome.result(), Some(&json!(5)));
    let (mut live, mut most) = (0, 0);
    for message in &ended.log {
        match message.body() {
            MessageBody::RunStarted(_)
                if message.nesting().is_some_and(|nesting| nesting.origin.subtask_depth == 1) =>
            {
                live += 1
            }
            MessageBody::RunFinished(_) => live -= 1,
            _ => {}
        }
        most = most.max(live);
    }
    assert_eq!(most, 2);
}

#[tokio::test]
async fn ac75_a_pipeline_passes_the_previous_the_item_and_its_place() {
    let code = "return await pipeline(['a', 'b'], async (previous, item, place) => previous + place, (previous, item) => [previous, item])";
    assert_eq!(result(code).await, json!([["a0", "a"], ["b1", "b"]]));
    let code = "return await pipeline([1, 2], (n) => { if (n === 1) throw new Error('one'); return n }, (n) => n * 2)";
    assert_eq!(result(code).await, json!([null, 4]));
}

#[tokio::test]
async fn ac76_beyond_the_cap_no_agent_runs() {
    let limits = ScriptLimits { max_agent_calls: 2, ..ScriptLimits::default() };
    let code = "return await parallel([1, 2, 3, 4].map(n => () => agent('work')))";
    let ended = Script::new(code).with(|run| run.with_limits(limits)).play().await;
    let results = ended.outcome.result().unwrap().as_array().unwrap().clone();
    assert_eq!(results.iter().filter(|result| !result.is_null()).count(), 2);
    assert_eq!(ended.model.requests().len(), 2);
}

#[tokio::test]
async fn ac77_the_budget_and_the_inputs_are_the_hosts() {
    let code = "const before = budget.remainingCalls();
        try { await agent(' ') } catch (error) { log(error.code) }
        await agent('work');
        const usage = await budget.usage();
        return [inputs.topic, budget.maxAgentCalls, before, budget.agentCalls(), budget.remainingCalls(), usage.model_calls]";
    let limits = ScriptLimits { max_agent_calls: 7, ..ScriptLimits::default() };
    let script =
        Script::new(code).with(|run| run.with_limits(limits).with_inputs(json!({ "topic": "rivers" })));
    let ended = script.play().await;
    assert_eq!(ended.outcome.result(), Some(&json!(["rivers", 7, 7, 1, 6, 1])));
}

#[tokio::test]
async fn ac78_a_line_is_one_log_update() {
    let ended = Script::new("log('found', { n: 1 }); return 1").play().await;
    let lines = ended.log.iter().filter(|message| match message.body() {
        MessageBody::LogUpdate(log) => log.content == "found {\"n\":1}",
        _ => false,
    });
    assert_eq!(lines.count(), 1);
}

#[tokio::test]
async fn ac79_a_script_that_throws_fails_with_what_it_threw_and_where() {
    let ended = Script::new("const a = 1;\nthrow new Error('so be it')").play().await;
    let text = ended.outcome.error_text().unwrap();
    assert!(text.starts_with("Orchestration script failed: so be it\n"), "{text}");
    assert!(text.contains("action:2:") && text.contains("your code, line 2"), "{text}");
    for (code, kind) in [
        ("const x = ;", FailureKind::Construction),
        ("await new Promise(() => {})", FailureKind::Step),
        ("const agent = 1", FailureKind::Construction),
    ] {
        let ended = Script::new(code).play().await;
        assert!(
            matches!(ended.outcome, anabranch::SubAgentOutcome::Failed { kind: found, .. } if found == kind),
            "{code}: {:?}",
            ended.outcome
        );
    }
}

#[tokio::test]
async fn a_failed_agent_throws_with_its_code_and_harms_no_other() {
    let code = "const seen = [];
        for (const call of [() => agent('fail', { label: 'bad' }), () => agent('x', { tools: ['no_such_tool'] }), () => agent('x', { toolz: [] }), () => agent('x', { schema: { type: 5 } })]) {
            try { await call() } catch (error) { seen.push([error.code, error.message.slice(0, 60), error.data?.outcome]) }
        }
        seen.push(await agent('fine', { tools: [] }));
        return seen";
    let script = Script::new(code).agents(json!([
        { "when": { "title": "bad" }, "turns": [{ "error": { "message": "no key", "kind": "auth" } }] },
        { "turns": [{ "text": "fine" }] },
    ]));
    let ended = script.play().await;
    let seen = ended.outcome.result().unwrap();
    assert_eq!(seen[0], json!(["agent_failed", "bad: the model call failed (auth): no key", "failed"]));
    assert_eq!(seen[1][0], json!("unknown_tool"));
    assert!(seen[1][1].as_str().unwrap().contains("no_such_tool"), "{seen}");
    assert_eq!((&seen[2][0], &seen[3][0]), (&json!("invalid_options"), &json!("invalid_schema")));
    assert_eq!(seen[4], json!("fine"));
    assert!(ended.model.requests().last().unwrap().tools.is_empty());
}

#[tokio::test]
async fn scripts_call_tools_and_the_calls_are_in_the_log() {
    let ended = Script::new("return [await tools.chaos_sleep({ ms: 0 }), await tools.run_subtask({ description: 's', prompt: 'p' })]").play().await;
    assert_eq!(ended.outcome.result(), Some(&json!(["slept 0 ms", "an answer"])));
    let lines = timeline(&ended.log);
    assert!(lines.contains("root call 0 chaos_sleep") && lines.contains("root/s done"), "{lines}");
}

#[tokio::test(start_paused = true)]
async fn ax5_the_end_of_its_time_ends_its_agents() {
    let limits = ScriptLimits { wall: Duration::from_secs(5), ..ScriptLimits::default() };
    let hangs = json!([{ "turns": [{ "text": "half", "hang": true }] }]);
    let script = Script::new("await agent('hang')").agents(hangs.clone()).with(|run| run.with_limits(limits));
    let ended = script.play().await;
    assert_eq!(ended.outcome.kind(), OutcomeKind::Stopped);
    let tree = anabranch::RunTree::of(&ended.log);
    assert!(tree.nodes().all(|node| node.status.is_settled()));
    // And so does a cancel, also of one that waits for a place.
    let limits = ScriptLimits { max_concurrent_agents: 1, ..ScriptLimits::default() };
    let script = Script::new("await Promise.all([agent('a'), agent('b')])")
        .agents(hangs)
        .with(|run| run.with_limits(limits));
    let ended = script.play_until(|body| matches!(body, MessageBody::Chunk(_))).await;
    assert_eq!(ended.outcome.kind(), OutcomeKind::Cancelled);
    let tree = anabranch::RunTree::of(&ended.log);
    assert_eq!(tree.len(), 2);
    assert!(
        tree.nodes().all(|node| node.status == Status::Settled(OutcomeKind::Cancelled)),
        "{}",
        timeline(&ended.log)
    );
}

#[tokio::test]
async fn the_choke_point_is_an_exception_with_its_code() {
    let mut script =
        Script::new("try { await agent('x') } catch (error) { return [error.code, error.data.depth] }");
    script.limits.depth = Limit::At(0);
    let ended = script.play().await;
    assert_eq!(ended.outcome.result(), Some(&json!(["max_recursion_depth_reached", 0])));
}

#[test]
fn a_script_is_checked_before_it_runs() {
    let check = |code: &str| check_script(code, Path::new("review.js")).map_err(|error| error.to_string());
    assert_eq!(check("return await agent('x')"), Ok(()));
    assert!(check(" \n").unwrap_err().starts_with("script review.js: at line 1: it is empty"));
    let error = check("const a = 1;\nconst b = ;").unwrap_err();
    assert!(error.starts_with("script review.js: at line 2: SyntaxError"), "{error}");
    assert!(error.contains("your code, line 2: const b = ;"), "{error}");
    // Text that closes the brackets around it is not run for long.
    assert!(check("})()}); for (;;) {} (()=>{(async()=>{").is_err());
    let error = check("let x\nlet budget = 1").unwrap_err();
    assert!(error.contains("the name `budget` is taken and is declared anew in line 2"), "{error}");
}

#[tokio::test]
async fn a_script_is_a_conforming_producer() {
    let model = Recorder::new(&json!([{ "turns": [{ "text": "fine" }], "then": "repeat" }]));
    let runtime = Arc::new(AgentRuntime::new(model, Arc::new(ToolLoop::default())));
    let report = check_sub_agent(|cx| {
        let script = ScriptRun::new("log('x'); return await Promise.all([agent('a'), agent('b')])");
        script.produce(Job::new("work", all_tools(), Arc::clone(&runtime)), cx)
    })
    .await;
    assert!(report.is_ok(), "{report}");
}

/// A root that has a script planned, then says what came of it; the planner's model hands in these scripts.
async fn planned(args: Value, scripts: &[&str]) -> crate::stage::Played {
    let submits = scripts.iter().map(|script| calls("submit_script", json!({ "script": script })));
    let submits: Vec<Value> = submits
        .chain([json!({ "text": "I give up." }), json!({ "text": "Really." }), json!({ "text": "So." })])
        .collect();
    let stage = Stage::new(json!([
        { "when": { "depth": 0 }, "turns": [calls("plan_orchestration_script", args), { "text": "done" }] },
        { "when": { "agent": "planner" }, "turns": submits },
        { "turns": [{ "text": "an answer" }] },
    ]));
    stage.tools(all_tools().with_sub_agent(PlanOrchestrationScript::default()).unwrap()).play().await
}

fn reply(played: &crate::stage::Played) -> Value {
    let requests = played.model.requests();
    let last = requests.iter().rfind(|request| request.run.depth == 0).unwrap();
    serde_json::from_str(results(last)[0]).unwrap()
}

#[tokio::test]
async fn a_script_is_planned_and_run_in_the_same_run() {
    let script = "return { answer: await agent('Say something.'), topic: inputs.topic }";
    let args = json!({ "objective": "Find out.", "inputs": { "topic": "rivers" } });
    // The first one does not compile, the second orchestrates nothing.
    let played = planned(args, &["return agent(", "return 1", script]).await;
    let expected =
        json!({ "script": script, "executed": true, "result": { "answer": "an answer", "topic": "rivers" } });
    assert_eq!(reply(&played), expected);
    let lines = played.timeline();
    for line in [
        "root/Find-out. planning initialization started",
        "root/Find-out. planning complete success",
        "root/Find-out./agent-1 done \"an answer\"",
    ] {
        assert!(lines.contains(line), "{line} is not in\n{lines}");
    }
    let refusals = lines.lines().filter(|line| line.contains("error {\"error\":\"invalid_script\""));
    assert_eq!(refusals.count(), 2, "{lines}");
    assert_eq!(lines.matches("planning validation failed").count(), 2, "{lines}");
}

#[tokio::test]
async fn a_planned_script_may_be_looked_at_first_and_its_failure_is_one() {
    let script = "return await agent('x')";
    let played = planned(json!({ "objective": "o", "execute": false }), &[script]).await;
    assert_eq!(reply(&played), json!({ "script": script, "executed": false }));
    let played =
        planned(json!({ "objective": "o" }), &["await agent('x'); throw new Error('no return')"]).await;
    let failed = reply(&played);
    assert_eq!(failed["error"], json!("script_failed"));
    assert!(
        failed["message"].as_str().unwrap().starts_with("Orchestration script failed: no return"),
        "{failed}"
    );
    assert_eq!(failed["partial"]["executed"], json!(true));
    let played = planned(json!({ "objective": "o" }), &[]).await;
    assert_eq!(reply(&played)["error"], json!("script_failed"));
    for (args, code) in [
        (json!({ "objective": " " }), "invalid_objective"),
        (json!({ "objective": "o", "inputs": [] }), "invalid_tool_arguments"),
        (json!({ "objective": "o", "execute": "no" }), "invalid_tool_arguments"),
        (json!({ "objective": "o", "output_schema": { "type": 5 } }), "invalid_tool_arguments"),
    ] {
        assert_eq!(reply(&planned(args.clone(), &[]).await)["error"], json!(code), "{args}");
    }
}

#[tokio::test]
async fn a_script_planner_is_a_conforming_producer() {
    let submit = calls("submit_script", json!({ "script": "return await agent('x')" }));
    let model = Recorder::new(&json!([
        { "when": { "prompt": "Write the script" }, "turns": [submit], "then": "repeat" },
        { "turns": [{ "text": "fine" }], "then": "repeat" },
    ]));
    let runtime = Arc::new(AgentRuntime::new(model, Arc::new(ToolLoop::default())));
    let report = check_sub_agent(|cx| {
        let planner = ScriptPlanner::new(ScriptRun::new(""), json!({}));
        planner.produce(Job::new("work", all_tools(), Arc::clone(&runtime)), cx)
    })
    .await;
    assert!(report.is_ok(), "{report}");
}
