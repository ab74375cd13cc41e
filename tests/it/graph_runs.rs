//! Graphs that run: what begins when, what a failure takes along, and what need not run again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anabranch::agent::planner::{
    AgentKind, CheckedGraph, FinishedNodes, GraphEdge, GraphExecutor, GraphNode, GraphPlanner, WorkflowGraph,
};
use anabranch::budget::{Limit, RunLimits, TreeLimits};
use anabranch::context::{Root, RootBuilder, RunContext, RunSpec};
use anabranch::message::{MessageBody, ProcessingMessage};
use anabranch::outcome::{CancelledBy, FailureKind, LimitKind, OutcomeKind};
use anabranch::testing::{TestRoot, check_sub_agent, timeline};
use anabranch::tool::{Job, Policy, Producer, ToolReply, Toolset, tool_fn};
use anabranch::tree::RunTree;
use anabranch::{Chunk, SubAgentOutcome, SubAgentStream};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::stage::{Recorder, all_tools, runtime, stubborn};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Shout {
    text: String,
    times: Option<usize>,
}

pub(crate) fn tools() -> Toolset {
    let shout = tool_fn("shout", "Shouts a text.", |args: Shout, _| async move {
        ToolReply::ok(args.text.to_uppercase().repeat(args.times.unwrap_or(1)))
    });
    all_tools().with(shout).unwrap()
}

pub(crate) fn checked(graph: Value) -> CheckedGraph {
    let graph = WorkflowGraph::parse(&graph.to_string()).unwrap();
    CheckedGraph::check(graph, &GraphPlanner::new().catalogue(&tools(), &Policy::default())).unwrap()
}

pub(crate) fn agent(id: &str) -> Value {
    json!({"id": id, "agent": "agent", "prompt": format!("Do {id}.")})
}

pub(crate) fn edge(from: &str, to: &str) -> Value {
    json!({"from": from, "to": to})
}

/// Runs that answer with this text, by the id of their node.
pub(crate) fn says(answers: &[(&str, &str)]) -> Value {
    let entry =
        |(id, text): &(&str, &str)| json!({"when": {"title": format!("^{id}$")}, "turns": [{"text": text}]});
    answers.iter().map(entry).collect()
}

pub(crate) struct Ran {
    pub(crate) outcome: SubAgentOutcome,
    pub(crate) log: Vec<ProcessingMessage>,
    pub(crate) model: Arc<Recorder>,
}

impl Ran {
    /// The ids of the nodes that had a run, in the order of their births.
    pub(crate) fn began(&self) -> Vec<String> {
        let tree = RunTree::of(&self.log);
        tree.nodes()
            .filter(|node| node.origin.subtask_depth == 1)
            .map(|node| node.title().to_owned())
            .collect()
    }

    pub(crate) fn finished(&self) -> FinishedNodes {
        let mut finished = FinishedNodes::default();
        self.log.iter().for_each(|message| finished.observe(message));
        finished
    }

    pub(crate) fn events(&self, event: &str) -> Vec<String> {
        let updates = self.log.iter().filter_map(|message| match message.body() {
            MessageBody::TaskUpdate(update) if update.event == event => update.node_id.clone(),
            _ => None,
        });
        updates.collect()
    }
}

pub(crate) fn job(model: &Arc<Recorder>) -> Job {
    Job::new("work", tools(), runtime(model))
}

fn spec_of_graph() -> RunSpec {
    RunSpec::new("graph", "work").produced_by(GraphExecutor::KIND)
}

pub(crate) async fn run_on(
    builder: RootBuilder,
    executor: GraphExecutor,
    script: Value,
    cancel_at: Option<&str>,
) -> Ran {
    let model = Recorder::new(&script);
    let test = TestRoot::of(builder);
    let run = test.root().run(spec_of_graph(), |cx| executor.produce(job(&model), cx));
    let mut run = std::pin::pin!(run);
    let mut outcome = None;
    while let Some(delivery) = futures::StreamExt::next(&mut run).await {
        let text = delivery.message().map(|message| message.to_json()).unwrap_or_default();
        if cancel_at.is_some_and(|words| text.contains(words)) {
            drop(test.root().cancel_all(CancelledBy::User));
        }
        outcome = run.outcome().cloned();
    }
    let outcome = run.outcome().cloned().or(outcome).unwrap();
    Ran { outcome, log: test.finish(), model }
}

