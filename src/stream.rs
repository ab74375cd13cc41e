//! The shape that makes a sub-agent: a stream of messages that settles into one outcome.

mod desk;

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use futures::stream::FusedStream;
use futures::{Stream, StreamExt};
use pin_project::{pin_project, pinned_drop};

use self::desk::{Put, Shift};
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
    /// Before the end what the last step result that settles says, then the outcome.
    settlement: Option<SubAgentOutcome>,
    has_schema: bool,
}

/// What a stream is made of: messages, then perhaps an outcome.
trait Producer: Send {
    /// The message, or perhaps the outcome, goes to where it is wanted: a message is large enough for each of its moves to show.
    fn poll_step(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
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
        let slot = Arc::new(Slot::default());
        let work = author(Emitter { slot: Arc::clone(&slot) });
        Self::of(Generator { slot, driver: None, work, ended: None })
    }

    /// A sub-agent from a stream of messages. It settles by its last `step_result` that settles; without one it has
    /// vanished, which is a failure.
    pub fn from_stream(stream: impl Stream<Item = ProcessingMessage> + Send + 'static) -> Self {
        Self::of(Plain { stream })
    }

    /// A sub-agent that has already settled.
    pub fn settled(outcome: SubAgentOutcome) -> Self {
        Self { producer: None, settlement: Some(outcome), has_schema: false }
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
        if self.producer.is_some() { None } else { self.settlement.as_ref() }
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
        self.settlement.unwrap_or_else(vanished)
    }

    /// As `poll_next`: true if there is a message, which then lies in `message`.
    pub(crate) fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        message: &mut Option<ProcessingMessage>,
    ) -> Poll<bool> {
        let Some(producer) = &mut self.producer else { return Poll::Ready(false) };
        let mut outcome = None;
        match ready!(producer.as_mut().poll_step(cx, message, &mut outcome)) {
            Step::Message => {
                if let Some(MessageBody::StepResult(step)) = message.as_ref().map(ProcessingMessage::body) {
                    let report = StepReport { error: step.error.as_deref(), result: Some(&step.result) };
                    // The last one that settles counts; one that does not settle clears nothing.
                    if let Some(settlement) = settle_step_result(report, self.has_schema) {
                        self.settlement = Some(settlement);
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
            self.settlement = Some(declared.unwrap_or_else(vanished));
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
        self.poll_into(cx, &mut message).map(|_| message)
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
        message: &mut Option<ProcessingMessage>,
        _: &mut Option<SubAgentOutcome>,
    ) -> Poll<Step> {
        *message = ready!(self.project().stream.poll_next(cx));
        Poll::Ready(if message.is_some() { Step::Message } else { Step::End })
    }
}

/// Hands messages from inside a producer to whoever polls it. Clone it for parts that work at the same time.
#[derive(Debug, Clone)]
pub struct Emitter {
    slot: Arc<Slot>,
}

impl Emitter {
    /// Emits one message. Resolves when it was taken: in a run under a pipe, when it is in the log. Once the stream has
    /// ended or was dropped, it resolves at once, and nobody hears the message.
    ///
    /// # Cancel safety
    ///
    /// Dropped before its first poll the message was never said; after it, it is said.
    pub fn send(&self, message: impl Into<ProcessingMessage>) -> Sending<'_> {
        Sending { slot: &self.slot, message: Some(message.into()), ticket: Ticket::None, waiter: None }
    }
}

/// A place for one message between the author's block and the stream, for senders that are not polled with the stream's own
/// waker: an author moved them to tasks of their own, or into a set of futures.
///
/// The others use the thread's desk, as long as no sender came here: from then on all do, so that none has to wait for ever.
#[derive(Debug, Default)]
struct Slot {
    /// Held for a move.
    state: Mutex<SlotState>,
    /// How many messages were taken: senders see without the lock whether theirs was.
    taken: AtomicU64,
    /// Whether a sender ever came here. Written inside the lock, before the stream's task is woken.
    in_use: AtomicBool,
    /// How many messages went over the desk. Only the stream writes it.
    over_desk: AtomicU64,
}

#[derive(Debug, Default)]
struct SlotState {
    message: Option<ProcessingMessage>,
    put: u64,
    /// The task that polls the stream: a sender polled by it needs no wake-up.
    driver: Option<Waker>,
    /// Who put the message, if another waker than the driver's polls it.
    sender: Option<Waker>,
    /// Who waits for the place, first come, first served; the numbers rise.
    waiting: VecDeque<(u64, Waker)>,
    last_waiter: u64,
    /// The stream is gone: nobody takes messages any more.
    closed: bool,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the message that lies there. False if there is none.
    fn take(&self, message: &mut Option<ProcessingMessage>) -> bool {
        if !self.in_use.load(Ordering::Relaxed) {
            return false;
        }
        let mut state = self.lock();
        if state.message.is_none() {
            return false;
        }
        *message = state.message.take();
        self.taken.store(state.put, Ordering::Release);
        let (sender, next) = (state.sender.take(), state.waiting.pop_front());
        drop(state);
        sender.into_iter().chain(next.map(|(_, waker)| waker)).for_each(Waker::wake);
        true
    }

    /// Lets those go who wait on tasks of their own for a stream that is gone.
    fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let (sender, waiting) = (state.sender.take(), std::mem::take(&mut state.waiting));
        drop(state);
        sender.into_iter().chain(waiting.into_iter().map(|(_, waker)| waker)).for_each(Waker::wake);
    }
}

impl SlotState {
    /// Puts a waiter into the queue, or renews its waker where it already stands.
    fn wait(&mut self, number: &mut Option<u64>, waker: &Waker) {
        if let Some(place) = number.and_then(|number| self.place_of(number)) {
            if let Some((_, old)) = self.waiting.get_mut(place) {
                old.clone_from(waker);
            }
            return;
        }
        self.last_waiter += 1;
        *number = Some(self.last_waiter);
        self.waiting.push_back((self.last_waiter, waker.clone()));
    }

    fn place_of(&self, number: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&number, |(number, _)| *number).ok()
    }
}

