//! The producer that runs a graph: each node a child run, those that are ready at once.

use std::fmt;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::{Map, Value, json};

use super::check::CheckedGraph;
use super::digest::digest;
use super::graph_planner::GraphPlanner;
use super::node_run::{NodeEnd, NodeRun};
use super::report::Report;
use super::resume::FinishedNodes;
use super::schedule::Schedule;
use crate::context::{RunContext, RunSpec};
use crate::message::{Extra, StepRef, StepResult, TaskRef, TaskUpdate};
use crate::outcome::{FailureKind, SubAgentOutcome};
use crate::stream::{Emitter, SubAgentStream};
use crate::tool::shared::{Author, Namespace, SharedResults};
use crate::tool::{Caller, Job, Producer};

/// A producer that runs a graph, or plans one in a child of its own and then runs it.
///
/// Each node is one child run, titled with the node's id; a tool node is a run of one call. A node begins when all that it waits for have
/// completed; those that are ready begin at once, within the limits of the tree. A node that does not complete takes along what depends on
/// it, which never begins, and nothing else.
///
/// It completes with `{"result", "outputs"}`: the value of the one node that nothing waits for (or an object of these, by id, if they are
/// several), and the values of all. If a node does not complete, neither does it: what there is travels as the partial result, with
/// `failed` and `skipped` beside `outputs`.
///
/// The log says of each node `step_started`, then `step_completed`, `step_failed` or `step_skipped`, and its `step_result`, from which
/// [`FinishedNodes`] knows it again.
///
/// # Cancel safety
///
/// Dropping its stream cancels all nodes that run.
#[derive(Clone)]
pub struct GraphExecutor {
    source: Source,
    finished: Arc<FinishedNodes>,
    answer_only: bool,
}

#[derive(Clone)]
enum Source {
    Graph(Arc<CheckedGraph>),
    Planner(GraphPlanner),
}

impl GraphExecutor {
    /// What `run_started` calls it.
    pub const KIND: &'static str = "graph_executor";

    /// Runs this graph.
    #[must_use]
    pub fn new(graph: CheckedGraph) -> Self {
        Self::of(Source::Graph(Arc::new(graph)))
    }

    /// Has this planner plan a graph for the job's instructions, as a child, and runs that.
    #[must_use]
    pub fn planned_by(planner: GraphPlanner) -> Self {
        Self::of(Source::Planner(planner))
    }

    fn of(source: Source) -> Self {
        Self { source, finished: Arc::default(), answer_only: false }
    }

    /// Takes the results of nodes that completed earlier from there. Default: all nodes run.
    #[must_use]
    pub fn resuming(mut self, finished: FinishedNodes) -> Self {
        self.finished = Arc::new(finished);
        self
    }

    /// Completes with the `result` alone. Default: with `{"result", "outputs"}`.
    #[must_use]
    pub fn answer_only(mut self) -> Self {
        self.answer_only = true;
        self
    }
}

impl fmt::Debug for GraphExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphExecutor").field("finished", &self.finished.len()).finish_non_exhaustive()
    }
}

impl Producer for GraphExecutor {
    fn kind(&self) -> &str {
        Self::KIND
    }

    fn produce(&self, job: Job, cx: RunContext) -> SubAgentStream {
        let executor = self.clone();
        SubAgentStream::generate(|emit| async move {
            let graph = match executor.graph(&job, &cx).await {
                Ok(graph) => graph,
                Err(outcome) => return outcome,
            };
            let token = cx.token().clone();
            let execution = Execution::new(&graph, executor.finished, job, cx, emit);
            let outcome = execution.run().await.into_outcome(executor.answer_only);
            match token.cancelled() {
                // Nodes that were cancelled with this run did not fail by themselves.
                Some(cancelled) if !outcome.is_ok() => {
                    SubAgentOutcome::cancelled(cancelled.by).with_partial(outcome.partial().cloned())
                }
                _ => outcome,
            }
        })
    }
}

impl GraphExecutor {
    async fn graph(&self, job: &Job, cx: &RunContext) -> Result<Arc<CheckedGraph>, SubAgentOutcome> {
        let planner = match &self.source {
            Source::Graph(graph) => return Ok(Arc::clone(graph)),
            Source::Planner(planner) => planner,
        };
        let spec =
            RunSpec::new("planner", Arc::clone(&job.instructions)).titled("plan").produced_by(planner.kind());
        let spec = RunSpec { model: Some(job.runtime.model.name().into()), noun: "planner".into(), ..spec };
        // The prompt of the nodes is not the planner's.
        let planner_job = Job { system_prompt: None, ..job.clone() };
        let outcome = cx.delegate(spec, |cx| planner.produce(planner_job, cx)).await;
        let SubAgentOutcome::Completed { result, .. } = outcome else { return Err(outcome) };
        let fail = |text: String| {
            let partial = Some(result.clone());
            SubAgentOutcome::failed(FailureKind::Step, text).with_partial(partial)
        };
        let catalogue = planner.catalogue(&job.tools, &job.runtime.policy);
        let graph = serde_json::from_value(result.clone()).map_err(|error| fail(error.to_string()))?;
        let graph = CheckedGraph::check(graph, &catalogue).map_err(|found| {
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            fail(format!("the planned graph cannot run: {}", found.join("; ")))
        })?;
        Ok(Arc::new(graph))
    }
}

