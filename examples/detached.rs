//! Work in the background: a parent that starts two subtasks, goes on, and fetches what they found.
//!
//! Run it with `cargo run --example detached`. A script plays all models, so there is no network. You see the parent speak
//! while its subtasks work, and one row for each of them when it waits.

use std::io::{self, Write};

use anabranch::agent::Detached;
use anabranch::model::{Script, ScriptModel};
use anabranch::tool::Toolset;
use anabranch::{Agent, MessageBody, Root};
use futures::StreamExt;

const SCRIPT: &str = r#"{ "anabranch_script": 1, "agents": [
    { "when": { "depth": 0 }, "turns": [
        { "tool_calls": [
            { "name": "start_subtask", "arguments": { "description": "north", "prompt": "Look north." } },
            { "name": "start_subtask", "arguments": { "description": "south", "prompt": "Look south." } } ] },
        { "text": "Meanwhile I look around here.", "tool_calls": [ { "name": "wait_subtasks", "arguments": {} } ] },
        { "text": "Both have reported." } ] },
    { "when": { "title": "north" }, "turns": [ { "delay_ms": 20, "text": "a mountain" } ] },
    { "when": { "title": "south" }, "turns": [ { "delay_ms": 10, "text": "the sea" } ] } ] }"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    run(&mut io::stdout()).await
}

pub(crate) async fn run(out: &mut impl Write) -> io::Result<()> {
    let script = Script::parse(SCRIPT, "detached").map_err(io::Error::other)?;
    let tools = Detached::new().add_to(&Toolset::new()).map_err(io::Error::other)?;
    let mut run = Agent::new(ScriptModel::new(script)).tools(tools).run(&Root::new(), "Look around.");
    while let Some(delivery) = run.next().await {
        let Some(message) = delivery.message() else { continue };
        let depth = message.nesting().map_or(0, |nesting| nesting.origin.subtask_depth as usize);
        let indent = "  ".repeat(depth);
        match message.body() {
            MessageBody::RunStarted(started) => writeln!(out, "{indent}{} started", started.title)?,
            MessageBody::Chunk(chunk) if !chunk.content.is_empty() => {
                writeln!(out, "{indent}says: {}", chunk.content)?
            }
            MessageBody::ToolResultUpdate(result) => {
                for row in
                    result.result.get("subtasks").and_then(|rows| rows.as_array()).into_iter().flatten()
                {
                    let [name, status, found] = ["description", "status", "result"].map(|key| &row[key]);
                    writeln!(out, "{indent}{name} {status}: {found}")?;
                }
            }
            _ => {}
        }
    }
    writeln!(out, "outcome: {:?}", run.outcome().and_then(|outcome| outcome.result()))
}
