//! Hooks around the calls of a tree: what they change is what is executed, and stands in the log.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anabranch::SubAgentOutcome;
#[cfg(feature = "codeact")]
use anabranch::agent::codeact::CodeAct;
use anabranch::context::Reply;
use anabranch::outcome::FailureKind;
use anabranch::tool::{
    After, Before, Hook, HookResult, HookedCall, Hooks, Policy, Redirect, ToolReply, Toolset, tool_fn,
};
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use crate::stage::{Stage, all_tools, calls, delegates, results};

type BeforeFn = Box<dyn Fn(&HookedCall) -> Before + Send + Sync>;
type AfterFn = Box<dyn Fn(&HookedCall, &ToolReply) -> After + Send + Sync>;

/// A hook of closures, which notes what it saw.
struct Watch {
    before: BeforeFn,
    after: AfterFn,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Hook for Watch {
    fn name(&self) -> &str {
        "watch"
    }

    fn before<'a>(&'a self, call: &'a HookedCall) -> BoxFuture<'a, HookResult<Before>> {
        Box::pin(async move {
            // A decision may take its time.
            tokio::task::yield_now().await;
            self.note(format!("{} before {}", call.run.title(), call.tool));
            Ok((self.before)(call))
        })
    }

    fn after<'a>(
        &'a self,
        call: &'a HookedCall,
        reply: &'a ToolReply,
        took: Duration,
    ) -> BoxFuture<'a, HookResult<After>> {
        Box::pin(async move {
            self.note(format!("after {} {} {took:?}", call.tool, reply.model_text()));
            Ok((self.after)(call, reply))
        })
    }

    fn on_error<'a>(
        &'a self,
        call: &'a HookedCall,
        reply: &'a ToolReply,
    ) -> BoxFuture<'a, HookResult<After>> {
        Box::pin(async move {
            self.note(format!("error {} {}", call.tool, reply.for_model["error"]));
            Ok((self.after)(call, reply))
        })
    }
}

impl Watch {
    fn note(&self, text: String) {
        self.seen.lock().unwrap().push(text);
    }
}

fn watch(
    before: impl Fn(&HookedCall) -> Before + Send + Sync + 'static,
    after: impl Fn(&HookedCall, &ToolReply) -> After + Send + Sync + 'static,
) -> (Hooks, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let hook = Watch { before: Box::new(before), after: Box::new(after), seen: Arc::clone(&seen) };
    (Hooks::new().with(hook), seen)
}

fn go_on(_: &HookedCall) -> Before {
    Before::Continue
}

fn stand(_: &HookedCall, _: &ToolReply) -> After {
    After::Continue
}

fn args(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// A root that makes one call and is done, with these hooks.
fn one_call(name: &str, arguments: Value, hooks: Hooks) -> Stage {
    Stage::new(json!([{ "turns": [calls(name, arguments), { "text": "done" }] }]))
        .agent(|agent| agent.hooks(hooks))
}

#[tokio::test(start_paused = true)]
async fn hooks_see_each_call_of_the_tree_and_what_came_of_it() {
    let (hooks, seen) = watch(go_on, stand);
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["child"]), { "text": "done" }] },
        { "turns": [calls("chaos_sleep", json!({ "ms": 5 })), calls("chaos_error", json!({ "message": "x" })), { "text": "so so" }] },
    ]);
    let played = Stage::new(agents).agent(|agent| agent.hooks(hooks)).play().await;
    assert_eq!(played.outcome, SubAgentOutcome::completed("done"));
    let expected = [
        "work before run_subtask",
        "child before chaos_sleep",
        "after chaos_sleep slept 5 ms 5ms",
        "child before chaos_error",
        "error chaos_error \"chaos_error\"",
        "after run_subtask so so 5ms",
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
}

/// What a redirect names is what is executed: the arguments, and the tool.
#[tokio::test(start_paused = true)]
async fn a_redirect_changes_what_is_executed() {
    let slower =
        |_: &HookedCall| Before::Redirect(Redirect::args(args(json!({ "ms": 70 }))).because("too fast"));
    let (hooks, seen) = watch(slower, stand);
    let played = one_call("chaos_sleep", json!({ "ms": 1 }), hooks).play().await;
    played.is(&[
        "root started",
        "root turn 1 tool_calls",
        "root call 0 chaos_sleep {\"ms\":1}",
        "root log info \"watch redirected the call to chaos_sleep {\\\"ms\\\":70}: too fast\"",
        "root result 0 ok {\"result\":\"slept 70 ms\"}",
        "root text \"done\"",
        "root turn 2 end_turn",
        "root done \"done\"",
    ]);
    assert_eq!(*seen.lock().unwrap(), ["work before chaos_sleep", "after chaos_sleep slept 70 ms 70ms"]);
    let other = |_: &HookedCall| {
        Before::Redirect(Redirect::tool("chaos_error").with_args(args(json!({ "message": "x" }))))
    };
    let (hooks, _) = watch(other, stand);
    let played = one_call("chaos_sleep", json!({ "ms": 1 }), hooks).play().await;
    assert!(results(&played.model.requests()[1])[0].contains("chaos_error"));
}

