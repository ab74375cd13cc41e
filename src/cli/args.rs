//! The flags as they are typed. What they mean is in `options`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::options::{RuleList, duration, input, money, number, rules, seed, task, wait};
use crate::agent::script::ScriptLimits;
use crate::budget::Limit;

/// Sub-agents that stream: every child is a stream with one outcome, live in one ordered event log.
#[derive(Debug, Parser)]
#[command(name = "anabranch", version, term_width = 100, after_help = EXIT_STATUS)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

const EXIT_STATUS: &str = "\
Exit status: 0 completed; 1 failed; 2 bad usage, nothing was run; 3 stopped by a limit;\n130 cancelled.";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run an agent on a task in a workspace.
    ///
    /// What it does grows as a tree on the terminal; the result goes to stdout. Ctrl-C cancels the whole tree, a second
    /// one ends the program at once.
    ///
    /// A limit is a number or the word `unlimited`; 0 means none at all.
    #[command(after_help = EXIT_STATUS)]
    Run(Box<RunArgs>),

    /// Plan a workflow graph for an objective; with --execute, run it.
    ///
    /// A graph has nodes, each an agent with a prompt or a tool with arguments, and edges along which results go. Without
    /// --execute it is printed as JSON and nothing of it runs. With it, nodes that are ready run at the same time, each as a run of its
    /// own; a node that fails takes along what depends on it, and nothing else. Printed is what the last node gives.
    #[command(after_help = EXIT_STATUS)]
    Plan(Box<PlanArgs>),

    /// Run an orchestration script: JavaScript that starts agents and puts their answers together.
    ///
    /// The script is the body of an async function. It sees agent(prompt, {schema, tools, label}), parallel(thunks),
    /// pipeline(items, ...stages), inputs, budget, tools, log and sleep; what it returns is printed. Its agents are runs below
    /// its own.
    #[command(after_help = EXIT_STATUS)]
    Script(Box<ScriptArgs>),

    /// List the agents that are defined by files, and each file that cannot be used.
    ///
    /// An agent is a file NAME.md: front matter with a description, and a prompt. Every agent of `run` can delegate to it by its
    /// name. They are read from the directories of --agents, from agents/ and .claude/agents/ of the workspace, and from
    /// anabranch/agents/ of the user's configuration directory; the first one of a name counts.
    #[command(after_help = "Exit status: 0, also where files cannot be used; 2 bad usage.")]
    Agents(AgentsArgs),

    /// Fold a log to its tree and print it.
    ///
    /// Lines that are no messages of the log are reported on stderr and left out. The exit status is that of the root's
    /// outcome; a log that ends before its root does gives 1.
    #[command(after_help = EXIT_STATUS)]
    Replay(ReplayArgs),

    /// Check a log against the invariants; print each violation with its seq.
    #[command(after_help = "\
Exit status: 0 the log holds; 1 it does not, or has lines that are no messages; 2 it cannot be read.")]
    Verify(VerifyArgs),

    /// Run one program for the process that started this one: what `--sandbox process` does.
    #[command(hide = true)]
    Sandbox,
}

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// What is to be done, in one argument: quote it.
    #[arg(value_parser = task)]
    pub(super) task: String,

    /// A JSON schema that the result has to satisfy. A result that still does not after one repair turn fails the run.
    #[arg(long, value_name = "FILE")]
    pub(super) schema: Option<PathBuf>,

    #[command(flatten)]
    pub(super) host: HostArgs,
}

#[derive(Debug, Args)]
pub(super) struct ScriptArgs {
    /// The script; `-` is standard input.
    pub(super) file: PathBuf,

    /// What `inputs.NAME` is in the script: JSON, or text if it is none. Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = input)]
    pub(super) input: Vec<(String, serde_json::Value)>,

    /// Agents that the script may start in all. A call beyond it throws.
    #[arg(long, value_name = "N", default_value_t = ScriptLimits::default().max_agent_calls)]
    pub(super) max_agent_calls: u32,

    /// Agents of the script that run at once, at least 1. Others wait.
    #[arg(long, value_name = "N", default_value_t = ScriptLimits::default().max_concurrent_agents,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_concurrent_agents: u32,

    #[command(flatten)]
    pub(super) host: HostArgs,
}

#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    /// What is to be achieved, in one argument: quote it. With --graph or --resume it may be left out.
    #[arg(value_parser = task, required_unless_present_any = ["graph", "resume"])]
    pub(super) objective: Option<String>,

    /// Run the graph.
    #[arg(long)]
    pub(super) execute: bool,

    /// Take the graph from this file and plan none. One that cannot run is refused, with everything that is wrong with it.
    #[arg(long, value_name = "FILE")]
    pub(super) graph: Option<PathBuf>,

    /// Write the graph to this file, before it runs: whole or not at all.
    #[arg(long, value_name = "FILE")]
    pub(super) save: Option<PathBuf>,

    /// Go on from the log of an earlier execution (its --output jsonl, also cut off; `-` is standard input). Nodes that
    /// completed there with the same definition and inputs do not run again. The graph is the log's, unless --graph gives one.
    #[arg(long, value_name = "LOG", requires = "execute")]
    pub(super) resume: Option<PathBuf>,

    #[command(flatten)]
    pub(super) host: HostArgs,
}

