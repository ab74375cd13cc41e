//! An agent bound to an executor, refined until an evaluator is content: a writer of code, and a compiler that says what is wrong.
//!
//! Run it with `cargo run --example compound`. The first code does not compile; its error goes into the prompt of the second pass,
//! whose code does. You see how each pass was judged, and the code. A script plays the model.

use std::io::{self, Write};
use std::path::Path;

use anabranch::agent::script::check_script;
use anabranch::frame::Parent;
use anabranch::frame::compound::{Compound, Evaluation};
use anabranch::model::{Script, ScriptModel};
use anabranch::outcome::FailureKind;
use anabranch::{Agent, Root, RunSpec, SubAgentOutcome, SubAgentStream};

const MODEL: &str = r#"{ "anabranch_script": 1, "agents": [
    { "when": { "prompt": "does not compile" }, "turns": [
        { "text": "const words = inputs.text.split(' ');\nreturn words.length;" } ] },
    { "turns": [ { "text": "const words = inputs.text.split(' ');\nreturn words.length);" } ] } ] }"#;

/// What the compiler says of a piece of code.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Checked {
    code: String,
    problem: Option<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    run(&mut io::stdout()).await
}

pub(crate) async fn run(out: &mut impl Write) -> io::Result<()> {
    let script = Script::parse(MODEL, "compound").map_err(io::Error::other)?;
    let compound = Compound::<Vec<String>, Checked>::builder()
        .agent(Agent::new(ScriptModel::new(script)).named("coder"))
        .executor(|action| async move {
            let code = action.output.as_str().ok_or("the answer is no text")?.to_owned();
            let problem = check_script(&code, Path::new("words.js")).err().map(|error| error.to_string());
            Ok::<_, &str>(Checked { code, problem })
        })
        .state_updater(|checked, tried| tried.push(checked.code.clone()))
        .evaluator(|checked| match &checked.problem {
            None => Evaluation::passed(),
            Some(problem) => Evaluation::failed(problem.clone()),
        })
        .max_refinements(2)
        .build_refinement_prompt(|last| {
            format!("{}\nThis does not compile:\n{}\n{}", last.prompt, last.result.code, last.feedback)
        })
        .build()
        .map_err(io::Error::other)?;
    let task = "Write JavaScript that counts the words of `inputs.text`.";
    let run = Root::new().run(RunSpec::new("host", task), |cx| {
        SubAgentStream::generate(|_| async move {
            let mut tried = Vec::new();
            match compound.run(&Parent::of(&cx), &mut tried, task).await {
                Ok(done) => {
                    let judged = done.history.iter().map(|pass| match pass.passed {
                        Some(true) => format!("pass {}: passed", pass.pass),
                        _ => format!("pass {}: not yet: {}", pass.pass, pass.feedback),
                    });
                    let end = [format!("{} passes: {}", tried.len(), done.exit_reason), done.result.code];
                    SubAgentOutcome::completed(judged.chain(end).collect::<Vec<_>>().join("\n"))
                }
                Err(error) => SubAgentOutcome::failed(FailureKind::Step, error.to_string()),
            }
        })
    });
    match run.settle().await {
        SubAgentOutcome::Completed { result, .. } => writeln!(out, "{}", result.as_str().unwrap_or_default()),
        other => writeln!(out, "{other:?}"),
    }
}
