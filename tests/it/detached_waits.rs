//! Detached subtasks that wait for themselves and for one another.

use std::time::Duration;

use anabranch::context::Root;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::acts::{play, rows, said};

/// The code of a refusal.
fn code(reply: &Value) -> &str {
    reply["error"].as_str().unwrap_or_else(|| panic!("no refusal: {reply}"))
}

#[tokio::test(start_paused = true)]
async fn w22_a_wait_without_ids_is_for_what_was_started_here_and_below() {
    let since = Instant::now();
    let played = play(Root::builder(), |title, act| async move {
        match title.as_str() {
            "root" => {
                act.starts(&["a", "b"]).await;
                said(rows(&act.wait(&[]).await))
            }
            "a" => {
                act.starts(&["c"]).await;
                act.run("d").await;
                act.sleep(30).await;
                said("a")
            }
            "b" => {
                act.sleep(10).await;
                said("b")
            }
            // In the foreground of a, and detached below it: neither started one. By its id each may be asked for.
            "d" => said(rows(&act.wait(&[]).await)),
            _ => {
                assert_eq!(rows(&act.wait(&[]).await).len(), 0);
                said(rows(&act.call("wait_subtasks", json!({ "ids": [act.id("b")], "timeout_ms": 0 })).await))
            }
        }
    })
    .await;
    assert!(since.elapsed() < Duration::from_secs(1));
    assert_eq!(played.result()[0], json!("a completed result=\"a\""));
    let text = played.timeline();
    assert!(text.contains("root/a/c done [\"b running\"]"), "{text}");
    assert!(text.contains("root/a/d done []"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn w22_a_wait_for_itself_or_for_whom_it_works_for_is_refused_at_once() {
    let since = Instant::now();
    play(Root::builder(), |title, act| async move {
        match title.as_str() {
            "root" => {
                act.starts(&["a"]).await;
                let reply = act.wait(&[]).await;
                assert_eq!(rows(&reply)[0], "a completed result=\"refused\"");
            }
            "a" => {
                let reply = act.wait(&["a"]).await;
                assert_eq!(code(&reply), "wait_on_self");
                assert!(reply["message"].as_str().unwrap().contains(&act.id("a")), "{reply}");
                assert_eq!(act.run("in front").await, json!("refused"));
                act.starts(&["below"]).await;
                act.wait(&["below"]).await;
            }
            // Both work for a, one in the foreground and one detached.
            _ => assert_eq!(code(&act.wait(&["a"]).await), "wait_on_self"),
        }
        said("refused")
    })
    .await;
    assert_eq!(since.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn mutual_waits_are_refused_to_the_second_in_both_orders() {
    for (first, second) in [("a", "b"), ("b", "a")] {
        let since = Instant::now();
        let played = play(Root::builder(), move |title, act| async move {
            if title == "root" {
                act.starts(&["a", "b"]).await;
                return said(rows(&act.wait(&[]).await));
            }
            if title == first {
                return said(rows(&act.wait(&[second]).await));
            }
            act.sleep(10).await;
            // A look is no wait.
            let look = act.call("wait_subtasks", json!({ "ids": [act.id(first)], "timeout_ms": 0 })).await;
            assert_eq!(rows(&look), [format!("{first} running")]);
            let reply = act.wait(&[first]).await;
            assert_eq!(code(&reply), "wait_cycle");
            let text = reply["message"].as_str().unwrap();
            let name = |title: &str| format!("\"{title}\" ({})", act.id(title));
            let circle = format!("{} waits for {} waits for {}", name(second), name(first), name(second));
            assert!(text.contains(&circle), "{text}");
            said("went on")
        })
        .await;
        assert_eq!(since.elapsed(), Duration::from_millis(10));
        // Whoever waited first got the result, so it is no more than a word to the root.
        let text = played.result().to_string();
        assert!(text.contains(&format!("{second} completed delivered=true")), "{text}");
        assert!(text.contains("went on"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn circles_are_found_over_hops_and_through_the_foreground() {
    let since = Instant::now();
    let played = play(Root::builder(), |title, act| async move {
        match title.as_str() {
            "root" => {
                act.starts(&["a", "b", "c"]).await;
                said(rows(&act.wait(&[]).await))
            }
            "a" => said(rows(&act.wait(&["b"]).await)[0].clone()),
            // b's foreground child waits for c: so b does.
            "b" => act.run("in b").await.as_str().map_or(said(Value::Null), said),
            "in b" => said(rows(&act.wait(&["c"]).await)[0].clone()),
            // c's foreground grandchild would wait for a, which waits for b, which waits for c.
            "c" => {
                act.sleep(10).await;
                said(act.run("in c").await)
            }
            "in c" => said(act.run("deep in c").await),
            _ => {
                let reply = act.wait(&["a"]).await;
                assert_eq!(code(&reply), "wait_cycle");
                let ids = ["c", "a", "b", "c"].map(|title| format!("({})", act.id(title)));
                let circle: Vec<_> = reply["message"].as_str().unwrap().match_indices('(').collect();
                assert_eq!(circle.len(), 4);
                for ((at, _), id) in circle.iter().zip(&ids) {
                    assert!(reply["message"].as_str().unwrap()[*at..].starts_with(id.as_str()), "{reply}");
                }
                said("refused")
            }
        }
    })
    .await;
    assert_eq!(since.elapsed(), Duration::from_millis(10));
    assert!(played.timeline().contains("root/c/in-c/deep-in-c done \"refused\""), "{}", played.timeline());
}
