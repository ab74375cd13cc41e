//! Agents that are files, as nodes of graphs.

use std::sync::Arc;

use anabranch::agent::ToolLoop;
use anabranch::agent::planner::{CheckedGraph, GraphExecutor, GraphPlanner, WorkflowGraph};
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
