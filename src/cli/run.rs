//! `anabranch run`: flags in, a tree of runs, a result and an exit status out.

use std::process::ExitCode;

use super::host::Host;
use super::options::RunOptions;
use crate::agent::Agent;

/// Runs an agent on a task.
pub(super) fn run(options: RunOptions) -> ExitCode {
    let RunOptions { task, schema, host } = options;
    Host::open(&host, |host| {
        let mut agent = host.agent().system_prompt(Agent::WORKSPACE_PROMPT);
        if let Some(schema) = schema {
            agent = agent.output_schema(schema);
        }
        Ok(move |root: &_| agent.run(root, task))
    })
}