pub(crate) async fn run(graph: Value, script: Value) -> Ran {
    run_on(Root::builder(), GraphExecutor::new(checked(graph)), script, None).await
}

/// a and b at once, then c, then the tool d.
pub(crate) fn diamond() -> Value {
    json!({
        "nodes": [agent("a"), agent("b"), agent("c"), {"id": "d", "tool": "shout", "args": {"times": 2}}],
        "edges": [edge("a", "c"), {"from": "b", "to": "c", "as": "found"}, {"from": "c", "to": "d", "as": "text"}],
    })
}

#[tokio::test(start_paused = true)]
async fn nodes_begin_when_what_they_wait_for_has_completed() {
    let ran = run(diamond(), says(&[("a", "from a"), ("b", "from ```b"), ("c", "hi")])).await;
    let outputs = json!({"a": "from a", "b": "from ```b", "c": "hi", "d": "HIHI"});
    assert_eq!(ran.outcome, SubAgentOutcome::completed(json!({"result": "HIHI", "outputs": outputs})));
    let brief = &ran.model.of("c")[0].run.prompt;
    assert!(brief.starts_with("Do c.\n\nThe inputs are"), "{brief}");
    assert!(brief.contains("Input `a`:\n\n```text\nfrom a\n```\n"), "{brief}");
    assert!(brief.contains("Input `found`:\n\n````text\nfrom ```b\n````\n"), "{brief}");
    assert_eq!(
        timeline(&ran.log),
        "root started\n\
         root task graph_started\n\
         root task step_started\n\
         root task step_started\n\
         root/a started\n\
         root/a text \"from a\"\n\
         root/a turn 1 end_turn\n\
         root/a done \"from a\"\n\
         root task step_completed\n\
         root step result \"from a\"\n\
         root/b started\n\
         root/b text \"from ```b\"\n\
         root/b turn 1 end_turn\n\
         root/b done \"from ```b\"\n\
         root task step_completed\n\
         root step result \"from ```b\"\n\
         root task step_started\n\
         root/c started\n\
         root/c text \"hi\"\n\
         root/c turn 1 end_turn\n\
         root/c done \"hi\"\n\
         root task step_completed\n\
         root step result \"hi\"\n\
         root task step_started\n\
         root/d started\n\
         root/d call 0 shout {\"times\":2,\"text\":\"hi\"}\n\
         root/d result 0 ok {\"result\":\"HIHI\"}\n\
         root/d done \"HIHI\"\n\
         root task step_completed\n\
         root step result \"HIHI\"\n\
         root done {\"result\":\"HIHI\",\"outputs\":{\"a\":\"from a\",\"b\":\"from ```b\",\"c\":\"hi\",\"d\":\"HIHI\"}}\n"
    );
}

#[tokio::test(start_paused = true)]
async fn the_result_is_what_the_last_nodes_give() {
    let graph = json!({"nodes": [agent("a"), agent("b")]});
    let executor = GraphExecutor::new(checked(graph)).answer_only();
    let ran = run_on(Root::builder(), executor, says(&[("a", "1"), ("b", "2")]), None).await;
    assert_eq!(ran.outcome, SubAgentOutcome::completed(json!({"a": "1", "b": "2"})));
    let executor = GraphExecutor::new(checked(json!({"nodes": [agent("a")]}))).answer_only();
    let ran = run_on(Root::builder(), executor, says(&[("a", "1")]), None).await;
    assert_eq!(ran.outcome, SubAgentOutcome::completed("1"));
}

