use std::sync::Weak;

use serde_json::{Map, json};

use super::*;
use crate::agent::{Agent, Detached};
use crate::model::{Script, ScriptModel};
use crate::testing::TestRoot;
use crate::tool::{ToolReply, Toolset, tool_fn};

/// What a tree keeps of its subtasks goes with its root run, also where the host keeps the tree to read it.
#[tokio::test(start_paused = true)]
async fn nothing_is_kept_when_the_root_has_ended() {
    let seen: Arc<Mutex<Option<Weak<Registry>>>> = Arc::default();
    let note = Arc::clone(&seen);
    let look = tool_fn("look", "Looks.", move |_: Map<String, serde_json::Value>, cx| {
        let registry = Registry::of(cx.run());
        let subtasks = registry.all().len();
        *note.lock().unwrap() = Some(Arc::downgrade(&registry));
        async move { ToolReply::ok(subtasks) }
    });
    let script = json!({ "anabranch_script": 1, "agents": [
        { "when": { "depth": 0 }, "turns": [
            { "tool_calls": [{ "name": "start_subtask", "arguments": { "description": "a", "prompt": "a" } }] },
            { "tool_calls": [{ "name": "look", "arguments": {} }] },
            { "text": "done, and nobody waited" } ] },
        { "turns": [{ "delay_ms": 10, "text": "a" }] },
    ] });
    let model = ScriptModel::new(Script::parse(&script.to_string(), "test.json").unwrap());
    let tools = Detached::new().add_to(&Toolset::new().with(look).unwrap()).unwrap();
    let test = TestRoot::new();
    assert!(Agent::new(model).tools(tools).run(test.root(), "work").settle().await.is_ok());
    assert!(test.timeline().contains("result 1 ok {\"result\":1}"), "{}", test.timeline());
    tokio::task::yield_now().await;
    let kept = seen.lock().unwrap().take().unwrap();
    assert_eq!(kept.strong_count(), 0);
    test.finish();
}

#[test]
fn a_place_that_is_not_filled_is_given_back() {
    let registry = Arc::new(Registry::default());
    let (one, two) = (registry.reserve(2).unwrap(), registry.reserve(2).unwrap());
    assert_eq!(registry.reserve(2).unwrap_err(), Full { have: 2, max: 2 });
    drop(one);
    drop(registry.reserve(2).unwrap());
    drop(two);
    assert_eq!(registry.reserve(0).unwrap_err(), Full { have: 0, max: 0 });
}
