//! The pipe itself: one future a run.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use pin_project::{pin_project, pinned_drop};
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::endings::{cancelled_outcome, cut_short, forced, out_of_time, stopped};
use super::guarded::{Step, drop_guarded, poll_guarded};
use super::join::{Joined, join};
use super::live_run::LiveRun;
use super::say::{Said, say, say_last};
use super::straight;
use super::timers::Timers;
use crate::budget::WorkPermit;
use crate::context::{BackgroundPolicy, Birth, Entered, RunRecord};
use crate::outcome::{CancelledBy, FailureKind, SubAgentOutcome};
use crate::stream::{Sink, SubAgentStream};

/// Messages between two looks at the scheduler's cooperative budget: at a tenth of a microsecond a message, a run that is always
/// ready lets others in after a fifth of a millisecond, and a deep tree is not polled anew for every few messages.
const MESSAGES_A_BUDGET_UNIT: u32 = straight::MOST;

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
    let Entered { record, birth } = child;
    Forward {
        stream: Some(stream),
        sink: Arc::<RunRecord>::clone(&record),
        cancelled: None,
        phase: Phase::Start(birth),
        timers: None,
        epoch: 0,
        // Due with the first look, so that many children that begin in one poll do not each say this many for nothing: a wide
        // fan-out would outrun the retained window before anybody could read.
        since_budget: MESSAGES_A_BUDGET_UNIT,
        units: 0,
        run: LiveRun::of(record),
    }
}

/// The future of [`forward_subagent_stream`].
#[must_use = "a sub-agent does nothing until it is polled"]
#[pin_project(PinnedDrop)]
pub struct Forward {
    // The fields drop in this order: first the producer, whose children end with it, then the run itself.
    /// The producer; once the run has settled, its outcome.
    stream: Option<SubAgentStream>,
    /// The run's record.
    sink: Arc<dyn Sink>,
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
        let this = self.project();
        // Looked at before the producer is gone: what held the grace period until now is abandoned by this drop.
        this.run.abandons = this.run.record.grace_holds() > 0;
        // Guarded: a panic in a destructor of the producer would end the process if it is dropped because of another one.
        drop_guarded(this.stream);
    }
}

