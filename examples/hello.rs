//! A sub-agent in a few lines: it says three things and finishes.
//!
//! Run it with `cargo run --example hello`. You see the text as it streams, then the outcome.

use std::io::{self, Write};

use anabranch::{Chunk, Delivery, MessageBody, Root, RunSpec, SubAgentOutcome, SubAgentStream};
use futures::StreamExt;

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    run(&mut io::stdout()).await
}

pub(crate) async fn run(out: &mut impl Write) -> io::Result<()> {
    let root = Root::new();
    let mut run = root.run(RunSpec::new("greeter", "Say hello."), |_cx| {
        SubAgentStream::generate(|emit| async move {
            for word in ["Hello", ", ", "world.\n"] {
                emit.send(Chunk::text(word)).await;
            }
            SubAgentOutcome::completed("said it")
        })
    });
    while let Some(delivery) = run.next().await {
        if let Delivery::Message(message) = &delivery
            && let MessageBody::Chunk(chunk) = message.body()
        {
            write!(out, "{}", chunk.content)?;
        }
    }
    writeln!(out, "outcome: {:?}", run.outcome().and_then(SubAgentOutcome::result))
}
