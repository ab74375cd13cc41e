//! `anabranch plan`: an objective or a graph in, a graph or what it gives out.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use super::args::PlanArgs;
use super::host::Host;
use super::log_file::{LogLine, open_log};
use super::options::{HostOptions, UsageError};
use super::output::complain;
use super::read::read_text;
use super::save::save;
use crate::agent::Agent;
use crate::agent::planner::{
    CheckedGraph, FinishedNodes, GraphExecutor, NodeCatalogue, Violation, WorkflowGraph,
};
use crate::context::{Root, RunContext};
use crate::outcome::SubAgentOutcome;
use crate::stream::SubAgentStream;
use crate::tool::{Job, Producer};

/// What `plan` is to do.
#[derive(Debug)]
pub(crate) struct PlanOptions {
    /// Not blank. There is one, or a graph, or both.
    objective: Option<String>,
    execute: bool,
    graph: Option<GivenGraph>,
    save: Option<PathBuf>,
    finished: FinishedNodes,
    host: HostOptions,
}

/// A graph that need not be planned.
#[derive(Debug)]
struct GivenGraph {
    graph: WorkflowGraph,
    /// Where it is from.
    path: PathBuf,
    /// Its text, if lines of it can be named.
    text: Option<String>,
    /// What it was called, if it was run before.
    title: Option<String>,
}

impl TryFrom<PlanArgs> for PlanOptions {
    type Error = UsageError;

    fn try_from(args: PlanArgs) -> Result<Self, UsageError> {
        let host = args.host.try_into()?;
        let mut graph = args.graph.as_deref().map(read_graph).transpose()?;
        let mut finished = FinishedNodes::default();
        if let Some(path) = &args.resume {
            finished = read_log(path)?;
            if let (None, Some(known)) = (&graph, finished.graph()) {
                let title = finished.title().map(str::to_owned);
                graph = Some(GivenGraph { graph: known.clone(), path: path.clone(), text: None, title });
            }
            if graph.is_none() && args.objective.is_none() {
                let what = "the log ends before there was a graph";
                return Err(UsageError::of_file("--resume", path, what, "give the objective, or --graph"));
            }
        }
        if let Some(path) = &args.save {
            check_place(path)?;
        }
        Ok(Self { objective: args.objective, execute: args.execute, graph, save: args.save, finished, host })
    }
}

fn read_graph(path: &Path) -> Result<GivenGraph, UsageError> {
    let fail = |what: String, fix: &str| UsageError::of_file("--graph", path, what, fix);
    let text = read_text(path, WorkflowGraph::TEXT_BYTES as u64, false)
        .map_err(|unreadable| fail(unreadable.what, unreadable.fix))?;
    let fix = "write {\"nodes\": [{\"id\", \"agent\" or \"tool\", \"prompt\" or \"args\"}], \"edges\": [{\"from\", \"to\"}]}";
    let graph = WorkflowGraph::parse(&text).map_err(|error| fail(format!("not a graph: {error}"), fix))?;
    Ok(GivenGraph { graph, path: path.to_owned(), text: Some(text), title: None })
}

/// How many bad lines of a log are told one by one.
const TOLD: usize = 5;

/// Reads what of an execution is in a log. Lines that are no messages are told and left out: the log may be cut.
fn read_log(path: &Path) -> Result<FinishedNodes, UsageError> {
    let fail = |what: String| {
        UsageError::of_file("--resume", path, what, "name the log of `plan --execute --output jsonl`")
    };
    let (mut finished, mut problems) = (FinishedNodes::default(), Vec::new());
    let mut more = 0_usize;
    for line in open_log(path).map_err(|error| fail(error.to_string()))? {
        match line {
            Ok(LogLine::Message(message)) => finished.observe(&message),
            Ok(LogLine::Problem(problem)) if problems.len() < TOLD => problems.push(problem),
            Ok(LogLine::Problem(_)) => more += 1,
            Err(error) => return Err(fail(error.to_string())),
        }
    }
    if !finished.has_execution() {
        return Err(fail("no graph was run in this log".to_owned()));
    }
    let mut err = std::io::stderr();
    for problem in problems {
        complain(&mut err, format_args!("warning: {}: {problem}", path.display()));
    }
    if more > 0 {
        complain(&mut err, format_args!("warning: {more} more lines are no messages of this log"));
    }
    Ok(finished)
}

