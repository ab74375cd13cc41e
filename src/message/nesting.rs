//! The envelope: where a message belongs in the tree, and in which order.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::id::{RunId, Seq, ToolCallId};

/// Where one run stands in its tree. Shared by all messages of the run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The root of the tree.
    pub root_run_id: RunId,
    /// The run.
    pub run_id: RunId,
    /// The run that spawned it; none only at the root.
    pub parent_run_id: Option<RunId>,
    /// The provider's label of the call that spawned it; none at the root and where no call did.
    pub parent_tool_call_id: Option<ToolCallId>,
    /// 0 at the root.
    pub subtask_depth: u32,
}

/// The envelope of a message, put around it once, where it enters the bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nesting {
    /// The run that says it.
    pub origin: Arc<Origin>,
    /// Position in the root's log, from 0, gapless.
    pub seq: Seq,
    /// Position among the run's own messages, from 0, gapless.
    pub run_seq: Seq,
    /// When it entered the bus.
    pub time: Timestamp,
}

/// A point in time: microseconds since 1970-01-01 UTC. Written as RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The last microsecond of the year 9999, beyond which RFC 3339 has no form.
    const LAST: u64 = 253_402_300_799_999_999;

    /// From microseconds since 1970; what lies beyond the year 9999 becomes its end.
    #[must_use]
    pub fn from_micros(micros: u64) -> Self {
        Self(micros.min(Self::LAST))
    }

    /// Microseconds since 1970.
    #[must_use]
    pub fn micros(self) -> u64 {
        self.0
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub fn millis(self) -> u64 {
        self.0 / 1000
    }

    /// The time from `earlier` to this; zero if it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The whole milliseconds from `earlier` to this; zero if it is not earlier.
    #[must_use]
    pub fn millis_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1000
    }

    /// Reads RFC 3339 in UTC. None if it is not.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let time = humantime::parse_rfc3339(text).ok()?;
        let micros = time.duration_since(UNIX_EPOCH).ok()?.as_micros();
        u64::try_from(micros).ok().map(Self::from_micros)
    }
}

impl From<SystemTime> for Timestamp {
    /// Times before 1970 become 1970.
    fn from(time: SystemTime) -> Self {
        let micros = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        Self::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_rfc3339_micros(UNIX_EPOCH + Duration::from_micros(self.0)).fmt(f)
    }
}
