//! What the flags mean: checked once, at the door. Nothing behind it looks at a flag again.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::args::{BackgroundPolicy, HostArgs, LimitArgs, RunArgs, RunOutput, SandboxKind, ToolSet};
use super::read::read_text;
use crate::budget::Limit;
use crate::model::ProviderName;
use crate::tool::{Effect, Rule, Schema};

/// What `run` is to do.
#[derive(Debug)]
pub(crate) struct RunOptions {
    /// The task; not blank.
    pub(crate) task: String,
    /// What the result has to satisfy.
    pub(crate) schema: Option<Value>,
    /// On what it runs.
    pub(crate) host: HostOptions,
}

/// On what agents run, whatever the command.
#[derive(Debug)]
pub(crate) struct HostOptions {
    /// Which model.
    pub(crate) model: ModelChoice,
    /// A directory that can be read, absolute, without symbolic links.
    pub(crate) workspace: PathBuf,
    /// Directories of agents, before those of the workspace; they can be read.
    pub(crate) agents: Vec<PathBuf>,
    /// What to print.
    pub(crate) output: RunOutput,
    /// Calls that are made without asking, that are asked for, and that are not made. No rule is in two of them.
    pub(crate) rules: Vec<(Effect, Rule)>,
    /// Whether the person at the terminal is asked.
    pub(crate) asks: bool,
    /// How long a question waits.
    pub(crate) ask_timeout: Duration,
    /// Whether the fault tools are there.
    pub(crate) chaos: bool,
    /// Where code runs.
    pub(crate) sandbox: SandboxKind,
    /// The seed of ids and jitter; with one, the order of the log is reproducible too.
    pub(crate) seed: Option<u64>,
    /// What happens to background runs at the end.
    pub(crate) background: BackgroundPolicy,
    /// The limits.
    pub(crate) limits: LimitArgs,
}

impl HostOptions {
    /// The limit that leaves room for no run at all, not even the root, if there is one.
    pub(crate) fn no_room(&self) -> Option<&'static str> {
        let LimitArgs { max_runs, budget_tokens, budget_usd, .. } = &self.limits;
        match (max_runs, budget_tokens, budget_usd) {
            (Limit::At(0), _, _) => Some("--max-runs 0"),
            (_, Limit::At(0), _) => Some("--budget-tokens 0"),
            (_, _, Limit::At(amount)) if *amount <= 0.0 => Some("--budget-usd 0"),
            _ => None,
        }
    }
}

/// Which model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModelChoice {
    /// The keyword search that needs no network.
    Offline,
    /// The script model, by the script's file. It exists; whether it is a script, its reader says.
    Script(PathBuf),
    /// A model of a provider, at its own address or at another one.
    Provider {
        /// Which.
        name: ProviderName,
        /// Another address.
        base_url: Option<String>,
    },
}

/// A flag that cannot be used: which, what is wrong, how to do it right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UsageError {
    flag: &'static str,
    value: String,
    what: String,
    fix: String,
}

impl UsageError {
    /// Of a flag that does not name a file.
    pub(super) fn new(flag: &'static str, value: &str, what: &str, fix: &str) -> Self {
        Self { flag, value: value.to_owned(), what: what.to_owned(), fix: fix.to_owned() }
    }

    /// Of a flag that names a file.
    pub(super) fn of_file(flag: &'static str, path: &Path, what: impl Into<String>, fix: &str) -> Self {
        Self { flag, value: path.display().to_string(), what: what.into(), fix: fix.to_owned() }
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flag, value, what, fix } = self;
        write!(f, "invalid value '{value}' for '{flag}': {what}; {fix}")
    }
}

impl TryFrom<RunArgs> for RunOptions {
    type Error = UsageError;

    fn try_from(args: RunArgs) -> Result<Self, UsageError> {
        let host = args.host.try_into()?;
        Ok(Self { task: args.task, schema: args.schema.as_deref().map(schema).transpose()?, host })
    }
}

impl TryFrom<HostArgs> for HostOptions {
    type Error = UsageError;

