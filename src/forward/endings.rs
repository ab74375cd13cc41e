//! The outcomes of runs whose end is decided by somebody else than their producer.

use crate::cancel::Cancelled;
use crate::context::RunRecord;
use crate::outcome::{CancelledBy, LimitKind, SubAgentOutcome};

pub(super) fn cancelled_outcome(cancelled: Cancelled) -> SubAgentOutcome {
    SubAgentOutcome::cancelled(cancelled.by)
}

/// The outcome of a run that was cancelled before its producer settled: what the producer had is the partial result.
pub(super) fn cut_short(outcome: SubAgentOutcome, cancelled: Cancelled) -> SubAgentOutcome {
    let had = match outcome {
        SubAgentOutcome::Completed { result, .. } => (!result.is_null()).then_some(result),
        SubAgentOutcome::Stopped { partial, .. }
        | SubAgentOutcome::Cancelled { partial, .. }
        | SubAgentOutcome::Failed { partial, .. } => partial,
    };
    cancelled_outcome(cancelled).with_partial(had)
}

pub(super) fn stopped(limit: LimitKind) -> SubAgentOutcome {
    SubAgentOutcome::stopped_by(limit, format!("stopped by the limit on {}", limit_name(limit)))
}

pub(super) fn out_of_time(record: &RunRecord, limit: LimitKind) -> SubAgentOutcome {
    if limit == LimitKind::Wall {
        // What runs below ends because of this run's deadline, and says so.
        record.token.cancel(CancelledBy::DeadlineOfParent);
    }
    stopped(limit)
}

fn limit_name(limit: LimitKind) -> &'static str {
    match limit {
        LimitKind::Turns => "turns",
        LimitKind::ToolCalls => "tool calls",
        LimitKind::Tokens => "tokens",
        LimitKind::Cost => "cost",
        LimitKind::Wall => "time",
        LimitKind::Idle => "idle time",
        LimitKind::Output => "output",
    }
}

pub(super) fn forced(outcome: SubAgentOutcome) -> SubAgentOutcome {
    match outcome {
        SubAgentOutcome::Cancelled { by, partial, .. } => {
            SubAgentOutcome::Cancelled { by, forced: true, partial }
        }
        other => other,
    }
}
