//! `anabranch run`: flags in, a tree of runs, a result and an exit status out.

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use super::args::BackgroundPolicy as Background;
use super::exit::ExitStatus;
use super::options::{ModelChoice, RunOptions};
use super::output::{Display, Streams, complain, delivered, write_result};
use super::show::{Shown, show};
use super::signals;
use crate::agent::tool_loop::{LoopConfig, ToolLoop};
use crate::agent::{Agent, RunSearch, RunSubtask};
use crate::budget::{RunLimits, TreeLimits};
use crate::context::{BackgroundPolicy, Root};
use crate::error::Result;
use crate::model::{ChatModel, OfflineModel, Script, ScriptModel};
use crate::outcome::{CancelledBy, SubAgentOutcome};
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
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&mut io::stderr(), format_args!("error: the runtime does not start: {error}"));
            return ExitStatus::Failed.into();
        }
    };
    // A panic is the outcome of the run in which it happened; it must not be drawn across the tree.
    std::panic::set_hook(Box::new(|panic| tracing::warn!("{panic}")));
    let status = runtime.block_on(go(options, prepared));
    // A tool that ignored its cancel may still block a thread: the process does not wait for it.
    runtime.shutdown_background();
    status.into()
}

struct Prepared {
    agent: Agent,
    root: Root,
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

fn root(options: &RunOptions) -> Root {
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
    let builder = Root::builder().tree_limits(tree).run_limits(run).background(background);
    match options.seed {
        Some(seed) => builder.seed(seed).build(),
        None => builder.build(),
    }
}

async fn go(options: RunOptions, prepared: Prepared) -> ExitStatus {
    let Prepared { agent, root } = prepared;
    let streams = Streams::of_process();
    let display = Display::of(options.output, streams);
    signals::cancel_on_signal(&root);
    let run = agent.run(&root, options.task);
    let Shown { outcome, printed } = show(run, &root, display, streams).await;
    let mut err = io::stderr();
    match printed {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitStatus::Cancelled,
        Err(error) => {
            delivered(Err(error), &mut err);
            return ExitStatus::Failed;
        }
        Ok(()) => {}
    }
    let Some(outcome) = outcome else {
        return ExitStatus::from(&SubAgentOutcome::cancelled(CancelledBy::User));
    };
    if let Some(result) = outcome.result()
        && display != Display::Messages
        && !delivered(write_result(&mut io::stdout(), result, streams.stdout_is_terminal), &mut err)
    {
        return ExitStatus::Failed;
    }
    if let Some(error) = outcome.error_text() {
        complain(&mut err, format_args!("{}: {error}", outcome.kind()));
        if let Some(partial) = outcome.partial() {
            complain(&mut err, "what there was of a result:");
            let _ = write_result(&mut err, partial, true);
        }
    }
    ExitStatus::from(&outcome)
}
