//! Agents that are files, delegated to: by the acceptance criteria of the original, with the defects of it mended.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anabranch::agent::ToolLoop;
use anabranch::budget::{Limit, TreeLimits};
use anabranch::catalogue::{Delegate, Request};
use anabranch::error::ErrorKind;
use anabranch::message::MessageBody;
use anabranch::model::ChatModel;
use anabranch::outcome::CancelledBy;
use anabranch::testing::{Conformance, TestRoot};
use anabranch::tool::{AgentRuntime, Caller, Effect, Job, Policy, Producer, ToolReply, Toolset, tool_fn};
use anabranch::{RunSpec, SubAgentOutcome, SubAgentStream};
use serde_json::{Map, Value, json};

use crate::agents_kit::{Agents, answer, counted, definition, delegate, finish, nth_answer, one};
use crate::stage::{Recorder, Stage, all_tools, calls, delegates, results};

#[tokio::test(start_paused = true)]
async fn c17_c18_c27_a_finished_run_comes_back_under_its_own_name() {
    let agents = Agents::new(&[("Reviewer", "")]);
    let played = agents.stage(one(" reviewer ", json!([finish("completed", "all is well")]))).play().await;
    played.is(&[
        "root started",
        "root turn 1 tool_calls",
        "root call 0 delegate: Delegating to reviewer",
        "root/the-task started",
        "root/the-task turn 1 tool_calls",
        "root/the-task call 0 finish: Finishing: completed",
        "root/the-task result 0 ok {\"status\":\"completed\",\"acknowledged\":true}",
        "root/the-task done \"all is well\"",
        "root result 0 ok {\"agent\":\"Reviewer\",…",
        "root text \"done\"",
        "root turn 2 end_turn",
        "root done \"done\"",
    ]);
    let mut record = answer(&played);
    let child = played.tree().nodes().find(|node| node.agent() == "Reviewer").unwrap().origin.run_id.clone();
    assert_eq!(record["session"], json!(child));
    record.as_object_mut().unwrap().remove("session");
    let usage = json!({ "input_tokens": 0, "output_tokens": 0, "model_calls": 1 });
    let expected = json!({ "agent": "Reviewer", "status": "completed", "summary": "all is well", "steps": 1, "duration_ms": 0, "usage": usage });
    assert_eq!(record, expected);
}

#[tokio::test(start_paused = true)]
async fn c20_a_text_alone_is_stopped_and_the_summary() {
    let agents = Agents::new(&[("a", "")]);
    let played = agents.stage(one("a", json!([{ "text": "what I found" }]))).play().await;
    let record = answer(&played);
    assert_eq!((&record["status"], &record["summary"]), (&json!("stopped"), &json!("what I found")));
    assert!(record.get("error").is_none());
}

#[tokio::test(start_paused = true)]
async fn c22_c25_c28_what_cannot_begin_is_an_answer_and_no_run() {
    let agents = Agents::new(&[("reviewer", ""), ("writer", "")]);
    agents.write("broken.md", "---\nname: broken\n---\nno description");
    let of = |args: Value| {
        let script = json!([{ "turns": [calls("delegate", args), { "text": "done" }] }]);
        let stage = agents.stage(script);
        async move {
            let played = stage.play().await;
            assert_eq!((played.tree().len(), &played.outcome), (1, &SubAgentOutcome::completed("done")));
            let answer = answer(&played);
            (answer["error"].as_str().unwrap().to_owned(), answer["message"].as_str().unwrap().to_owned())
        }
    };
    let (code, message) = of(json!({ "agent": "reviwer", "task": "t" })).await;
    let expected = "There is no agent \"reviwer\". Did you mean reviewer? The agents are: reviewer, writer.";
    assert_eq!((code.as_str(), message.as_str()), ("unknown_agent", expected));
    let (code, message) = of(json!({ "agent": "Broken", "task": "t" })).await;
    assert_eq!(code, "unknown_agent");
    assert!(
        message.contains("Its file cannot be used: ") && message.contains("it has no description"),
        "{message}"
    );
    assert_eq!(of(json!({ "task": "t" })).await.0, "missing_agent");
    assert_eq!(of(json!({ "agent": " ", "task": "t" })).await.0, "missing_agent");
    assert_eq!(of(json!({ "agent": "writer", "task": " \n" })).await.0, "missing_task");
    assert_eq!(of(json!({ "agent": 5, "task": "t" })).await.0, "invalid_tool_arguments");
    // Before anything begins: the original had told the start already.
    assert_eq!(
        of(json!({ "agent": "writer", "task": "t", "timeout_seconds": -1 })).await.0,
        "invalid_timeout"
    );
}