/// The future of [`Emitter::send`].
#[must_use = "a message is said only when this is awaited"]
#[derive(Debug)]
pub struct Sending<'a> {
    slot: &'a Slot,
    message: Option<ProcessingMessage>,
    ticket: Ticket,
    waiter: Option<u64>,
}

/// How a sender recognises that its message was taken.
#[derive(Debug, Clone, Copy)]
enum Ticket {
    None,
    Slot(u64),
    Desk(u64),
}

impl Ticket {
    fn was_taken(self, slot: &Slot) -> bool {
        match self {
            Self::None => false,
            Self::Slot(ticket) => slot.taken.load(Ordering::Acquire) >= ticket,
            Self::Desk(ticket) => slot.over_desk.load(Ordering::Acquire) >= ticket,
        }
    }
}

impl Future for Sending<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.ticket.was_taken(this.slot) {
            return Poll::Ready(());
        }
        if this.message.is_some() && !this.slot.in_use.load(Ordering::Relaxed) {
            match desk::put(this.slot, cx.waker(), &mut this.message) {
                Put::Done => {
                    this.ticket = Ticket::Desk(this.slot.over_desk.load(Ordering::Relaxed) + 1);
                    return Poll::Pending;
                }
                // Whoever is polled with the stream itself is polled again anyway after the place was emptied.
                Put::Occupied => return Poll::Pending,
                Put::Elsewhere => {}
            }
        }
        let mut state = this.slot.lock();
        if state.closed {
            return Poll::Ready(());
        }
        let driven = state.driver.as_ref().is_some_and(|driver| driver.will_wake(cx.waker()));
        if this.message.is_none() {
            if this.ticket.was_taken(this.slot) {
                return Poll::Ready(());
            }
            match this.ticket {
                _ if driven => {}
                // It lies on the desk until the poll that put it there has ended, which nobody announces.
                Ticket::Desk(_) => cx.waker().wake_by_ref(),
                Ticket::Slot(_) | Ticket::None => state.sender = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        this.slot.in_use.store(true, Ordering::Relaxed);
        if state.message.is_some() {
            // Whoever is polled with the stream itself is polled again anyway after the place was emptied.
            if !driven {
                state.wait(&mut this.waiter, cx.waker());
            }
            return Poll::Pending;
        }
        state.message = this.message.take();
        state.put += 1;
        this.ticket = Ticket::Slot(state.put);
        if !driven {
            state.sender = Some(cx.waker().clone());
            // The task that polls the stream may be another one than this.
            if let Some(driver) = &state.driver {
                driver.wake_by_ref();
            }
        }
        Poll::Pending
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        let Some(number) = self.waiter.filter(|_| self.message.is_some()) else { return };
        let mut state = self.slot.lock();
        match state.place_of(number) {
            Some(place) => {
                state.waiting.remove(place);
            }
            // It was woken for the place and will not use it: the next one is.
            None if state.message.is_none() => {
                let next = state.waiting.pop_front();
                drop(state);
                if let Some((_, waker)) = next {
                    waker.wake();
                }
            }
            None => {}
        }
    }
}

#[pin_project(PinnedDrop)]
struct Generator<Fut> {
    slot: Arc<Slot>,
    driver: Option<Waker>,
    #[pin]
    work: Fut,
    /// The outcome, where messages are still to go out before it. Boxed, since that is seldom.
    ended: Option<Box<SubAgentOutcome>>,
}

#[pinned_drop]
impl<Fut> PinnedDrop for Generator<Fut> {
    fn drop(self: Pin<&mut Self>) {
        self.project().slot.close();
    }
}

impl<Fut> Producer for Generator<Fut>
where
    Fut: Future + Send,
    Fut::Output: Into<SubAgentOutcome>,
{
    fn poll_step(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        message: &mut Option<ProcessingMessage>,
        declared: &mut Option<SubAgentOutcome>,
    ) -> Poll<Step> {
        let this = self.project();
        if this.driver.as_ref().is_none_or(|driver| !driver.will_wake(cx.waker())) {
            *this.driver = Some(cx.waker().clone());
            this.slot.lock().driver = Some(cx.waker().clone());
        }
        let mut is_on_desk = false;
        if this.ended.is_none() {
            let shift = Shift::begin(&**this.slot, cx.waker());
            if let Poll::Ready(outcome) = this.work.poll(cx) {
                *declared = Some(outcome.into());
            }
            shift.end(message);
            is_on_desk = message.is_some();
            if is_on_desk {
                let before = this.slot.over_desk.load(Ordering::Relaxed);
                this.slot.over_desk.store(before + 1, Ordering::Release);
            }
        }
        if is_on_desk || this.slot.take(message) {
            // The outcome is held until every message that was put is out.
            if declared.is_some() {
                *this.ended = declared.take().map(Box::new);
            }
            return Poll::Ready(Step::Message);
        }
        if let Some(outcome) = this.ended.take() {
            *declared = Some(*outcome);
        }
        if declared.is_some() { Poll::Ready(Step::End) } else { Poll::Pending }
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("(no text)").to_owned()
}

#[cfg(test)]
#[path = "stream/desk_tests.rs"]
mod desk_tests;
