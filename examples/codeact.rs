//! An agent that acts by writing code: two sub-agents from one action, at the same time.
//!
//! Run it with `cargo run --example codeact`. It prints the log as a timeline: the action's call, below it the calls that its code
//! makes, and the children that those start, which run at once. A script plays the model.

use std::io::{self, Write};
use std::sync::Arc;

use anabranch::agent::codeact::CodeAct;
use anabranch::agent::{Agent, RunSubtask};
use anabranch::model::{Script, ScriptModel};
use anabranch::testing::TestRoot;
use anabranch::tool::Toolset;

const MODEL: &str = r#"{ "anabranch_script": 1, "agents": [
    { "when": { "depth": 0 }, "turns": [
        { "code": "const names = ['bus', 'pipe'];\nconst answers = await Promise.all(names.map(name =>\n  tools.run_subtask({ description: name, prompt: `Count the files of ${name}.` })));\nconsole.log(answers.length, 'answers');\nawait finish({ total: answers.map(Number).reduce((a, b) => a + b) });" } ] },
    { "when": { "title": "bus" }, "turns": [ { "text": "7", "chunk_delay_ms": 2 } ] },
    { "turns": [ { "text": "5", "chunk_delay_ms": 1 } ] } ] }"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    run(&mut io::stdout()).await
}

pub(crate) async fn run(out: &mut impl Write) -> io::Result<()> {
    let script = Script::parse(MODEL, "codeact").map_err(io::Error::other)?;
    let agent = Agent::with_producer(Arc::new(ScriptModel::new(script)), Arc::new(CodeAct::default()));
    let tools = Toolset::new().with_sub_agent(RunSubtask::default()).map_err(io::Error::other)?;
    let test = TestRoot::new();
    let outcome = agent.tools(tools).run(test.root(), "Count the files.").settle().await;
    writeln!(out, "{}", test.timeline().trim_end())?;
    writeln!(out, "outcome: {:?}", outcome.result())
}
