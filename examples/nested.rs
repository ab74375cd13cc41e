//! Three levels: a root that delegates to two children at once, each of which delegates once more.
//!
//! Run it with `cargo run --example nested`. You see one line for each message of each level, in the one order of the log,
//! indented by depth: nobody passes messages on by hand.

use std::io::{self, Write};

use anabranch::{Chunk, Root, RunContext, RunSpec, SubAgentOutcome, SubAgentStream};
use futures::StreamExt;

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    run(&mut io::stdout()).await
}

pub(crate) async fn run(out: &mut impl Write) -> io::Result<()> {
    let root = Root::new();
    let mut run = root.run(RunSpec::new("root", "Ask two teams."), |cx| {
        SubAgentStream::generate(|_emit| async move {
            let north = cx.delegate(RunSpec::new("north", "Answer."), team);
            let south = cx.delegate(RunSpec::new("south", "Answer."), team);
            let (north, south) = tokio::join!(north, south);
            SubAgentOutcome::completed(format!("north: {}, south: {}", north.is_ok(), south.is_ok()))
        })
    });
    while let Some(delivery) = run.next().await {
        if let Some(message) = delivery.message()
            && let Some(nesting) = message.nesting()
        {
            let indent = 2 * nesting.origin.subtask_depth as usize;
            writeln!(out, "{:indent$}{}", "", message.body().kind())?;
        }
    }
    writeln!(out, "outcome: {:?}", run.outcome().and_then(SubAgentOutcome::result))
}

fn team(cx: RunContext) -> SubAgentStream {
    SubAgentStream::generate(|emit| async move {
        emit.send(Chunk::text("I know somebody who knows.")).await;
        cx.delegate(RunSpec::new("specialist", "Answer."), specialist).await
    })
}

fn specialist(_cx: RunContext) -> SubAgentStream {
    SubAgentStream::generate(|emit| async move {
        emit.send(Chunk::text("I know.")).await;
        SubAgentOutcome::completed("answered")
    })
}
