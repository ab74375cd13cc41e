//! A root's run as its host sees it: one stream of the whole tree's messages, and one outcome.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;

use super::pipe::{Forward, forward_subagent_stream};
use crate::bus::{From, Subscription};
use crate::context::{Root, RunContext, RunSpec};
use crate::id::Seq;
use crate::outcome::{FailureKind, SubAgentOutcome};
use crate::stream::SubAgentStream;
use crate::tree::Delivery;

impl Root {
    /// Runs a producer as the root of this tree. The stream yields the messages of all runs and drives them; once it has ended,
    /// [`RootRun::outcome`] is there.
    ///
    /// A root runs once: a second call gives a stream that is over, with a failed outcome.
    pub fn run(&self, spec: RunSpec, producer: impl FnOnce(RunContext) -> SubAgentStream) -> RootRun {
        match self.enter(spec) {
            Ok(entered) => {
                let stream =
                    SubAgentStream::build(|| Ok::<_, std::convert::Infallible>(producer(entered.context())));
                RootRun {
                    pipe: Some(Box::pin(forward_subagent_stream(stream, entered))),
                    events: Some(self.subscribe(From::Start)),
                    made: 0,
                    outcome: None,
                }
            }
            Err(refusal) => {
                let text = refusal.to_value().to_string();
                let outcome = Some(SubAgentOutcome::failed(FailureKind::Refused, text));
                RootRun { pipe: None, events: None, made: 0, outcome }
            }
        }
    }
}

/// The stream of [`Root::run`].
///
/// # Cancel safety
///
/// Dropping it cancels the tree: every run gets its terminal in the log.
#[must_use = "a run does nothing until it is polled"]
pub struct RootRun {
    /// Boxed, so that a host can call `next` without pinning anything.
    pipe: Option<Pin<Box<Forward>>>,
    events: Option<Subscription>,
    /// The end of the log when the pipe was last polled.
    made: Seq,
    outcome: Option<SubAgentOutcome>,
}

impl RootRun {
    /// The outcome; none before the run has settled.
    #[must_use]
    pub fn outcome(&self) -> Option<&SubAgentOutcome> {
        self.outcome.as_ref()
    }

    /// Runs to the end without looking at the messages: the blocking call is the stream, drained.
    ///
    /// # Cancel safety
    ///
    /// Dropping it cancels the tree.
    pub async fn settle(mut self) -> SubAgentOutcome {
        self.events = None;
        std::future::poll_fn(|cx| self.poll_pipe(cx)).await
    }

    fn poll_pipe(&mut self, cx: &mut Context<'_>) -> Poll<SubAgentOutcome> {
        if let Some(pipe) = &mut self.pipe
            && let Poll::Ready(outcome) = pipe.as_mut().poll(cx)
        {
            self.pipe = None;
            self.outcome = Some(outcome);
        }
        self.outcome.clone().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Stream for RootRun {
    type Item = Delivery;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        // What the last look at the pipe made goes out first: so a burst is delivered before the next one is made, and a
        // pipe that wants others to have their turn is not asked again for every few messages.
        let made = self.made;
        if let Some(events) = &mut self.events
            && let Some(delivery) = events.buffered().or_else(|| events.before(made))
        {
            return Poll::Ready(Some(delivery));
        }
        let settled = self.outcome.is_some() || self.poll_pipe(cx).is_ready();
        self.made = self.events.as_ref().map_or(0, Subscription::end);
        match &mut self.events {
            Some(events) => match Pin::new(events).poll_next(cx) {
                Poll::Pending if settled => Poll::Ready(None),
                polled => polled,
            },
            None => Poll::Ready(None),
        }
    }
}

impl fmt::Debug for RootRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RootRun").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}
