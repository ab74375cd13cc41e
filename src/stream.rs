//! The shape that makes a sub-agent: a stream of messages that settles into one outcome.

mod around;
mod desk;
mod emitter;
mod generator;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::stream::FusedStream;
use futures::{Stream, StreamExt};
use pin_project::pin_project;

use self::around::Around;
pub(crate) use self::desk::{Sink, Taken};
pub use self::emitter::{Emitter, Sending};
use self::generator::Generator;
use crate::message::{MessageBody, ProcessingMessage};
use crate::outcome::{FailureKind, StepReport, SubAgentOutcome, settle_step_result};

/// A sub-agent at work: yields its messages, then ends with one outcome.
///
/// Any producer of this shape is a sub-agent. Write one with [`SubAgentStream::generate`], or wrap a stream of messages with
/// [`SubAgentStream::from_stream`].
///
/// # Cancel safety
///
/// Cold: nothing happens before the first poll. Dropping it at any point cancels it, with everything that it started inside
/// its own future.
///
/// # Examples
///
/// ```
/// use anabranch::{Chunk, SubAgentOutcome, SubAgentStream};
///
/// # tokio_test::block_on(async {
/// let stream = SubAgentStream::generate(|emit| async move {
///     emit.send(Chunk::text("hello")).await;
///     SubAgentOutcome::completed("done")
/// });
/// assert!(stream.settle().await.is_ok());
/// # });
/// ```
#[must_use = "a sub-agent does nothing until it is polled"]
pub struct SubAgentStream {
    producer: Option<Pin<Box<dyn Producer>>>,
    /// Before the end what the last step result that settles says, then the outcome. Boxed, since most streams that there are have none
    /// yet.
    settlement: Option<Box<SubAgentOutcome>>,
    has_schema: bool,
}

/// What a stream is made of: messages, then perhaps an outcome.
trait Producer: Send {
    /// The message, or perhaps the outcome, goes to where it is wanted: a message is large enough for each of its moves to show.
    /// Messages may also go straight into the sink; they come before the one that is given here.
    fn poll_step(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        sink: Option<&Arc<dyn Sink>>,
        message: &mut Option<ProcessingMessage>,
        outcome: &mut Option<SubAgentOutcome>,
    ) -> Poll<Step>;
}

enum Step {
    Message,
    End,
}

impl SubAgentStream {
    /// A sub-agent from one async block: emit messages, await whatever it needs, return the outcome.
    ///
    /// Each `emit.send(…).await` returns when the message was taken, so what comes after it in the block happens after the
    /// message is in the log.
    pub fn generate<F, Fut, O>(author: F) -> Self
    where
        F: FnOnce(Emitter) -> Fut,
        Fut: Future<Output = O> + Send + 'static,
        O: Into<SubAgentOutcome>,
    {
        Self::of(Generator::new(author))
    }

    /// A sub-agent from a stream of messages. It settles by its last `step_result` that settles; without one it has
    /// vanished, which is a failure.
    pub fn from_stream(stream: impl Stream<Item = ProcessingMessage> + Send + 'static) -> Self {
        Self::of(Plain { stream })
    }

    /// A sub-agent that has already settled.
    pub fn settled(outcome: SubAgentOutcome) -> Self {
        Self { producer: None, settlement: Some(Box::new(outcome)), has_schema: false }
    }

    /// Builds a sub-agent; a builder that fails or panics gives one that settles as failed.
    pub fn build<E: fmt::Display>(builder: impl FnOnce() -> Result<Self, E>) -> Self {
        let failed = |text: String| Self::settled(SubAgentOutcome::failed(FailureKind::Construction, text));
        match catch_unwind(AssertUnwindSafe(builder)) {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => failed(format!("the sub-agent could not be built: {error}")),
            Err(panic) => failed(format!("building the sub-agent panicked: {}", panic_text(&*panic))),
        }
    }

    fn of(producer: impl Producer + 'static) -> Self {
        Self { producer: Some(Box::pin(producer)), settlement: None, has_schema: false }
    }

