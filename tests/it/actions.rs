//! Actions in detail: what an accepted result is worth, how code names and calls its tools, and what it reads where it errs.

use std::sync::Arc;
use std::time::Duration;

use anabranch::agent::codeact::CodeAct;
use anabranch::budget::{Limit, RunLimits, TreeLimits};
use anabranch::frame::as_tool;
use anabranch::message::MessageBody;
use anabranch::model::ToolSpec;
use anabranch::outcome::FailureKind;
use anabranch::tool::{OnCancel, Tool, ToolContext, ToolReply, Toolset, chaos};
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use crate::stage::{Played, Recorder, Stage, calls, results};

fn stage(agents: Value) -> Stage {
    Stage::new(agents).produced_by(CodeAct::default())
}

/// A root that runs one action, then answers; its children answer.
fn action(code: &str) -> Stage {
    stage(json!([
        { "when": { "depth": 0 }, "turns": [{ "code": code }, { "text": "done" }] },
        { "turns": [{ "text": "the child's answer" }] },
    ]))
}

/// What the root's model read of its first call.
fn first_result(played: &Played) -> Value {
    let requests = played.model.requests();
    let second = requests.iter().filter(|request| request.run.depth == 0).nth(1).unwrap();
    serde_json::from_str(results(second)[0]).unwrap()
}

/// What an action returned.
async fn returned(code: &str) -> Value {
    let observation = first_result(&action(code).play().await);
    observation.get("result").cloned().unwrap_or_else(|| panic!("{observation}"))
}

/// An action that counts the names of `errors`, tried one after the other: for each its error's name, code and message.
fn tried(calls: &str) -> String {
    format!(
        "const seen = [];
        for (const call of [{calls}]) {{
            try {{ await call(); seen.push('fine') }} catch (error) {{ seen.push([error.name, error.code ?? null, error.message]) }}
        }}
        return seen"
    )
}

fn within(wall: Duration) -> RunLimits {
    RunLimits { wall: Limit::At(wall), ..RunLimits::default() }
}

const GOES_ON: &str = "await finish({ n: 1 }); await tools.chaos_hang()";