/// A redirect is no way around the rules, the schema or the toolset.
#[tokio::test(start_paused = true)]
async fn a_redirect_is_held_against_rules_and_schema() {
    let reply = |redirect: Redirect, policy: Policy| async move {
        let (hooks, _) = watch(move |_: &HookedCall| Before::Redirect(redirect.clone()), stand);
        let played = one_call("chaos_sleep", json!({ "ms": 1 }), hooks).policy(policy).play().await;
        results(&played.model.requests()[1])[0].to_owned()
    };
    let denied = reply(Redirect::tool("chaos_hang"), Policy::default().deny(["chaos_hang"])).await;
    assert!(denied.contains("tool_denied"), "{denied}");
    let asked =
        reply(Redirect::tool("chaos_hang").with_args(Map::new()), Policy::default().ask(["chaos_hang"]))
            .await;
    assert!(asked.contains("nobody is there to ask"), "{asked}");
    let wrong = reply(Redirect::args(args(json!({ "ms": "x" }))), Policy::default()).await;
    assert!(wrong.contains("invalid_tool_arguments"), "{wrong}");
    let unknown = reply(Redirect::tool("nothing"), Policy::default()).await;
    assert!(unknown.contains("unknown_tool"), "{unknown}");
}

#[tokio::test(start_paused = true)]
async fn a_skipped_call_is_not_made_and_its_stub_is_the_result() {
    for stub in [json!("as if"), json!({ "stub": true })] {
        let skipped = stub.clone();
        let skip = move |_: &HookedCall| Before::Skip { reason: "dry run".into(), stub: skipped.clone() };
        let (hooks, seen) = watch(skip, stand);
        let played = one_call("chaos_panic", json!({}), hooks).play().await;
        let text = stub.as_str().map_or_else(|| stub.to_string(), str::to_owned);
        assert_eq!(results(&played.model.requests()[1]), [&*text]);
        assert_eq!(
            *seen.lock().unwrap(),
            ["work before chaos_panic", &format!("after chaos_panic {text} 0ns")]
        );
        assert!(played.timeline().contains("watch skipped the call: dry run"));
    }
}

/// An abort ends the run of the call, and its parent reads why: as a failure of the child, not of the call.
#[tokio::test(start_paused = true)]
async fn an_abort_ends_the_run_and_no_other() {
    let stop = |call: &HookedCall| match &*call.tool {
        "chaos_sleep" => Before::Abort { reason: "no sleeping".into() },
        _ => Before::Continue,
    };
    let (hooks, _) = watch(stop, stand);
    let played = one_call("chaos_sleep", json!({ "ms": 1 }), hooks.clone()).play().await;
    let text = "aborted at a call of chaos_sleep: watch: no sleeping";
    assert_eq!(played.outcome, SubAgentOutcome::failed(FailureKind::Aborted, text));
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["a", "b"]), { "text": "went on" }] },
        { "when": { "title": "a" }, "turns": [calls("chaos_sleep", json!({ "ms": 1 })), { "text": "never" }] },
        { "turns": [{ "text": "fine" }] },
    ]);
    let played = Stage::new(agents).agent(|agent| agent.hooks(hooks)).play().await;
    assert_eq!(played.outcome, SubAgentOutcome::completed("went on"));
    assert_eq!(
        (played.end_of("root/a"), played.end_of("root/b")),
        (format!("failed (aborted): {text}"), "done \"fine\"".into())
    );
}

/// From code too: the program is ended, and what else it started with it.
#[cfg(feature = "codeact")]
#[tokio::test]
async fn an_abort_ends_the_code_that_called() {
    let stop = |call: &HookedCall| match &*call.tool {
        "chaos_sleep" => Before::Abort { reason: "no sleeping".into() },
        _ => Before::Continue,
    };
    let (hooks, _) = watch(stop, stand);
    let code = "await Promise.all([tools.chaos_hang({}), (async () => { await sleep(1); try { await tools.chaos_sleep({ms: 1}) } catch (e) {} })()]); return 1";
    let played = Stage::new(json!([{ "turns": [{ "code": code }, { "text": "never" }] }]))
        .produced_by(CodeAct::default())
        .agent(|agent| agent.hooks(hooks))
        .play()
        .await;
    assert!(played.end().error.as_deref().unwrap().contains("watch: no sleeping"), "{}", played.timeline());
    assert_eq!(played.end().failure, Some(FailureKind::Aborted));
}