    /// The same with a message before it, and others after it that its outcome decides about: for a producer that tells something
    /// about another one's work. What that says passes through unchanged, and its outcome stays.
    ///
    /// # Examples
    ///
    /// ```
    /// use anabranch::message::{MessageBody, Severity};
    /// use anabranch::{Chunk, SubAgentOutcome, SubAgentStream};
    ///
    /// let log = |text: &str| MessageBody::log("step", Severity::Info, text);
    /// let work = SubAgentStream::generate(|emit| async move {
    ///     emit.send(Chunk::text("hello")).await;
    ///     SubAgentOutcome::completed("done")
    /// });
    /// let told = work.between(log("begins"), move |outcome| {
    ///     vec![log(if outcome.is_ok() { "succeeded" } else { "failed" }).into()]
    /// });
    /// # tokio_test::block_on(async {
    /// assert!(told.settle().await.is_ok());
    /// # });
    /// ```
    pub fn between<F>(self, before: impl Into<ProcessingMessage>, after: F) -> Self
    where
        F: FnOnce(&SubAgentOutcome) -> Vec<ProcessingMessage> + Send + 'static,
    {
        Self::of(Around::new(before.into(), self, after))
    }

    /// Says that a schema was asked for: then a step result with an `error` key is an ordinary value.
    pub fn with_schema(mut self) -> Self {
        self.has_schema = true;
        self
    }

    /// The outcome; none before the stream has ended.
    ///
    /// An outcome that the producer declares counts; otherwise its last `step_result` that settles; otherwise it has vanished.
    #[must_use]
    pub fn outcome(&self) -> Option<&SubAgentOutcome> {
        if self.producer.is_some() { None } else { self.settlement.as_deref() }
    }

    /// Drains the messages and returns the outcome.
    ///
    /// # Cancel safety
    ///
    /// Dropping it cancels the sub-agent.
    pub async fn settle(mut self) -> SubAgentOutcome {
        while self.next().await.is_some() {}
        self.into_outcome()
    }

    /// The outcome of a stream that has ended; of one that has not, what its end would be if it came now.
    pub(crate) fn into_outcome(mut self) -> SubAgentOutcome {
        self.end(None);
        self.settlement.map_or_else(vanished, |outcome| *outcome)
    }

    /// As `poll_next`: true if there is a message, which then lies in `message`. With a sink, what its block says on the way may have
    /// gone there already; only whoever changes nothing of what passes may have one, or hand one on.
    pub(crate) fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        sink: Option<&Arc<dyn Sink>>,
        message: &mut Option<ProcessingMessage>,
    ) -> Poll<bool> {
        let Some(producer) = &mut self.producer else { return Poll::Ready(false) };
        let mut outcome = None;
        match ready!(producer.as_mut().poll_step(cx, sink, message, &mut outcome)) {
            Step::Message => {
                if let Some(MessageBody::StepResult(step)) = message.as_ref().map(ProcessingMessage::body) {
                    let report = StepReport { error: step.error.as_deref(), result: Some(&step.result) };
                    // The last one that settles counts; one that does not settle clears nothing.
                    if let Some(settlement) = settle_step_result(report, self.has_schema) {
                        self.settlement = Some(Box::new(settlement));
                    }
                }
                Poll::Ready(true)
            }
            Step::End => {
                self.end(outcome);
                Poll::Ready(false)
            }
        }
    }

    fn end(&mut self, declared: Option<SubAgentOutcome>) {
        self.producer = None;
        if declared.is_some() || self.settlement.is_none() {
            self.settlement = Some(Box::new(declared.unwrap_or_else(vanished)));
        }
    }
}

fn vanished() -> SubAgentOutcome {
    SubAgentOutcome::failed(FailureKind::Vanished, "the sub-agent ended without an outcome")
}

impl Stream for SubAgentStream {
    type Item = ProcessingMessage;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ProcessingMessage>> {
        let mut message = None;
        self.poll_into(cx, None, &mut message).map(|_| message)
    }
}

impl FusedStream for SubAgentStream {
    fn is_terminated(&self) -> bool {
        self.producer.is_none()
    }
}

impl fmt::Debug for SubAgentStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubAgentStream").field("outcome", &self.outcome()).finish_non_exhaustive()
    }
}

#[pin_project]
struct Plain<S> {
    #[pin]
    stream: S,
}

impl<S: Stream<Item = ProcessingMessage> + Send> Producer for Plain<S> {
    fn poll_step(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        _: Option<&Arc<dyn Sink>>,
        message: &mut Option<ProcessingMessage>,
        _: &mut Option<SubAgentOutcome>,
    ) -> Poll<Step> {
        *message = ready!(self.project().stream.poll_next(cx));
        Poll::Ready(if message.is_some() { Step::Message } else { Step::End })
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("(no text)").to_owned()
}