#[tokio::test(start_paused = true)]
async fn no_agents_are_none_and_no_error() {
    let agents = Agents::new(&[]);
    let played = agents.stage(one("a", json!([]))).play().await;
    let message = "There is no agent \"a\". None is defined: a file agents/NAME.md would be one.";
    assert_eq!(answer(&played), json!({ "error": "unknown_agent", "message": message }));
    assert_eq!(played.model.requests()[0].system, None);
    assert!(!played.model.offered("work").contains(&"delegate".to_owned()));
}

#[test]
fn c29_the_surface_of_delegate() {
    let agents = Agents::new(&[]);
    let tools = agents.tools();
    let spec = tools.get("delegate").unwrap().spec();
    assert_eq!(spec.parameters["required"], json!(["agent", "task"]));
    assert_eq!(spec.parameters["additionalProperties"], json!(false));
}

#[tokio::test(start_paused = true)]
async fn c15_c16_the_persona_is_the_one_system_message() {
    let agents = Agents::new(&[("a", "tools: chaos_error")]);
    let script = one("a", json!([{ "text": "x" }]));
    let played = agents.stage(script.clone()).play().await;
    assert_eq!(played.model.of("the task")[0].system.as_deref(), Some("You are a."));
    let spawner = agents.spawner().preamble("Be brief.");
    let tools = Delegate::new(spawner).add_to(&all_tools()).unwrap();
    let played = Stage::new(script).tools(tools).play().await;
    assert_eq!(played.model.of("the task")[0].system.as_deref(), Some("Be brief.\n\nYou are a."));
}

/// A file that comes while a run works is there at its next turn; one that goes is gone.
#[tokio::test(start_paused = true)]
async fn c26_the_agents_are_told_anew_before_each_turn() {
    let agents = Arc::new(Agents::new(&[("b", ""), ("B2", "")]));
    let shared = Arc::clone(&agents);
    let change = tool_fn("change", "Changes files.", move |_: Map<String, Value>, _| {
        shared.add("a", "tools: chaos_error");
        std::fs::remove_file(shared.path().join("B2.md")).unwrap();
        async { ToolReply::ok("changed") }
    });
    let script = json!([
        { "when": { "depth": 0 }, "turns": [calls("change", json!({})), delegate("a", "t"), { "text": "done" }] },
        { "turns": [finish("completed", "new here")] },
    ]);
    let played = agents
        .stage(script)
        .tools(agents.tools().with(change).unwrap())
        .agent(|agent| agent.system_prompt("Be kind."))
        .play()
        .await;
    let systems: Vec<_> =
        played.model.of("work").iter().map(|request| request.system.clone().unwrap()).collect();
    let lines = |system: &str| system.lines().map(str::to_owned).collect::<Vec<_>>();
    let head = ["Be kind.", "", "The agents that `delegate` takes:"];
    assert_eq!(lines(&systems[0]), [&head[..], &["- B2: Does B2.", "- b: Does b."]].concat());
    assert_eq!(lines(&systems[1]), [&head[..], &["- a: Does a.", "- b: Does b."]].concat());
    // What stays the same is the same text: providers keep it.
    assert!(Arc::ptr_eq(&systems[1], &systems[2]));
    assert_eq!(nth_answer(&played, 1)["summary"], "new here");
}

/// What is wrong with files is in the log, once in a tree, and ends no run.
#[tokio::test(start_paused = true)]
async fn broken_files_are_told_once() {
    let agents = Agents::new(&[("good", "colour: red")]);
    agents.write("bad.md", "---\ndescription: d\n---\n");
    let script = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["child"]), delegate("good", "t"), { "text": "done" }] },
        { "turns": [{ "text": "x" }] },
    ]);
    let played = agents.stage(script).play().await;
    let place = agents.path().display();
    let told: Vec<String> = played
        .log
        .iter()
        .filter_map(|message| match message.body() {
            MessageBody::ErrorNotice(notice) => Some(notice.message.clone()),
            MessageBody::LogUpdate(line) => Some(line.content.clone()),
            _ => None,
        })
        .collect();
    let expected = [
        format!("{place}/bad.md:3: it has no prompt; write below the front matter what the agent is to do"),
        format!("{place}/good.md:3: the key `colour` has no effect; did you mean `color`?"),
    ];
    assert_eq!((told, played.outcome), (expected.to_vec(), SubAgentOutcome::completed("done")));
}

