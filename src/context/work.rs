//! The permit of a run: held while it works, given back while it only waits.

use std::sync::{Mutex, PoisonError};

use crate::budget::WorkPermit;

/// Whether a run may work now. One lock, held for a move.
#[derive(Debug, Default)]
pub(crate) struct Work(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    permit: Option<WorkPermit>,
    /// What the run waits for: live foreground children, and waits for background runs.
    waits: usize,
}

impl Work {
    fn lock(&self) -> std::sync::MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run may work.
    pub(crate) fn start(&self, permit: WorkPermit) {
        let mut held = self.lock();
        if held.waits == 0 {
            held.permit = Some(permit);
        }
    }

    /// The run begins to wait, and gives its permit out: a foreground child gets it, or whoever is next.
    pub(crate) fn wait_begins(&self) -> Option<WorkPermit> {
        let mut held = self.lock();
        held.waits += 1;
        held.permit.take()
    }

    /// A wait ended. True if it was the last one: then the run needs a permit to go on.
    pub(crate) fn wait_ended(&self) -> bool {
        let mut held = self.lock();
        held.waits = held.waits.saturating_sub(1);
        held.waits == 0 && held.permit.is_none()
    }

    /// The run has settled.
    pub(crate) fn end(&self) {
        let permit = self.lock().permit.take();
        drop(permit);
    }

    /// Whether the run holds a permit now.
    pub(crate) fn holds_permit(&self) -> bool {
        self.lock().permit.is_some()
    }
}
