//! A sub-agent as a contract: its answer is `{status, summary, findings}`, or the call says why it is none.
//!
//! Run it with `cargo run --example frame`. A model asks for two reviews at once. You see what it reads of each: the findings of
//! the first, and of the second, whose agent does not keep to the contract, the answer with the reason why it does not count. A
//! script plays all models.

use std::io::{self, Write};
use std::sync::Arc;

use anabranch::frame::as_tool_typed;
use anabranch::model::{ChatModel, Script, ScriptModel};
use anabranch::tool::Toolset;
use anabranch::{Agent, MessageBody, Root, SubAgentOutcome};
use futures::StreamExt;

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[expect(dead_code, reason = "the model reads its schema; nothing here reads a value")]
struct Review {
    /// Each defect in one sentence.
    defects: Vec<String>,
}

const SCRIPT: &str = r#"{ "anabranch_script": 1, "agents": [
    { "when": { "depth": 0 }, "turns": [
        { "tool_calls": [ { "name": "review", "arguments": { "prompt": "Review a.rs." } },
                          { "name": "review", "arguments": { "prompt": "Review b.rs." } } ] },
        { "text": "One file has a defect, the other was not reviewed." } ] },
    { "when": { "prompt": "a.rs" }, "turns": [
        { "text": "{\"status\":\"success\",\"summary\":\"One defect.\",\"findings\":{\"defects\":[\"`x` is never read\"]}}" } ] },
    { "turns": [ { "text": "{\"status\":\"fine\",\"summary\":\"No defects.\"}" } ] } ] }"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    run(&mut io::stdout()).await
}

pub(crate) async fn run(out: &mut impl Write) -> io::Result<()> {
    let model: Arc<dyn ChatModel> =
        Arc::new(ScriptModel::new(Script::parse(SCRIPT, "frame").map_err(io::Error::other)?));
    let reviewers = Arc::clone(&model);
    // Called once for each review: an agent is never used twice.
    let build = move || Ok::<_, io::Error>(agent(&reviewers).named("reviewer").max_turns(5));
    let review =
        as_tool_typed::<Review, _>(build, "review", "Has one file reviewed.").map_err(io::Error::other)?;
    let tools = Toolset::new().with(review).map_err(io::Error::other)?;
    let mut run = agent(&model).tools(tools).run(&Root::new(), "Review both files.");
    while let Some(delivery) = run.next().await {
        if let Some(MessageBody::ToolResultUpdate(call)) = delivery.message().map(|message| message.body()) {
            let said = |key: &str| call.result.get(key).cloned().unwrap_or_default();
            let (status, summary) = (said("status"), said("summary"));
            write!(out, "{} -> {}: {summary}", call.name, status.as_str().unwrap_or_default())?;
            match call.result.get("rejection") {
                Some(reason) => writeln!(out, " since {reason}")?,
                None => writeln!(out, " {}", said("findings"))?,
            }
        }
    }
    writeln!(out, "{:?}", run.outcome().and_then(SubAgentOutcome::result))
}

fn agent(model: &Arc<dyn ChatModel>) -> Agent {
    Agent::with_producer(Arc::clone(model), Arc::new(anabranch::agent::ToolLoop::default()))
}