#[tokio::test(start_paused = true)]
async fn c12_c21_a_tool_that_is_not_listed_is_denied_and_the_run_goes_on() {
    let agents = Agents::new(&[("a", "tools: [listed]")]);
    let ((listed, listed_count), (other, other_count)) = (counted("listed"), counted("other"));
    let tools = agents.tools().with(listed).unwrap().with(other).unwrap();
    let turns = json!([calls("other", json!({})), calls("listed", json!({})), finish("completed", "done")]);
    let played = agents.stage(one("a", turns)).tools(tools).play().await;
    assert_eq!(played.model.offered("the task"), ["listed", "finish"]);
    assert_eq!((listed_count.load(Ordering::Relaxed), other_count.load(Ordering::Relaxed)), (1, 0));
    let requests = played.model.of("the task");
    let denied: Value = serde_json::from_str(results(requests.last().unwrap())[0]).unwrap();
    let expected = json!({
        "error": "tool_denied",
        "message": "The tool other is not available to this run: it is not on the list of tools of the agent a. Do without it.",
        "decision": "deny",
        "by": "policy",
        "reason": "not on the list of tools of the agent a",
    });
    assert_eq!((denied, &answer(&played)["status"]), (expected, &json!("completed")));
}

/// A list holds for everything below, and never gives what the parent does not have.
#[tokio::test(start_paused = true)]
async fn lists_only_narrow() {
    let agents = Agents::new(&[
        ("outer", "tools: [delegate, x]"),
        ("inner", "tools: [x, y]"),
        ("none", "tools: y"),
        ("not", "disallowed_tools: x"),
    ]);
    let ((x, _), (y, y_count)) = (counted("x"), counted("y"));
    let tools = agents.tools().with(x).unwrap().with(y).unwrap();
    let script = json!([
        { "when": { "depth": 0 }, "turns": [delegate("outer", "outer"), delegate("not", "not"), { "text": "done" }] },
        { "when": { "title": "outer" }, "turns": [delegate("inner", "inner"), delegate("none", "none"), { "text": "out" }] },
        { "when": { "title": "inner" }, "turns": [calls("y", json!({})), { "text": "in" }] },
        { "turns": [calls("x", json!({})), { "text": "no" }] },
    ]);
    let played = agents.stage(script).tools(tools).play().await;
    assert_eq!(played.model.offered("outer"), ["delegate", "x", "finish"]);
    assert_eq!(played.model.offered("inner"), ["x", "finish"]);
    let of = |title: &str| {
        let requests = played.model.of(title);
        let texts = results(requests.last().unwrap()).into_iter().map(str::to_owned).collect::<Vec<_>>();
        texts.join("\n")
    };
    assert!(of("inner").contains("not on the list of tools of the agent outer"), "{}", of("inner"));
    assert!(of("outer").contains("\"no_tools\""), "{}", of("outer"));
    assert!(of("not").contains("\"tool_denied\"") && !played.model.offered("not").contains(&"x".to_owned()));
    assert_eq!(y_count.load(Ordering::Relaxed), 0);
    // What the host denies, no list allows.
    let agents = Agents::new(&[("a", "tools: [chaos_error, chaos_big]")]);
    let denied = Policy::default().deny(["chaos_error"]);
    let played = agents.stage(one("a", json!([{ "text": "x" }]))).policy(denied).play().await;
    assert_eq!(played.model.offered("the task"), ["chaos_big", "finish"]);
}

