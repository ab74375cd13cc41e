//! `anabranch script`: a file of JavaScript that orchestrates agents.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::args::ScriptArgs;
use super::host::Host;
use super::options::{HostOptions, UsageError};
use super::read::read_text;
use crate::agent::Agent;
use crate::agent::script::{ScriptLimits, ScriptRun, check_script};
use crate::error::ErrorKind;

/// The longest script, in bytes: no person writes a longer one, and a file by mistake is most often longer.
const MAX_BYTES: u64 = 1 << 20;

/// What `script` is to do.
#[derive(Debug)]
pub(crate) struct ScriptOptions {
    path: PathBuf,
    /// It compiles.
    code: String,
    inputs: Value,
    limits: ScriptLimits,
    host: HostOptions,
}

impl TryFrom<ScriptArgs> for ScriptOptions {
    type Error = UsageError;

    fn try_from(args: ScriptArgs) -> Result<Self, UsageError> {
        let host = args.host.try_into()?;
        let mut inputs = Map::new();
        for (name, value) in args.input {
            if inputs.insert(name.clone(), value).is_some() {
                return Err(UsageError::new("--input", &name, "it is given twice", "name each input once"));
            }
        }
        let code = read(&args.file)?;
        let limits = ScriptLimits {
            max_agent_calls: args.max_agent_calls,
            max_concurrent_agents: args.max_concurrent_agents,
            ..ScriptLimits::default()
        };
        Ok(Self { path: args.file, code, inputs: Value::Object(inputs), limits, host })
    }
}

fn read(path: &Path) -> Result<String, UsageError> {
    let fail = |what: String, fix: &str| UsageError::of_file("FILE", path, what, fix);
    let text =
        read_text(path, MAX_BYTES, true).map_err(|unreadable| fail(unreadable.what, unreadable.fix))?;
    // The first line may say what runs it. As a comment it keeps its place.
    let code = match text.strip_prefix("#!") {
        Some(rest) => format!("//{rest}"),
        None => text,
    };
    let Err(error) = check_script(&code, path) else { return Ok(code) };
    let what = match error.kind() {
        // On one line, where a caret would point at nothing.
        ErrorKind::Script { at, reason, .. } => {
            let mut lines = reason.lines().map(str::trim).filter(|line| *line != "^");
            let (reason, excerpt) = (lines.next().unwrap_or_default(), lines.next());
            excerpt.map_or_else(|| format!("at {at}: {reason}"), |line| format!("at {at}: {reason} ({line})"))
        }
        _ => error.to_string(),
    };
    Err(fail(what, "mend the script"))
}

/// Runs a script.
pub(super) fn script(options: &ScriptOptions) -> ExitCode {
    Host::open(&options.host, |host| {
        let agent = host.agent().named("script").system_prompt(Agent::WORKSPACE_PROMPT);
        let run = ScriptRun::new(options.code.as_str())
            .with_inputs(options.inputs.clone())
            .with_limits(options.limits)
            .in_sandbox(host.sandbox());
        let task = options.path.display().to_string();
        Ok(move |root: &_| agent.run_with(Arc::new(run), root, task))
    })
}
