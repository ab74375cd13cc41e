//! A workflow graph: two nodes count at the same time, a third one joins what they found.
//!
//! Run it with `cargo run --example plan`. You see each node begin and end, then the result of the last one. A model can plan such a
//! graph (`GraphPlanner`); this one is written by hand, and its nodes are tools, so that nothing is left to chance.

use std::io::{self, Write};
use std::sync::Arc;

use anabranch::agent::ToolLoop;
use anabranch::agent::planner::{CheckedGraph, GraphExecutor, NodeCatalogue, WorkflowGraph};
use anabranch::message::MessageBody;
use anabranch::model::OfflineModel;
use anabranch::tool::{AgentRuntime, Job, Policy, Producer, ToolReply, Toolset, tool_fn};
use anabranch::{Root, RunSpec, SubAgentOutcome};
use futures::StreamExt;

const GRAPH: &str = r#"{
  "nodes": [
    { "id": "short", "tool": "count_words", "args": { "text": "one two" } },
    { "id": "long", "tool": "count_words", "args": { "text": "one two three four" } },
    { "id": "both", "tool": "add" }
  ],
  "edges": [
    { "from": "short", "to": "both", "as": "one" },
    { "from": "long", "to": "both", "as": "other" }
  ]
}"#;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Text {
    text: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Pair {
    one: u64,
    other: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    run(&mut io::stdout()).await
}

pub(crate) async fn run(out: &mut impl Write) -> io::Result<()> {
    let count = tool_fn("count_words", "Counts words.", |args: Text, _| async move {
        ToolReply::ok(args.text.split_whitespace().count())
    });
    let add = tool_fn("add", "Adds.", |args: Pair, _| async move { ToolReply::ok(args.one + args.other) });
    let tools = Toolset::new().with(count).and_then(|tools| tools.with(add)).map_err(io::Error::other)?;

    let graph = WorkflowGraph::parse(GRAPH).map_err(io::Error::other)?;
    let graph = CheckedGraph::check(graph, &NodeCatalogue::new(&tools, &Policy::default()))
        .map_err(|violations| io::Error::other(format!("{violations:?}")))?;
    let executor = GraphExecutor::new(graph).answer_only();

    let runtime = AgentRuntime::new(Arc::new(OfflineModel::new()), Arc::new(ToolLoop::default()));
    let job = Job::new("count", tools, Arc::new(runtime));
    let root = Root::new();
    let mut run = root.run(RunSpec::new("graph", "count"), |cx| executor.produce(job, cx));
    while let Some(delivery) = run.next().await {
        if let Some(MessageBody::TaskUpdate(update)) = delivery.message().map(|message| message.body())
            && let Some(node) = &update.node_id
        {
            writeln!(out, "{node}: {}", update.event)?;
        }
    }
    writeln!(out, "outcome: {:?}", run.outcome().and_then(SubAgentOutcome::result))
}
