use serde_json::json;

use super::*;
use crate::tool::test_kit::{Bench, error_of};
use crate::tool::{Toolset, tool_fn};

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Greet {
    name: String,
    #[schemars(range(min = 1, max = 3))]
    times: u8,
}

fn bench() -> Bench {
    let greet = tool_fn("greet", "Greets.", |args: Greet, _| async move {
        ToolReply::ok(format!("hello {}", args.name.repeat(args.times.into())))
    });
    Bench::new(Toolset::new().with(greet).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fits_runs() {
    let invoked = bench().call("greet", json!({"name": "you", "times": 2})).await;
    assert_eq!(invoked, Invoked { reply: ToolReply::ok("hello youyou"), fatal: None });
}

#[tokio::test(start_paused = true)]
async fn an_unknown_tool_is_told_with_the_tools_that_can_be_called() {
    let mut bench = bench();
    bench.tools = crate::tool::chaos::add_to(&bench.tools).unwrap();
    bench.policy = bench.policy.deny(["chaos_panic"]);
    bench.limits.depth = 0.into();
    let invoked = bench.call("gret", json!({})).await;
    let (code, message) = error_of(&invoked.reply);
    assert_eq!(code, "unknown_tool");
    assert!(
        message.starts_with("There is no tool \"gret\". The tools are: greet, chaos_sleep, "),
        "{message}"
    );
    // Those that would be refused are not recommended.
    assert!(!message.contains("chaos_panic") && !message.contains("chaos_spawn"), "{message}");
    let invoked = Bench::new(Toolset::new()).call(&"x".repeat(1 << 10), json!({})).await;
    let (_, message) = error_of(&invoked.reply);
    assert!(message.len() < 300 && message.ends_with("The tools are: none."), "{message}");
}

#[tokio::test(start_paused = true)]
async fn arguments_that_violate_the_schema_are_told_one_by_one() {
    let invoked = bench().call("greet", json!({"times": 9, "loud": true})).await;
    let (code, message) = error_of(&invoked.reply);
    assert_eq!(code, "invalid_tool_arguments");
    let issues = invoked.reply.for_model["issues"].as_array().unwrap();
    assert_eq!(issues.len(), 3, "{issues:?}");
    for words in ["/times: 9 is greater than", "\"name\" is a required property", "'loud' was unexpected"] {
        assert!(message.contains(words), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_wrong_before_the_call_is_its_result() {
    let refused = ToolReply::error("invalid_tool_arguments", "no JSON");
    let (invoked, log) = bench().call_with("greet", Err(refused.clone())).await;
    assert_eq!(invoked.reply, refused);
    assert_eq!(log.len(), 4);
    // The name comes first: the arguments of no tool are no matter.
    let (invoked, _) = bench().call_with("gret", Err(refused)).await;
    assert_eq!(error_of(&invoked.reply).0, "unknown_tool");
}

#[tokio::test(start_paused = true)]
async fn a_denied_tool_is_refused_before_its_arguments_are_looked_at() {
    let mut bench = bench();
    bench.policy = bench.policy.deny(["greet"]);
    let invoked = bench.call("greet", json!({"times": 9})).await;
    assert_eq!(error_of(&invoked.reply).0, "tool_denied");
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_told_and_reported() {
    fn broken(_: Greet) -> ToolReply {
        panic!("out of {}", "cheese")
    }
    let tool = tool_fn("greet", "Breaks.", |args: Greet, _| async move { broken(args) });
    let bench = Bench::new(Toolset::new().with(tool).unwrap());
    let invoked = bench.call("greet", json!({"name": "x", "times": 1})).await;
    assert_eq!(error_of(&invoked.reply), ("tool_panicked", "The tool greet panicked: out of cheese"));
    assert_eq!(invoked.fatal, Some(Fatal::Panicked("out of cheese".into())));
}

#[tokio::test(start_paused = true)]
async fn a_panic_before_the_first_await_is_one_too() {
    fn early(_: Greet, _: ToolContext) -> std::future::Ready<ToolReply> {
        panic!("early")
    }
    let bench = Bench::new(Toolset::new().with(tool_fn("greet", "Breaks.", early)).unwrap());
    let invoked = bench.call("greet", json!({"name": "x", "times": 1})).await;
    assert_eq!(invoked.fatal, Some(Fatal::Panicked("early".into())));
}

#[tokio::test(start_paused = true)]
async fn results_are_cut_to_the_cap_and_name_both_sizes() {
    type Case = (&'static str, fn() -> ToolReply);
    let replies: [Case; 4] = [
        ("text", || ToolReply::ok("x".repeat(5000))),
        ("list", || ToolReply::ok(json!(vec!["x"; 5000]))),
        ("object", || ToolReply::ok(json!({"lines": "x".repeat(5000), "count": 7}))),
        ("error", || ToolReply::error("too_long", "x".repeat(5000)).shown_as("y".repeat(5000))),
    ];
    let mut tools = Toolset::new();
    for (name, make) in replies {
        tools =
            tools.with(tool_fn(name, "Big.", move |_: Map<String, Value>, _| async move { make() })).unwrap();
    }
    let mut bench = Bench::new(tools);
    bench.cap = 1000;
    for (name, _) in replies {
        let reply = bench.call(name, json!({})).await.reply;
        let text = reply.model_text();
        assert!(text.len() < 1200 && text.contains(" bytes]"), "{name}: {text}");
        assert!(reply.for_person.is_none_or(|text| text.len() < 1100));
        match name {
            // What is an object stays one: its small members, an error's code first of all, are still read by programs.
            "object" => assert_eq!(reply.for_model["count"], json!(7)),
            "error" => assert_eq!(reply.for_model["error"], json!("too_long")),
            _ => assert!(reply.for_model.is_string()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn progress_and_lines_go_to_the_log_under_the_call() {
    let tool = tool_fn("work", "Works.", |_: Map<String, Value>, cx: ToolContext| async move {
        assert_eq!((cx.call_id().as_str(), cx.call_index()), ("call_0", 0));
        cx.progress("half").await;
        cx.log(crate::message::Severity::Info, "a line").await;
        ToolReply::ok("done")
    });
    let bench = Bench::new(Toolset::new().with(tool).unwrap());
    let (_, log) = bench.call_with("work", Ok(Map::new())).await;
    assert_eq!(
        crate::testing::timeline(&log),
        "root started\nroot call 0 work {}\nroot call 0 work: half\nroot log info \"a line\"\n\
         root result 0 error {\"error\":\"no_result\",\"message\":\"the run ended before this call did\"}\n\
         root done \"called\"\n"
    );
}
