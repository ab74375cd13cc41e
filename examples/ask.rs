//! A child, two levels down, wants to write a file; the person at the root is asked, sees who asks and why, and decides.
//!
//! `cargo run --example ask`: two asks with the path of who asks; the first is permitted, the second is not, and each answer reaches
//! the call that it is about.

use std::error::Error;
use std::io::{Write, stdout};
use std::sync::Arc;

use anabranch::Agent;
use anabranch::agent::{RunSubtask, ToolLoop};
use anabranch::context::{OpenAsk, Reply, Root};
use anabranch::model::{Script, ScriptModel};
use anabranch::tool::{Effect, Policy, ToolContext, ToolReply, Toolset, tool_fn};
use serde_json::json;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Publish {
    /// The page to publish.
    page: String,
}

async fn publish(page: Publish, _: ToolContext) -> ToolReply {
    ToolReply::ok(format!("{} is online", page.page))
}

/// What a person would decide who reads the question.
fn decide(ask: &OpenAsk, out: &mut impl Write) -> std::io::Result<Reply> {
    let path: Vec<&str> = ask.path.iter().map(|step| &*step.title).collect();
    let args = json!(ask.question.args);
    let tool = ask.question.tool.as_deref().unwrap_or_default();
    writeln!(out, "{} wants to call {tool} with {args}", path.join(" > "))?;
    let is_final = args.get("page") != Some(&json!("prices"));
    Ok(if is_final { Reply::allow() } else { Reply::deny().saying("the prices are not final") })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&mut stdout()).await
}

/// The example, printing to `out`.
pub(crate) async fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let pages = ["news", "prices"].map(|page| json!({"name": "publish", "arguments": {"page": page}}));
    let delegate = |title: &str| json!({"tool_calls": [{"name": "run_subtask", "arguments": {"description": title, "prompt": title}}]});
    let script = json!({"anabranch_script": 1, "agents": [
        {"when": {"depth": 0}, "turns": [delegate("editor"), {"text": "The site is up to date."}]},
        {"when": {"depth": 1}, "turns": [delegate("publisher"), {"text": "Handed over."}]},
        {"turns": [{"tool_calls": pages}, {"text": "One page is online, one has to wait."}]},
    ]});
    let model = ScriptModel::new(Script::parse(&script.to_string(), "ask")?);
    let tools = Toolset::new().with(tool_fn("publish", "Puts a page online.", publish))?;
    let tools = tools.with_sub_agent(RunSubtask::default())?;
    let policy = Policy::default().with(Effect::Ask, "publish(page=*)".parse()?);
    let root = Root::new();

    let mut asks = root.asks();
    let person = async {
        while let Some(ask) = asks.next().await {
            root.answer(&ask.request_id, decide(&ask, out)?)?;
        }
        Ok::<_, Box<dyn Error>>(())
    };
    let agent =
        Agent::with_producer(Arc::new(model), Arc::new(ToolLoop::default())).tools(tools).policy(policy);
    let (outcome, answered) = tokio::join!(agent.run(&root, "Update the site").settle(), person);
    answered?;
    writeln!(out, "{}", outcome.result().cloned().unwrap_or_default())?;
    Ok(())
}
