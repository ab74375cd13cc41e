use std::time::Duration;

use anabranch::agent::codeact::{ActionLimits, CodeAct};
use anabranch::context::Reply;
use anabranch::tool::Policy;
use serde_json::{Value, json};

use crate::asks::decisions;
use crate::stage::{Stage, calls, results};

fn says(text: &str) -> Value {
    json!({ "text": text })
}

/// The time limit of an action leaves it out too, on the host's side and in the engine.
#[tokio::test]
async fn an_action_may_wait_for_a_person_longer_than_it_may_run() {
    let code = "const a = await tools.chaos_sleep({ ms: 1 });\nlet n = 0; for (let i = 0; i < 1e5; i++) n += i;\nreturn a";
    let wall = Duration::from_millis(400);
    let limits = ActionLimits { wall, ..ActionLimits::default() };
    let played = Stage::new(json!([{ "turns": [{ "code": code }, says("done")] }]))
        .produced_by(CodeAct::default().with_limits(limits))
        .policy(Policy::default().ask(["chaos_sleep"]))
        .play_beside(|root| {
            let mut asks = root.asks();
            async move {
                let ask = asks.next().await.unwrap();
                tokio::time::sleep(wall * 2).await;
                root.answer(&ask.request_id, Reply::allow()).unwrap();
                assert!(asks.next().await.is_none());
            }
        })
        .await;
    let observation: Value = serde_json::from_str(results(&played.model.requests()[1])[0]).unwrap();
    assert_eq!(observation["result"], json!("slept 1 ms"), "{observation}");
}

/// Code that does not say of itself that it is harmless is asked for, whatever it calls.
#[tokio::test]
async fn risky_code_is_asked_for() {
    let action = |risk: Value| {
        calls("execute_code", json!({ "title": "t", "risk": risk, "description": "d", "code": "return 7" }))
    };
    let stage = |risk: Value| {
        Stage::new(json!([{ "turns": [action(risk), says("done")] }])).produced_by(CodeAct::default())
    };
    assert_eq!(decisions(&stage(json!("low")).play().await), [""; 0]);
    for risk in [json!("high"), json!("LOW"), json!(0), Value::Null] {
        let reply = results(&stage(risk).play().await.model.requests()[1])[0].to_owned();
        assert!(reply.contains("execute_code with a high risk needs"), "{reply}");
    }
    let played = stage(json!("high")).attended(vec![Reply::allow()]).await;
    assert!(results(&played.model.requests()[1])[0].contains("7"));
    let allowed = stage(json!("high")).policy(Policy::default().allow(["execute_code"])).play().await;
    assert_eq!(decisions(&allowed), [""; 0]);
}
