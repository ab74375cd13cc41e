//! The pipe itself: one future a run.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::future::BoxFuture;
use pin_project::{pin_project, pinned_drop};
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::close::{close, close_below};
use super::say::{Said, append, say, say_last};
use super::timers::Timers;
use crate::budget::{WhenFull, WorkPermit};
use crate::cancel::Cancelled;
use crate::context::{BackgroundPolicy, Entered, RunRecord};
use crate::message::{Extra, Queued, Scope};
use crate::outcome::{CancelledBy, FailureKind, LimitKind, SubAgentOutcome};
use crate::stream::{SubAgentStream, panic_text};

/// Messages between two looks at the scheduler's cooperative budget: at a tenth of a microsecond a message, a run that is always
/// ready lets others in after a fifth of a millisecond, and a deep tree is not polled anew for every few messages.
const MESSAGES_A_BUDGET_UNIT: u32 = 16;

/// Units after which a run that is always ready lets others in even where no scheduler keeps a budget: tokio's own number.
const UNITS_A_TURN: u32 = 128;

/// Drives a sub-agent to its end: its messages appear in the root's log, and the future resolves to its outcome.
///
/// Resolves when the run's terminal is in the log, and its foreground descendants' before it.
///
/// # Cancel safety
///
/// Dropping it cancels the run: its producer is dropped, and every run below it and itself get their terminals at once.
///
/// # Panics
///
/// Never with the producer's panic, which is the run's failed outcome.
pub fn forward_subagent_stream(stream: SubAgentStream, child: Entered) -> Forward {
    let Entered { record, reservation } = child;
    Forward {
        stream: Some(stream),
        cancelled: None,
        phase: Phase::Start(reservation),
        timers: None,
        epoch: 0,
        since_budget: 0,
        units: 0,
        run: LiveRun { record, begun: false, settled: false },
    }
}

/// The future of [`forward_subagent_stream`].
#[must_use = "a sub-agent does nothing until it is polled"]
#[pin_project(PinnedDrop)]
pub struct Forward {
    // The fields drop in this order: first the producer, whose children end with it, then the run itself.
    stream: Option<SubAgentStream>,
    #[pin]
    cancelled: Option<WaitForCancellationFutureOwned>,
    phase: Phase,
    timers: Option<Box<Timers>>,
    /// The tree's count of cancels when the token was last looked at.
    epoch: u64,
    since_budget: u32,
    units: u32,
    run: LiveRun,
}

#[pinned_drop]
impl PinnedDrop for Forward {
    fn drop(self: Pin<&mut Self>) {
        // Guarded: a panic in a destructor of the producer would end the process if it is dropped because of another one.
        drop_guarded(self.project().stream);
    }
}

