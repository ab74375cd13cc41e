//! What a model is told that acts by writing code. The texts are in `prompts/`.

use serde_json::Value;

use super::catalogue::describe;
use super::execute_code::ActionLimits;
use super::observation::{LOG_CHARS, RESULT_CHARS};
use crate::agent::FINISH;
use crate::tool::Toolset;

/// What `execute_code` is, for the model.
pub(super) const EXECUTE_CODE: &str = include_str!("prompts/execute_code.md");

/// What a run is told that ended its turn without a result.
pub(super) const REMINDER: &str = include_str!("prompts/reminder.md");

const ACT: &str = include_str!("prompts/act.md");
const FINISH_SCHEMA: &str = include_str!("prompts/finish_schema.md");
const FINISH_FREE: &str = include_str!("prompts/finish_free.md");
const FINISH_TOOL: &str = include_str!("prompts/finish_tool.md");

/// The system prompt: the caller's, then the contract of actions. The caller's cannot replace it. `direct` are the tools that the model
/// is offered by themselves.
pub(super) fn system(
    preamble: Option<&str>,
    tools: &Toolset,
    direct: &[String],
    schema: Option<&Value>,
    limits: &ActionLimits,
) -> String {
    let completion = match schema {
        // Two ways to end would be one too many; the tool knows the schema.
        _ if tools.get(FINISH).is_some() => FINISH_TOOL.to_owned(),
        Some(schema) => FINISH_SCHEMA.replace("{schema}", &schema.to_string()),
        None => FINISH_FREE.to_owned(),
    };
    // The caller's words last: what stands in them is not to be taken for one of these places.
    let contract = ACT
        .replace("{result}", &RESULT_CHARS.to_string())
        .replace("{logs}", &LOG_CHARS.to_string())
        .replace("{wall}", &humantime::format_duration(limits.wall).to_string())
        .replace("{calls}", &limits.max_calls.to_string())
        .replace("{completion}", completion.trim_end());
    let (before, after) = contract.split_once("{tools}").unwrap_or((&contract, ""));
    let contract = format!("{before}{}{after}", describe(tools, direct));
    match preamble {
        Some(preamble) => format!("{preamble}\n\n{contract}"),
        None => contract,
    }
}
