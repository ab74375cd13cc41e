//! The program's exit status: a pure function of the root's outcome.

use std::process::ExitCode;

use crate::outcome::{OutcomeKind, SubAgentOutcome};

/// How the program ends. The numbers are a contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// 0: the root completed; a log holds.
    Completed,
    /// 1: the root failed; a log does not hold, or it ends before its root does.
    Failed,
    /// 2: bad usage. Nothing was run.
    Usage,
    /// 3: a limit, or whoever watches over it, stopped the root. It did not fail.
    Stopped,
    /// 130: the root was cancelled, as a shell reports an interrupt.
    Cancelled,
}

impl ExitStatus {
    /// The number that the caller of the program sees.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Completed => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Stopped => 3,
            Self::Cancelled => 130,
        }
    }
}

impl From<OutcomeKind> for ExitStatus {
    fn from(outcome: OutcomeKind) -> Self {
        match outcome {
            OutcomeKind::Completed => Self::Completed,
            OutcomeKind::Failed => Self::Failed,
            OutcomeKind::Stopped => Self::Stopped,
            OutcomeKind::Cancelled => Self::Cancelled,
        }
    }
}

impl From<&SubAgentOutcome> for ExitStatus {
    fn from(outcome: &SubAgentOutcome) -> Self {
        outcome.kind().into()
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{CancelledBy, FailureKind, LimitKind};

    #[test]
    fn the_status_follows_the_outcome() {
        let outcomes = [
            SubAgentOutcome::completed("done"),
            SubAgentOutcome::completed(serde_json::Value::Null),
            SubAgentOutcome::failed(FailureKind::Panic, "boom"),
            SubAgentOutcome::stopped_by(LimitKind::Wall, "out of time"),
            SubAgentOutcome::cancelled(CancelledBy::User),
        ];
        assert_eq!(outcomes.map(|outcome| ExitStatus::from(&outcome).code()), [0, 0, 1, 3, 130]);
        assert_eq!(ExitStatus::Usage.code(), 2);
    }
}
