//! How a run is shown while it goes on.
//!
//! Where everything is printed, it is printed from the log itself, as its journal: nothing is ever left out, and a
//! reader that is slow slows the run. A terminal only shows what it can: it never slows anything.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures::StreamExt;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::ask::{Asker, Step};
use super::lines::IndentedLines;
use super::live::{FRAME, LiveTree};
use super::outlet::Outlet;
use super::output::{Display, Streams};
use super::signals::Resumed;
use crate::bus::Journal;
use crate::context::Root;
use crate::forward::RootRun;
use crate::message::ProcessingMessage;
use crate::outcome::{CancelledBy, SubAgentOutcome};
use crate::tree::Delivery;

/// What the live tree says from a cancel on, until all runs have ended.
const CANCELLING: &str = "cancelling; Ctrl-C ends it at once";

/// A pause between two frames that only a process has that was stopped, or a machine that slept.
const STOPPED: Duration = FRAME.saturating_mul(8);

/// Where a run is shown.
#[derive(Debug)]
pub(super) struct Screen {
    display: Display,
    streams: Streams,
    /// Whether the person at the terminal is asked.
    asks: bool,
    /// Where something is shown before the run has ended.
    outlet: Option<Outlet>,
}

/// A run that was shown.
pub(super) struct Shown {
    /// How it ended.
    pub(super) outcome: SubAgentOutcome,
    /// Whether what was printed on stdout arrived.
    pub(super) printed: io::Result<()>,
}

impl Screen {
    /// `asks`: what needs a person is asked where the tree is live and standard input is a terminal; nobody is asked otherwise.
    pub(super) fn new(display: Display, streams: Streams, asks: bool) -> io::Result<Self> {
        let outlet = match display {
            Display::Result => None,
            Display::LiveOnStderr => Some(Outlet::new(io::stderr())?),
            Display::LiveOnStdout | Display::Lines | Display::Messages => Some(Outlet::new(io::stdout())?),
        };
        Ok(Self { display, streams, asks, outlet })
    }

    pub(super) fn outlet(&self) -> Option<&Outlet> {
        self.outlet.as_ref()
    }

    /// What prints each message as it enters the log.
    pub(super) fn journal(&self) -> Option<Arc<dyn Journal>> {
        let outlet = self.outlet.clone()?;
        match self.display {
            Display::Messages => Some(Arc::new(Messages(outlet))),
            Display::Lines => Some(Arc::new(Lines { events: Mutex::default(), outlet })),
            Display::LiveOnStderr | Display::LiveOnStdout | Display::Result => None,
        }
    }

    /// Drives a run to its end and shows it. Where stdout is closed, the run is cancelled.
    pub(super) async fn show(&self, run: RootRun, root: &Root) -> Shown {
        match &self.outlet {
            None => Shown { outcome: run.settle().await, printed: Ok(()) },
            Some(outlet) => match self.display {
                Display::LiveOnStderr => {
                    // A terminal that went away has nothing to do with the result.
                    let Shown { outcome, .. } = self.live(run, root, outlet).await;
                    Shown { outcome, printed: Ok(()) }
                }
                Display::LiveOnStdout => self.live(run, root, outlet).await,
                Display::Lines | Display::Messages | Display::Result => drive(run, root, outlet).await,
            },
        }
    }