    fn try_from(args: HostArgs) -> Result<Self, UsageError> {
        if args.limits.max_live == Limit::At(0) {
            return Err(UsageError {
                flag: "--max-live",
                value: "0".into(),
                what: "every run would wait for ever".into(),
                fix: "give at least 1, or 'unlimited'".into(),
            });
        }
        Ok(Self {
            model: model(&args.model, args.base_url)?,
            workspace: directory("--workspace", &args.workspace)?,
            agents: agents(&args.agents)?,
            output: args.output,
            rules: policy_rules(args.allow, args.ask, args.deny)?,
            asks: !args.no_ask,
            ask_timeout: args.ask_timeout,
            chaos: args.tools.contains(&ToolSet::Chaos),
            sandbox: args.sandbox,
            seed: args.seed,
            background: args.background_policy,
            limits: args.limits,
        })
    }
}

fn policy_rules(
    allow: Vec<RuleList>,
    ask: Vec<RuleList>,
    deny: Vec<RuleList>,
) -> Result<Vec<(Effect, Rule)>, UsageError> {
    let mut rules: Vec<(&str, Effect, Rule)> = Vec::new();
    for (flag, effect, lists) in
        [("--allow", Effect::Allow, allow), ("--ask", Effect::Ask, ask), ("--deny", Effect::Deny, deny)]
    {
        for rule in lists.into_iter().flat_map(|list| list.0) {
            if let Some((other, ..)) = rules.iter().find(|(other, _, known)| *other != flag && *known == rule)
            {
                return Err(UsageError {
                    flag,
                    value: rule.to_string(),
                    what: format!("the same is in {other}"),
                    fix: "name it in one of them only".into(),
                });
            }
            rules.push((flag, effect, rule));
        }
    }
    Ok(rules.into_iter().map(|(_, effect, rule)| (effect, rule)).collect())
}

fn model(name: &str, base_url: Option<String>) -> Result<ModelChoice, UsageError> {
    let fail =
        |what: String, fix: &str| UsageError { flag: "--model", value: name.into(), what, fix: fix.into() };
    let is_at_no_address = name == "offline" || name.starts_with("script:");
    if let Some(value) = base_url.clone().filter(|_| is_at_no_address) {
        // Passed over, it would be answered by another model than the one that was meant.
        return Err(UsageError {
            flag: "--base-url",
            value,
            what: format!("the model '{name}' is at no address"),
            fix: "add --model openai:MODEL, or a model of the provider whose protocol the server speaks"
                .into(),
        });
    }
    match name.split_once(':') {
        None if name == "offline" => Ok(ModelChoice::Offline),
        Some(("script", "")) => Err(fail("no script file is named".into(), "write script:FILE")),
        Some(("script", file)) => {
            let path = PathBuf::from(file);
            match std::fs::metadata(&path) {
                Ok(metadata) if metadata.is_dir() => {
                    Err(fail("it is a directory".into(), "name a script file"))
                }
                Ok(_) => Ok(ModelChoice::Script(path)),
                Err(error) => {
                    Err(fail(format!("cannot read {file}: {error}"), "name a script file that can be read"))
                }
            }
        }
        _ => match name.parse() {
            Ok(name) => Ok(ModelChoice::Provider { name, base_url }),
            Err(_) => {
                let known = ProviderName::providers().collect::<Vec<_>>().join(", ");
                let fix = format!(
                    "use 'offline', 'script:FILE' or PROVIDER:MODEL with one of these providers: {known}"
                );
                Err(fail("unknown model".into(), &fix))
            }
        },
    }
}

/// The directories of `--agents`.
pub(super) fn agents(paths: &[PathBuf]) -> Result<Vec<PathBuf>, UsageError> {
    paths.iter().map(|path| directory("--agents", path)).collect()
}

/// A directory that can be read, without symbolic links in its path.
pub(super) fn directory(flag: &'static str, path: &Path) -> Result<PathBuf, UsageError> {
    let fail = |error: std::io::Error| UsageError {
        flag,
        value: path.display().to_string(),
        what: error.to_string(),
        fix: "name a directory that can be read".into(),
    };
    let directory = path.canonicalize().map_err(fail)?;
    std::fs::read_dir(&directory).map_err(fail)?;
    Ok(directory)
}

