//! Asks: from any depth to whoever watches the root, and the answer to exactly that call.

use std::time::Duration;

use anabranch::SubAgentOutcome;
use anabranch::agent::Detached;
use anabranch::budget::{Limit, RunLimits, TreeLimits};
use anabranch::context::{AskKind, Reply};
use anabranch::error::ErrorKind;
use anabranch::message::{AskAnswered, MessageBody};
use anabranch::outcome::{CancelledBy, LimitKind, StopClass};
use anabranch::tool::{AskUser, Policy};
use serde_json::{Map, Value, json};

use crate::stage::{Played, Stage, all_tools, calls, delegates, results};

fn says(text: &str) -> Value {
    json!({ "text": text })
}

/// Sleeping is asked for.
fn asking(agents: Value) -> Stage {
    Stage::new(agents).policy(Policy::default().ask(["chaos_sleep"]))
}

/// A root that sleeps once for a millisecond, and is done.
fn sleeper() -> Stage {
    asking(json!([{ "turns": [calls("chaos_sleep", json!({ "ms": 1 })), says("done")] }]))
}

/// Runs of this chain of titles below the root, of which the last one sleeps.
fn chain(titles: &[&str]) -> Stage {
    let mut agents = vec![];
    for (place, title) in ["work"].iter().chain(titles).enumerate() {
        let turn = match titles.get(place) {
            Some(child) => delegates(&[child]),
            None => calls("chaos_sleep", json!({ "ms": 1 })),
        };
        agents
            .push(json!({ "when": { "title": title }, "turns": [turn, says(&format!("{title} is done"))] }));
    }
    asking(json!(agents))
}

fn answers(played: &Played) -> Vec<&AskAnswered> {
    played
        .log
        .iter()
        .filter_map(|message| match message.body() {
            MessageBody::AskAnswered(body) => Some(&**body),
            _ => None,
        })
        .collect()
}

/// What the log says of the answers: `decision by whom`.
pub fn decisions(played: &Played) -> Vec<String> {
    answers(played).iter().map(|answer| format!("{} by {}", answer.decision, answer.by)).collect()
}