/// An agent that may use no tool can still report; one that is denied by its name it has not.
#[tokio::test(start_paused = true)]
async fn all_tools_of_an_agent_are_denied_and_it_reports_all_the_same() {
    let play = async |rule: &str| {
        let agents = Agents::new(&[("reviewer", "")]);
        let turns =
            json!([calls("chaos_sleep", json!({ "ms": 1 })), finish("blocked", "no tools"), { "text": "x" }]);
        let policy = Policy::default().with(Effect::Deny, rule.parse().unwrap());
        agents.stage(one("reviewer", turns)).policy(policy).play().await
    };
    let played = play("reviewer:*").await;
    assert_eq!(played.model.offered("the task"), ["finish"]);
    assert!(results(&played.model.of("the task")[1])[0].contains("\"tool_denied\""));
    assert_eq!(
        (&answer(&played)["status"], &answer(&played)["summary"]),
        (&json!("blocked"), &json!("no tools"))
    );
    let played = play("reviewer:finish").await;
    assert!(!played.model.offered("the task").contains(&"finish".to_owned()));
    assert_eq!(answer(&played)["status"], "stopped");
}

/// What is denied to an agent, or asked for, it cannot have another agent do.
#[tokio::test(start_paused = true)]
async fn i19_what_an_agent_may_not_do_those_below_it_may_not_either() {
    for (rule, whose) in [("outer:x", Effect::Deny), ("out*:x", Effect::Ask)] {
        let agents = Agents::new(&[("outer", ""), ("inner", "")]);
        let (x, count) = counted("x");
        let script = json!([
            { "when": { "depth": 0 }, "turns": [delegate("outer", "outer"), delegate("inner", "free"), { "text": "done" }] },
            { "when": { "title": "outer" }, "turns": [delegate("inner", "below"), { "text": "out" }] },
            { "turns": [calls("x", json!({})), { "text": "in" }] },
        ]);
        let policy = Policy::default().with(whose, rule.parse().unwrap());
        let played = agents.stage(script).tools(agents.tools().with(x).unwrap()).policy(policy).play().await;
        assert_eq!(count.load(Ordering::Relaxed), 1, "{rule}");
        assert!(results(&played.model.of("below")[1])[0].contains("\"tool_denied\""), "{rule}");
        let offered = |title: &str| played.model.offered(title).contains(&"x".to_owned());
        assert_eq!((offered("outer"), offered("below"), offered("free")), (false, false, true));
    }
}

#[tokio::test(start_paused = true)]
async fn c14_tools_that_are_not_there_are_told_and_none_at_all_is_refused() {
    let agents = Agents::new(&[("some", "tools: [chaos_bigg, chaos_error]"), ("none", "tools: [shell]")]);
    let script = json!([
        { "when": { "depth": 0 }, "turns": [delegate("some", "some"), delegate("none", "none"), { "text": "done" }] },
        { "turns": [{ "text": "x" }] },
    ]);
    let played = agents.stage(script).play().await;
    let told = "log warning \"…/some.md: there is no tool \\\"chaos_bigg\\\" here; did you mean chaos_big?\"";
    let timeline = played.timeline().replace(&agents.path().display().to_string(), "…");
    assert!(timeline.contains(told), "{timeline}");
    let refused = nth_answer(&played, 1);
    assert_eq!(refused["error"], "unknown_tools");
    assert!(
        refused["message"].as_str().unwrap().contains("(shell); the tools are chaos_sleep, "),
        "{refused}"
    );
}

/// The original read anything as completed, and could not be told so where `finish` was not on the list.
#[tokio::test(start_paused = true)]
async fn finish_is_always_there_and_a_wrong_status_can_be_mended() {
    let agents = Agents::new(&[("only", "tools: finish")]);
    let played = agents.stage(one("only", json!([{ "text": "x" }]))).play().await;
    assert_eq!(played.model.offered("the task"), ["finish"]);
    let agents = Agents::new(&[("a", "tools: [chaos_error]")]);
    let turns = json!([finish("nonsense", "s"), finish("blocked", "no key"), { "text": "never said" }]);
    let played = agents.stage(one("a", turns)).play().await;
    let requests = played.model.of("the task");
    assert!(results(&requests[1])[0].contains("\"invalid_status\""));
    let record = answer(&played);
    assert_eq!(
        (&record["status"], &record["summary"], &record["steps"]),
        (&json!("blocked"), &json!("no key"), &json!(2))
    );
    // It belongs to that run: what the run delegates has its own.
    let script = json!([
        { "when": { "depth": 0 }, "turns": [delegate("b", "b"), { "text": "done" }] },
        { "when": { "depth": 1 }, "turns": [delegates(&["below"]), { "text": "x" }] },
        { "turns": [finish("completed", "not mine"), { "text": "y" }] },
    ]);
    let played = Agents::new(&[("b", "")]).stage(script).play().await;
    assert!(!played.model.offered("below").contains(&"finish".to_owned()));
    assert_eq!(answer(&played)["status"], "stopped");
}

