//! `anabranch run`: flags in, a tree of runs, a result and an exit status out.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use super::args::BackgroundPolicy as Background;
use super::exit::ExitStatus;
use super::options::{ModelChoice, RunOptions};
use super::output::{Display, Streams, complain, delivered, write_result};
use super::panics::Panics;
use super::show::{Screen, Shown};
use super::signals::{AtExit, Signals, cancel_on_signal};
use crate::agent::tool_loop::{LoopConfig, ToolLoop};
use crate::agent::{Agent, RunSearch, RunSubtask};
use crate::budget::{RunLimits, TreeLimits};
use crate::context::{BackgroundPolicy, RootBuilder};
use crate::error::Result;
use crate::model::{ChatModel, OfflineModel, Script, ScriptModel};
use crate::tool::workspace::Workspace;
use crate::tool::{Policy, Toolset, chaos};

/// Runs an agent on a task.
pub(super) fn run(options: RunOptions) -> ExitCode {
    let prepared = match prepare(&options) {
        Ok(prepared) => prepared,
        Err(text) => {
            complain(&mut io::stderr(), format_args!("error: {text}"));
            return ExitStatus::Usage.into();
        }
    };
    if let Some(limit) = options.no_room() {
        complain(&mut io::stderr(), format_args!("stopped: {limit} leaves no room for a run"));
        return ExitStatus::Stopped.into();
    }
    let streams = Streams::of_process();
    let display = Display::of(options.output, streams);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&mut io::stderr(), format_args!("error: the runtime does not start: {error}"));
            return ExitStatus::Failed.into();
        }
    };
    let panics = Panics::watch(matches!(display, Display::LiveOnStderr | Display::LiveOnStdout));
    let work = go(options, prepared, display, streams, &panics);
    let status = catch_unwind(AssertUnwindSafe(|| runtime.block_on(work)));
    panics.tell(&mut io::stderr());
    let status = status.unwrap_or_else(|_| {
        complain(&mut io::stderr(), "error: this is a fault of anabranch itself: it panicked, see above");
        ExitStatus::Failed
    });
    // A tool that ignored its cancel may still block a thread: the process does not wait for it.
    runtime.shutdown_background();
    status.into()
}

struct Prepared {
    agent: Agent,
    root: RootBuilder,
}

/// Everything that can be wrong before anything runs.
fn prepare(options: &RunOptions) -> std::result::Result<Prepared, String> {
    let text = |error: crate::error::Error| error.to_string();
    let model: Arc<dyn ChatModel> = match &options.model {
        ModelChoice::Offline => Arc::new(OfflineModel::new()),
        ModelChoice::Script(path) => Arc::new(ScriptModel::new(Script::load(path).map_err(text)?)),
    };
    let tools = toolset(&options.workspace, options.chaos).map_err(text)?;
    let policy = Policy::default().allow(&options.allow).deny(&options.deny);
    if let Some(unknown) = policy.names().find(|name| tools.get(name).is_none()) {
        let names: Vec<&str> = tools.names().collect();
        return Err(format!(
            "--allow/--deny: there is no tool {unknown:?}; the tools are: {}",
            names.join(", ")
        ));
    }
    let producer = ToolLoop::new(LoopConfig::default());
    let mut agent = Agent::with_producer(model, Arc::new(producer))
        .tools(tools)
        .policy(policy)
        .system_prompt(Agent::WORKSPACE_PROMPT);
    if let Some(schema) = &options.schema {
        agent = agent.output_schema(schema.clone());
    }
    Ok(Prepared { agent, root: root(options) })
}

fn toolset(workspace: &Path, with_chaos: bool) -> Result<Toolset> {
    let tools = Workspace::open(workspace)?.add_to(&Toolset::new())?;
    let tools = tools.with_sub_agent(RunSubtask::default())?.with_sub_agent(RunSearch::default())?;
    if with_chaos { chaos::add_to(&tools) } else { Ok(tools) }
}

fn root(options: &RunOptions) -> RootBuilder {
    let limits = &options.limits;
    let tree = TreeLimits {
        depth: limits.max_depth,
        live: limits.max_live,
        total: limits.max_runs,
        tokens: limits.budget_tokens,
        cost_usd: limits.budget_usd,
        ..TreeLimits::default()
    };
    // A child's time is at most its parent's, and it began later: so the time of the root is the one that runs out.
    let run = RunLimits {
        turns: limits.max_turns,
        tool_calls: limits.max_tool_calls,
        wall: limits.timeout,
        idle: limits.idle_timeout,
        ..RunLimits::default()
    };
    let background = match options.background {
        Background::Join => BackgroundPolicy::Join,
        Background::Cancel => BackgroundPolicy::Cancel,
    };
    let builder = RootBuilder::default().tree_limits(tree).run_limits(run).background(background);
    match options.seed {
        Some(seed) => builder.seed(seed),
        None => builder,
    }
}

async fn go(
    options: RunOptions,
    prepared: Prepared,
    display: Display,
    streams: Streams,
    panics: &Panics,
) -> ExitStatus {
    let Prepared { agent, root } = prepared;
    let mut err = io::stderr();
    let screen = match Screen::new(display, streams) {
        Ok(screen) => screen,
        Err(error) => {
            complain(&mut err, format_args!("error: no thread for the output: {error}"));
            return ExitStatus::Failed;
        }
    };
    let root = match screen.journal() {
        Some(journal) => root.journal(journal).build(),
        None => root.build(),
    };
    // Before anything runs, so that no signal finds a run whose log it would cut off.
    let signals = Signals::listen();
    let at_exit = AtExit { outlet: screen.outlet().cloned(), panics: panics.clone() };
    cancel_on_signal(signals, &root, at_exit);
    let run = agent.run(&root, options.task);
    let Shown { outcome, printed } = screen.show(run, &root).await;
    panics.tell(&mut err);
    match printed {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitStatus::Cancelled,
        Err(error) => {
            delivered(Err(error), &mut err);
            return ExitStatus::Failed;
        }
        Ok(()) => {}
    }
    if let Some(result) = outcome.result()
        && !matches!(display, Display::Messages | Display::Lines)
        && !delivered(write_result(&mut io::stdout(), result, streams.stdout_is_terminal), &mut err)
    {
        return ExitStatus::Failed;
    }
    if let Some(error) = outcome.error_text() {
        let kind = outcome.kind();
        // "cancelled by user" says it all.
        match error.starts_with(kind.as_str()) {
            true => complain(&mut err, error),
            false => complain(&mut err, format_args!("{kind}: {error}")),
        }
        if let Some(partial) = outcome.partial() {
            complain(&mut err, "what there was of a result:");
            let _ = write_result(&mut err, partial, true);
        }
    }
    ExitStatus::from(&outcome)
}