/// C41: at each depth it reaches the root by ancestry, and the answer reaches that call.
#[tokio::test(start_paused = true)]
async fn c41_an_ask_reaches_the_root_from_each_depth() {
    for titles in [&[][..], &["a"], &["a", "b"], &["a", "b", "c"]] {
        let played = chain(titles)
            .play_beside(|root| {
                let mut asks = root.asks();
                async move {
                    let ask = asks.next().await.unwrap();
                    let path: Vec<&str> = ask.path.iter().map(|step| &*step.title).collect();
                    assert_eq!(path, ["work"].iter().chain(titles).copied().collect::<Vec<_>>());
                    assert_eq!(ask.question.kind, AskKind::Permission);
                    assert_eq!(ask.question.tool.as_deref(), Some("chaos_sleep"));
                    assert_eq!(
                        Value::Object(Map::clone(ask.question.args.as_ref().unwrap())),
                        json!({ "ms": 1 })
                    );
                    assert_eq!(ask.question.risk.as_deref(), Some("low"));
                    let tree = root.snapshot();
                    let node = tree.node(ask.run_id().unwrap()).unwrap();
                    assert_eq!(node.status.as_str(), "asking");
                    root.answer(&ask.request_id, Reply::allow()).unwrap();
                    assert!(asks.next().await.is_none());
                }
            })
            .await;
        assert_eq!(played.outcome, SubAgentOutcome::completed("work is done"));
        assert_eq!(decisions(&played), ["allow by user"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_ask_stands_in_the_log_between_its_call_and_the_result() {
    sleeper().attended(vec![Reply::allow()]).await.is(&[
        "root started",
        "root turn 1 tool_calls",
        "root call 0 chaos_sleep {\"ms\":1}",
        "root asks 0000…",
        "root answer 0000…",
        "root result 0 ok {\"result\":\"slept 1 ms\"}",
        "root text \"done\"",
        "root turn 2 end_turn",
        "root done \"done\"",
    ]);
}

/// C41: the four ways in which there is no yes are told apart.
#[tokio::test(start_paused = true)]
async fn c41_a_no_a_timeout_and_nobody_are_told_apart() {
    let reply =
        |played: &Played| -> Value { serde_json::from_str(results(&played.model.requests()[1])[0]).unwrap() };
    // A person's no, with their words.
    let played = sleeper().attended(vec![Reply::deny().saying("not on a Monday")]).await;
    let denied = reply(&played);
    assert_eq!((&denied["error"], &denied["by"]), (&json!("tool_denied"), &json!("user")));
    assert!(denied["message"].as_str().unwrap().contains("They say: not on a Monday"));
    assert_eq!(answers(&played)[0].text.as_deref(), Some("not on a Monday"));
    // Nobody is there: at once, and the tool was not even offered.
    let played = sleeper().play().await;
    assert_eq!(
        (decisions(&played), &reply(&played)["by"]),
        (vec!["deny by nobody".to_owned()], &json!("nobody"))
    );
    assert_eq!(played.end().duration_ms, Some(0));
    assert!(!played.model.offered("work").contains(&"chaos_sleep".to_owned()));
    // Nobody answers in time.
    let agent = |agent: anabranch::Agent| agent.ask_deadline(Duration::from_secs(7));
    let played = sleeper()
        .agent(agent)
        .play_beside(|root| {
            let mut asks = root.asks();
            async move {
                let ask = asks.next().await.unwrap();
                asks.closed(&ask).await;
                let late = root.answer(&ask.request_id, Reply::allow()).unwrap_err();
                assert!(matches!(late.kind(), ErrorKind::AskAnswered { .. }), "{late}");
                assert!(asks.next().await.is_none());
            }
        })
        .await;
    assert_eq!(decisions(&played), ["deny by timeout"]);
    assert_eq!(played.end().duration_ms, Some(7000));
    assert!(reply(&played)["message"].as_str().unwrap().contains("nobody answered in time"));
    // The last one who watched goes away.
    let played = sleeper()
        .play_beside(|root| {
            let (mut asks, other) = (root.asks(), root.asks());
            async move {
                let ask = asks.next().await.unwrap();
                drop(other);
                assert!(root.is_watched_for_asks());
                drop(asks);
                assert!(!root.is_watched_for_asks());
                assert!(root.answer(&ask.request_id, Reply::allow()).is_err());
            }
        })
        .await;
    assert_eq!(decisions(&played), ["deny by nobody"]);
    // The run that asks ends first.
    let played = sleeper()
        .play_beside(|root| {
            let mut asks = root.asks();
            async move {
                let ask = asks.next().await.unwrap();
                root.cancel_all(CancelledBy::User).await;
                let late = root.answer(&ask.request_id, Reply::allow()).unwrap_err();
                assert!(matches!(late.kind(), ErrorKind::AskAnswered { .. }), "{late}");
                assert!(asks.next().await.is_none());
            }
        })
        .await;
    assert_eq!(decisions(&played), ["deny by run_ended"]);
    assert_eq!(played.outcome, SubAgentOutcome::cancelled(CancelledBy::User));
}

/// C41: a person may change what is called. It is held against the schema and the rules like any call.
#[tokio::test(start_paused = true)]
async fn c41_a_person_may_edit_the_arguments() {
    let edited = |value: Value| Reply::allow().with_args(value.as_object().unwrap().clone());
    let played = sleeper().attended(vec![edited(json!({ "ms": 5000 }))]).await;
    assert_eq!(played.end().duration_ms, Some(5000));
    assert_eq!(answers(&played)[0].args, Some(json!({ "ms": 5000 })));
    let played = sleeper().attended(vec![edited(json!({ "ms": "long" }))]).await;
    assert!(results(&played.model.requests()[1])[0].contains("invalid_tool_arguments"));
    let policy = Policy::default()
        .ask(["chaos_sleep"])
        .with(anabranch::tool::Effect::Deny, "chaos_sleep(ms=5000)".parse().unwrap());
    let played = sleeper().policy(policy).attended(vec![edited(json!({ "ms": 5000 }))]).await;
    assert!(results(&played.model.requests()[1])[0].contains("denied here with such arguments"));
}

/// Four asks: two at once in each of two children.
fn two_by_two() -> Stage {
    let twice = json!({ "tool_calls": [
        { "name": "chaos_sleep", "arguments": { "ms": 1 } }, { "name": "chaos_sleep", "arguments": { "ms": 2 } },
    ] });
    asking(json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["a", "b"]), says("done")] },
        { "turns": [twice, says("slept")] },
    ]))
}

