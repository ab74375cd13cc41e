//! The two clocks of a run that has limits on its time. Both stand still while a person is waited for.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use super::say::last_activity;
use crate::budget::RunLimits;
use crate::context::{RunContext, RunRecord};
use crate::outcome::LimitKind;

/// How often a run looks whether the person that somebody below it waits for has answered, if nothing else tells it: only
/// background runs end their waiting outside of the poll of those above.
const LOOK: Duration = Duration::from_secs(1);

pub(super) struct Timers {
    wall: Option<Wall>,
    idle: Option<(Duration, Pin<Box<Sleep>>)>,
}

struct Wall {
    /// Without what is excused.
    due: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Wall {
    fn poll(&mut self, record: &RunRecord, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let excused = record.excused();
            let due = self.due + excused.time;
            let (now, deadline) = (Instant::now(), self.timer.deadline());
            // The clock besides the timer: a timer is never ready while a busy child uses up the scheduler's budget.
            if now >= due && !excused.is_open {
                return Poll::Ready(());
            }
            // While somebody waits, the end moves along with the time; afterwards it stands, and may be nearer than the next look.
            let next = if excused.is_open { due.max(now + LOOK) } else { due };
            if now >= deadline || deadline > next {
                self.timer.as_mut().reset(next);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Timers {
    pub(super) fn of(limits: &RunLimits) -> Option<Box<Self>> {
        let wall = limits.wall.bound().map(|wall| {
            let timer = Box::pin(sleep(wall));
            Wall { due: timer.deadline(), timer }
        });
        let idle = limits.idle.bound().map(|idle| (idle, Box::pin(sleep(idle))));
        (wall.is_some() || idle.is_some()).then(|| Box::new(Self { wall, idle }))
    }

    /// Whether the wall time is over, without a waker: for a run that is never pending. Such a run is not idle.
    pub(super) fn over(&self, record: &RunRecord) -> Option<LimitKind> {
        let wall = self.wall.as_ref()?;
        if Instant::now() < wall.due {
            return None;
        }
        let excused = record.excused();
        (!excused.is_open && Instant::now() >= wall.due + excused.time).then_some(LimitKind::Wall)
    }

    /// Which time is over, if one is.
    pub(super) fn poll(&mut self, record: &Arc<RunRecord>, cx: &mut Context<'_>) -> Option<LimitKind> {
        if let Some(wall) = &mut self.wall
            && wall.poll(record, cx).is_ready()
        {
            return Some(LimitKind::Wall);
        }
        let (limit, timer) = self.idle.as_mut()?;
        // The timer runs from the last look, not from the last message: so a message costs nothing.
        while timer.as_mut().poll(cx) == Poll::Ready(()) {
            let silent = record.root.clock().now().since(last_activity(record));
            let left = match limit.checked_sub(silent).filter(|left| !left.is_zero()) {
                Some(left) => left,
                // A child that is as silent has the same limit or a tighter one, and its end is a message: this run goes on.
                None if record.root.count_live_subtree(record) > 1 => *limit,
                // The answer is a message too, and comes within the deadline of the ask.
                None if record.excused().is_open => *limit,
                None => return Some(LimitKind::Idle),
            };
            timer.as_mut().reset(Instant::now() + left);
        }
        None
    }
}

impl RunContext {
    /// Ends after this time, in which waiting for a person does not count: for a tool that limits what it does.
    ///
    /// # Cancel safety
    ///
    /// Dropping it only ends the waiting.
    pub async fn time_of_work(&self, time: Duration) {
        let timer = Box::pin(sleep(time));
        let before = self.record().excused().time;
        let due = timer.deadline().checked_sub(before).unwrap_or_else(|| timer.deadline());
        let mut wall = Wall { due, timer };
        std::future::poll_fn(|cx| wall.poll(self.record(), cx)).await;
    }
}
