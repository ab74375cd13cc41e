//! What a tool that goes through many places may show of them: what a call could have named without another question.

use anabranch::agent::RunSubtask;
use anabranch::context::Reply;
use anabranch::tool::{Effect, Policy, ToolContext, ToolReply, Toolset, tool_fn};
use serde_json::{Map, Value, json};

use crate::stage::{Played, Stage, calls, delegates, results};

/// A tool that goes through the places below `path`, and names those that it may show.
fn walk() -> Toolset {
    let walk = |args: Map<String, Value>, cx: ToolContext| async move {
        let reach = cx.reach(&args, "path");
        let places = ["in/a", "in/b", "out/c"].into_iter();
        let shown = places.filter(|place| reach.as_ref().is_none_or(|reach| reach.covers(*place)));
        ToolReply::ok(shown.collect::<Vec<_>>().join(" "))
    };
    Toolset::new().with(tool_fn("walk", "Walks.", walk)).unwrap()
}

fn policy(rules: &[(Effect, &str)]) -> Policy {
    rules.iter().fold(Policy::default(), |policy, (effect, rule)| policy.with(*effect, rule.parse().unwrap()))
}

/// A root that walks from these places, one after the other.
fn walker(rules: &[(Effect, &str)], from: &[&str]) -> Stage {
    let mut turns: Vec<Value> = from.iter().map(|path| calls("walk", json!({ "path": path }))).collect();
    turns.push(json!({ "text": "done" }));
    Stage::new(json!([{ "turns": turns }])).tools(walk()).policy(policy(rules))
}

/// What each walk has shown.
fn shown(played: &Played) -> Vec<String> {
    let requests = played.model.requests();
    results(requests.last().unwrap()).into_iter().map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn what_a_rule_denies_or_would_ask_for_is_left_out() {
    for (rules, expected) in [
        (&[][..], "in/a in/b out/c"),
        (&[(Effect::Deny, "walk(path=in/*)")][..], "out/c"),
        (&[(Effect::Deny, "wa*(path=*/{a,c})")][..], "in/b"),
        (&[(Effect::Deny, "other:walk(path=in/*)")][..], "in/a in/b out/c"),
        (&[(Effect::Deny, "walk(path=in/*;how=fast)")][..], "in/a in/b out/c"),
        // Nobody was asked for these.
        (&[(Effect::Ask, "walk(path=in/a)")][..], "in/b out/c"),
        // What is read needs no permission; a rule that gives one takes nothing away from the rest.
        (&[(Effect::Allow, "walk(path=in/*)")][..], "in/a in/b out/c"),
    ] {
        let played = walker(rules, &["."]).play().await;
        assert_eq!(shown(&played), [expected], "{rules:?}");
    }
}

/// Whoever permits a call has permitted what it comes upon that is asked for by the same rule, and nothing else.
#[tokio::test(start_paused = true)]
async fn a_permission_holds_for_what_the_same_rule_asks_for() {
    let whole = walker(&[(Effect::Ask, "walk"), (Effect::Ask, "walk(path=in/a)")], &["."]);
    assert_eq!(shown(&whole.attended(vec![Reply::allow()]).await), ["in/b out/c"]);
    let within = [(Effect::Ask, "walk(path={in,in/*})")];
    let once = walker(&within, &["in", "."]).attended(vec![Reply::allow()]).await;
    assert_eq!(shown(&once), ["in/a in/b out/c", "out/c"]);
    let in_all = walker(&within, &["in", "."]).attended(vec![Reply::allow_for_root()]).await;
    assert_eq!(shown(&in_all), ["in/a in/b out/c"; 2]);
}

/// What is denied to an agent is left out of what the runs below it come upon.
#[tokio::test(start_paused = true)]
async fn i19_what_is_denied_above_is_left_out_below() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["below"]), { "text": "done" }] },
        { "turns": [calls("walk", json!({ "path": "." })), { "text": "walked" }] },
    ]);
    let stage = Stage::new(agents).tools(walk().with_sub_agent(RunSubtask::default()).unwrap());
    let played = stage.policy(policy(&[(Effect::Deny, "agent:walk(path=in/*)")])).play().await;
    assert_eq!(results(played.model.of("below").last().unwrap()), ["out/c"]);
}