/// Several at once are put one after the other, and a permission that holds for longer answers those that wait.
#[tokio::test(start_paused = true)]
async fn several_asks_are_answered_one_by_one() {
    let played = two_by_two().attended(vec![Reply::allow(); 4]).await;
    assert_eq!(decisions(&played), ["allow by user"; 4]);
    let played = two_by_two().attended(vec![Reply::allow_for_run(), Reply::deny(), Reply::deny()]).await;
    assert_eq!(
        decisions(&played),
        ["allow_for_run by user", "allow by policy", "deny by user", "deny by user"]
    );
    let played = two_by_two().attended(vec![Reply::allow_for_root()]).await;
    assert_eq!(
        decisions(&played),
        ["allow_for_root by user", "allow by policy", "allow by policy", "allow by policy"]
    );
    assert_eq!(played.outcome, SubAgentOutcome::completed("done"));
}

/// A permission for a run holds below it and not beside it, and only for what was asked.
#[tokio::test(start_paused = true)]
async fn a_permission_for_a_run_is_inherited_and_not_widened() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["a"]), delegates(&["b"]), says("done")] },
        { "when": { "title": "a" }, "turns": [
            calls("chaos_sleep", json!({ "ms": 1 })), calls("chaos_sleep", json!({ "ms": 2 })), delegates(&["c"]),
            calls("chaos_progress", json!({ "n": 1, "ms": 1 })), says("slept")] },
        { "turns": [calls("chaos_sleep", json!({ "ms": 3 })), says("slept")] },
    ]);
    let policy = Policy::default().ask(["chaos_sleep", "chaos_progress"]);
    let replies = vec![Reply::allow_for_run(), Reply::deny(), Reply::deny()];
    let played = Stage::new(agents).policy(policy).attended(replies).await;
    assert_eq!(decisions(&played), ["allow_for_run by user", "deny by user", "deny by user"]);
    assert!(results(&played.model.of("c")[1])[0].contains("slept"));
    assert!(results(&played.model.of("b")[1])[0].contains("tool_denied"));
}

/// C42: one of two children waits for a person; the other goes on, and so does only the one that waited.
#[tokio::test(start_paused = true)]
async fn c42_only_the_child_that_asks_waits() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["waits", "works"]), says("done")] },
        { "when": { "title": "waits" }, "turns": [calls("chaos_sleep", json!({ "ms": 1 })), says("waited")] },
        { "turns": [calls("chaos_progress", json!({ "n": 3, "ms": 1000 })), says("worked")] },
    ]);
    let played = asking(agents)
        .play_beside(|root| {
            let mut asks = root.asks();
            async move {
                let ask = asks.next().await.unwrap();
                tokio::time::sleep(Duration::from_secs(60)).await;
                let tree = root.snapshot();
                let status = |title: &str| {
                    tree.nodes().find(|node| node.title() == title).map(|node| node.status.as_str()).unwrap()
                };
                // Suspended is not success, nor the end of anything.
                assert_eq!(
                    (status("work"), status("waits"), status("works")),
                    ("running", "asking", "completed")
                );
                root.answer(&ask.request_id, Reply::allow()).unwrap();
                assert!(asks.next().await.is_none());
            }
        })
        .await;
    assert_eq!(played.outcome, SubAgentOutcome::completed("done"));
    assert_eq!(played.end().duration_ms, Some(60_001));
}

/// C06: a subscriber at the root sees the ask of a grandchild that comes late.
#[tokio::test(start_paused = true)]
async fn c06_the_ask_of_a_late_grandchild_is_seen() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["child"]), says("done")] },
        { "when": { "depth": 1 }, "turns": [
            calls("chaos_progress", json!({ "n": 1, "ms": 1000 })), delegates(&["grandchild"]), says("done")] },
        { "turns": [calls("chaos_sleep", json!({ "ms": 1 })), says("done")] },
    ]);
    let played = asking(agents).attended(vec![Reply::allow()]).await;
    assert_eq!(decisions(&played), ["allow by user"]);
}