/// Small, since it is moved at each poll and every waiting run has one: outcomes are boxed.
pub(super) enum Phase {
    /// Nothing has happened yet.
    Start(Birth),
    /// The run waits for its permit.
    Queued(BoxFuture<'static, Option<WorkPermit>>),
    /// The producer works.
    Running,
    /// The end is decided; operations that hold the grace period may still end by themselves.
    Grace(Box<SubAgentOutcome>, Pin<Box<tokio::time::Sleep>>),
    /// The end is decided and the producer is gone; runs below that another task drives are waited for.
    Joining(Box<SubAgentOutcome>, BoxFuture<'static, Joined>),
    /// The run has settled; its parent waits for a permit to go on.
    Resuming(Box<SubAgentOutcome>, BoxFuture<'static, ()>),
    /// The run has settled, and nobody waits for anything: the outcome is where the stream was.
    Settled,
    /// Over.
    Done,
}

impl Future for Forward {
    type Output = SubAgentOutcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<SubAgentOutcome> {
        loop {
            let this = self.as_mut().project();
            match std::mem::replace(this.phase, Phase::Done) {
                Phase::Start(birth) => {
                    match this.run.begin(birth) {
                        Ok(phase) => *this.phase = phase,
                        Err(outcome) => self.as_mut().ended(outcome, None),
                    }
                    *self.as_mut().project().timers = Timers::of(&self.run.record.limits);
                }
                Phase::Queued(permit) => ready!(self.as_mut().poll_queue(permit, cx)),
                Phase::Running => {
                    *this.phase = Phase::Running;
                    ready!(self.as_mut().poll_running(cx));
                }
                Phase::Grace(outcome, timer) => ready!(self.as_mut().poll_grace(*outcome, timer, cx)),
                Phase::Joining(outcome, mut joined) => match joined.as_mut().poll(cx) {
                    Poll::Pending => {
                        *this.phase = Phase::Joining(outcome, joined);
                        let token = &this.run.record.token;
                        if token.is_cancelled() || self.as_mut().poll_interruptions(cx).is_none() {
                            return Poll::Pending;
                        }
                        // The outcome stays. A deadline that is over has cancelled those that are waited for; else it goes on.
                        if !self.run.record.token.is_cancelled() {
                            return Poll::Pending;
                        }
                    }
                    Poll::Ready(joined) => self.as_mut().settle_or_join(*outcome, joined),
                },
                Phase::Resuming(outcome, mut resumed) => {
                    if resumed.as_mut().poll(cx).is_pending() {
                        *this.phase = Phase::Resuming(outcome, resumed);
                        return Poll::Pending;
                    }
                    return Poll::Ready(*outcome);
                }
                Phase::Settled => {
                    let outcome = this.stream.take().map(SubAgentStream::into_outcome);
                    return outcome.map_or(Poll::Pending, Poll::Ready);
                }
                Phase::Done => return Poll::Pending,
            }
        }
    }
}

impl Forward {
    /// Begins the run now rather than with the first poll, so that it is in the log before whoever drives it from another task
    /// has its turn.
    ///
    /// # Errors
    ///
    /// The outcome of a run that was cancelled before: it never existed.
    pub(crate) fn begun(mut self) -> Result<Self, SubAgentOutcome> {
        if let Phase::Start(birth) = std::mem::replace(&mut self.phase, Phase::Done) {
            self.phase = self.run.begin(birth)?;
            self.timers = Timers::of(&self.run.record.limits);
        }
        Ok(self)
    }

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
                && let Some(limit) = this.timers.as_ref().and_then(|timers| timers.over(&this.run.record))
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
            let mut message = None;
            straight::begin(&this.run.record);
            let step = poll_guarded(this.stream, Some(&*this.sink), &mut message, cx);
            match straight::end(&this.run.record) {
                Ok(said) => *this.since_budget += said,
                Err(limit) => {
                    self.end(stopped(limit));
                    return Poll::Ready(());
                }
            }
            match step {
                Poll::Ready(Step::Message) => {
                    *this.since_budget += 1;
                    if let Some(Said::Stop(limit)) = message.map(|message| say(&this.run.record, message)) {
                        self.end(stopped(limit));
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(Step::Ended(outcome)) => {
                    // The cancel wins a draw: what a producer makes of children that were cancelled with it does not count.
                    let outcome = match this.run.record.token.cancelled() {
                        Some(cancelled) => cut_short(*outcome, cancelled),
                        None => *outcome,
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
        let Poll::Ready(unit) = tokio::task::coop::poll_proceed(cx) else {
            // Tokio wakes this task when it has had a look around. A set of many runs inside the task has to see it now: else it
            // asks every one of them in vain, for each few messages.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        };
        unit.made_progress();
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
        *self.project().phase = Phase::Grace(Box::new(outcome), timer);
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
                *self.project().phase = Phase::Grace(Box::new(outcome), timer);
                return Poll::Pending;
            }
            let this = self.as_mut().project();
            let mut message = None;
            let step =
                if is_over { Poll::Pending } else { poll_guarded(this.stream, None, &mut message, cx) };
            let holds = this.run.record.grace_holds();
            match step {
                Poll::Ready(Step::Message) => {
                    *this.since_budget += 1;
                    // What was under way may say how it ended.
                    if let Some(message) = message {
                        say_last(&this.run.record, message);
                    }
                    if holds > 0 {
                        continue;
                    }
                }
                Poll::Pending if holds > 0 && !is_over => {
                    *this.phase = Phase::Grace(Box::new(outcome), timer);
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
    fn finish(mut self: Pin<&mut Self>, outcome: SubAgentOutcome) {
        self.run.record.lock().decided = true;
        drop_guarded(self.as_mut().project().stream);
        self.settle_or_join(outcome, Joined::Ended);
    }

    /// Settles if no run is left to wait for, or if those that are left were given up.
    fn settle_or_join(mut self: Pin<&mut Self>, outcome: SubAgentOutcome, joined: Joined) {
        let this = self.as_mut().project();
        let record = &this.run.record;
        if record.stop_births() || joined == Joined::GaveUp {
            let outcome = this.run.settle(outcome);
            let resumed = this.run.resume_parent();
            return self.ended(outcome, resumed);
        }
        // Some other task drives them.
        let patient = record.parent.is_none()
            && outcome.is_ok()
            && record.root.background_policy() == BackgroundPolicy::Join
            && !record.token.is_cancelled();
        record.lock().settling |= !patient;
        *this.phase = Phase::Joining(Box::new(outcome), Box::pin(join(Arc::clone(record), patient)));
    }

    /// The run has settled, or it never began.
    fn ended(self: Pin<&mut Self>, outcome: SubAgentOutcome, parent_resumed: Option<BoxFuture<'static, ()>>) {
        let this = self.project();
        if let Some(resumed) = parent_resumed {
            *this.phase = Phase::Resuming(Box::new(outcome), resumed);
            return;
        }
        drop_guarded(this.stream);
        *this.stream = Some(SubAgentStream::settled(outcome));
        *this.phase = Phase::Settled;
    }
}

impl fmt::Debug for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forward").field("run", &self.run.record).finish_non_exhaustive()
    }
}