#[tokio::test(start_paused = true)]
async fn with_a_schema_the_value_comes_back() {
    let agents = Agents::new(&[(
        "a",
        "output_schema: { type: object, required: [n], properties: { n: { type: integer } } }",
    )]);
    let with = |turns: Value| {
        let stage = agents.stage(one("a", turns));
        async move { answer(&stage.play().await) }
    };
    let record = with(json!([{ "text": "{\"n\": 1}" }])).await;
    assert_eq!((&record["status"], &record["value"]), (&json!("completed"), &json!({ "n": 1 })));
    let args = |value: Value| json!({ "status": "completed", "summary": "counted", "value": value });
    let turns =
        json!([calls("finish", args(json!({ "n": "one" }))), calls("finish", args(json!({ "n": 2 })))]);
    let record = with(turns).await;
    assert_eq!(
        (&record["summary"], &record["value"], &record["steps"]),
        (&json!("counted"), &json!({ "n": 2 }), &json!(2))
    );
    let record = with(json!([{ "text": "no value" }, { "text": "still none" }])).await;
    assert_eq!((&record["status"], &record["error"]), (&json!("failed"), &json!("agent_failed")));
    let record = with(json!([finish("blocked", "cannot count")])).await;
    assert_eq!((&record["status"], record.get("value")), (&json!("blocked"), None));
}

/// Which model a run has: the definition's, where the host serves it; else its parent's, and that is told.
#[tokio::test(start_paused = true)]
async fn c19_the_model_of_the_definition_is_the_run_s() {
    let agents = Agents::new(&[("a", "model: small"), ("b", "model: sonnet"), ("c", "model: inherit")]);
    let small = Recorder::new(&json!([{ "turns": [finish("completed", "small")], "then": "repeat" }]));
    let given = Arc::clone(&small);
    let spawner = agents.spawner().models(move |name| match name {
        "small" => Ok(Arc::<Recorder>::clone(&given) as Arc<dyn ChatModel>),
        other => Err(ErrorKind::Model { name: other.to_owned(), reason: "not served here".into() }.into()),
    });
    let script = json!([
        { "when": { "depth": 0 }, "turns": [delegate("a", "a"), delegate("b", "b"), delegate("c", "c"), { "text": "done" }] },
        { "turns": [finish("completed", "large")] },
    ]);
    let tools = Delegate::new(spawner).add_to(&all_tools()).unwrap();
    let played = Stage::new(script).tools(tools).play().await;
    let summaries: Vec<Value> = (0..3).map(|at| nth_answer(&played, at)["summary"].clone()).collect();
    assert_eq!(
        (summaries, small.requests().len()),
        (vec![json!("small"), json!("large"), json!("large")], 1)
    );
    let timeline = played.timeline();
    assert_eq!(timeline.matches("cannot be had").count(), 1, "{timeline}");
    assert!(
        timeline.contains(
            "the model \\\"sonnet\\\" cannot be had (unknown model \\\"sonnet\\\": not served here)"
        ),
        "{timeline}"
    );
}

/// Depth is counted, never read from a name: the original counted names that had `sub` in them.
#[tokio::test(start_paused = true)]
async fn c23_c30_c31_depth_is_the_choke_point_s() {
    let agents = Agents::new(&[("sub", ""), ("other", "name: x-sub"), ("mysub", "")]);
    let script = json!([
        { "when": { "depth": 0 }, "turns": [delegate("sub", "one"), { "text": "done" }] },
        { "when": { "depth": 1 }, "turns": [delegate("x-sub", "two"), { "text": "one" }] },
        { "when": { "depth": 2 }, "turns": [delegate("mysub", "three"), { "text": "two" }] },
        { "when": { "depth": 3 }, "turns": [delegate("sub", "four"), { "text": "three" }] },
    ]);
    let played = agents.stage(script).play().await;
    assert_eq!(played.tree().len(), 4);
    assert!(!played.model.offered("three").contains(&"delegate".to_owned()));
    assert_eq!(played.model.of("three")[0].system.as_deref(), Some("You are mysub."));
    let requests = played.model.of("three");
    let refusal: Value = serde_json::from_str(results(&requests[1])[0]).unwrap();
    assert_eq!((&refusal["error"], &refusal["depth"]), (&json!("max_recursion_depth_reached"), &json!(3)));
    // The other limits of the tree hold as for every child.
    let limits = TreeLimits { total: Limit::At(1), ..TreeLimits::default() };
    let played = agents.stage(one("sub", json!([]))).tree_limits(limits).play().await;
    assert_eq!(answer(&played)["error"], "max_total_runs_reached");
}