/// C41: a background run asks when the turn of its parent is long over.
#[tokio::test(start_paused = true)]
async fn c41_a_background_run_asks_after_its_parent_s_end() {
    let start = json!({ "tool_calls": [
        { "name": "start_subtask", "arguments": { "description": "late", "prompt": "late" } }] });
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["parent"]), says("done")] },
        { "when": { "title": "parent" }, "turns": [start, says("started it")] },
        { "turns": [calls("chaos_progress", json!({ "n": 1, "ms": 5000 })), calls("chaos_sleep", json!({ "ms": 1 })), says("late")] },
    ]);
    let tools = Detached::new().add_to(&all_tools()).unwrap();
    let played = asking(agents)
        .tools(tools)
        .play_beside(|root| {
            let mut asks = root.asks();
            async move {
                let ask = asks.next().await.unwrap();
                let path: Vec<&str> = ask.path.iter().map(|step| &*step.title).collect();
                assert_eq!(path, ["work", "parent", "late"]);
                assert!(root.snapshot().node(&ask.path[1].run_id).unwrap().status.is_settled());
                root.answer(&ask.request_id, Reply::allow()).unwrap();
                assert!(asks.next().await.is_none());
            }
        })
        .await;
    assert_eq!(decisions(&played), ["allow by user"]);
    assert_eq!(played.outcome, SubAgentOutcome::completed("done"));
}

/// The time of a person is charged to nobody: not to the run, not to those above it, not to the idle limit.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_person_is_not_charged() {
    let limits = RunLimits {
        wall: Limit::At(Duration::from_secs(10)),
        idle: Limit::At(Duration::from_secs(4)),
        ..RunLimits::default()
    };
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [calls("chaos_progress", json!({ "n": 3, "ms": 1000 })), delegates(&["child"]), calls("chaos_progress", json!({ "n": 9, "ms": 1000 })), says("done")] },
        { "turns": [calls("chaos_sleep", json!({ "ms": 1 })), says("slept")] },
    ]);
    let minute = |root: anabranch::context::Root| {
        let mut asks = root.asks();
        async move {
            while let Some(ask) = asks.next().await {
                tokio::time::sleep(Duration::from_secs(60)).await;
                root.answer(&ask.request_id, Reply::allow()).unwrap();
            }
        }
    };
    let played = asking(agents).run_limits(limits).play_beside(minute).await;
    // Ten seconds of its own, to the millisecond, and the minute.
    assert_eq!(played.end().limit, Some(LimitKind::Wall));
    assert_eq!(played.end().duration_ms, Some(70_000));
    assert_eq!(decisions(&played), ["allow by user"]);
}

/// As above, where the one who waits is in the background and wakes nobody above.
#[tokio::test(start_paused = true)]
async fn waiting_in_the_background_is_not_charged_either() {
    let start = json!({ "tool_calls": [
        { "name": "start_subtask", "arguments": { "description": "late", "prompt": "late" } }] });
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [start, says("started it")] },
        { "turns": [calls("chaos_sleep", json!({ "ms": 1 })), calls("chaos_hang", json!({})), says("late")] },
    ]);
    let limits = RunLimits { wall: Limit::At(Duration::from_secs(10)), ..RunLimits::default() };
    let tools = Detached::new().add_to(&all_tools()).unwrap();
    let played = asking(agents)
        .tools(tools)
        .run_limits(limits)
        .play_beside(|root| {
            let mut asks = root.asks();
            async move {
                let ask = asks.next().await.unwrap();
                tokio::time::sleep(Duration::from_secs(60)).await;
                root.answer(&ask.request_id, Reply::allow()).unwrap();
                assert!(asks.next().await.is_none());
            }
        })
        .await;
    // At most one look later.
    let end = played.end();
    assert!((70_000..=71_000).contains(&end.duration_ms.unwrap()), "{end:?}");
}