/// What every command takes that runs agents.
#[derive(Debug, Args)]
pub(super) struct HostArgs {
    /// The model: `offline` (no network, no key: a keyword search over the workspace), `script:FILE` (what each run
    /// says, written down), or `PROVIDER:MODEL` such as `openai:gpt-5`, `anthropic:claude-sonnet-4-5`, `gemini:gemini-2.5-pro`,
    /// `ollama:qwen3`. The key comes from the provider's usual variable, such as OPENAI_API_KEY.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "offline",
        env = "ANABRANCH_MODEL",
        hide_env_values = true
    )]
    pub(super) model: String,

    /// Where the provider's model is served, such as `http://127.0.0.1:8080/v1`; with `openai:MODEL` any server that is
    /// compatible with OpenAI's. No key is needed on this machine [default: the provider's own address].
    #[arg(long, value_name = "URL", env = "ANABRANCH_BASE_URL", hide_env_values = true)]
    pub(super) base_url: Option<String>,

    /// The directory that the tools see. They cannot leave it.
    #[arg(
        long,
        value_name = "DIR",
        default_value = ".",
        env = "ANABRANCH_WORKSPACE",
        hide_env_values = true
    )]
    pub(super) workspace: PathBuf,

    /// A directory of agents, each a file NAME.md, that comes before those of the workspace and the user: see
    /// `anabranch agents --help`. Repeatable.
    #[arg(long, value_name = "DIR")]
    pub(super) agents: Vec<PathBuf>,

    /// What to print.
    #[arg(
        long,
        value_name = "FORM",
        default_value = "auto",
        env = "ANABRANCH_OUTPUT",
        hide_env_values = true
    )]
    pub(super) output: RunOutput,

    /// Allow calls that are asked for otherwise, such as write_file and edit_file: a tool, or a rule such as
    /// `write_file(path=docs/**)` or `reviewer:edit_file`. Repeatable, or separated by commas.
    #[arg(long, value_name = "TOOL", value_parser = rules)]
    pub(super) allow: Vec<RuleList>,

    /// Ask before these calls; where nobody can be asked they are denied. A rule that asks wins over one that allows.
    #[arg(long, value_name = "TOOL", value_parser = rules)]
    pub(super) ask: Vec<RuleList>,

    /// Deny these calls. A denied call is answered with a refusal, and the run goes on. It wins over --allow and --ask. What is
    /// denied to an agent is denied to the runs below it too.
    #[arg(long, value_name = "TOOL", value_parser = rules)]
    pub(super) deny: Vec<RuleList>,

    /// Ask nobody: calls that have to be asked for are denied at once. Without it, whoever sits at the terminal is asked: where
    /// the live tree is drawn, and standard input is a terminal too.
    #[arg(long)]
    pub(super) no_ask: bool,

    /// How long a question waits for an answer, such as 90s or 5m; then the call is denied. It counts towards no other limit.
    #[arg(long, value_name = "DURATION", value_parser = wait, allow_negative_numbers = true, default_value = "10m",
          env = "ANABRANCH_ASK_TIMEOUT", hide_env_values = true)]
    pub(super) ask_timeout: Duration,

    /// Add a set of tools: `chaos` has tools that sleep, hang, fail, panic and flood, for whoever tests an agent or a UI.
    #[arg(long, value_name = "SET", value_delimiter = ',')]
    pub(super) tools: Vec<ToolSet>,

    /// Where the code of agents runs.
    #[arg(
        long,
        value_name = "WHERE",
        default_value = "in-process",
        env = "ANABRANCH_SANDBOX",
        hide_env_values = true
    )]
    pub(super) sandbox: SandboxKind,

    /// Make ids, jitter and the order of the log reproducible [default: different each time].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = seed)]
    pub(super) seed: Option<u64>,

    /// What happens to background runs when the root's own work has ended.
    #[arg(long, value_name = "POLICY", default_value = "join")]
    pub(super) background_policy: BackgroundPolicy,

    #[command(flatten)]
    pub(super) limits: LimitArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(super) struct LimitArgs {
    /// How deep runs may nest; the root is at 0. A run at the limit is not offered the tools that spawn.
    #[arg(long, value_name = "N", value_parser = number::<u32>, allow_negative_numbers = true,
          default_value = "3", env = "ANABRANCH_MAX_DEPTH", hide_env_values = true)]
    pub(super) max_depth: Limit<u32>,

    /// Runs that work at once, at least 1; one that waits for its children does not count. Others wait, shown as queued.
    #[arg(long, value_name = "N", value_parser = number::<u32>, allow_negative_numbers = true,
          default_value = "unlimited", env = "ANABRANCH_MAX_LIVE", hide_env_values = true)]
    pub(super) max_live: Limit<u32>,

    /// All runs of the tree, ever, the root included. A spawn beyond it is refused, and its caller goes on.
    #[arg(long, value_name = "N", value_parser = number::<u64>, allow_negative_numbers = true,
          default_value = "1000", env = "ANABRANCH_MAX_RUNS", hide_env_values = true)]
    pub(super) max_runs: Limit<u64>,

    /// Model turns of each run. A run that needs more is stopped, with what it has.
    #[arg(long, value_name = "N", value_parser = number::<u64>, allow_negative_numbers = true,
          default_value = "unlimited", env = "ANABRANCH_MAX_TURNS", hide_env_values = true)]
    pub(super) max_turns: Limit<u64>,

    /// Tool calls of each run. A run that needs more is stopped, with what it has.
    #[arg(long, value_name = "N", value_parser = number::<u64>, allow_negative_numbers = true,
          default_value = "unlimited", env = "ANABRANCH_MAX_TOOL_CALLS", hide_env_values = true)]
    pub(super) max_tool_calls: Limit<u64>,

    /// Time of the whole tree, such as 90s, 5m or 1h30m. The root is stopped, its children are cancelled.
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_negative_numbers = true,
          default_value = "unlimited", env = "ANABRANCH_TIMEOUT", hide_env_values = true)]
    pub(super) timeout: Limit<Duration>,

    /// Time without a message of a run or of any run below it, such as 30s. The run is stopped.
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_negative_numbers = true,
          default_value = "unlimited", env = "ANABRANCH_IDLE_TIMEOUT", hide_env_values = true)]
    pub(super) idle_timeout: Limit<Duration>,

    /// Tokens of the whole tree, input and output together. Runs are stopped, spawns refused.
    #[arg(long, value_name = "N", value_parser = number::<u64>, allow_negative_numbers = true,
          default_value = "unlimited", env = "ANABRANCH_BUDGET_TOKENS", hide_env_values = true)]
    pub(super) budget_tokens: Limit<u64>,

    /// US dollars of the whole tree, as far as the model's prices are known. Runs are stopped, spawns refused.
    #[arg(long, value_name = "USD", value_parser = money, allow_negative_numbers = true,
          default_value = "unlimited", env = "ANABRANCH_BUDGET_USD", hide_env_values = true)]
    pub(super) budget_usd: Limit<f64>,
}

