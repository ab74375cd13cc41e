//! The straight way into the log: what a block says while its own pipe polls it is appended there and then, and the block goes on. The
//! way back through all that polls it, and into it again, would be most of what a message costs.

use std::sync::atomic::Ordering;

use super::say::{Said, say};
use crate::context::RunRecord;
use crate::message::{MessageBody, ProcessingMessage};
use crate::outcome::LimitKind;
use crate::stream::{Sink, Taken};

/// So many messages of one poll go that way: then the pipe looks whether others are to have their turn, as after each that it takes
/// itself.
pub(super) const MOST: u32 = 16;

/// Stands in the place of their number when the run may not say what it wanted to say.
const STOPPED: u32 = u32::MAX;

impl Sink for RunRecord {
    fn take(&self, message: &mut Option<ProcessingMessage>) -> Taken {
        let count = self.straight.load(Ordering::Relaxed);
        // The stream itself looks at results of steps, since they may be its outcome.
        let is_looked_at = |message: &ProcessingMessage| matches!(message.body(), MessageBody::StepResult(_));
        if count >= MOST || message.as_ref().is_none_or(is_looked_at) {
            return Taken::No;
        }
        self.straight.store(count + 1, Ordering::Relaxed);
        if let Some(Said::Stop(limit)) = message.take().map(|message| say(self, message)) {
            self.lock().stopped = Some(limit);
            self.straight.store(STOPPED, Ordering::Relaxed);
            return Taken::Wait;
        }
        // A cancel may have come with it.
        let is_cancelled = self.token.epoch() > 0 && self.token.is_cancelled();
        if is_cancelled { Taken::Wait } else { Taken::GoOn }
    }
}

/// A poll of the run's producer begins.
pub(super) fn begin(record: &RunRecord) {
    record.straight.store(0, Ordering::Relaxed);
}

/// It is over: how many messages went that way.
///
/// # Errors
///
/// The limit that stops the run.
pub(super) fn end(record: &RunRecord) -> Result<u32, LimitKind> {
    match record.straight.load(Ordering::Relaxed) {
        STOPPED => record.lock().stopped.take().map_or(Ok(0), Err),
        count => Ok(count),
    }
}