/// A producer of one's own has agents work at the same time, and each has a session of its own.
#[tokio::test(start_paused = true)]
async fn start_lets_several_work_at_once() {
    let agents = Agents::new(&[("a", "")]);
    let model = Recorder::new(&json!([
        { "when": { "prompt": "one" }, "turns": [{ "delay_ms": 100, "tool_calls": finish("completed", "1")["tool_calls"] }] },
        { "when": { "prompt": "two" }, "turns": [{ "delay_ms": 100, "tool_calls": finish("completed", "2")["tool_calls"] }] },
    ]));
    let (spawner, test) = (agents.spawner(), TestRoot::new());
    let runtime = AgentRuntime::new(Arc::<Recorder>::clone(&model), Arc::new(ToolLoop::default()));
    let run = test.root().run(RunSpec::new("root", "work"), |cx| {
        SubAgentStream::generate(|emit| async move {
            let caller = Caller::new(cx, emit, Toolset::new(), Arc::new(runtime));
            // One that is not let work never was.
            drop(spawner.start(Request::new("a", "never"), &caller).await.unwrap());
            let one = spawner.start(Request::new("a", "one"), &caller).await.unwrap();
            let two = spawner.start(Request::new("A", "two"), &caller).await.unwrap();
            assert_ne!(one.session(), two.session());
            let (one, two) = tokio::join!(one.settle(), two.settle());
            let again = spawner.run(Request::new("b", "t"), &caller).await.unwrap_err();
            assert_eq!(again.for_model["error"], "unknown_agent");
            SubAgentOutcome::completed(json!([one.summary, two.summary]))
        })
    });
    assert_eq!(run.settle().await, SubAgentOutcome::completed(json!(["1", "2"])));
    assert!(test.timeline().contains("root/one started\nroot/two started\n"), "{}", test.timeline());
    test.finish();
}

#[tokio::test(start_paused = true)]
async fn a_run_that_delegates_passes_the_battery() {
    let agents = Agents::new(&[("a", "tools: chaos_error\nlimits: { timeout: 1h }"), ("b", "tols: x")]);
    agents.write("bad.md", &definition("bad", "max_steps: 0"));
    let tools = agents.tools();
    let both = json!({ "tool_calls": [
        { "name": "delegate", "arguments": { "agent": "a", "task": "a" } },
        { "name": "delegate", "arguments": { "agent": "b", "task": "b" } },
    ] });
    let script = json!([
        { "when": { "prompt": "work" }, "turns": [both, { "text": "done" }] },
        { "when": { "prompt": "a" }, "turns": [calls("chaos_error", json!({ "message": "m" })), finish("completed", "a")] },
        { "turns": [{ "chunks": ["b", "c"], "chunk_delay_ms": 5 }] },
    ]);
    // Results have ids in them, and what is told is told once in a tree: so no two of its runs say quite the same.
    let report = Conformance { deterministic: false, ..Conformance::default() }
        .check(|cx| {
            let model = Recorder::new(&script);
            let runtime = AgentRuntime::new(model, Arc::new(ToolLoop::default()));
            ToolLoop::default().produce(Job::new("work", tools.clone(), Arc::new(runtime)), cx)
        })
        .await;
    assert!(report.is_ok(), "{report}");
}

/// A cancel reaches it, and every start has its end, whatever happens.
#[tokio::test(start_paused = true)]
async fn a_cancel_reaches_a_delegated_run() {
    let agents = Agents::new(&[("a", "")]);
    let hangs = json!([calls("chaos_hang", json!({}))]);
    let is_hanging =
        |body: &MessageBody| matches!(body, MessageBody::ToolCallUpdate(call) if &*call.name == "chaos_hang");
    let played = agents.stage(one("a", hangs)).cancel_when(is_hanging).await;
    assert_eq!(played.outcome, SubAgentOutcome::cancelled(CancelledBy::User));
    assert!(played.end_of("root/the-task").starts_with("cancelled"), "{}", played.timeline());
}
