//! `anabranch run`.

use std::io;
use std::process::ExitCode;

use super::exit::ExitStatus;
use super::options::RunOptions;
use super::output::{Display, Streams, complain};

/// Runs an agent on a task.
pub(super) fn run(options: RunOptions) -> ExitCode {
    let shown = Display::of(options.output, Streams::of_process());
    let RunOptions { task, model, workspace, schema, allow, deny, chaos, seed, background, limits, .. } =
        options;
    let understood = (model, workspace, schema, allow, deny, chaos, seed, background);
    let budget =
        (limits.max_depth, limits.max_live, limits.max_runs, limits.budget_tokens, limits.budget_usd);
    let each = (limits.max_turns, limits.max_tool_calls, limits.timeout, limits.idle_timeout);
    tracing::debug!(?shown, ?understood, ?budget, ?each, "options");
    complain(&mut io::stderr(), format_args!("error: running agents is not built yet; the task was: {task}"));
    ExitStatus::Failed.into()
}
