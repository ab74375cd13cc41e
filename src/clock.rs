//! Time, as one value that can be paused.

use std::time::SystemTime;

use tokio::time::Instant;

use crate::message::Timestamp;

/// Tells the time: a start that is known, plus tokio's monotonic time since then.
///
/// So it never runs backwards when the wall clock is set, and it stands still where a test pauses tokio's time.
#[derive(Debug, Clone)]
pub struct Clock {
    origin: Timestamp,
    start: Instant,
}

impl Clock {
    /// Starts at the wall clock's time.
    #[must_use]
    pub fn system() -> Self {
        Self::starting_at(SystemTime::now().into())
    }

    /// Starts at a given time: with tokio's time paused, a log's times are reproducible.
    #[must_use]
    pub fn starting_at(origin: Timestamp) -> Self {
        Self { origin, start: Instant::now() }
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        // Microseconds in 64 bits last for 580,000 years.
        let elapsed = self.start.elapsed();
        Timestamp::from_micros(
            self.origin.micros() + elapsed.as_secs() * 1_000_000 + u64::from(elapsed.subsec_micros()),
        )
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}