#[tokio::test(start_paused = true)]
async fn a_value_goes_along_where_a_schema_asks_for_one() {
    let schema = json!({"type": "integer"});
    let graph = json!({
        "nodes": [{"id": "n", "agent": "agent", "prompt": "count", "output_schema": schema},
                  {"id": "s", "tool": "shout", "args": {"text": "a"}, "output_schema": {"type": "string", "maxLength": 3}}],
        "edges": [{"from": "n", "to": "s", "as": "times"}],
    });
    let ran = run(graph.clone(), says(&[("n", "```json\n3\n```")])).await;
    assert_eq!(ran.outcome.result().unwrap()["outputs"], json!({"n": 3, "s": "AAA"}));
    let ran = run(graph, says(&[("n", "4")])).await;
    let failed = &ran.outcome.partial().unwrap()["failed"]["s"];
    assert!(
        failed["error"].as_str().unwrap().contains("output_schema") && failed["partial"] == "AAAA",
        "{failed}"
    );
}

/// I5, and the issue's own words: a failed node fails what depends on it and nothing else.
#[tokio::test(start_paused = true)]
async fn a_failure_takes_along_what_depends_on_it_and_nothing_else() {
    let graph = json!({
        "nodes": [agent("a"), {"id": "bad", "tool": "chaos_error", "args": {"message": "no"}}, agent("c"), agent("d"), agent("e")],
        "edges": [edge("bad", "c"), edge("c", "d"), edge("a", "d"), edge("a", "e")],
    });
    let ran = run(graph, says(&[("a", "1"), ("e", "2")])).await;
    let SubAgentOutcome::Failed { kind: FailureKind::Step, message, partial: Some(partial) } = &ran.outcome
    else {
        panic!("{:?}", ran.outcome)
    };
    assert!(message.starts_with("1 of 5 nodes did not complete: bad failed: no"), "{message}");
    assert!(message.ends_with("; skipped: c, d"), "{message}");
    assert_eq!(partial["outputs"], json!({"a": "1", "e": "2"}));
    assert_eq!(partial["skipped"], json!({"c": "it depends on bad", "d": "it depends on bad"}));
    assert_eq!(
        (ran.began(), ran.events("step_skipped")),
        (vec!["a".into(), "bad".into(), "e".into()], vec!["c".into(), "d".into()])
    );
}

