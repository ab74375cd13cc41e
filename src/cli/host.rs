//! What every command does that runs agents: model, tools and limits from the flags, then one tree, shown until it has ended.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use super::args::{BackgroundPolicy as Background, SandboxKind};
use super::exit::ExitStatus;
use super::options::{HostOptions, ModelChoice};
use super::output::{Display, Streams, complain, complain_in_lines, delivered, write_result};
use super::panics::Panics;
use super::show::{Screen, Shown};
use super::signals::{AtExit, Signals, cancel_on_signal};
use crate::agent::codeact::{CodeAct, EXECUTE_CODE};
use crate::agent::planner::{CreatePlan, GraphPlanner, PlanWorkflowGraph};
use crate::agent::sandbox::{ChildProcess, InProcess, Sandbox};
use crate::agent::script::PlanOrchestrationScript;
use crate::agent::{Agent, Detached, RunSearch, RunSubtask};
use crate::budget::{RunLimits, TreeLimits};
use crate::catalogue::{Catalogue, Delegate, Finish, Spawner};
use crate::context::{BackgroundPolicy, Root, RootBuilder};
use crate::error::{ErrorKind, Result};
use crate::forward::RootRun;
use crate::model::{ChatModel, Gates, OfflineModel, ProviderModel, ProviderName, Script, ScriptModel};
use crate::outcome::SubAgentOutcome;
use crate::tool::workspace::Workspace;
use crate::tool::{AskUser, Policy, Producer, Toolset, chaos, shared};

/// What the agents of a command run on.
pub(super) struct Host {
    model: Arc<dyn ChatModel>,
    producer: Arc<dyn Producer>,
    sandbox: Arc<dyn Sandbox>,
    spawner: Spawner,
    tools: Toolset,
    policy: Policy,
    ask_timeout: Duration,
}

impl Host {
    /// Makes what the flags ask for, lets `prepare` say what runs on it, and runs that to its end. What is wrong before anything
    /// runs is bad usage.
    pub(super) fn open<P, S>(options: &HostOptions, prepare: P) -> ExitCode
    where
        P: FnOnce(&Self) -> std::result::Result<S, String>,
        S: FnOnce(&Root) -> RootRun,
    {
        let prepared = Self::new(options).and_then(|host| prepare(&host));
        let start = match prepared {
            Ok(start) => start,
            Err(text) => {
                let mut lines = text.lines();
                complain(&mut io::stderr(), format_args!("error: {}", lines.next().unwrap_or_default()));
                lines.for_each(|line| complain(&mut io::stderr(), format_args!("  {line}")));
                return ExitStatus::Usage.into();
            }
        };
        if let Some(limit) = options.no_room() {
            complain(&mut io::stderr(), format_args!("stopped: {limit} leaves no room for a run"));
            return ExitStatus::Stopped.into();
        }
        let streams = Streams::of_process();
        let display = Display::of(options.output, streams);
        let (runtime, aside) = match runtimes(options.seed.is_some()) {
            Ok(runtimes) => runtimes,
            Err(error) => {
                complain(&mut io::stderr(), format_args!("error: the runtime does not start: {error}"));
                return ExitStatus::Failed.into();
            }
        };
        let panics = Panics::watch(matches!(display, Display::LiveOnStderr | Display::LiveOnStdout));
        let signals = aside.as_ref().unwrap_or(&runtime).handle().clone();
        let shows = Shows { display, streams, asks: options.asks, signals };
        let work = go(root(options), start, shows, &panics);
        let status = catch_unwind(AssertUnwindSafe(|| runtime.block_on(work)));
        panics.tell(&mut io::stderr());
        let status = status.unwrap_or_else(|_| {
            complain(&mut io::stderr(), "error: this is a fault of anabranch itself: it panicked, see above");
            ExitStatus::Failed
        });
        // A tool that ignored its cancel may still block a thread: the process does not wait for it.
        runtime.shutdown_background();
        if let Some(aside) = aside {
            aside.shutdown_background();
        }
        status.into()
    }