/// What would fail at the end is told before anything runs.
fn check_place(path: &Path) -> Result<(), UsageError> {
    let fail = |what: &str, fix: &str| Err(UsageError::of_file("--save", path, what, fix));
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match path.file_name() {
        None => fail("it names no file", "name the file to write"),
        Some(_) if path.is_dir() => fail("it is a directory", "name the file to write"),
        Some(_) if !directory.is_dir() => fail("its directory does not exist", "create that first"),
        Some(_) => Ok(()),
    }
}

/// Plans a graph, or runs one, or both.
pub(super) fn plan(options: PlanOptions) -> ExitCode {
    let PlanOptions { objective, execute, graph, save: place, finished, host } = options;
    Host::open(&host, |host| {
        let objective = objective.unwrap_or_else(|| name_of(graph.as_ref()));
        let mut planner = host.planner();
        if let Some(place) = place.clone() {
            planner = planner.on_planned(move |graph| write(&place, graph));
        }
        let catalogue = planner.catalogue(host.tools(), host.policy());
        let given = graph.map(|given| check(given, &catalogue)).transpose()?;
        if let (Some(graph), Some(place)) = (&given, &place) {
            write(place, graph.graph())?;
        }
        let (agent, producer): (Agent, Arc<dyn Producer>) = match (given, execute) {
            (Some(graph), false) => (host.agent().named("graph"), Arc::new(Known(graph))),
            (None, false) => (host.agent().named("planner"), Arc::new(planner)),
            (given, true) => {
                let executor = given.map_or_else(|| GraphExecutor::planned_by(planner), GraphExecutor::new);
                let agent = host.agent().named("graph").system_prompt(Agent::WORKSPACE_PROMPT);
                (agent, Arc::new(executor.resuming(finished).answer_only()))
            }
        };
        Ok(move |root: &Root| agent.run_with(producer, root, objective))
    })
}

/// A run with nothing to do: the graph is known.
struct Known(CheckedGraph);

impl Producer for Known {
    fn kind(&self) -> &'static str {
        "graph_file"
    }

    fn produce(&self, _: Job, _: RunContext) -> SubAgentStream {
        SubAgentStream::settled(SubAgentOutcome::completed(self.0.graph().to_value()))
    }
}

/// What a graph without an objective is called: as before, or as its file.
fn name_of(graph: Option<&GivenGraph>) -> String {
    let title = graph.and_then(|given| given.title.clone());
    let file = || Some(graph?.path.file_name()?.to_string_lossy().into_owned());
    title.or_else(file).unwrap_or_else(|| "graph".to_owned())
}

fn write(place: &Path, graph: &WorkflowGraph) -> Result<(), String> {
    let text = format!("{:#}\n", graph.to_value());
    save(place, text.as_bytes()).map_err(|error| format!("cannot write {}: {error}", place.display()))
}

/// The graph, or a line for each thing that is wrong with it.
fn check(given: GivenGraph, catalogue: &NodeCatalogue) -> Result<CheckedGraph, String> {
    let GivenGraph { graph, path, text, .. } = given;
    CheckedGraph::check(graph, catalogue).map_err(|violations| {
        let line = |violation: &Violation| {
            let line = text.as_deref().and_then(|text| line_of(text, &violation.at));
            line.map_or_else(|| violation.to_string(), |line| format!("line {line}: {violation}"))
        };
        let lines: Vec<String> = violations.iter().map(line).collect();
        format!("the graph of {} cannot run; mend it and start again\n{}", path.display(), lines.join("\n"))
    })
}

/// The line on which the id of a node stands in the text of a graph.
fn line_of(text: &str, at: &str) -> Option<usize> {
    let id = serde_json::to_string(at.strip_prefix("node ")?).ok()?;
    let has_id = |line: &str| {
        let mut rest = line;
        while let Some((_, after)) = rest.split_once("\"id\"") {
            let value = after.trim_start().strip_prefix(':').map(str::trim_start);
            if value.is_some_and(|value| value.starts_with(&id)) {
                return true;
            }
            rest = after;
        }
        false
    };
    text.lines().position(has_id).map(|line| line + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_found_by_its_id() {
        let text = "{\"nodes\": [\n {\"id\" : \"a\"}, {\"id\":\"b\"},\n {\n\"id\": \"bc\"}]}";
        assert_eq!(
            ["node a", "node b", "node bc", "node c", "edge a -> b"].map(|at| line_of(text, at)),
            [Some(2), Some(2), Some(4), None, None]
        );
    }
}