/// The longest schema, in bytes: it is sent to the model.
const SCHEMA_BYTES: u64 = 1 << 20;

fn schema(path: &Path) -> Result<Value, UsageError> {
    let fail = |what: String, fix: &str| UsageError {
        flag: "--schema",
        value: path.display().to_string(),
        what,
        fix: fix.into(),
    };
    let text =
        read_text(path, SCHEMA_BYTES, false).map_err(|unreadable| fail(unreadable.what, unreadable.fix))?;
    let schema: Value = serde_json::from_str(&text)
        .map_err(|error| fail(format!("not JSON: {error}"), "write a JSON schema into it"))?;
    // As its run will, so that nothing begins that could not end well.
    let compiled = Schema::compile(Arc::new(schema), "the result")
        .map_err(|error| fail(format!("not a JSON schema: {error}"), "see https://json-schema.org"))?;
    Ok(Value::clone(compiled.value()))
}

/// Reads the task. Blanks alone are none.
pub(super) fn task(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("the task is empty; say in one quoted argument what is to be done".into()),
        _ => Ok(text.to_owned()),
    }
}

/// Reads an input of a script.
pub(super) fn input(text: &str) -> Result<(String, Value), String> {
    let fail = "no input; write NAME=VALUE, such as path=src or numbers=[1,2,3]";
    let (name, value) = text.split_once('=').ok_or(fail)?;
    if name.trim().is_empty() {
        return Err(fail.into());
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((name.trim().to_owned(), value))
}

/// Reads a whole number or `unlimited`.
pub(super) fn number<T: FromStr>(text: &str) -> Result<Limit<T>, String> {
    if text == "unlimited" {
        return Ok(Limit::Unlimited);
    }
    let fail = "not a whole number of that range; give one from 0 (none at all), or 'unlimited'";
    text.parse().map(Limit::At).map_err(|_| fail.to_owned())
}

/// Reads a seed.
pub(super) fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("not a seed; give a whole number from 0 to {}", u64::MAX))
}

/// Reads an amount of money or `unlimited`.
pub(super) fn money(text: &str) -> Result<Limit<f64>, String> {
    match text.parse::<f64>() {
        _ if text == "unlimited" => Ok(Limit::Unlimited),
        Ok(amount) if amount.is_finite() && amount >= 0.0 => Ok(Limit::At(amount)),
        _ => Err("not an amount; give a number from 0, such as 0.50, or 'unlimited'".into()),
    }
}

/// Reads a time span with its unit, or `unlimited`.
pub(super) fn duration(text: &str) -> Result<Limit<Duration>, String> {
    if text == "unlimited" {
        return Ok(Limit::Unlimited);
    }
    humantime::parse_duration(text).map(Limit::At).map_err(|error| {
        format!("{error}; give a number with its unit, such as 90s, 5m or 1h30m, or 'unlimited'")
    })
}

/// Reads a time span with its unit.
pub(super) fn wait(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; give a number with its unit, such as 90s, 5m or 1h30m"))
}

/// Rules that stood in one argument.
#[derive(Debug, Clone)]
pub(super) struct RuleList(Vec<Rule>);

/// Reads rules that are separated by commas; a comma between parentheses or braces belongs to its rule.
pub(super) fn rules(text: &str) -> Result<RuleList, String> {
    let mut depth = 0_i32;
    let parts = text.split(|char| {
        depth += match char {
            '(' | '{' => 1,
            ')' | '}' => -1,
            _ => 0,
        };
        char == ',' && depth <= 0
    });
    let read = |part: &str| match part.trim() {
        "" => Err("no tool is named; give names separated by commas, without a comma at the end".into()),
        rule => rule.parse::<Rule>().map_err(|error| error.to_string()),
    };
    parts.map(read).collect::<Result<_, _>>().map(RuleList)
}