    fn new(options: &HostOptions) -> std::result::Result<Self, String> {
        let text = |error: crate::error::Error| error.to_string();
        let gates = Gates::default();
        let model = model(&options.model, &gates).map_err(text)?;
        let sandbox: Arc<dyn Sandbox> = match options.sandbox {
            SandboxKind::InProcess => Arc::new(InProcess),
            SandboxKind::Process => {
                let program = std::env::current_exe().map_err(|error| {
                    format!("--sandbox process: this program cannot find itself: {error}")
                })?;
                Arc::new(ChildProcess::new(program, ["sandbox"]))
            }
        };
        let spawner = spawner(options, gates);
        let tools = toolset(options, &spawner, &sandbox).map_err(text)?;
        let rules = options.rules.iter().cloned();
        let policy = rules.fold(Policy::default(), |policy, (effect, rule)| policy.with(effect, rule));
        let names: Vec<&str> = tools.names().chain([EXECUTE_CODE, Finish::NAME]).collect();
        if let Some(unknown) = policy.rules().find(|rule| !names.iter().any(|name| rule.speaks_of(name))) {
            return Err(format!(
                "--allow/--ask/--deny: there is no tool {:?}; the tools are: {}",
                unknown.as_str(),
                names.join(", ")
            ));
        }
        let producer = Arc::new(CodeAct::new(Arc::clone(&sandbox)));
        Ok(Self { model, producer, sandbox, spawner, tools, policy, ask_timeout: options.ask_timeout })
    }

    /// A planner with the agents of files.
    pub(super) fn planner(&self) -> GraphPlanner {
        planner(&self.spawner)
    }

    /// The tools of the flags.
    pub(super) fn tools(&self) -> &Toolset {
        &self.tools
    }

    /// The policy of the flags.
    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Where code runs.
    pub(super) fn sandbox(&self) -> Arc<dyn Sandbox> {
        Arc::clone(&self.sandbox)
    }

    /// An agent with the model, the tools and the policy of the flags.
    pub(super) fn agent(&self) -> Agent {
        Agent::with_producer(Arc::clone(&self.model), Arc::clone(&self.producer))
            .tools(self.tools.clone())
            .policy(self.policy.clone())
            .ask_deadline(self.ask_timeout)
    }
}

/// The model of a choice. Nothing is sent yet; what is missing, such as a key, is said now.
fn model(choice: &ModelChoice, gates: &Gates) -> Result<Arc<dyn ChatModel>> {
    Ok(match choice {
        ModelChoice::Offline => Arc::new(OfflineModel::new()),
        ModelChoice::Script(path) => Arc::new(ScriptModel::new(Script::load(path)?)),
        ModelChoice::Provider { name, base_url } => {
            let mut builder = ProviderModel::builder(name.clone()).gate(gates.of(name.provider()));
            if let Some(url) = base_url {
                builder = builder.base_url(url);
            }
            Arc::new(builder.build()?)
        }
    })
}

fn spawner(options: &HostOptions, gates: Gates) -> Spawner {
    Spawner::new(Catalogue::standard(options.agents.iter().cloned(), &options.workspace))
        .preamble(Spawner::WORKSPACE_PREAMBLE)
        .models(models(options.model.clone(), gates))
}

fn planner(spawner: &Spawner) -> GraphPlanner {
    let spawner = spawner.clone();
    GraphPlanner::new().with_agents_of(move |tools| spawner.node_agents(tools))
}

fn toolset(options: &HostOptions, spawner: &Spawner, sandbox: &Arc<dyn Sandbox>) -> Result<Toolset> {
    let tools = tools_of(&options.workspace, spawner, sandbox)?;
    if options.chaos { chaos::add_to(&tools) } else { Ok(tools) }
}

/// The tools of every agent in a workspace.
pub(super) fn tools_of(workspace: &Path, spawner: &Spawner, sandbox: &Arc<dyn Sandbox>) -> Result<Toolset> {
    let tools = Workspace::open(workspace)?.add_to(&Toolset::new())?;
    let tools = tools.with_sub_agent(RunSubtask::default())?.with_sub_agent(RunSearch::default())?;
    let tools = tools.with(AskUser::new())?;
    let tools = Detached::new().add_to(&tools)?;
    let tools = Delegate::new(spawner.clone()).add_to(&tools)?;
    let tools =
        tools.with_sub_agent(CreatePlan::new())?.with_sub_agent(PlanWorkflowGraph::new(planner(spawner)))?;
    let tools = tools.with_sub_agent(PlanOrchestrationScript::default().in_sandbox(Arc::clone(sandbox)))?;
    shared::add_to(&tools)
}

