//! The permit of a run: held while it works, given back while it only waits for children.

use std::sync::{Mutex, PoisonError};

use crate::budget::WorkPermit;

/// Whether a run may work now. One lock, held for a move.
#[derive(Debug, Default)]
pub(crate) struct Work(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    permit: Option<WorkPermit>,
    /// Foreground children that the run waits for.
    children: usize,
}

impl Work {
    fn lock(&self) -> std::sync::MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run may work.
    pub(crate) fn start(&self, permit: WorkPermit) {
        let mut held = self.lock();
        if held.children == 0 {
            held.permit = Some(permit);
        }
    }

    /// A foreground child begins: its parent waits, and hands its permit to that child.
    pub(crate) fn child_begins(&self) -> Option<WorkPermit> {
        let mut held = self.lock();
        held.children += 1;
        held.permit.take()
    }

    /// A foreground child ended. True if it was the last one: then the run needs a permit to go on.
    pub(crate) fn child_ended(&self) -> bool {
        let mut held = self.lock();
        held.children = held.children.saturating_sub(1);
        held.children == 0 && held.permit.is_none()
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
