//! A late joiner: it gets the tree as it is, then what happens, and after a pause goes on where it was.
//!
//! Run it with `cargo run --example watch`. You see a snapshot in place of what came before, then the rest; a second watcher
//! that begins at the first one's position ends with the same tree.

use std::io::{self, Write};

use anabranch::bus::From;
use anabranch::{Chunk, Delivery, Root, RunSpec, RunTree, SubAgentOutcome, SubAgentStream};
use futures::StreamExt;
use tokio::sync::oneshot;

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    run(&mut io::stdout()).await
}

pub(crate) async fn run(out: &mut impl Write) -> io::Result<()> {
    let (half_way, joins) = oneshot::channel();
    let (go_on, joined) = oneshot::channel::<()>();
    let root = Root::new();
    let work = root.run(RunSpec::new("worker", "Count."), move |_cx| {
        SubAgentStream::generate(move |emit| async move {
            emit.send(Chunk::text("one two ")).await;
            // The watcher joins here, and the worker waits for it so that every run of this example prints the same.
            let _ = half_way.send(());
            let _ = joined.await;
            emit.send(Chunk::text("three")).await;
            SubAgentOutcome::completed("counted")
        })
    });
    let worker = tokio::spawn(work.settle());
    let _ = joins.await;

    let mut tree = RunTree::new();
    let mut events = root.subscribe(From::Now);
    if let Some(delivery) = events.next().await {
        if let Delivery::Gap(gap) = &delivery {
            writeln!(out, "joined after message {}", gap.to_seq)?;
        }
        tree.apply(&delivery);
    }
    writeln!(out, "text so far: {:?}", tree.root().map(|run| run.text.as_str()))?;
    let position = events.cursor();
    drop(events);
    let _ = go_on.send(());

    // A watcher that comes back with its position misses nothing and gets nothing twice.
    let mut events = root.subscribe(From::Seq(position));
    while let Some(delivery) = events.next().await {
        if let Some(message) = delivery.message() {
            writeln!(out, "then {}", message.body().kind())?;
        }
        tree.apply(&delivery);
    }
    let outcome = worker.await.map_err(io::Error::other)?;
    writeln!(out, "outcome: {:?}, the same in the tree: {}", outcome.result(), tree == root.snapshot())
}
