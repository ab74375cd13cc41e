//! A sub-agent tool of one's own: a reviewer that a parent model can call.
//!
//! Run it with `cargo run --example as_tool`. A script plays both models, so there is no network. You see the calls of both
//! runs, and what the parent makes of the review.

use std::io::{self, Write};

use anabranch::model::{Script, ScriptModel};
use anabranch::tool::{SubAgentRun, SubAgentTool, ToolReply, Toolset, tool_fn};
use anabranch::{Agent, MessageBody, Root, SubAgentOutcome};
use futures::StreamExt;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Review {
    /// The file to review.
    path: String,
}

struct Reviewer;

impl SubAgentTool for Reviewer {
    type Params = Review;

    fn name(&self) -> &str {
        "review"
    }

    fn description(&self) -> &str {
        "Has a file reviewed by a sub-agent that can only count its lines."
    }

    fn build_run(&self, params: Review) -> Result<SubAgentRun, ToolReply> {
        Ok(SubAgentRun::new("review", format!("Review {}.", params.path)))
    }

    fn child_tools(&self, parent: &Toolset) -> Toolset {
        parent.only(&["count_lines"])
    }
}

const SCRIPT: &str = r#"{ "anabranch_script": 1, "agents": [
    { "when": { "depth": 0 }, "turns": [
        { "tool_calls": [ { "name": "review", "arguments": { "path": "main.rs" } } ] },
        { "text": "The reviewer says that it is short." } ] },
    { "when": { "agent": "review" }, "turns": [
        { "tool_calls": [ { "name": "count_lines", "arguments": { "path": "main.rs" } } ] },
        { "text": "It has 12 lines: short." } ] } ] }"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    run(&mut io::stdout()).await
}

pub(crate) async fn run(out: &mut impl Write) -> io::Result<()> {
    let count =
        tool_fn("count_lines", "Counts the lines of a file.", |_: Review, _cx| async { ToolReply::ok(12) });
    let script = Script::parse(SCRIPT, "as_tool").map_err(io::Error::other)?;
    let tools = Toolset::new().with(count).and_then(|tools| tools.with_sub_agent(Reviewer));
    let agent = Agent::new(ScriptModel::new(script)).tools(tools.map_err(io::Error::other)?);
    let mut run = agent.run(&Root::new(), "Review main.rs.");
    while let Some(delivery) = run.next().await {
        let Some(message) = delivery.message() else { continue };
        let depth = message.nesting().map_or(0, |nesting| nesting.origin.subtask_depth as usize);
        match message.body() {
            MessageBody::ToolCallUpdate(call) => writeln!(out, "{:1$}→ {2}", "", 2 * depth, call.name)?,
            MessageBody::ToolResultUpdate(result) => writeln!(out, "{:1$}← {2}", "", 2 * depth, result.name)?,
            _ => {}
        }
    }
    writeln!(out, "{:?}", run.outcome().and_then(SubAgentOutcome::result))
}
