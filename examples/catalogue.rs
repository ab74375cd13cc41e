//! Agents that are files: one is delegated to by its name, and a file that comes while the run works is there at once.
//!
//! Run it with `cargo run --example catalogue`. A script plays the models, so there is no network. You see what each agent is
//! asked, how it ended, and how long the log of the first one is.

use std::io::{self, Write};

use anabranch::catalogue::{Catalogue, Delegate, Spawner, session_log};
use anabranch::id::RunId;
use anabranch::model::{Script, ScriptModel};
use anabranch::tool::{ToolReply, Toolset, tool_fn};
use anabranch::{Agent, MessageBody, Root};
use futures::StreamExt;

const POET: &str =
    "---\ndescription: Writes a line of verse.\nmax_steps: 3\n---\nYou are a poet of few words.\n";
const CRITIC: &str = "---\ndescription: Judges a line of verse.\n---\nYou are a critic.\n";

const SCRIPT: &str = r#"{ "anabranch_script": 1, "agents": [
    { "when": { "depth": 0 }, "turns": [
        { "tool_calls": [ { "name": "delegate", "arguments": { "agent": "poet", "task": "A line on rivers." } } ] },
        { "tool_calls": [ { "name": "hire", "arguments": { "name": "critic" } } ] },
        { "tool_calls": [ { "name": "delegate", "arguments": { "agent": "critic", "task": "Judge: it parts and joins again" } } ] },
        { "text": "Both were asked." } ] },
    { "when": { "agent": "poet" }, "turns": [
        { "tool_calls": [ { "name": "finish", "arguments": { "status": "completed", "summary": "it parts and joins again" } } ] } ] },
    { "when": { "agent": "critic" }, "turns": [
        { "tool_calls": [ { "name": "finish", "arguments": { "status": "blocked", "summary": "One line is too little." } } ] } ] } ] }"#;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Hire {
    /// Its name.
    name: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    run(&mut io::stdout()).await
}

pub(crate) async fn run(out: &mut impl Write) -> io::Result<()> {
    let directory = std::env::temp_dir().join(format!("anabranch-catalogue-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join("poet.md"), POET)?;
    let place = directory.clone();
    let hire = tool_fn("hire", "Defines an agent.", move |Hire { name }, _cx| {
        let written = std::fs::write(place.join(format!("{name}.md")), CRITIC);
        async move { ToolReply::ok(if written.is_ok() { "hired" } else { "not hired" }) }
    });
    let delegate = Delegate::new(Spawner::new(Catalogue::new([directory.clone()])));
    let tools =
        Toolset::new().with(hire).and_then(|tools| delegate.add_to(&tools)).map_err(io::Error::other)?;
    let script = Script::parse(SCRIPT, "catalogue").map_err(io::Error::other)?;
    let root = Root::new();
    let mut run =
        Agent::new(ScriptModel::new(script)).tools(tools).run(&root, "Have a verse written and judged.");
    let mut first: Option<RunId> = None;
    while let Some(delivery) = run.next().await {
        let Some(message) = delivery.message() else { continue };
        match message.body() {
            MessageBody::RunStarted(started) => writeln!(out, "{}: {}", started.agent, started.task)?,
            MessageBody::ToolResultUpdate(result) if &*result.name == "delegate" => {
                let text =
                    |key: &str| result.result.get(key).and_then(|value| value.as_str()).unwrap_or_default();
                writeln!(out, "{} {}: {}", text("agent"), text("status"), text("summary"))?;
                first = first.or_else(|| Some(RunId::parse(text("session"))));
            }
            _ => {}
        }
    }
    std::fs::remove_dir_all(&directory)?;
    let log = first.map(|session| session_log(&root, &session)).unwrap_or_default();
    writeln!(out, "the poet's log: {} messages, {} lost", log.messages.len(), log.lost)
}
