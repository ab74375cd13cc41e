use std::sync::Mutex;

use serde_json::{Map, Value, json};

use super::super::verdict::Redirect;
use super::*;
use crate::context::{Root, RunSpec};
use crate::outcome::SubAgentOutcome;
use crate::stream::SubAgentStream;

type Says = fn(&HookedCall) -> HookResult<Before>;

/// A hook that says one thing, and notes whom it was asked about.
struct Says1 {
    name: &'static str,
    is_gate: bool,
    before: Says,
    after: fn() -> HookResult<After>,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Hook for Says1 {
    fn name(&self) -> &str {
        self.name
    }

    fn is_gate(&self) -> bool {
        self.is_gate
    }

    fn before<'a>(&'a self, call: &'a HookedCall) -> BoxFuture<'a, HookResult<Before>> {
        self.heard.lock().unwrap().push(format!("{} before {}", self.name, call.tool));
        // Not in the future: a panic is to be caught here too.
        let said = (self.before)(call);
        Box::pin(std::future::ready(said))
    }

    fn after<'a>(
        &'a self,
        call: &'a HookedCall,
        _: &'a ToolReply,
        took: Duration,
    ) -> BoxFuture<'a, HookResult<After>> {
        self.heard.lock().unwrap().push(format!("{} after {} {took:?}", self.name, call.tool));
        Box::pin(std::future::ready((self.after)()))
    }

    fn on_error<'a>(
        &'a self,
        call: &'a HookedCall,
        reply: &'a ToolReply,
    ) -> BoxFuture<'a, HookResult<After>> {
        self.heard.lock().unwrap().push(format!("{} error {} {}", self.name, call.tool, reply.model_text()));
        Box::pin(std::future::ready((self.after)()))
    }
}

const CONTINUE: Says = |_| Ok(Before::Continue);
const SKIP: Says = |_| Ok(Before::Skip { reason: "not now".into(), stub: json!("stub") });
const ABORT: Says = |_| Ok(Before::Abort { reason: "no".into() });
const FAIL: Says = |_| Err("out of order".into());
const PANIC: Says = |_| panic!("broken");
const TO_B: Says = |_| Ok(Before::Redirect(Redirect::tool("b")));
const TO_C: Says = |_| Ok(Before::Redirect(Redirect::tool("c").because("better")));
const NOT_B: Says = |call| {
    let is_b = &*call.tool == "b";
    Ok(if is_b { Before::Abort { reason: "never b".into() } } else { Before::Continue })
};

fn hooks(says: &[(&'static str, bool, Says)]) -> (Hooks, Arc<Mutex<Vec<String>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hook = |(name, is_gate, before): &(&'static str, bool, Says)| Says1 {
        name,
        is_gate: *is_gate,
        before: *before,
        after: || Ok(After::Continue),
        heard: Arc::clone(&heard),
    };
    (says.iter().map(hook).fold(Hooks::new(), |hooks, hook| hooks.with(hook)), heard)
}

async fn call() -> HookedCall {
    let place = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&place);
    let run = Root::new().run(RunSpec::new("agent", "work"), |cx| {
        *slot.lock().unwrap() = Some(cx);
        SubAgentStream::settled(SubAgentOutcome::completed("done"))
    });
    assert!(run.settle().await.is_ok());
    let run = place.lock().unwrap().take().unwrap();
    HookedCall { tool: "a".into(), args: Arc::new(Map::from_iter([("x".to_owned(), json!(1))])), run }
}