/// The models that definitions may ask for. Where no provider was asked for, a file of a workspace does not make one be asked.
fn models(
    host: ModelChoice,
    gates: Gates,
) -> impl Fn(&str) -> Result<Arc<dyn ChatModel>> + Send + Sync + 'static {
    move |asked: &str| {
        let fail = |reason: &str| -> crate::error::Error {
            ErrorKind::Model { name: asked.to_owned(), reason: reason.to_owned() }.into()
        };
        let ModelChoice::Provider { name: own, base_url } = &host else {
            return Err(fail("no provider is asked with this --model"));
        };
        let name: ProviderName = asked.parse().map_err(|_| fail("models are named PROVIDER:MODEL"))?;
        let base_url = base_url.clone().filter(|_| name.provider() == own.provider());
        model(&ModelChoice::Provider { name, base_url }, &gates)
    }
}

fn root(options: &HostOptions) -> RootBuilder {
    let limits = &options.limits;
    let tree = TreeLimits {
        depth: limits.max_depth,
        live: limits.max_live,
        total: limits.max_runs,
        tokens: limits.budget_tokens,
        cost_usd: limits.budget_usd,
        ..TreeLimits::default()
    };
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

/// Where a tree runs, and where signals are heard if not there. To be reproducible no two of its tasks, such as subtasks in the
/// background, work at the same time; its one thread may then be waiting for a program when a signal comes.
fn runtimes(is_reproducible: bool) -> io::Result<(Runtime, Option<Runtime>)> {
    if !is_reproducible {
        return Ok((Builder::new_multi_thread().enable_all().build()?, None));
    }
    let aside = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    Ok((Builder::new_current_thread().enable_all().build()?, Some(aside)))
}

/// How a run is shown.
struct Shows {
    display: Display,
    streams: Streams,
    asks: bool,
    /// Where signals are heard.
    signals: Handle,
}

async fn go(
    root: RootBuilder,
    start: impl FnOnce(&Root) -> RootRun,
    shows: Shows,
    panics: &Panics,
) -> ExitStatus {
    let Shows { display, streams, asks, signals: aside } = shows;
    let mut err = io::stderr();
    let screen = match Screen::new(display, streams, asks) {
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
    let signals = {
        let _entered = aside.enter();
        Signals::listen()
    };
    let at_exit = AtExit { outlet: screen.outlet().cloned(), panics: panics.clone() };
    cancel_on_signal(signals, &root, at_exit, &aside);
    let run = start(&root);
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
    tell(&outcome, display, streams)
}

/// Prints what is not in the tree or the log: the result, or why there is none.
fn tell(outcome: &SubAgentOutcome, display: Display, streams: Streams) -> ExitStatus {
    let mut err = io::stderr();
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
            true => complain_in_lines(&mut err, &error),
            false => complain_in_lines(&mut err, &format!("{kind}: {error}")),
        }
        if let Some(partial) = outcome.partial() {
            complain(&mut err, "what there was of a result:");
            let _ = write_result(&mut err, partial, true);
        }
    }
    ExitStatus::from(outcome)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn c40_all_models_of_a_provider_wait_at_one_gate() {
        let gates = Gates::default();
        let choice = ModelChoice::Provider {
            name: "openai:a".parse().unwrap(),
            base_url: Some("http://127.0.0.1:9/v1".to_owned()),
        };
        let own = model(&choice, &gates).unwrap();
        let resolve = models(choice, gates.clone());
        let (same, other) = (resolve("openai:b").unwrap(), resolve("ollama:c").unwrap());
        gates.of("openai").shut(Duration::from_mins(1));
        assert!(own.pause().is_some() && same.pause().is_some() && other.pause().is_none());
    }
}