/// A redirect after a result makes the call once more, and once only.
#[tokio::test(start_paused = true)]
async fn a_redirect_afterwards_is_followed_once() {
    let again = |_: &HookedCall, reply: &ToolReply| match reply.is_error {
        true => After::Redirect(Redirect::tool("chaos_sleep").with_args(args(json!({ "ms": 3 })))),
        false => After::Redirect(Redirect::args(args(json!({ "ms": 4 })))),
    };
    let (hooks, seen) = watch(go_on, again);
    let played = one_call("chaos_error", json!({ "message": "x" }), hooks).play().await;
    assert_eq!(results(&played.model.requests()[1]), ["slept 3 ms"]);
    let expected = [
        "work before chaos_error",
        "error chaos_error \"chaos_error\"",
        "work before chaos_sleep",
        "after chaos_sleep slept 3 ms 3ms",
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
    assert!(played.timeline().contains("its redirect has no effect, since the result is final"));
    let veto = |_: &HookedCall, _: &ToolReply| After::Abort { reason: "seen enough".into() };
    let (hooks, _) = watch(go_on, veto);
    let played = one_call("chaos_sleep", json!({ "ms": 1 }), hooks).play().await;
    assert!(played.end().error.as_deref().unwrap().contains("watch: seen enough"));
}

/// No call gets past a gate in the place of another: neither one that a hook has made afterwards, nor one that a person changed.
#[tokio::test(start_paused = true)]
async fn what_replaces_a_call_passes_the_gates_too() {
    let not_13 = |call: &HookedCall| match call.args.get("ms") == Some(&json!(13)) {
        true => Before::Abort { reason: "not 13".into() },
        false => Before::Continue,
    };
    let again = |_: &HookedCall, _: &ToolReply| After::Redirect(Redirect::args(args(json!({ "ms": 13 }))));
    let (hooks, _) = watch(not_13, again);
    let afterwards = one_call("chaos_sleep", json!({ "ms": 1 }), hooks).play().await;
    let (hooks, _) = watch(not_13, stand);
    let asked =
        one_call("chaos_sleep", json!({ "ms": 1 }), hooks).policy(Policy::default().ask(["chaos_sleep"]));
    let edited = asked.attended(vec![Reply::allow().with_args(args(json!({ "ms": 13 })))]).await;
    for played in [afterwards, edited] {
        assert_eq!(played.end().failure, Some(FailureKind::Aborted), "{}", played.timeline());
        assert!(played.end().error.as_deref().unwrap().contains("watch: not 13"));
    }
}

/// Hooks look back on the call that was made: with the arguments of the person who changed them, whether it succeeded or not.
#[tokio::test(start_paused = true)]
async fn hooks_look_back_on_the_arguments_that_a_person_gave() {
    let looks_back_on = |ms: Value| async move {
        let looked = Arc::new(Mutex::new(Vec::new()));
        let args_seen = Arc::clone(&looked);
        let look = move |call: &HookedCall, _: &ToolReply| {
            args_seen.lock().unwrap().push(Value::Object(Map::clone(&call.args)));
            After::Continue
        };
        let (hooks, seen) = watch(go_on, look);
        let asked = one_call("chaos_sleep", json!({ "ms": 1 }), hooks);
        let edited = Reply::allow().with_args(args(json!({ "ms": ms })));
        asked.policy(Policy::default().ask(["chaos_sleep"])).attended(vec![edited]).await;
        let seen = seen.lock().unwrap().last().cloned().unwrap();
        let looked = looked.lock().unwrap().clone();
        (seen, looked)
    };
    let made = looks_back_on(json!(70)).await;
    assert_eq!(made, ("after chaos_sleep slept 70 ms 70ms".to_owned(), vec![json!({ "ms": 70 })]));
    let refused = looks_back_on(json!("long")).await;
    assert_eq!(refused.0, "error chaos_sleep \"invalid_tool_arguments\"");
    assert_eq!(refused.1, [json!({ "ms": "long" })]);
}

/// What is cancelled, and what panicked, is not given to hooks to mend.
#[tokio::test(start_paused = true)]
async fn hooks_do_not_outlive_a_cancel_or_a_panic() {
    let again = |_: &HookedCall, _: &ToolReply| After::Redirect(Redirect::tool("chaos_sleep"));
    let (hooks, seen) = watch(go_on, again);
    let played = one_call("chaos_panic", json!({}), hooks).play().await;
    assert_eq!(played.end().failure, Some(FailureKind::Panic));
    assert_eq!(*seen.lock().unwrap(), ["work before chaos_panic"]);
    let (hooks, seen) = watch(go_on, again);
    let stage = one_call("chaos_hang", json!({}), hooks);
    let played =
        stage.cancel_when(|body| matches!(body, anabranch::message::MessageBody::ToolCallUpdate(_))).await;
    assert!(played.outcome.kind().as_str() == "cancelled");
    assert!(seen.lock().unwrap().len() <= 1);
}

/// A tool may end the run too: what was aborted below it is not to be worked around.
#[tokio::test(start_paused = true)]
async fn a_tool_passes_an_abort_on() {
    let tool =
        tool_fn("judge", "Judges.", |_: Map<String, Value>, _| async { ToolReply::aborting("guilty") });
    let tools = Toolset::new().with(tool).unwrap().with_all(&all_tools()).unwrap();
    let played = Stage::new(json!([{ "turns": [calls("judge", json!({})), { "text": "never" }] }]))
        .tools(tools)
        .play()
        .await;
    assert_eq!(played.end().failure, Some(FailureKind::Aborted));
    assert_eq!(played.end().error.as_deref(), Some("aborted at a call of judge: guilty"));
}
