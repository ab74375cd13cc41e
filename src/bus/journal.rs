//! The port to whatever keeps the log for longer than the bus does.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::message::ProcessingMessage;

/// Keeps messages for later.
///
/// Called for each message in `seq` order, inside the append: an implementation hands the message on (a clone is a few
/// words) and returns. It must not block, and it must not call back into the bus. A panic in it is logged and harms no run.
pub trait Journal: fmt::Debug + Send + Sync + 'static {
    /// Takes the next message.
    fn record(&self, message: &ProcessingMessage);
}

/// A journal in memory, for tests and small tools: the first messages of a log up to a bound.
#[derive(Debug)]
pub struct MemoryJournal {
    kept: Mutex<Kept>,
    max_messages: usize,
}

#[derive(Debug, Default)]
struct Kept {
    messages: Vec<ProcessingMessage>,
    dropped: u64,
}

impl MemoryJournal {
    /// Keeps at most so many messages; what comes after is counted.
    #[must_use]
    pub fn new(max_messages: usize) -> Self {
        Self { kept: Mutex::default(), max_messages }
    }

    /// The log so far.
    #[must_use]
    pub fn messages(&self) -> Vec<ProcessingMessage> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).messages.clone()
    }

    /// How many messages did not fit.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).dropped
    }
}

impl Default for MemoryJournal {
    /// A million messages.
    fn default() -> Self {
        Self::new(1_000_000)
    }
}

impl Journal for MemoryJournal {
    fn record(&self, message: &ProcessingMessage) {
        // Its own lock, always taken inside the bus's: readers clone and leave, so the append does not wait for them long.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.messages.len() < self.max_messages {
            kept.messages.push(message.clone());
        } else {
            kept.dropped += 1;
        }
    }
}