/// What `run` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunOutput {
    /// The live tree on stderr if that is a terminal; the result on stdout.
    Auto,
    /// The tree on stdout: live on a terminal, else a line for each event.
    Tree,
    /// The result only.
    Text,
    /// Each message as soon as it happens, one JSON object a line.
    Jsonl,
}

/// Sets of tools that are not there by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ToolSet {
    /// Tools that sleep, hang, fail, panic and flood.
    Chaos,
}

/// Where code runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxKind {
    /// In this process: quick, with limits of memory and time.
    InProcess,
    /// In a process of its own for each action, which is killed at its deadline and may crash without harm.
    Process,
}

/// What happens to background runs when the root's own work has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackgroundPolicy {
    /// Wait for them, within --timeout.
    Join,
    /// Cancel them.
    Cancel,
}

#[derive(Debug, Args)]
pub(super) struct AgentsArgs {
    /// What to print.
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub(super) output: AgentsOutput,

    /// The workspace in which they are looked for.
    #[arg(
        long,
        value_name = "DIR",
        default_value = ".",
        env = "ANABRANCH_WORKSPACE",
        hide_env_values = true
    )]
    pub(super) workspace: PathBuf,

    /// A directory of agents that comes before those of the workspace and the user. Repeatable.
    #[arg(long, value_name = "DIR")]
    pub(super) agents: Vec<PathBuf>,
}

/// What `agents` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AgentsOutput {
    /// For a person.
    Text,
    /// One JSON object: `agents`, `errors`, `warnings`, `shadowed`.
    Json,
}

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// A log in JSON Lines; `-` is standard input.
    pub(super) file: PathBuf,

    /// What to print.
    #[arg(long, value_name = "FORM", default_value = "tree")]
    pub(super) output: ReplayOutput,
}

/// What `replay` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReplayOutput {
    /// The tree, a line for each run.
    Tree,
    /// A line for each event, as `run --output tree` prints them where there is no terminal.
    Events,
    /// The root's result only.
    Text,
    /// The messages as they are, without what is none.
    Jsonl,
    /// The folded tree as one JSON object.
    Json,
}

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// A log in JSON Lines; `-` is standard input.
    pub(super) file: PathBuf,
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