/// A run that waits for a person holds no permit: others work meanwhile.
#[tokio::test(start_paused = true)]
async fn who_waits_for_a_person_holds_no_permit() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["waits", "works"]), says("done")] },
        { "when": { "title": "waits" }, "turns": [calls("chaos_sleep", json!({ "ms": 1 })), says("waited")] },
        { "turns": [calls("chaos_progress", json!({ "n": 1, "ms": 1000 })), says("worked")] },
    ]);
    let played = asking(agents)
        .tree_limits(TreeLimits { live: Limit::At(1), ..TreeLimits::default() })
        .play_beside(|root| {
            let mut asks = root.asks();
            async move {
                let ask = asks.next().await.unwrap();
                tokio::time::sleep(Duration::from_secs(5)).await;
                let tree = root.snapshot();
                let works = tree.nodes().find(|node| node.title() == "works").unwrap();
                assert_eq!(works.status.as_str(), "completed");
                root.answer(&ask.request_id, Reply::allow()).unwrap();
                assert!(asks.next().await.is_none());
            }
        })
        .await;
    assert_eq!(played.outcome, SubAgentOutcome::completed("done"));
}

#[tokio::test(start_paused = true)]
async fn an_agent_may_ask_for_words() {
    let agents =
        json!([{ "turns": [calls("ask_user", json!({ "question": " Which one? " })), says("done")] }]);
    let stage = || Stage::new(agents.clone()).tools(all_tools().with(AskUser::new()).unwrap());
    let played = stage().attended(vec![Reply::answer("the red one")]).await;
    assert_eq!(results(&played.model.requests()[1]), ["the red one"]);
    assert!(played.model.offered("work").contains(&"ask_user".to_owned()));
    let played = stage().attended(vec![Reply::deny()]).await;
    assert!(results(&played.model.requests()[1])[0].contains("does not want to answer"));
    // Where nobody is, it is not offered; whoever calls it all the same goes on at once.
    let played = stage().play().await;
    assert!(!played.model.offered("work").contains(&"ask_user".to_owned()));
    let reply = results(&played.model.requests()[1])[0].to_owned();
    assert!(reply.contains("\"no_answer\"") && reply.contains("\"by\":\"nobody\""), "{reply}");
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_does_not_fit_leaves_the_ask_open() {
    let played = sleeper()
        .play_beside(|root| {
            let mut asks = root.asks();
            async move {
                let ask = asks.next().await.unwrap();
                let misfit = root.answer(&ask.request_id, Reply::answer("maybe")).unwrap_err();
                assert!(misfit.to_string().contains("it asks for permission: allow or deny it"), "{misfit}");
                let misfit = root.answer(&ask.request_id, Reply::deny().with_args(Map::new())).unwrap_err();
                assert!(misfit.to_string().contains("a denied call has no arguments"), "{misfit}");
                let unknown = root.answer("x", Reply::allow()).unwrap_err();
                assert!(matches!(unknown.kind(), ErrorKind::UnknownAsk { .. }), "{unknown}");
                root.answer(&ask.request_id, Reply::allow()).unwrap();
                let again = root.answer(&ask.request_id, Reply::allow()).unwrap_err();
                assert!(matches!(again.kind(), ErrorKind::AskAnswered { .. }), "{again}");
                assert!(asks.next().await.is_none());
            }
        })
        .await;
    assert_eq!(decisions(&played), ["allow by user"]);
}

/// A run that is cancelled while it asks takes its ask with it, and nobody else's work.
#[tokio::test(start_paused = true)]
async fn a_cancelled_run_takes_its_ask_back() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["asks", "spins"]), says("done")] },
        { "when": { "title": "asks" }, "turns": [calls("chaos_sleep", json!({ "ms": 1 })), says("waited")] },
        { "turns": [says("spun")] },
    ]);
    let played = asking(agents)
        .play_beside(|root| {
            let mut asks = root.asks();
            async move {
                let ask = asks.next().await.unwrap();
                root.cancel(ask.run_id().unwrap(), CancelledBy::User).unwrap().await;
                assert!(asks.next().await.is_none());
            }
        })
        .await;
    assert_eq!(decisions(&played), ["deny by run_ended"]);
    assert_eq!(played.outcome.stop_class(), StopClass::Natural);
}
