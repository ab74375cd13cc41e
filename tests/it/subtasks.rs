//! `run_subtask` and `run_search` by the acceptance criteria of the original core.

use std::sync::Arc;

use anabranch::agent::{RunSearch, RunSubtask, SEARCH_TOOLS};
use anabranch::budget::{Limit, TreeLimits};
use anabranch::message::MessageBody;
use anabranch::outcome::{LimitKind, SubAgentOutcome};
use anabranch::tool::{Access, SubAgentRun, SubAgentTool, ToolReply, Toolset, tool_fn};
use serde_json::{Map, Value, json};

use crate::stage::{Played, Stage, all_tools, calls, delegates, results};

fn spec(name: &str) -> anabranch::model::ToolSpec {
    all_tools().get(name).unwrap().spec().clone()
}

fn status(name: &str, args: Value) -> Option<String> {
    all_tools().get(name).unwrap().status_text(args.as_object().unwrap())
}

/// A root that calls one tool and is done; its children answer.
fn one_call(name: &str, args: Value) -> Stage {
    Stage::new(json!([
        { "when": { "depth": 0 }, "turns": [calls(name, args), { "text": "done" }] },
        { "turns": [{ "text": "the child's answer" }] },
    ]))
}

/// What the root's model read as the result of its first call.
fn result(played: &Played) -> Value {
    let requests = played.model.requests();
    let last = requests.iter().rfind(|request| request.run.depth == 0).unwrap();
    let text = results(last)[0];
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

/// A tool that reads nothing.
fn nothing(name: &str) -> impl anabranch::tool::Tool + use<> {
    tool_fn(name, "Nothing.", |_: Map<String, Value>, _| async { ToolReply::ok("nothing") })
}

#[test]
fn ac17_the_surface_of_run_subtask() {
    let spec = spec("run_subtask");
    assert!(!spec.description.is_empty());
    assert_eq!(spec.parameters["type"], json!("object"));
    assert_eq!(spec.parameters["required"], json!(["description", "prompt"]));
    assert_eq!(spec.parameters["additionalProperties"], json!(false));
    assert_eq!(all_tools().get("run_subtask").unwrap().access(), Access::Spawn);
}

#[test]
fn ac18_status_text() {
    let of = |args| status("run_subtask", args);
    assert_eq!(of(json!({"description": " count "})).as_deref(), Some("Running subtask: count"));
    for args in [json!({}), json!({"description": " "}), json!({"description": 3})] {
        assert_eq!(of(args).as_deref(), Some("Running subtask"));
    }
}

#[tokio::test(start_paused = true)]
async fn ac19_a_missing_prompt_has_a_code() {
    for args in [
        json!({"description": "count"}),
        json!({"description": "count", "prompt": " \n"}),
        json!({"description": "count", "prompt": 3}),
        json!({}),
    ] {
        let played = one_call("run_subtask", args).play().await;
        let result = result(&played);
        assert_eq!(result["error"], json!("missing_prompt"));
        assert!(result.get("description").is_none());
        assert_eq!(played.tree().len(), 1);
    }
}

/// Runs nest `max` deep, each calls `name` with `args` in its first turn.
async fn nested(max: u32, name: &str, args: Value) -> Played {
    let agents = json!([
        { "when": { "depth": max }, "turns": [calls(name, args), { "text": "at the limit" }] },
        { "turns": [delegates(&["deeper"]), { "text": "above" }] },
    ]);
    let limits = TreeLimits { depth: Limit::At(max), ..TreeLimits::default() };
    Stage::new(agents).tree_limits(limits).play().await
}

#[tokio::test(start_paused = true)]
async fn ac20_at_the_limit_the_gate_refuses_with_both_numbers() {
    // The gate comes before the parameters.
    for args in [json!({"description": "x", "prompt": "x"}), json!({})] {
        let played = nested(2, "run_subtask", args).await;
        let deepest = played.model.requests().into_iter().rfind(|request| request.run.depth == 2).unwrap();
        let refusal: Value = serde_json::from_str(results(&deepest)[0]).unwrap();
        assert_eq!(refusal["error"], json!("max_recursion_depth_reached"));
        assert_eq!((&refusal["depth"], &refusal["max_depth"]), (&json!(2), &json!(2)));
        assert!(refusal["message"].as_str().unwrap().contains("another subtask"));
        assert_eq!(played.outcome, SubAgentOutcome::completed("above"));
        assert_eq!(played.tree().len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn ac21_the_answer_comes_back_and_the_child_s_messages_carry_its_place() {
    let played = one_call("run_subtask", json!({"description": "count", "prompt": "Count."})).play().await;
    assert_eq!(result(&played), json!("the child's answer"));
    played.is(&[
        "root started",
        "root turn 1 tool_calls",
        "root call 0 run_subtask: Running subtask: count",
        "root/count started",
        "root/count text \"the child's answer\"",
        "root/count turn 1 end_turn",
        "root/count done \"the child's answer\"",
        "root result 0 ok {\"result\":\"the child's answer\"}",
        "root text \"done\"",
        "root turn 2 end_turn",
        "root done \"done\"",
    ]);
    let origin = &played.log[3].nesting().unwrap().origin;
    assert_eq!(
        (origin.subtask_depth, origin.parent_tool_call_id.as_ref().unwrap().as_str()),
        (1, "call_0_0")
    );
    assert_eq!(origin.parent_run_id.as_ref(), Some(&origin.root_run_id));
    let MessageBody::RunStarted(started) = played.log[3].body() else { panic!() };
    assert_eq!((&*started.agent, &*started.title, &*started.task), ("subtask", "count", "Count."));
    assert_eq!(&*started.producer, "tool_loop");
}

#[tokio::test(start_paused = true)]
async fn ac22_the_child_can_delegate_too() {
    let agents = json!([
        { "when": { "depth": 2 }, "turns": [{ "text": "deep" }] },
        { "turns": [delegates(&["deeper"]), { "text": "above" }] },
    ]);
    let only = Toolset::new().with_sub_agent(RunSubtask::default()).unwrap();
    let played = Stage::new(agents).tools(only).play().await;
    assert_eq!(played.tree().len(), 3);
    assert_eq!(played.end_of("root/deeper/deeper"), "done \"deep\"");
}

#[tokio::test(start_paused = true)]
async fn ac23_ac34_the_caller_s_depth_is_what_it_was() {
    for (name, args) in
        [("run_subtask", json!({"description": "a", "prompt": "a"})), ("run_search", json!({"query": "a"}))]
    {
        let agents = json!([
            { "when": { "depth": 0 }, "turns": [calls(name, args.clone()), calls(name, args), { "text": "done" }] },
            { "turns": [{ "text": "child" }] },
        ]);
        let limits = TreeLimits { depth: Limit::At(1), ..TreeLimits::default() };
        let played = Stage::new(agents).tree_limits(limits).play().await;
        let depths: Vec<u32> = played.model.requests().iter().map(|request| request.run.depth).collect();
        assert_eq!(depths, [0, 1, 0, 1, 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn ac24_every_tool_of_the_parent_reaches_the_child_in_order() {
    let played = one_call("run_subtask", json!({"description": "count", "prompt": "Count."})).play().await;
    let all: Vec<String> = all_tools().names().map(str::to_owned).collect();
    assert_eq!(played.model.offered("count"), all);
    assert_eq!(played.model.offered("work"), all);
}

#[tokio::test(start_paused = true)]
async fn at_the_limit_no_tool_that_spawns_is_offered() {
    let played = nested(1, "chaos_sleep", json!({"ms": 1})).await;
    let offered = played.model.offered("deeper");
    assert!(
        !offered.is_empty() && offered.iter().all(|name| !name.starts_with("run_") && name != "chaos_spawn")
    );
}

#[tokio::test(start_paused = true)]
async fn a_subtask_without_an_answer_is_an_error_with_its_description() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["blank"]), { "text": "done" }] },
        { "turns": [{ "text": " " }] },
    ]);
    let played = Stage::new(agents).play().await;
    let result = result(&played);
    assert_eq!((&result["error"], &result["description"]), (&json!("subtask_failed"), &json!("blank")));
    assert_eq!((&result["outcome"], &result["message"]), (&json!("failed"), &json!("the answer was blank")));
    assert!(played.end_of("root/blank").starts_with("failed (empty): the answer was blank"));
    assert_eq!(played.outcome, SubAgentOutcome::completed("done"));
}

#[tokio::test(start_paused = true)]
async fn a_subtask_s_turns_are_limited_by_its_tool() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [delegates(&["long"]), { "text": "done" }] },
        { "turns": [calls("chaos_sleep", json!({"ms": 1}))], "then": "repeat" },
    ]);
    let tools = anabranch::tool::chaos::add_to(&Toolset::new()).unwrap();
    let played =
        Stage::new(agents).tools(tools.with_sub_agent(RunSubtask::with_max_turns(3)).unwrap()).play().await;
    assert_eq!(played.end_of("root/long"), format!("stopped ({})", LimitKind::Turns));
    assert_eq!(played.model.of("long").len(), 3);
    assert_eq!(result(&played)["stop_class"], json!("max_steps"));
}

