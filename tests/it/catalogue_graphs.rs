//! Agents that are files, as nodes of graphs.

use std::sync::Arc;

use anabranch::agent::ToolLoop;
use anabranch::agent::planner::{CheckedGraph, GraphExecutor, GraphPlanner, WorkflowGraph};
use anabranch::error::ErrorKind;
use anabranch::model::ChatModel;
use anabranch::testing::TestRoot;
use anabranch::tool::{Policy, Producer};
use anabranch::{Agent, SubAgentOutcome};
use serde_json::{Value, json};

use crate::agents_kit::Agents;
use crate::stage::{Played, Recorder, all_tools, calls, results};

fn planner(agents: &Agents) -> GraphPlanner {
    let spawner = agents.spawner();
    GraphPlanner::new().with_agents_of(move |tools| spawner.node_agents(tools))
}

fn checked(agents: &Agents, graph: Value) -> Result<CheckedGraph, String> {
    let graph = WorkflowGraph::parse(&graph.to_string()).unwrap();
    let catalogue = planner(agents).catalogue(&all_tools(), &Policy::default());
    CheckedGraph::check(graph, &catalogue).map_err(|wrong| wrong[0].to_string())
}

async fn play(graph: CheckedGraph, script: Value) -> Played {
    let (test, model) = (TestRoot::new(), Recorder::new(&script));
    let agent = Agent::with_producer(Arc::<Recorder>::clone(&model), Arc::new(ToolLoop::default()));
    let executor = Arc::new(GraphExecutor::new(graph).answer_only());
    let outcome = agent.tools(all_tools()).run_with(executor, test.root(), "work").settle().await;
    Played { outcome, log: test.finish(), model }
}

/// A node has the prompt, the tools and the schema of its definition, and what it may not its own children may not either.
#[tokio::test(start_paused = true)]
async fn a_node_is_what_its_file_says() {
    let agents = Agents::new(&[
        ("scout", "tools: chaos_sleep, run_subtask"),
        ("counter", "output_schema: { type: object, required: [n] }"),
    ]);
    let graph = json!({
        "nodes": [
            { "id": "look", "agent": "scout", "prompt": "Look." },
            { "id": "count", "agent": "Counter", "prompt": "Count." },
        ],
        "edges": [{ "from": "look", "to": "count", "as": "seen" }],
    });
    assert!(checked(&agents, graph.clone()).unwrap_err().contains("there is no agent \"Counter\""));
    let graph = json!({ "nodes": [graph["nodes"][0], { "id": "count", "agent": "counter", "prompt": "Count." }], "edges": graph["edges"] });
    let script = json!([
        { "when": { "title": "look" }, "turns": [
            calls("chaos_sleep", json!({ "ms": 1 })), calls("chaos_progress", json!({ "n": 1, "ms": 1 })),
            calls("run_subtask", json!({ "description": "below", "prompt": "below" })), { "text": "seen" }] },
        { "when": { "title": "below" }, "turns": [calls("chaos_progress", json!({ "n": 1, "ms": 1 })), { "text": "could not" }] },
        { "when": { "title": "count" }, "turns": [{ "text": "{\"n\": 2}" }] },
    ]);
    let played = play(checked(&agents, graph).unwrap(), script).await;
    assert_eq!(played.outcome, SubAgentOutcome::completed(json!({ "n": 2 })));
    let look = played.model.of("look");
    assert_eq!(look[0].system.as_deref().map(str::trim), Some("You are scout."));
    assert_eq!(played.model.offered("look"), ["chaos_sleep", "run_subtask"]);
    let last = results(look.last().unwrap());
    assert!(last[0].contains("slept") && last[1].contains("\"decision\":\"deny\""), "{last:?}");
    assert!(results(played.model.of("below").last().unwrap())[0].contains("\"decision\":\"deny\""));
}

/// A node whose model, or one of whose tools, cannot be had goes on without, and the graph's log says so: once in a tree, in the words
/// in which it is said of an agent that is delegated to.
#[tokio::test(start_paused = true)]
async fn what_a_node_cannot_have_is_told() {
    let agents =
        Agents::new(&[("a", "model: small\ntools: [chaos_sleep, chaos_bigg]"), ("b", "model: sonnet")]);
    let small = Recorder::new(&json!([{ "turns": [{ "text": "small" }], "then": "repeat" }]));
    let given = Arc::clone(&small);
    let spawner = agents.spawner().models(move |name| match name {
        "small" => Ok(Arc::<Recorder>::clone(&given) as Arc<dyn ChatModel>),
        other => Err(ErrorKind::Model { name: other.to_owned(), reason: "not served here".into() }.into()),
    });
    let planner = GraphPlanner::new().with_agents_of(move |tools| spawner.node_agents(tools));
    let node = |id: &str, agent: &str| json!({ "id": id, "agent": agent, "prompt": "Work." });
    let graph = json!({
        "nodes": [node("one", "a"), node("two", "b"), node("three", "b")],
        "edges": [{ "from": "one", "to": "two" }, { "from": "two", "to": "three" }],
    });
    let graph = WorkflowGraph::parse(&graph.to_string()).unwrap();
    let graph = CheckedGraph::check(graph, &planner.catalogue(&all_tools(), &Policy::default())).unwrap();
    let played = play(graph, json!([{ "turns": [{ "text": "large" }], "then": "repeat" }])).await;
    assert_eq!(played.outcome, SubAgentOutcome::completed("large"));
    assert_eq!(
        (small.of("one").len(), played.model.of("two").len(), played.model.of("three").len()),
        (1, 1, 1)
    );
    let timeline = played.timeline().replace(&agents.path().display().to_string(), "…");
    let told: Vec<&str> = timeline.lines().filter(|line| line.contains(" log ")).collect();
    let expected = [
        "root log warning \"…/a.md: there is no tool \\\"chaos_bigg\\\" here; did you mean chaos_big?\""
            .to_owned(),
        format!(
            "root log warning \"…/b.md: the model \\\"sonnet\\\" cannot be had (unknown model \\\"sonnet\\\": not served here); {} is used instead\"",
            played.model.name()
        ),
    ];
    assert_eq!(told, expected, "{timeline}");
}

/// A file that is added, or mended, counts with the next plan.
#[test]
fn a_planner_sees_the_files_as_they_are() {
    let agents = Agents::new(&[]);
    let graph = || json!({ "nodes": [{ "id": "a", "agent": "late", "prompt": "x" }] });
    assert!(checked(&agents, graph()).is_err());
    agents.add("late", "tools: nothing_of_the_kind");
    // With nothing to work with it is no agent.
    assert!(checked(&agents, graph()).is_err());
    agents.add("late", "tools: chaos_sleep, run_subtask");
    assert!(checked(&agents, graph()).is_ok());
    assert_eq!(planner(&agents).kind(), "graph_planner");
}
