use super::*;
use crate::budget::Limit;
use crate::tool::test_kit::{Bench, error_of};

fn bench() -> Bench {
    Bench::new(add_to(&Toolset::new()).unwrap())
}

#[test]
fn all_of_them_are_there_once() {
    let tools = add_to(&Toolset::new()).unwrap();
    let names: Vec<&str> = tools.names().collect();
    let known = ["sleep", "hang", "busy", "error", "panic", "big", "progress", "spawn"];
    assert_eq!(names, known.map(|name| format!("chaos_{name}")));
    assert!(add_to(&tools).is_err());
}

#[tokio::test(start_paused = true)]
async fn sleep_and_progress_take_their_time() {
    let start = tokio::time::Instant::now();
    let reply = bench().call("chaos_sleep", json!({"ms": 1500})).await.reply;
    assert_eq!((reply, start.elapsed()), (ToolReply::ok("slept 1500 ms"), Duration::from_millis(1500)));
    let args = Map::from_iter([("n".to_owned(), json!(3)), ("ms".to_owned(), json!(10))]);
    let (invoked, log) = bench().call_with("chaos_progress", Ok(args)).await;
    assert_eq!(invoked.reply, ToolReply::ok("reported 3 times"));
    let updates = log.iter().filter(|message| message.body().kind() == "tool_call_update").count();
    assert_eq!(updates, 4);
}

#[tokio::test(start_paused = true)]
async fn error_panic_and_big_do_what_they_say() {
    let reply = bench().call("chaos_error", json!({"message": "boo"})).await.reply;
    assert_eq!(error_of(&reply), ("chaos_error", "boo"));
    let invoked = bench().call("chaos_panic", json!({})).await;
    assert_eq!(invoked.fatal, Some(crate::tool::Fatal::Panicked("chaos_panic was called".into())));
    let reply = bench().call("chaos_big", json!({"bytes": 1000})).await.reply;
    assert_eq!(reply.model_text().len(), 1000);
    for (tool, args) in
        [("chaos_big", json!({"bytes": -1})), ("chaos_hang", json!({"ms": 1})), ("chaos_busy", json!({}))]
    {
        assert_eq!(error_of(&bench().call(tool, args).await.reply).0, "invalid_tool_arguments");
    }
}

#[tokio::test]
async fn busy_blocks_a_thread_and_no_task() {
    let bench = bench();
    let (invoked, other) = tokio::join!(
        Box::pin(bench.call("chaos_busy", json!({"ms": 30}))),
        tokio::time::timeout(Duration::from_secs(5), tokio::time::sleep(Duration::from_millis(1)))
    );
    assert_eq!(invoked.reply, ToolReply::ok("was busy for 30 ms"));
    assert!(other.is_ok());
}

#[tokio::test(start_paused = true)]
async fn spawn_brings_outcomes_and_refusals_in_order() {
    let mut bench = bench();
    let reply = bench.call("chaos_spawn", json!({"count": 3, "prompt": "p"})).await.reply;
    let children = reply.for_model["children"].as_array().unwrap();
    assert_eq!(children.len(), 3);
    assert_eq!(children[2]["outcome"], json!("completed"));
    bench.limits.total = Limit::At(3);
    let reply = bench.call("chaos_spawn", json!({"count": 4, "prompt": "p"})).await.reply;
    let codes: Vec<_> =
        reply.for_model["children"].as_array().unwrap().iter().map(|child| &child["error"]).collect();
    let refused = json!("max_total_runs_reached");
    assert_eq!(codes, [&Value::Null, &Value::Null, &refused, &refused]);
    assert!(!reply.is_error);
    bench.limits.total = Limit::At(1);
    let reply = bench.call("chaos_spawn", json!({"count": 2, "prompt": "p"})).await.reply;
    assert_eq!(error_of(&reply).0, "max_total_runs_reached");
}