enum Phase {
    /// Nothing has happened yet.
    Start(crate::budget::Reservation),
    /// The run waits for its permit.
    Queued(BoxFuture<'static, Option<WorkPermit>>),
    /// The producer works.
    Running,
    /// The end is decided; operations that hold the grace period may still end by themselves.
    Grace(SubAgentOutcome, Pin<Box<tokio::time::Sleep>>),
    /// The end is decided and the producer is gone; runs below that another task drives are waited for.
    Joining(SubAgentOutcome, BoxFuture<'static, ()>),
    /// The run has settled; its parent waits for a permit to go on.
    Resuming(SubAgentOutcome, BoxFuture<'static, ()>),
    /// The run has settled, and nobody waits for anything.
    Settled(SubAgentOutcome),
    /// Over.
    Done,
}

/// The run, as far as it has to be ended whatever happens: the guard.
#[derive(Debug)]
struct LiveRun {
    record: Arc<RunRecord>,
    begun: bool,
    settled: bool,
}

impl Future for Forward {
    type Output = SubAgentOutcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<SubAgentOutcome> {
        loop {
            let this = self.as_mut().project();
            match std::mem::replace(this.phase, Phase::Done) {
                Phase::Start(reservation) => {
                    reservation.commit();
                    *this.phase = this.run.begin();
                    *this.timers = Timers::of(&this.run.record.limits);
                }
                Phase::Queued(permit) => ready!(self.as_mut().poll_queue(permit, cx)),
                Phase::Running => {
                    *this.phase = Phase::Running;
                    ready!(self.as_mut().poll_running(cx));
                }
                Phase::Grace(outcome, timer) => ready!(self.as_mut().poll_grace(outcome, timer, cx)),
                Phase::Joining(outcome, mut ended) => {
                    if ended.as_mut().poll(cx).is_pending() {
                        *this.phase = Phase::Joining(outcome, ended);
                        return Poll::Pending;
                    }
                    let outcome = this.run.settle(outcome);
                    *this.phase = this.run.resume_parent(outcome);
                }
                Phase::Resuming(outcome, mut resumed) => {
                    if resumed.as_mut().poll(cx).is_pending() {
                        *this.phase = Phase::Resuming(outcome, resumed);
                        return Poll::Pending;
                    }
                    return Poll::Ready(outcome);
                }
                Phase::Settled(outcome) => return Poll::Ready(outcome),
                Phase::Done => return Poll::Pending,
            }
        }
    }
}

impl Forward {
    fn poll_queue(
        mut self: Pin<&mut Self>,
        mut permit: BoxFuture<'static, Option<WorkPermit>>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if let Some(cancelled) = self.run.record.token.cancelled() {
            self.as_mut().end(cancelled_outcome(cancelled));
            return Poll::Ready(());
        }
        match permit.as_mut().poll(cx) {
            Poll::Ready(Some(permit)) => {
                self.run.record.work.start(permit);
                *self.project().phase = Phase::Running;
            }
            Poll::Ready(None) => {
                let text = "no place among the live runs became free in time";
                self.end(SubAgentOutcome::failed(FailureKind::Refused, text));
            }
            Poll::Pending => {
                if let Some(end) = self.as_mut().poll_interruptions(cx) {
                    self.end(end);
                    return Poll::Ready(());
                }
                *self.project().phase = Phase::Queued(permit);
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    /// Takes messages until there is none, the scheduler wants to look around, or the run ends.
    fn poll_running(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.as_mut().poll_fair(cx));
            let this = self.as_mut().project();
            if *this.since_budget == 0
                && let Some(limit) = this.timers.as_ref().and_then(|timers| timers.over())
            {
                let end = out_of_time(&this.run.record, limit);
                self.end(end);
                return Poll::Ready(());
            }
            let token = &this.run.record.token;
            let epoch = token.epoch();
            if *this.epoch != epoch {
                *this.epoch = epoch;
                if let Some(cancelled) = token.cancelled() {
                    self.end(cancelled_outcome(cancelled));
                    return Poll::Ready(());
                }
            }
            match poll_guarded(this.stream, cx) {
                Poll::Ready(Step::Message(message)) => {
                    *this.since_budget += 1;
                    if let Said::Stop(limit) = say(&this.run.record, message) {
                        self.end(stopped(limit));
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(Step::Ended(outcome)) => {
                    // The cancel wins a draw: what a producer makes of children that were cancelled with it does not count.
                    let outcome = match this.run.record.token.cancelled() {
                        Some(cancelled) => cut_short(outcome, cancelled),
                        None => outcome,
                    };
                    self.finish(outcome);
                    return Poll::Ready(());
                }
                Poll::Pending => {
                    let Some(end) = self.as_mut().poll_interruptions(cx) else { return Poll::Pending };
                    self.end(end);
                    return Poll::Ready(());
                }
            }
        }
    }

    /// Pending if others are to have their turn before the next message is taken.
    fn poll_fair(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if *this.since_budget < MESSAGES_A_BUDGET_UNIT {
            return Poll::Ready(());
        }
        if *this.units >= UNITS_A_TURN {
            *this.units = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(tokio::task::coop::poll_proceed(cx)).made_progress();
        *this.units += 1;
        *this.since_budget = 0;
        Poll::Ready(())
    }

    /// Leaves the waker with everything that may end a waiting run; the end, if one of them did.
    fn poll_interruptions(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Option<SubAgentOutcome> {
        let mut this = self.project();
        let record = &this.run.record;
        if this.cancelled.is_none() {
            this.cancelled.set(Some(record.token.wait()));
        }
        if let Some(wait) = this.cancelled.as_mut().as_pin_mut()
            && wait.poll(cx).is_ready()
        {
            return record.token.cancelled().map(cancelled_outcome);
        }
        let limit = this.timers.as_mut()?.poll(record, cx)?;
        Some(out_of_time(record, limit))
    }

    /// The end is decided from outside the producer: it is dropped, at once unless something in it holds the grace period.
    fn end(self: Pin<&mut Self>, outcome: SubAgentOutcome) {
        let record = &self.run.record;
        if record.grace_holds() == 0 {
            return self.finish(outcome);
        }
        // Operations that hold it wait for the token, whatever the reason of the end is.
        record.token.cancel(CancelledBy::Parent);
        let timer = Box::pin(tokio::time::sleep(record.root.grace()));
        *self.project().phase = Phase::Grace(outcome, timer);
    }

    fn poll_grace(
        mut self: Pin<&mut Self>,
        outcome: SubAgentOutcome,
        mut timer: Pin<Box<tokio::time::Sleep>>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            // First, since a producer that goes on talking is never pending.
            let is_over = Instant::now() >= timer.deadline() || timer.as_mut().poll(cx).is_ready();
            if !is_over && self.as_mut().poll_fair(cx).is_pending() {
                *self.project().phase = Phase::Grace(outcome, timer);
                return Poll::Pending;
            }
            let this = self.as_mut().project();
            let step = if is_over { Poll::Pending } else { poll_guarded(this.stream, cx) };
            let holds = this.run.record.grace_holds();
            match step {
                Poll::Ready(Step::Message(message)) => {
                    *this.since_budget += 1;
                    // What was under way may say how it ended.
                    say_last(&this.run.record, message);
                    if holds > 0 {
                        continue;
                    }
                }
                Poll::Pending if holds > 0 && !is_over => {
                    *this.phase = Phase::Grace(outcome, timer);
                    return Poll::Pending;
                }
                Poll::Ready(Step::Ended(_)) | Poll::Pending => {}
            }
            let outcome = if holds > 0 { forced(outcome) } else { outcome };
            self.finish(outcome);
            return Poll::Ready(());
        }
    }

    /// The outcome is decided. Drops the producer, sees to the runs below, settles.
    fn finish(self: Pin<&mut Self>, outcome: SubAgentOutcome) {
        let this = self.project();
        drop_guarded(this.stream);
        let record = &this.run.record;
        let is_root = record.parent.is_none();
        let left = if is_root { record.live_children() } else { record.live_foreground() };
        if left == 0 {
            let outcome = this.run.settle(outcome);
            *this.phase = this.run.resume_parent(outcome);
            return;
        }
        // Some other task drives them.
        let joins = is_root
            && outcome.is_ok()
            && record.root.background_policy() == BackgroundPolicy::Join
            && !record.token.is_cancelled();
        *this.phase = Phase::Joining(outcome, Box::pin(join(Arc::clone(record), joins)));
    }
}

/// Waits until no run below that must end with `record` is live: patiently if `patient`, until somebody cancels; else they are
/// cancelled, and after the grace period ended without them.
async fn join(record: Arc<RunRecord>, patient: bool) {
    let is_root = record.parent.is_none();
    let all_ended = async |record: &Arc<RunRecord>| loop {
        let ended = record.root.ended().notified();
        let mut ended = std::pin::pin!(ended);
        // Registered before the look, so that an end in between is not missed.
        ended.as_mut().enable();
        let live = if is_root { record.live_children() } else { record.live_foreground() };
        if live == 0 {
            return;
        }
        ended.await;
    };
    if patient && record.token.or_cancel(all_ended(&record)).await.is_ok() {
        return;
    }
    for run in record.root.live_subtree(&record) {
        if !Arc::ptr_eq(&run, &record) && (is_root || run.scope() == Scope::Foreground) {
            run.token.cancel(CancelledBy::Parent);
        }
    }
    if tokio::time::timeout(record.root.grace(), all_ended(&record)).await.is_err() {
        close_below(&record, true);
    }
}

impl LiveRun {
    /// The run comes into being: its first message, its place among the live ones, its permit.
    fn begin(&mut self) -> Phase {
        let record = &self.record;
        self.begun = true;
        record.count_birth();
        record.root.live().insert(record.origin.run_id.clone(), Arc::clone(record));
        let mut state = record.lock();
        let wakers =
            append(record, &mut state, crate::message::MessageBody::RunStarted(Arc::clone(&record.started)));
        drop(state);
        drop(wakers);
        let ledger = record.root.ledger();
        if !ledger.has_permits() {
            return Phase::Running;
        }
        if let Some(parent) = record.parent.as_ref().filter(|_| record.scope() == Scope::Foreground) {
            parent.work.child_begins();
        }
        if let Some(permit) = ledger.try_permit() {
            record.work.start(permit);
            return Phase::Running;
        }
        say(record, Queued { waiting_for: "permit".to_owned(), extra: Extra::default() }.into());
        let permit = ledger.permit();
        let WhenFull::Wait(deadline) = ledger.limits().when_full else {
            return Phase::Queued(Box::pin(std::future::ready(None)));
        };
        Phase::Queued(Box::pin(async move { tokio::time::timeout(deadline, permit).await.ok() }))
    }

    fn settle(&mut self, outcome: SubAgentOutcome) -> SubAgentOutcome {
        self.settled = true;
        close(&self.record, outcome).unwrap_or_else(|_| {
            // Somebody outside ended the run already, because it did not end within the grace period.
            let by = self.record.token.cancelled().map_or(CancelledBy::User, |cancelled| cancelled.by);
            SubAgentOutcome::Cancelled { by, forced: true, partial: None }
        })
    }

    /// The parent that waited for its last child needs a permit to go on.
    fn resume_parent(&self, outcome: SubAgentOutcome) -> Phase {
        let Some(parent) = self.record.parent.clone().filter(|_| self.child_ended()) else {
            return Phase::Settled(outcome);
        };
        let permit = self.record.root.ledger().permit();
        let resumed = async move {
            // A parent that is cancelled goes on without one: it only ends.
            if let Ok(permit) = parent.token.or_cancel(permit).await {
                parent.work.start(permit);
            }
        };
        Phase::Resuming(outcome, Box::pin(resumed))
    }

    /// Notes the end with the parent's permit. True if the parent needs one now.
    fn child_ended(&self) -> bool {
        let record = &self.record;
        if !record.root.ledger().has_permits() || record.scope() != Scope::Foreground {
            return false;
        }
        record.parent.as_ref().is_some_and(|parent| parent.work.child_ended())
    }
}

impl Drop for LiveRun {
    fn drop(&mut self) {
        if !self.begun || self.settled {
            return;
        }
        let record = &self.record;
        // A child that ends because its parent panicked did not fail: it ends with its parent.
        let outcome = if std::thread::panicking() && record.parent.is_none() {
            SubAgentOutcome::failed(FailureKind::Panic, "a panic passed through this run")
        } else {
            let by = if record.parent.is_some() { CancelledBy::Parent } else { CancelledBy::User };
            cancelled_outcome(record.token.cancelled().unwrap_or(Cancelled { by }))
        };
        // Whoever still works for this run from another task is to see that it is over.
        record.token.cancel(CancelledBy::Parent);
        close_below(record, false);
        let _ = close(record, outcome);
        if self.child_ended()
            && let (Some(parent), Some(permit)) = (&record.parent, record.root.ledger().try_permit())
        {
            parent.work.start(permit);
        }
    }
}

enum Step {
    Message(crate::message::ProcessingMessage),
    Ended(SubAgentOutcome),
}

/// Polls the producer; its panic is its end.
fn poll_guarded(stream: &mut Option<SubAgentStream>, cx: &mut Context<'_>) -> Poll<Step> {
    let Some(producer) = stream else {
        return Poll::Ready(Step::Ended(SubAgentOutcome::failed(FailureKind::Vanished, "no producer")));
    };
    // The producer is dropped after a panic and never polled again, so nobody sees what the panic left half done.
    match catch_unwind(AssertUnwindSafe(|| Pin::new(producer).poll_next(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(Some(message))) => Poll::Ready(Step::Message(message)),
        Ok(Poll::Ready(None)) => {
            let outcome = stream.take().map(SubAgentStream::into_outcome);
            let vanished = || SubAgentOutcome::failed(FailureKind::Vanished, "no producer");
            Poll::Ready(Step::Ended(outcome.unwrap_or_else(vanished)))
        }
        Err(panic) => {
            let text = format!("the sub-agent panicked: {}", panic_text(&*panic));
            Poll::Ready(Step::Ended(SubAgentOutcome::failed(FailureKind::Panic, text)))
        }
    }
}

/// Drops the producer; a panic in one of its destructors harms nobody else.
fn drop_guarded(stream: &mut Option<SubAgentStream>) {
    let stream = stream.take();
    if catch_unwind(AssertUnwindSafe(|| drop(stream))).is_err() {
        tracing::warn!("a sub-agent panicked while it was dropped");
    }
}

fn cancelled_outcome(cancelled: Cancelled) -> SubAgentOutcome {
    SubAgentOutcome::cancelled(cancelled.by)
}

/// The outcome of a run that was cancelled before its producer settled: what the producer had is the partial result.
fn cut_short(outcome: SubAgentOutcome, cancelled: Cancelled) -> SubAgentOutcome {
    let had = match outcome {
        SubAgentOutcome::Completed { result, .. } => (!result.is_null()).then_some(result),
        SubAgentOutcome::Stopped { partial, .. }
        | SubAgentOutcome::Cancelled { partial, .. }
        | SubAgentOutcome::Failed { partial, .. } => partial,
    };
    cancelled_outcome(cancelled).with_partial(had)
}

fn stopped(limit: LimitKind) -> SubAgentOutcome {
    SubAgentOutcome::stopped_by(limit, format!("stopped by the limit on {}", limit_name(limit)))
}

fn out_of_time(record: &RunRecord, limit: LimitKind) -> SubAgentOutcome {
    if limit == LimitKind::Wall {
        // What runs below ends because of this run's deadline, and says so.
        record.token.cancel(CancelledBy::DeadlineOfParent);
    }
    stopped(limit)
}

fn limit_name(limit: LimitKind) -> &'static str {
    match limit {
        LimitKind::Turns => "turns",
        LimitKind::ToolCalls => "tool calls",
        LimitKind::Tokens => "tokens",
        LimitKind::Cost => "cost",
        LimitKind::Wall => "time",
        LimitKind::Idle => "idle time",
        LimitKind::Output => "output",
    }
}

fn forced(outcome: SubAgentOutcome) -> SubAgentOutcome {
    match outcome {
        SubAgentOutcome::Cancelled { by, partial, .. } => {
            SubAgentOutcome::Cancelled { by, forced: true, partial }
        }
        other => other,
    }
}

impl fmt::Debug for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forward").field("run", &self.run.record).finish_non_exhaustive()
    }
}
