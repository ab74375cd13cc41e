//! How a run is shown while it goes on: its stream drives it, so a reader that is slow slows the run and loses nothing.

use std::io::{self, BufWriter, Write};
use std::pin::Pin;
use std::task::Poll;

use futures::Stream;
use tokio::time::{MissedTickBehavior, interval};

use super::lines::IndentedLines;
use super::live::{FRAME, LiveTree};
use super::output::{Display, Streams};
use crate::context::Root;
use crate::forward::RootRun;
use crate::outcome::{CancelledBy, SubAgentOutcome};
use crate::tree::Delivery;

/// Bytes gathered before they go out, where more messages are there already: few writes for a burst, none delayed by it.
const BUFFER: usize = 64 * 1024;

/// A run that was shown.
pub(super) struct Shown {
    /// How it ended; none if it was not driven to its end because nobody reads.
    pub(super) outcome: Option<SubAgentOutcome>,
    /// Whether what was printed arrived.
    pub(super) printed: io::Result<()>,
}

/// Something that shows deliveries.
trait Screen {
    fn apply(&mut self, delivery: &Delivery) -> io::Result<()>;
    /// Nothing more is there now.
    fn flush(&mut self) -> io::Result<()>;
}

/// Drives a run to its end and shows it. Where the output is closed, the run is cancelled.
pub(super) async fn show(run: RootRun, root: &Root, display: Display, streams: Streams) -> Shown {
    let mut run = Box::pin(run);
    let printed = match display {
        Display::Messages => drive(&mut run, &mut Messages::new(io::stdout())).await,
        Display::Lines => {
            let out = BufWriter::with_capacity(BUFFER, io::stdout());
            drive(&mut run, &mut Lines { events: IndentedLines::new(), out }).await
        }
        Display::Result => drive(&mut run, &mut Nothing).await,
        Display::LiveOnStderr => live(&mut run, root, io::stderr(), streams).await,
        Display::LiveOnStdout => live(&mut run, root, io::stdout(), streams).await,
    };
    if printed.is_err() {
        let end = root.cancel_all(CancelledBy::User);
        let _ = drive(&mut run, &mut Nothing).await;
        end.await;
    }
    Shown { outcome: run.outcome().cloned(), printed }
}

async fn drive(run: &mut Pin<Box<RootRun>>, screen: &mut impl Screen) -> io::Result<()> {
    std::future::poll_fn(|cx| {
        loop {
            match run.as_mut().poll_next(cx) {
                Poll::Ready(Some(delivery)) => screen.apply(&delivery)?,
                Poll::Ready(None) => return Poll::Ready(screen.flush()),
                Poll::Pending => {
                    screen.flush()?;
                    return Poll::Pending;
                }
            }
        }
    })
    .await
}

struct Nothing;

impl Screen for Nothing {
    fn apply(&mut self, _: &Delivery) -> io::Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Messages<W: Write> {
    out: W,
    buffer: Vec<u8>,
}

impl<W: Write> Messages<W> {
    fn new(out: W) -> Self {
        Self { out, buffer: Vec::with_capacity(2 * BUFFER) }
    }
}

impl<W: Write> Screen for Messages<W> {
    fn apply(&mut self, delivery: &Delivery) -> io::Result<()> {
        serde_json::to_writer(&mut self.buffer, delivery)?;
        self.buffer.push(b'\n');
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        // Whole lines only: whoever reads along never sees half a message.
        let written = self.out.write_all(&self.buffer).and_then(|()| self.out.flush());
        self.buffer.clear();
        written
    }
}

struct Lines<W: Write> {
    events: IndentedLines,
    out: BufWriter<W>,
}

impl<W: Write> Screen for Lines<W> {
    fn apply(&mut self, delivery: &Delivery) -> io::Result<()> {
        self.events.apply(delivery, &mut self.out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

async fn live<W: Write>(run: &mut Pin<Box<RootRun>>, root: &Root, out: W, _: Streams) -> io::Result<()> {
    let mut screen = Live { tree: LiveTree::new(out)?, root: root.clone() };
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            ended = drive(run, &mut screen) => {
                ended?;
                return screen.tree.finish();
            }
            // The run keeps its place: what `drive` holds is only a borrow of it.
            _ = frames.tick() => { screen.tree.draw(screen.root.clock().now())?; }
        }
    }
}

struct Live<W: Write> {
    tree: LiveTree<W>,
    root: Root,
}

impl<W: Write> Screen for Live<W> {
    fn apply(&mut self, delivery: &Delivery) -> io::Result<()> {
        self.tree.apply(delivery);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tree.draw(self.root.clock().now()).map(drop)
    }
}