#[tokio::test(start_paused = true)]
async fn a_result_that_was_accepted_outlives_the_limit_that_ends_its_action() {
    let played = action(GOES_ON).run_limits(within(Duration::from_secs(5))).play().await;
    played.is(&[
        "root started",
        "root task step_started",
        "root turn 1 tool_calls",
        "root call 0 execute_code: Run the scripted code",
        "root call 1 chaos_hang {}",
        "root result 1 error {\"error\":\"cancelled\"…",
        "root result 0 ok {\"ok\":false,\"finished\":true…",
        "root done {\"n\":1}",
    ]);
    // Whatever limit it is, and whichever way the result was told; the last one counts.
    let calls = RunLimits { tool_calls: Limit::At(3), ..RunLimits::default() };
    let code = "await finish(1); await finish(2); for (;;) await tools.chaos_sleep({ ms: 0 })";
    // The call that came too late is told as such.
    assert_eq!(action(code).run_limits(calls).play().await.end_of("root"), "done 2, 1 late");
    // Without one the limit is what ended the run, and so it is if the result was refused.
    for code in ["await tools.chaos_hang()", "try { await finish(null) } catch {} await tools.chaos_hang()"] {
        let played = action(code).run_limits(within(Duration::from_secs(5))).play().await;
        assert!(played.end_of("root").starts_with("stopped (wall)"), "{}", played.timeline());
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_was_accepted_outlives_a_cancel_and_not_a_failure() {
    let hangs =
        |body: &MessageBody| matches!(body, MessageBody::ToolCallUpdate(call) if &*call.name == "chaos_hang");
    assert_eq!(action(GOES_ON).cancel_when(hangs).await.end_of("root"), "done {\"n\":1}");
    // A child whose parent's time is over has its result; the parent has none.
    let code = "await tools.run_subtask({ description: 'child', prompt: 'child' })";
    let played = stage(json!([
        { "when": { "depth": 0 }, "turns": [{ "code": code }] },
        { "turns": [{ "code": GOES_ON }] },
    ]))
    .run_limits(within(Duration::from_secs(5)))
    .play()
    .await;
    assert_eq!(played.end_of("root/child"), "done {\"n\":1}", "{}", played.timeline());
    assert!(played.end_of("root").starts_with("stopped (wall)"), "{}", played.timeline());
    let played = action("await finish(1); await tools.chaos_panic()").play().await;
    assert_eq!(played.end().failure, Some(FailureKind::Panic));
}

/// A tool that hands in the run's result after so long, whatever happens meanwhile.
struct HandsIn(ToolSpec, Duration);

fn hands_in(after: Duration) -> Toolset {
    let (name, description) = ("hand_in".to_owned(), "Hands in.".to_owned());
    let spec = ToolSpec { name, description, parameters: json!({ "type": "object" }) };
    chaos::add_to(&Toolset::new()).unwrap().with(HandsIn(spec, after)).unwrap()
}

impl Tool for HandsIn {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn on_cancel(&self) -> OnCancel {
        OnCancel::Grace
    }

    fn call<'a>(&'a self, _: Map<String, Value>, _: ToolContext) -> BoxFuture<'a, ToolReply> {
        Box::pin(async {
            tokio::time::sleep(self.1).await;
            ToolReply::finishing(json!("handed in"))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_ends_the_run_decides_it_like_finish_and_not_after_a_cancel() {
    let together = json!({ "tool_calls": [{ "name": "hand_in", "arguments": {} }, { "name": "chaos_hang", "arguments": {} }] });
    for turn in [json!({ "code": "await tools.hand_in(); await tools.chaos_hang()" }), together] {
        let agents = json!([{ "turns": [turn] }]);
        let limits = within(Duration::from_secs(5));
        let quick = stage(agents.clone()).tools(hands_in(Duration::from_secs(1))).run_limits(limits);
        assert_eq!(quick.play().await.end_of("root"), "done \"handed in\"", "{agents}");
        // Within the grace period, and too late.
        let late = stage(agents.clone()).tools(hands_in(Duration::from_secs(6))).run_limits(limits);
        let played = late.play().await;
        assert!(played.end_of("root").starts_with("stopped (wall)"), "{}", played.timeline());
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_inside_a_frame_finished_with_is_not_yet_the_frames() {
    let stage = Stage::new(json!([
        { "when": { "depth": 0 }, "turns": [calls("ask", json!({ "prompt": "Count." })), { "text": "done" }] },
        { "turns": [{ "code": GOES_ON }] },
    ]));
    let model = Arc::<Recorder>::clone(&stage.model);
    let build = move || {
        let tools = chaos::add_to(&Toolset::new()).unwrap();
        let agent =
            anabranch::Agent::with_producer(Arc::<Recorder>::clone(&model), Arc::new(CodeAct::default()));
        Ok::<_, std::io::Error>(agent.named("frame").tools(tools))
    };
    let frame = as_tool(build, "ask", "Asks a sub-agent.").unwrap();
    let played = stage
        .tools(Toolset::new().with(frame).unwrap())
        .run_limits(within(Duration::from_secs(9)))
        .play()
        .await;
    assert!(!played.timeline().contains("done {\"n\":1}"), "{}", played.timeline());
}

#[tokio::test]
async fn a_result_that_was_refused_is_told_also_where_nobody_awaits_the_answer() {
    let refused = "The task is not finished: finish: the result is null: pass what the task asks for";
    for code in ["finish(null); return 1", "finish(null)", "try { await finish(null) } catch {} return 1"] {
        let observation = first_result(&action(code).play().await);
        assert_eq!((&observation["ok"], &observation["note"]), (&json!(true), &json!(refused)), "{code}");
    }
    let observation = first_result(&action("await finish(null)").play().await);
    assert!(observation.get("note").is_none(), "it is the error: {observation}");
    let observation = first_result(&action("```js\nreturn 1\n```").play().await);
    assert!(
        observation["error"].as_str().unwrap().starts_with("`code` begins with a fence"),
        "{observation}"
    );
}

#[tokio::test]
async fn a_status_text_beside_the_arguments_is_said_and_no_tool_sees_it() {
    let code = "await tools.chaos_sleep({ ms: 0, _message: 'Resting a little' });
        await tools.chaos_sleep({ ms: 0, _message: ' ' });
        return await tools.run_subtask({ description: 'child', prompt: 'child', _message: 'Asking' })";
    let played = action(code).play().await;
    assert_eq!(first_result(&played)["result"], json!("the child's answer"), "{}", played.timeline());
    let said: Vec<_> = played
        .log
        .iter()
        .filter_map(|message| match message.body() {
            MessageBody::ToolCallUpdate(call) if call.via.is_some() => {
                Some((call.message.clone().unwrap_or_default(), Value::Object(Clone::clone(&call.args))))
            }
            _ => None,
        })
        .collect();
    let expected = [
        ("Resting a little".to_owned(), json!({ "ms": 0 })),
        (String::new(), json!({ "ms": 0 })),
        ("Asking".to_owned(), json!({ "description": "child", "prompt": "child" })),
    ];
    assert_eq!(said, expected);
}

#[tokio::test]
async fn tools_is_an_object_that_lists_its_tools_and_looking_at_it_calls_none() {
    let code = "const keys = Object.keys(tools); const all = []; for (const key in tools) all.push(key);
        console.log(`${tools}`); console.log({ some: tools.chaos_hang });
        return {
            texts: [String(tools), tools + '', tools.toString(), [tools].join(), tools.toLocaleString()],
            has: ['chaos_hang' in tools, 'no_such_tool' in tools, tools.hasOwnProperty('chaos_hang')],
            json: JSON.stringify(tools), is: [tools instanceof Object, (await tools) === tools, tools == 'x', typeof tools.valueOf()],
            keys: [keys.includes('run_subtask'), keys.length === all.length, Object.keys({ ...tools }).length === keys.length],
            names: [tools.chaos_hang.name, typeof tools.no_such_tool, tools[Symbol.iterator] === undefined],
        }";
    let played = action(code).play().await;
    let observation = first_result(&played);
    let text = "[object Object]";
    assert_eq!(
        observation["result"],
        json!({
            "texts": [text, text, text, text, text],
            "has": [true, false, true],
            "json": "{}", "is": [true, true, false, "object"],
            "keys": [true, true, true],
            "names": ["chaos_hang", "function", true],
        })
    );
    assert_eq!(observation["logs"], json!([text, "{\"some\":\"[function chaos_hang]\"}"]));
    assert_eq!(observation["toolCalls"], json!(0));
}

#[tokio::test]
async fn a_package_that_is_imported_is_named_with_the_allowlist() {
    let told = |package: &str| {
        format!(
            "importing \"{package}\" is not possible: the allowlist of packages is empty; what a program has are its tools"
        )
    };
    for code in [
        "const name = 'lodash'; const _ = await import(name); return _.add(1, 2)",
        "return await import(`lo${'dash'}`)",
        "return await import('lodash')",
        "return await Promise.all(['lodash'].map(name => import(name)))",
        "import _ from 'lodash';\nreturn _.add(1, 2)",
        "import { add, // don't\n  sub } from \"lodash\";\nreturn add(1, 2)",
        "/* sums */ import * as _ from 'lodash'; return _",
        "import 'lodash'",
    ] {
        let observation = first_result(&action(code).play().await);
        assert_eq!(observation["ok"], json!(false), "{code}: {observation}");
        assert_eq!(observation["error"], json!(told("lodash")), "{code}");
    }
    // Caught, it reads the same; and what fails besides is told as what it is.
    let code =
        tried("() => import('fs'), () => import(5), () => { throw new Error('no fs here: import(x)') }");
    let expected = json!([
        ["Error", null, told("fs")],
        ["Error", null, told("5")],
        ["Error", null, "no fs here: import(x)"]
    ]);
    assert_eq!(returned(&code).await, expected);
    let observation = first_result(&action("const x = ;\nawait import('fs')").play().await);
    assert!(observation["error"].as_str().unwrap().starts_with("SyntaxError"), "{observation}");
}

#[tokio::test]
async fn a_time_that_is_none_is_a_mistake_in_the_programs_own_terms() {
    for (argument, told) in [
        ("", "nothing"),
        ("undefined", "undefined"),
        ("null", "null"),
        ("'x'", "a text"),
        ("'5'", "a text"),
        ("{}", "an object"),
        ("[1]", "a list"),
        ("true", "true or false"),
        ("5n", "a big integer"),
        ("Symbol('s')", "a symbol"),
        ("() => 1", "a function"),
        ("sleep(0)", "a promise: await it"),
        ("new Proxy({}, { get() { throw 1 } })", "an object"),
        ("-1", "-1"),
        ("1e400", "Infinity"),
        ("NaN", "NaN"),
    ] {
        let code = tried(&format!("() => sleep({argument})"));
        let message = format!("sleep(ms): give a number of milliseconds from 0 up, and not {told}");
        assert_eq!(returned(&code).await, json!([["TypeError", null, message]]), "{argument}");
    }
    assert_eq!(returned("await sleep(0); await sleep(0.5); await sleep(-0); return 1").await, json!(1));
}

#[tokio::test]
async fn whatever_a_program_passes_it_reads_no_word_of_the_hosts_language() {
    let odd = "undefined, null, Symbol('s'), 5n, () => 1, (() => { const c = {}; c.c = c; return c })(), { get x() { throw new Error('mine') } },
        new Proxy({}, { get() { throw new Error('mine') }, ownKeys() { throw new Error('mine') } }), Proxy.revocable({}, {}).proxy, [], 'x', '\\ud800', { ['\\ud800']: () => 1 }, -1, 1e400,
        Object.create(null), new Map([[1, 2]]), Promise.resolve(1), new Error('mine'), (() => { const r = Proxy.revocable({}, {}); r.revoke(); return r.proxy })()";
    let functions = "sleep, value => search_tools(value), value => search_tools('x', value), value => finish({ value }), value => finish(value), value => tools.chaos_sleep(value),
        value => tools[value], value => tools[value](), value => tools.no_such_tool(value), parallel, value => parallel([value]), pipeline, value => pipeline([value], value), value => pipeline([1], value), log, console.error";
    let code = format!(
        "const seen = new Set();
        const hear = (error) => seen.add(String(error?.message ?? error));
        for (const call of [{functions}]) {{
            for (const value of [{odd}]) {{
                try {{ const made = call(value); await Promise.race([made, sleep(0)]) }} catch (error) {{ hear(error) }}
            }}
        }}
        return [...seen]"
    );
    let limits = anabranch::agent::codeact::ActionLimits { max_calls: 1_000, ..Default::default() };
    let stage = action(&code).produced_by(CodeAct::default().with_limits(limits));
    // A value that was accepted ends the run: what was seen stands in the call's result.
    let played = stage.play().await;
    let seen = played.log.iter().rev().find_map(|message| match message.body() {
        MessageBody::ToolResultUpdate(result) if result.call_index == 0 => {
            Some(Value::Object(Clone::clone(&result.result)))
        }
        _ => None,
    });
    let seen = seen.unwrap();
    assert_eq!(seen["ok"], json!(true), "{seen}");
    let texts: Vec<&str> = seen["result"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(texts.len() > 10, "{texts:?}");
    for text in texts {
        for word in [
            "f64",
            "utf-8",
            "Conversion",
            "u64",
            "Error converting",
            "from js",
            "into type",
            "invalid type",
            "expected struct",
            "Option",
            "unwrap",
        ] {
            assert!(!text.contains(word), "{text}");
        }
    }
}

#[tokio::test]
async fn a_thunk_that_throws_what_cannot_be_shown_is_null_and_a_stage_that_is_none_a_mistake() {
    let code = "const odd = [Object.create(null), Symbol('s'), null, { get message() { throw 1 } }, new Proxy(new Error('x'), { get() { throw 1 } })];
        return [await parallel(odd.map(one => () => { throw one })), await pipeline(odd, one => { throw one })]";
    let none = [Value::Null, Value::Null, Value::Null, Value::Null, Value::Null];
    assert_eq!(returned(code).await, json!([none, none]));
    let code = tried("() => pipeline([1], n => n, 'x'), () => parallel(5), () => pipeline()");
    let expected = json!([
        ["TypeError", null, "pipeline(items, ...stages): stage number 1 is no function"],
        ["TypeError", null, "parallel(thunks): give a list of functions"],
        ["TypeError", null, "pipeline(items, ...stages): give a list of items first"],
    ]);
    assert_eq!(returned(&code).await, expected);
}

#[tokio::test]
async fn a_search_with_a_limit_that_is_none_says_so() {
    let code =
        tried("() => search_tools('sleep', 'many'), () => search_tools('sleep', -1), () => search_tools(5)");
    let expected = json!([
        [
            "Error",
            "invalid_limit",
            "search_tools(query, limit): the limit has to be a number, and is \"many\""
        ],
        "fine",
        ["Error", "missing_query", "search_tools(query, limit): the query must be a text"],
    ]);
    assert_eq!(returned(&code).await, expected);
}

const DELEGATING: [&str; 5] = ["run_subtask", "run_search", "start_subtask", "wait_subtasks", "create_plan"];

/// Code that cannot delegate reads an error that names what it wanted, whichever of the five it is, and no run begins. That there is no
/// runtime behind a tool that is there cannot happen: whoever calls has one.
#[tokio::test]
async fn code_without_a_tool_that_delegates_reads_which_one_is_missing() {
    let calls: Vec<String> =
        DELEGATING.iter().map(|name| format!("() => tools.{name}({{ prompt: 'x' }})")).collect();
    let tools = chaos::add_to(&Toolset::new()).unwrap();
    let played = action(&tried(&calls.join(", "))).tools(tools).play().await;
    let seen = first_result(&played);
    for (place, name) in DELEGATING.iter().enumerate() {
        let seen = &seen["result"][place];
        assert_eq!(seen[1], json!("unknown_tool"), "{seen}");
        assert!(
            seen[2].as_str().unwrap().starts_with(&format!("tools.{name}: There is no tool \"{name}\"")),
            "{seen}"
        );
    }
    assert_eq!(played.tree().len(), 1);
}

/// A sub-agent that code starts is the same as one that the model starts: a child one level below, under its call; and what refuses it
/// refuses it in the same words.
#[tokio::test]
async fn a_sub_agent_is_the_same_from_code_as_from_the_model() {
    let prompt = json!({ "description": "child", "prompt": "child" });
    let from_code = |name: &str, args: &Value| {
        format!("try {{ return await tools.{name}({args}) }} catch (error) {{ return error.data }}")
    };
    let below = |turn: Value, limits: TreeLimits| async move {
        let agents = json!([{ "when": { "depth": 0 }, "turns": [turn, { "text": "done" }] }, { "turns": [{ "text": "an answer" }] }]);
        stage(agents).tree_limits(limits).play().await
    };
    let played = below(json!({ "code": from_code("run_subtask", &prompt) }), TreeLimits::default()).await;
    assert_eq!(first_result(&played)["result"], json!("an answer"));
    let call = played.log.iter().find_map(|message| match message.body() {
        MessageBody::ToolCallUpdate(call) if call.via.is_some() => Some(call.tool_call_id.clone()),
        _ => None,
    });
    let tree = played.tree();
    let child = tree.nodes().find(|node| node.title() == "child").unwrap();
    assert_eq!((child.origin.subtask_depth, child.origin.parent_tool_call_id.clone()), (1, call));
    for message in &played.log {
        let nesting = message.nesting().unwrap();
        let is_childs = nesting.origin.run_id == child.origin.run_id;
        assert_eq!(nesting.origin.subtask_depth, u32::from(is_childs));
    }
    let flat = TreeLimits { depth: Limit::At(0), ..TreeLimits::default() };
    for (name, args, limits, error) in [
        ("run_subtask", &prompt, flat, "max_recursion_depth_reached"),
        ("run_subtask", &json!({ "description": "x" }), TreeLimits::default(), "missing_prompt"),
        ("run_search", &json!({ "query": "x" }), flat, "max_recursion_depth_reached"),
        ("run_search", &json!({ "query": " " }), TreeLimits::default(), "missing_query"),
    ] {
        let directly = first_result(&below(calls(name, args.clone()), limits).await);
        let in_code = first_result(&below(json!({ "code": from_code(name, args) }), limits).await);
        assert_eq!(directly["error"], json!(error), "{name} {args}");
        assert_eq!(in_code["result"], directly, "{name} {args}");
    }
}