async fn before(says: &[(&'static str, bool, Says)]) -> (Decided<Before>, Vec<String>) {
    let (hooks, heard) = hooks(says);
    let decided = hooks.before(&call().await).await;
    let heard = heard.lock().unwrap().clone();
    (decided, heard)
}

fn word(verdict: &Before) -> String {
    match verdict {
        Before::Continue => "continue".into(),
        Before::Skip { reason, stub } => format!("skip {reason} {stub}"),
        Before::Redirect(redirect) => format!("redirect {}", redirect.new_tool().unwrap()),
        Before::Abort { reason } => format!("abort {reason}"),
    }
}

/// The composition rule: who is asked, about which call, and what is decided.
#[tokio::test]
async fn the_first_decision_counts_and_an_abort_wins() {
    type Row = (&'static [(&'static str, bool, Says)], &'static str, &'static [&'static str], usize);
    let rows: &[Row] = &[
        (&[], "continue", &[], 0),
        (&[("h", true, CONTINUE)], "continue", &["h before a"], 0),
        (&[("h", true, SKIP)], "skip not now \"stub\" by h", &["h before a"], 0),
        (
            &[("h", true, CONTINUE), ("i", true, SKIP)],
            "skip not now \"stub\" by i",
            &["h before a", "i before a"],
            0,
        ),
        // What comes second is shadowed, and told.
        (
            &[("h", true, SKIP), ("i", true, TO_B)],
            "skip not now \"stub\" by h",
            &["h before a", "i before a"],
            1,
        ),
        (&[("h", false, TO_B), ("i", true, TO_C)], "redirect b by h", &["h before a", "i before b"], 1),
        // An abort ends the asking.
        (&[("h", true, ABORT), ("i", true, SKIP)], "abort no by h", &["h before a"], 0),
        (&[("h", true, SKIP), ("i", true, ABORT)], "abort no by i", &["h before a", "i before a"], 0),
        // Nothing escapes a gate by being replaced, on whichever side of the redirect the gate stands.
        (&[("h", true, TO_B), ("i", true, NOT_B)], "abort never b by i", &["h before a", "i before b"], 0),
        (
            &[("g", true, NOT_B), ("o", false, CONTINUE), ("h", true, TO_B)],
            "abort never b by g",
            &["g before a", "o before a", "h before a", "g before b"],
            0,
        ),
    ];
    for (says, decision, heard, notes) in rows {
        let (decided, asked) = before(says).await;
        let by = decided.by.map(|by| format!(" by {by}")).unwrap_or_default();
        assert_eq!(format!("{}{by}", word(&decided.verdict)), *decision);
        assert_eq!(asked, *heard, "{decision}");
        assert_eq!(decided.notes.len(), *notes, "{decision}: {:?}", decided.notes);
    }
    let (decided, _) = before(&[("h", true, SKIP), ("i", true, TO_B)]).await;
    assert_eq!(decided.notes, ["i: its decision has no effect, since h decided first"]);
}

/// A gate fails closed; a hook that only looks on fails open, visibly.
#[tokio::test]
async fn a_hook_that_fails_stops_the_run_only_if_it_guards() {
    for (fails, text) in [(FAIL, "it failed: out of order"), (PANIC, "it panicked: broken")] {
        let (decided, heard) = before(&[("g", true, fails), ("h", true, SKIP)]).await;
        assert_eq!(word(&decided.verdict), format!("abort {text}"));
        assert_eq!((decided.by.as_deref(), heard.len()), (Some("g"), 1));
        let (decided, heard) = before(&[("o", false, fails), ("h", true, SKIP)]).await;
        assert_eq!(word(&decided.verdict), "skip not now \"stub\"");
        assert_eq!((decided.notes, heard.len()), (vec![format!("o: {text}")], 2));
    }
}

#[tokio::test]
async fn afterwards_the_same_rule_holds() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hook =
        |name, after| Says1 { name, is_gate: true, before: CONTINUE, after, heard: Arc::clone(&heard) };
    let redirect: fn() -> HookResult<After> = || Ok(After::Redirect(Redirect::tool("b")));
    let abort: fn() -> HookResult<After> = || Ok(After::Abort { reason: "no".into() });
    let hooks = Hooks::new().with(hook("h", redirect)).with(hook("i", redirect));
    let call = call().await;
    let reply = ToolReply::error("broken", "It is broken.");
    let decided = hooks.after(&call, &ToolReply::ok("fine"), Duration::from_millis(7)).await;
    assert_eq!(decided.verdict, After::Redirect(Redirect::tool("b")));
    assert_eq!((decided.by.as_deref(), decided.notes.len()), (Some("h"), 1));
    let hooks = hooks.with(hook("j", abort));
    let decided = hooks.on_error(&call, &reply).await;
    assert_eq!(decided.verdict, After::Abort { reason: "no".into() });
    let broken = "{\"error\":\"broken\",\"message\":\"It is broken.\"}";
    let expected = [
        "h after a 7ms".to_owned(),
        "i after a 7ms".to_owned(),
        format!("h error a {broken}"),
        format!("i error a {broken}"),
        format!("j error a {broken}"),
    ];
    assert_eq!(*heard.lock().unwrap(), expected);
    assert_eq!(format!("{hooks:?}"), r#"["h", "i", "j"]"#);
}

#[tokio::test]
async fn a_redirect_changes_what_it_names_and_keeps_the_rest() {
    let call = call().await;
    let other = Map::from_iter([("y".to_owned(), Value::Bool(true))]);
    let made = Redirect::args(other.clone()).apply(&call);
    assert_eq!((&*made.tool, &*made.args), ("a", &other));
    let made = Redirect::tool("b").apply(&call);
    assert_eq!((&*made.tool, &*made.args), ("b", &*call.args));
    let made = Redirect::tool("b").with_args(other.clone()).apply(&call);
    assert_eq!((&*made.tool, &*made.args), ("b", &other));
}