#[test]
fn ac25_ac26_the_surface_of_run_search() {
    let spec = spec("run_search");
    assert_eq!(spec.parameters["required"], json!(["query"]));
    let breadth = &spec.parameters["properties"]["breadth"];
    assert_eq!(
        (&breadth["enum"], &breadth["default"]),
        (&json!(["medium", "very thorough"]), &json!("medium"))
    );
    assert_eq!(spec.parameters["additionalProperties"], json!(false));
    let text = spec.description.to_lowercase();
    for vendor in ["gpt", "openai", "claude", "anthropic", "gemini", "google", "llama"] {
        assert!(!text.contains(vendor), "{text}");
    }
}

#[test]
fn ac27_status_text() {
    let of = |args| status("run_search", args);
    assert_eq!(of(json!({"query": "where is it"})).as_deref(), Some("Searching: where is it"));
    assert_eq!(of(json!({"query": ""})).as_deref(), Some("Searching workspace"));
    assert_eq!(of(json!({})).as_deref(), Some("Searching workspace"));
}

#[tokio::test(start_paused = true)]
async fn ac28_a_missing_query_has_a_code() {
    for args in [json!({}), json!({"query": "  "}), json!({"query": ["x"]})] {
        let played = one_call("run_search", args).play().await;
        assert_eq!(result(&played)["error"], json!("missing_query"));
        assert_eq!(played.tree().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn ac29_at_the_limit_the_gate_refuses_a_search() {
    let played = nested(2, "run_search", json!({"query": "x"})).await;
    let deepest = played.model.requests().into_iter().rfind(|request| request.run.depth == 2).unwrap();
    let refusal: Value = serde_json::from_str(results(&deepest)[0]).unwrap();
    assert_eq!(refusal["error"], json!("max_recursion_depth_reached"));
    assert_eq!((&refusal["depth"], &refusal["max_depth"]), (&json!(2), &json!(2)));
    assert!(refusal["message"].as_str().unwrap().contains("another search"));
}

#[tokio::test(start_paused = true)]
async fn ac30_ac31_only_tools_that_read_reach_a_search() {
    let mut tools = all_tools();
    for name in SEARCH_TOOLS.iter().copied().chain(["write_file", "edit_file", "browser", "read_files"]) {
        tools = tools.with(nothing(name)).unwrap();
    }
    let played = one_call("run_search", json!({"query": "x"})).tools(tools).play().await;
    assert_eq!(played.model.offered("search"), SEARCH_TOOLS);
    // Whoever calls another all the same gets told that there is none.
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [calls("run_search", json!({"query": "x"})), { "text": "done" }] },
        { "turns": [calls("run_subtask", json!({"description": "x", "prompt": "x"})), { "text": "no" }] },
    ]);
    let played = Stage::new(agents).play().await;
    let request = &played.model.of("search")[1];
    assert!(results(request)[0].contains("unknown_tool"));
    assert_eq!(played.tree().len(), 2);
}

