//! The two clocks of a run that has limits on its time.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use super::say::last_activity;
use crate::budget::RunLimits;
use crate::context::RunRecord;
use crate::outcome::LimitKind;

pub(super) struct Timers {
    wall: Option<Pin<Box<Sleep>>>,
    idle: Option<(Duration, Pin<Box<Sleep>>)>,
}

impl Timers {
    pub(super) fn of(limits: &RunLimits) -> Option<Box<Self>> {
        let wall = limits.wall.bound().map(|wall| Box::pin(sleep(wall)));
        let idle = limits.idle.bound().map(|idle| (idle, Box::pin(sleep(idle))));
        (wall.is_some() || idle.is_some()).then(|| Box::new(Self { wall, idle }))
    }

    /// Whether the wall time is over, without a waker: for a run that is never pending. Such a run is not idle.
    pub(super) fn over(&self) -> Option<LimitKind> {
        let wall = self.wall.as_ref()?;
        (Instant::now() >= wall.deadline()).then_some(LimitKind::Wall)
    }

    /// Which time is over, if one is.
    pub(super) fn poll(&mut self, record: &Arc<RunRecord>, cx: &mut Context<'_>) -> Option<LimitKind> {
        // The clock besides the timer: a timer is never ready while a busy child uses up the scheduler's budget.
        if let Some(over) = self.over() {
            return Some(over);
        }
        if let Some(wall) = &mut self.wall
            && wall.as_mut().poll(cx).is_ready()
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
                None => return Some(LimitKind::Idle),
            };
            timer.as_mut().reset(Instant::now() + left);
        }
        None
    }
}