    async fn live(&self, mut run: RootRun, root: &Root, outlet: &Outlet) -> Shown {
        let mut printed = Ok(());
        let mut tree = match LiveTree::new(outlet.clone()) {
            Ok(tree) => tree.colours(self.streams.colours),
            Err(error) => return Shown { outcome: run.settle().await, printed: Err(error) },
        };
        // Before the run begins: its agents are offered what needs a person only where one is.
        let mut asker = if self.asks { Asker::attach(root) } else { None };
        let mut resumed = Resumed::listen();
        let mut frames = interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut latest = Instant::now();
        let mut cancelled = std::pin::pin!(root.token().wait());
        let mut is_cancelled = false;
        loop {
            let ended = std::future::poll_fn(|cx| {
                while let Poll::Ready(delivery) = run.poll_next_unpin(cx) {
                    match delivery {
                        Some(delivery) => tree.apply(&delivery),
                        None => return Poll::Ready(()),
                    }
                }
                Poll::Pending
            });
            tokio::select! {
                () = ended => break,
                () = resumed.next() => {
                    tree.begin_anew();
                    if let Some(asker) = &mut asker {
                        asker.begin_anew();
                    }
                }
                step = next(&mut asker) => if let Some(at_work) = &mut asker {
                    match at_work.take(step, &mut tree) {
                        Ok(true) => {}
                        Ok(false) => asker = None,
                        Err(error) => printed = Err(error),
                    }
                },
                () = &mut cancelled, if !is_cancelled => {
                    is_cancelled = true;
                    tree.note(CANCELLING);
                }
                now = frames.tick(), if printed.is_ok() => {
                    // A process that was stopped first has to learn that it was: this is not its line any more.
                    let was_stopped = now - std::mem::replace(&mut latest, now) > STOPPED;
                    // What a stopped terminal has not taken yet is not heaped up.
                    if !was_stopped && outlet.is_idle() {
                        let now = root.clock().now();
                        printed = match &mut asker {
                            Some(open) if open.is_open() => open.draw(&mut tree, now).map(|is_there| {
                                if !is_there {
                                    asker = None;
                                }
                            }),
                            _ => tree.draw(now).map(drop),
                        };
                    }
                    if printed.is_err() {
                        // Nobody sees a question any more.
                        asker = None;
                    }
                    if printed.is_err() && self.display == Display::LiveOnStdout {
                        // Dropping the end only ends the waiting for it: the run is driven on here.
                        drop(root.cancel_all(CancelledBy::User));
                    }
                }
            }
        }
        if let Some(asker) = asker.as_mut().filter(|_| printed.is_ok()) {
            printed = asker.unanswered(&mut tree);
        }
        if printed.is_ok() {
            printed = tree.finish();
        }
        if printed.is_ok() {
            printed = outlet.drained().await;
        }
        let outcome = run.settle().await;
        Shown { outcome, printed }
    }
}

/// What happens next with questions.
async fn next(asker: &mut Option<Asker>) -> Step {
    match asker {
        Some(asker) => asker.next().await,
        None => std::future::pending().await,
    }
}

/// Drives a run whose journal prints. A reader that is slow slows it; one that is gone cancels it.
async fn drive(run: RootRun, root: &Root, outlet: &Outlet) -> Shown {
    let mut run = std::pin::pin!(run.settle());
    let mut cancelled = std::pin::pin!(root.token().wait());
    // A tree that is cancelled ends in its own time, not in the reader's.
    let mut waits_for_reader = true;
    let outcome = std::future::poll_fn(|cx| {
        if waits_for_reader {
            match outlet.poll_room(cx) {
                _ if cancelled.as_mut().poll(cx).is_ready() => waits_for_reader = false,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => {
                    waits_for_reader = false;
                    // Dropping the end only ends the waiting for it: the run is driven on here.
                    drop(root.cancel_all(CancelledBy::User));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        // Ends after a bounded number of messages, since each uses up some of the task's budget.
        let polled = run.as_mut().poll(cx);
        outlet.push();
        polled
    })
    .await;
    Shown { outcome, printed: outlet.drained().await }
}

/// Prints each message as one JSON object on a line.
#[derive(Debug)]
struct Messages(Outlet);

impl Journal for Messages {
    fn record(&self, message: &ProcessingMessage) {
        self.0.put(|bytes| {
            let begin = bytes.len();
            match serde_json::to_writer(&mut *bytes, message) {
                Ok(()) => bytes.push(b'\n'),
                // No body's serialisation fails. If one did, its line would be left out, whole.
                Err(_) => bytes.truncate(begin),
            }
        });
    }
}

/// Prints what is worth a line.
#[derive(Debug)]
struct Lines {
    /// Taken inside the log's lock only, so never contended.
    events: Mutex<IndentedLines>,
    outlet: Outlet,
}

impl Journal for Lines {
    fn record(&self, message: &ProcessingMessage) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        self.outlet.put(|bytes| {
            // Writing into memory does not fail.
            let _ = events.apply(&Delivery::Message(message.clone()), bytes);
        });
    }
}