/// One execution of one graph.
struct Execution<'a> {
    graph: &'a CheckedGraph,
    finished: Arc<FinishedNodes>,
    job: Job,
    cx: RunContext,
    emit: Emitter,
    schedule: Schedule,
    report: Report<'a>,
}

impl<'a> Execution<'a> {
    fn new(
        graph: &'a CheckedGraph,
        finished: Arc<FinishedNodes>,
        job: Job,
        cx: RunContext,
        emit: Emitter,
    ) -> Self {
        let schedule = Schedule::new(graph.nodes());
        Self { graph, finished, job, cx, emit, schedule, report: Report::new(graph) }
    }

    async fn run(mut self) -> Report<'a> {
        let graph = self.graph.graph().to_value();
        let about =
            Map::from_iter([("digest".to_owned(), json!(digest(&graph))), ("graph".to_owned(), graph)]);
        self.say("graph_started", about, None).await;
        let job = self.job.clone();
        let caller =
            Caller::new(self.cx.clone(), self.emit.clone(), job.tools.clone(), Arc::clone(&job.runtime));
        let mut running = FuturesUnordered::new();
        loop {
            // After a cancel nothing new begins, also where a tool is still given time to end.
            while self.cx.token().cancelled().is_none()
                && let Some(at) = self.schedule.begin()
            {
                if let Some(node) = self.begin(at).await {
                    let (job, caller) = (&job, &caller);
                    running.push(async move {
                        let (digest, id) = (node.digest.clone(), Arc::clone(&node.node.id));
                        (at, id, digest, node.run(job, caller).await)
                    });
                }
            }
            let Some((at, id, digest, end)) = running.next().await else { break };
            self.ended(at, &id, &digest, end).await;
        }
        self.report
    }

    /// Says that a node begins, unless it is known how it ended.
    async fn begin(&mut self, at: usize) -> Option<NodeRun> {
        let node = self.graph.nodes().get(at)?;
        let definition = self.graph.graph().nodes.get(at)?;
        let inputs = node.inputs.iter().filter_map(|input| {
            Some((Arc::clone(input.name.as_ref()?), self.report.output(input.from)?.clone()))
        });
        // Of plain values: serialising it does not fail.
        let definition = serde_json::to_value(definition).unwrap_or_default();
        let run = NodeRun::new(node, &definition, inputs.collect());
        let known = self.finished.result(&run.digest).cloned();
        let event = if known.is_some() { "step_restored" } else { "step_started" };
        self.say(event, Map::new(), Some(step(&node.id, &run.summary(), &run.digest))).await;
        let Some(result) = known else { return Some(run) };
        self.say_result(&node.id, &run.digest, None, &result).await;
        self.report.completed(at, result);
        self.schedule.completed(at);
        None
    }

    async fn ended(&mut self, at: usize, id: &str, digest: &str, end: NodeEnd) {
        let run_id = end.run_id.map(|run| run.to_string());
        if let SubAgentOutcome::Completed { result, .. } = end.outcome {
            self.say("step_completed", Map::new(), Some(step(id, "", digest))).await;
            self.say_result(id, digest, run_id, &result).await;
            self.report.completed(at, result);
            self.schedule.completed(at);
            return;
        }
        let why = end.outcome.error_text().unwrap_or_default();
        self.say("step_failed", Map::new(), Some(step(id, &why, digest))).await;
        self.share(id, Err(why));
        let skipped = self.schedule.failed(at);
        self.report.failed(at, end.outcome);
        for after in skipped {
            let Some(node) = self.graph.nodes().get(after) else { continue };
            let why = format!("it depends on {id}, which did not complete");
            let mut step = step(&node.id, &why, "");
            step.other.clear();
            self.say("step_skipped", Map::new(), Some(step)).await;
            self.report.skipped(after, at);
        }
    }

    async fn say(&self, event: &str, about: Map<String, Value>, step: Option<StepRef>) {
        let title = crate::tree::cut(self.cx.title(), 120);
        let node_id = step.as_ref().and_then(|step| step.id.clone());
        let update = TaskUpdate {
            event: event.to_owned(),
            task: TaskRef { id: Some("graph".to_owned()), title: Some(title), other: about },
            step,
            node_id,
            extra: Extra::default(),
        };
        self.emit.send(update).await;
    }

    async fn say_result(&self, id: &str, digest_of_node: &str, run_id: Option<String>, result: &Value) {
        let mut step = step(id, "", digest_of_node);
        step.other.insert("result_digest".to_owned(), json!(digest(result)));
        if let Some(run_id) = run_id {
            step.other.insert("run_id".to_owned(), json!(run_id));
        }
        self.share(id, Ok(result.clone()));
        let result = result.clone();
        let update = StepResult { step, result, error: None, is_task_result: None, extra: Extra::default() };
        self.emit.send(update).await;
    }

    /// Puts what a node came to among the tree's shared results. Where there is no room it is left out, which a list of them says.
    fn share(&self, id: &str, result: std::result::Result<Value, String>) {
        let shared = SharedResults::of(self.cx.root());
        let _ = shared.put(Namespace::Step, id, "", result, &Author::from(&self.cx));
    }
}

/// A node as the log names it, with what there is to say of it for people.
fn step(id: &str, about: &str, digest: &str) -> StepRef {
    let instructions = if about.is_empty() { id.to_owned() } else { format!("{id}: {about}") };
    let other = Map::from_iter([("digest".to_owned(), json!(digest))]);
    StepRef { id: Some(id.to_owned()), instructions: Some(instructions), other }
}