#[tokio::test(start_paused = true)]
async fn each_way_to_fail_is_one_node_s_own() {
    let graph = json!({"nodes": [agent("ok"), {"id": "p", "tool": "chaos_panic"}, agent("h"), agent("x")]});
    let script = json!([
        {"when": {"title": "ok"}, "turns": [{"delay_ms": 5000, "text": "fine"}]},
        {"when": {"title": "h"}, "turns": [{"error": {"kind": "auth", "message": "no key"}}]},
        {"when": {"title": "x"}, "turns": [{"text": "half", "stop": "length"}]},
    ]);
    let ran = run(graph, script).await;
    let partial = ran.outcome.partial().unwrap();
    assert_eq!(partial["outputs"], json!({"ok": "fine"}));
    let outcomes = ["p", "h", "x"].map(|id| partial["failed"][id]["outcome"].as_str().unwrap().to_owned());
    assert_eq!(outcomes, ["failed", "failed", "stopped"]);
    assert_eq!(partial["failed"]["x"]["partial"], "half");
    assert_eq!(ran.outcome.kind(), OutcomeKind::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_stopped_a_node_stopped_the_whole() {
    let ran = run(
        json!({"nodes": [agent("x"), agent("y")], "edges": [edge("x", "y")]}),
        json!([{"turns": [{"text": "half", "stop": "length"}]}]),
    )
    .await;
    let SubAgentOutcome::Stopped { limit: Some(LimitKind::Output), .. } = ran.outcome else {
        panic!("{:?}", ran.outcome)
    };
    // The limit of all runs refuses the second node.
    let limits = TreeLimits { total: Limit::At(2), ..TreeLimits::default() };
    let executor = GraphExecutor::new(checked(json!({"nodes": [agent("x"), agent("y")]})));
    let ran = run_on(Root::builder().tree_limits(limits), executor, says(&[("x", "1")]), None).await;
    assert!(
        ran.outcome.error_text().unwrap().contains("y failed: Cannot start another node"),
        "{:?}",
        ran.outcome
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancel_and_a_deadline_end_all_that_runs_and_begin_nothing() {
    let hangs = json!([{"when": {"title": "a"}, "turns": [{"text": "1"}]}, {"turns": [{"text": "half", "hang": true}]}]);
    let graph = || {
        checked(
            json!({"nodes": [agent("a"), agent("b"), agent("c"), agent("d")], "edges": [edge("a", "b"), edge("b", "d")]}),
        )
    };
    let ran = run_on(Root::builder(), GraphExecutor::new(graph()), hangs.clone(), Some("\"half\"")).await;
    assert_eq!(ran.outcome.kind(), OutcomeKind::Cancelled);
    assert_eq!(RunTree::of(&ran.log).settled(), ran.began().len() + 1);

    let limits = RunLimits { wall: Limit::At(Duration::from_secs(1)), ..RunLimits::default() };
    let ran = run_on(Root::builder().run_limits(limits), GraphExecutor::new(graph()), hangs, None).await;
    let SubAgentOutcome::Stopped { limit: Some(LimitKind::Wall), .. } = ran.outcome else {
        panic!("{:?}", ran.outcome)
    };
    assert_eq!(ran.began(), ["a", "c", "b"]);
    // What completed before is not lost.
    assert_eq!(ran.finished().len(), 1);
}

/// AX-10: the run of the graph holds no permit while it waits.
#[tokio::test(start_paused = true)]
async fn ax10_one_permit_is_enough() {
    let limits = TreeLimits { live: Limit::At(1), ..TreeLimits::default() };
    let executor = GraphExecutor::new(checked(diamond()));
    let script = says(&[("a", "1"), ("b", "2"), ("c", "3")]);
    let ran = run_on(Root::builder().tree_limits(limits), executor, script, None).await;
    assert!(ran.outcome.is_ok(), "{:?}", ran.outcome);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_graph_is_cancelled_also_where_a_node_is_given_time() {
    let tools = tools().with(stubborn()).unwrap();
    let graph = json!({
        "nodes": [{"id": "s", "tool": "stubborn"}, agent("next"), agent("h")],
        "edges": [edge("s", "next")],
    });
    let graph = WorkflowGraph::parse(&graph.to_string()).unwrap();
    let graph =
        CheckedGraph::check(graph, &GraphPlanner::new().catalogue(&tools, &Policy::default())).unwrap();
    let model = Recorder::new(&json!([{"turns": [{"text": "half", "hang": true}]}]));
    let test = TestRoot::new();
    let job = Job { tools, ..job(&model) };
    let run = test.root().run(spec_of_graph(), |cx| GraphExecutor::new(graph).produce(job, cx));
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        test.root().cancel_all(CancelledBy::User).await;
    };
    let (outcome, ()) = tokio::join!(run.settle(), cancel);
    assert!(matches!(outcome, SubAgentOutcome::Cancelled { by: CancelledBy::User, .. }), "{outcome:?}");
    let ran = Ran { outcome, log: test.finish(), model };
    assert_eq!(ran.began(), ["s", "h"]);
}

#[tokio::test(start_paused = true)]
async fn a_planned_graph_runs_in_the_same_tree() {
    let plan = json!({"tool_calls": [
        {"name": "add_node", "arguments": agent("a")}, {"name": "add_node", "arguments": agent("b")},
        {"name": "add_edge", "arguments": edge("a", "b")}, {"name": "finish_graph"},
    ]});
    let mut script = vec![json!({"when": {"agent": "planner"}, "turns": [plan]})];
    script.extend(says(&[("a", "1"), ("b", "2")]).as_array().unwrap().clone());
    let executor = GraphExecutor::planned_by(GraphPlanner::new());
    let ran = run_on(Root::builder(), executor.clone(), json!(script), None).await;
    assert_eq!(
        (ran.outcome.result().unwrap()["result"].clone(), ran.began()),
        (json!("2"), vec!["plan".into(), "a".into(), "b".into()])
    );
    let ran =
        run_on(Root::builder(), executor, json!([{"turns": [{"text": "no"}], "then": "repeat"}]), None).await;
    assert_eq!((ran.outcome.kind(), ran.began()), (OutcomeKind::Failed, vec!["plan".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn the_executor_passes_the_battery() {
    let graph = json!({
        "nodes": [agent("a"), {"id": "s", "tool": "shout", "args": {"text": "x"}}, {"id": "e", "tool": "chaos_error", "args": {"message": "no"}}, agent("c"), agent("z")],
        "edges": [edge("a", "c"), {"from": "s", "to": "c"}, edge("e", "z")],
    });
    let model = Recorder::new(&says(&[("a", "1"), ("c", "2")]));
    let executor = GraphExecutor::new(checked(graph));
    let report = check_sub_agent(|cx| executor.produce(job(&model), cx)).await;
    assert!(report.is_ok(), "{report}");
}

/// A node that says its id after a while, or fails, as its brief says.
struct Worker;

impl Producer for Worker {
    fn kind(&self) -> &str {
        "worker"
    }

    fn produce(&self, job: Job, cx: RunContext) -> SubAgentStream {
        SubAgentStream::generate(|emit| async move {
            let order = job.instructions.lines().next().unwrap_or_default().to_owned();
            let (fails, wait) = order.split_once(' ').unwrap();
            emit.send(Chunk::text(&*order)).await;
            tokio::time::sleep(Duration::from_millis(wait.parse().unwrap())).await;
            match fails {
                "fail" => SubAgentOutcome::failed(FailureKind::Tool, "as told"),
                _ => SubAgentOutcome::completed(&**cx.title()),
            }
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any graph, any nodes failing, any pace: each node begins after what it waits for, and only what is below a failure is missing.
    #[test]
    fn random_graphs_run(
        nodes in proptest::collection::vec((any::<bool>(), any::<bool>(), 0_u64..50), 1..16),
        raw in proptest::collection::vec((0_usize..16, 0_usize..16), 0..40),
    ) {
        let count = nodes.len();
        let fails: Vec<bool> = nodes.iter().map(|(one, other, _)| *one && *other).collect();
        let pairs: BTreeSet<(usize, usize)> =
            raw.into_iter().map(|(one, other)| (one.min(other), one.max(other))).filter(|(from, to)| from != to && *to < count).collect();
        let graph = WorkflowGraph {
            nodes: nodes.iter().enumerate().map(|(at, (.., wait))| GraphNode {
                id: format!("n{at}"),
                agent: Some("worker".into()),
                prompt: Some(format!("{} {wait}", if fails[at] { "fail" } else { "work" })),
                ..GraphNode::default()
            }).collect(),
            edges: pairs.iter().map(|(from, to)| GraphEdge { from: format!("n{from}"), to: format!("n{to}"), name: None }).collect(),
        };
        let mut lost = BTreeSet::new();
        for at in 0..count {
            if pairs.iter().any(|(from, to)| *to == at && (fails[*from] || lost.contains(from))) {
                lost.insert(at);
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let ran = runtime.block_on(async {
            let planner = GraphPlanner::new().with_agent(AgentKind::new("worker", "Works.").produced_by(Arc::new(Worker)));
            let graph = CheckedGraph::check(graph, &planner.catalogue(&tools(), &Policy::default())).unwrap();
            run_on(Root::builder(), GraphExecutor::new(graph), json!([]), None).await
        });
        let (mut begun, mut ended) = (BTreeMap::new(), BTreeMap::new());
        let tree = RunTree::of(&ran.log);
        for (seq, message) in ran.log.iter().enumerate() {
            let node = tree.node(&message.nesting().unwrap().origin.run_id).unwrap();
            let Some(at) = node.title().strip_prefix('n').and_then(|at| at.parse::<usize>().ok()) else { continue };
            match message.body() {
                MessageBody::RunStarted(_) => drop(begun.insert(at, seq)),
                MessageBody::RunFinished(_) => drop(ended.insert(at, seq)),
                _ => {}
            }
        }
        for (from, to) in &pairs {
            if let Some(begun) = begun.get(to) {
                prop_assert!(ended[from] < *begun, "n{from} ended after n{to} began");
            }
        }
        let ran_at: BTreeSet<usize> = begun.keys().copied().collect();
        let expected: BTreeSet<usize> = (0..count).filter(|at| !lost.contains(at)).collect();
        prop_assert_eq!(ran_at, expected);
        prop_assert_eq!(ran.outcome.is_ok(), !fails.iter().zip(0..).any(|(fails, at)| *fails && !lost.contains(&at)));
    }
}
