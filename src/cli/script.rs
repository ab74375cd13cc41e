//! `anabranch script`: a file of JavaScript that orchestrates agents.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::args::ScriptArgs;
use super::host::Host;
use super::options::{HostOptions, UsageError};
use crate::agent::Agent;
use crate::agent::script::{ScriptLimits, ScriptRun, check_script};

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
    let unreadable =
        |error: std::io::Error| fail(error.to_string(), "name a file of JavaScript that can be read");
    let mut bytes = Vec::new();
    let source: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(std::io::stdin().lock()),
        _ => Box::new(std::fs::File::open(path).map_err(unreadable)?),
    };
    source.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(fail(format!("more than {MAX_BYTES} bytes"), "name the file of a script"));
    }
    let code = String::from_utf8(bytes).map_err(|error| fail(error.to_string(), "save it as UTF-8"))?;
    match check_script(&code, path) {
        Ok(()) => Ok(code),
        Err(error) => Err(fail(error.to_string(), "mend the script")),
    }
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