/// A tool with the name of one that reads, which delegates.
struct Disguised(anabranch::model::ToolSpec);

impl anabranch::tool::Tool for Disguised {
    fn spec(&self) -> &anabranch::model::ToolSpec {
        &self.0
    }

    fn access(&self) -> Access {
        Access::Spawn
    }

    fn call<'a>(
        &'a self,
        _: Map<String, Value>,
        _: anabranch::tool::ToolContext,
    ) -> futures::future::BoxFuture<'a, ToolReply> {
        Box::pin(std::future::ready(ToolReply::ok("spawned")))
    }
}

#[tokio::test(start_paused = true)]
async fn ac31_a_name_alone_lets_nothing_into_a_search() {
    let spec = anabranch::model::ToolSpec {
        name: "grep".into(),
        description: "Delegates.".into(),
        parameters: json!({"type": "object"}),
    };
    let tools = all_tools().with(Disguised(spec)).unwrap();
    let played = one_call("run_search", json!({"query": "x"})).tools(tools).play().await;
    assert_eq!(played.model.offered("search"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn ac32_the_brief_is_that_of_the_breadth_with_the_query_verbatim() {
    let query = "Where is \"Forward\"'s <query> & drop?\n  second line ";
    for (breadth, own, other) in [
        (json!({}), "targeted search", "systematic sweep"),
        (json!({"breadth": "medium"}), "targeted search", "systematic sweep"),
        (json!({"breadth": "very thorough"}), "systematic sweep", "targeted search"),
        (json!({"breadth": "enormous"}), "targeted search", "systematic sweep"),
        (json!({"breadth": 7}), "targeted search", "systematic sweep"),
    ] {
        let mut args = breadth.as_object().unwrap().clone();
        args.insert("query".into(), json!(query));
        let played = one_call("run_search", Value::Object(args)).play().await;
        let brief = &played.model.of("search")[0].run.prompt;
        assert!(brief.contains(own) && !brief.contains(other) && brief.contains(query), "{brief}");
    }
}

#[tokio::test(start_paused = true)]
async fn ac33_the_final_text_comes_back_as_it_is() {
    let played = one_call("run_search", json!({"query": "x"})).play().await;
    assert_eq!(result(&played), json!("the child's answer"));
    played.is(&[
        "root started",
        "root turn 1 tool_calls",
        "root call 0 run_search: Searching: x",
        "root/search started",
        "root/search text \"the child's answer\"",
        "root/search turn 1 end_turn",
        "root/search done \"the child's answer\"",
        "root result 0 ok {\"result\":\"the child's answer\"}",
        "root text \"done\"",
        "root turn 2 end_turn",
        "root done \"done\"",
    ]);
    let origin = &played.log[3].nesting().unwrap().origin;
    assert_eq!((origin.subtask_depth, origin.parent_tool_call_id.is_some()), (1, true));
}

#[tokio::test(start_paused = true)]
async fn a_search_has_its_turns_and_a_thorough_one_twice_as_many() {
    for (breadth, turns) in [("medium", 3), ("very thorough", 6)] {
        let agents = json!([
            { "when": { "depth": 0 },
              "turns": [calls("run_search", json!({"query": "x", "breadth": breadth})), { "text": "done" }] },
            { "turns": [calls("glob", json!({}))], "then": "repeat" },
        ]);
        let tools = Toolset::new().with(nothing("glob")).unwrap();
        let tools = tools.with_sub_agent(RunSearch::with_base_turns(3)).unwrap();
        let played = Stage::new(agents).tools(tools).play().await;
        assert_eq!(played.model.of("search").len(), turns);
        let result = result(&played);
        assert_eq!((&result["error"], &result["query"]), (&json!("search_failed"), &json!("x")));
    }
}

/// C05: names and labels repeat on every level; the tree comes from the log alone, which is also what a test's end compares.
#[tokio::test(start_paused = true)]
async fn c05_three_levels_with_the_same_names() {
    let agents = json!([
        { "when": { "depth": 3 }, "turns": [{ "delay_ms": 5, "text": "deep" }] },
        { "turns": [delegates(&["same", "same"]), { "text": "up" }] },
    ]);
    let played = Stage::new(agents).play().await;
    let tree = played.tree();
    assert_eq!((tree.len(), tree.settled()), (15, 15));
    for node in tree.nodes() {
        let below = if node.origin.subtask_depth == 3 { 0 } else { 2 };
        assert_eq!(tree.children(node).count(), below);
        assert_eq!(tree.path(&node.origin.run_id).len() as u32, node.origin.subtask_depth + 1);
        for child in tree.children(node) {
            assert_eq!(child.origin.parent_run_id.as_ref(), Some(&node.origin.run_id));
        }
    }
}

/// A delegation that asks for a value.
struct Counts;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct What {
    what: String,
}

impl SubAgentTool for Counts {
    type Params = What;

    fn name(&self) -> &str {
        "count"
    }

    fn description(&self) -> &str {
        "Counts."
    }

    fn build_run(&self, params: What) -> Result<SubAgentRun, ToolReply> {
        let mut run = SubAgentRun::new("counter", format!("Count {}.", params.what));
        run.output_schema = Some(Arc::new(json!({"type": "object", "required": ["n"],
            "properties": {"n": {"type": "integer"}, "error": {"type": "string"}}})));
        Ok(run)
    }

    fn child_tools(&self, _: &Toolset) -> Toolset {
        Toolset::new()
    }
}

/// C21: the repair is the child's own matter; the parent gets the value once.
#[tokio::test(start_paused = true)]
async fn c21_a_structured_child_repairs_its_answer_by_itself() {
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [calls("count", json!({ "what": "files" })), { "text": "done" }] },
        { "turns": [{ "text": "```json\n{\"n\": \"four\"}\n```" }, { "text": "{\"n\": 4, \"error\": \"a legal value\"}" }] },
    ]);
    let tools = Toolset::new().with_sub_agent(Counts).unwrap();
    let played = Stage::new(agents).tools(tools).play().await;
    assert_eq!(result(&played), json!({"n": 4, "error": "a legal value"}));
    assert_eq!(results(&played.model.of("work")[1]).len(), 1);
    let lines = played.timeline();
    assert!(lines.contains("root result 0 ok {\"n\":4,\"error\":\"a legal value\"}\n"), "{lines}");
    assert_eq!(played.model.of("counter").len(), 2);
}
