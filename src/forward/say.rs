//! How a message of a live run gets into the log: the only place that appends.

use super::relay::relay;
use crate::bus::Wakers;
use crate::context::{RunRecord, RunState};
use crate::message::{MessageBody, ProcessingMessage, Timestamp};
use crate::outcome::LimitKind;
use crate::tree::Misfit;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// It is in the log, or it was discarded and counted; the run goes on.
    GoOn,
    /// The run may not begin what the message announces: this limit stops it.
    Stop(LimitKind),
}

/// Says a producer's message.
///
/// A producer by a careless author is held to the invariants: what does not fit (a second result of a call, a terminal of its
/// own) is discarded and counted, not delivered.
#[inline]
pub(super) fn say(record: &RunRecord, message: ProcessingMessage) -> Said {
    let mut state = record.lock();
    if state.closed {
        discard(record, &mut state, "the run has settled");
        return Said::GoOn;
    }
    if message.nesting().is_some() {
        let wakers = relay(record, &mut state, message);
        drop(state);
        drop(wakers);
        return Said::GoOn;
    }
    let body = message.body();
    if matches!(body, MessageBody::RunStarted(_) | MessageBody::RunFinished(_)) {
        discard(record, &mut state, "only the pipe starts and ends a run");
        return Said::GoOn;
    }
    if matches!(body, MessageBody::ToolCallUpdate(_))
        && let Some(limit) = refuses_call(record, &state)
    {
        return Said::Stop(limit);
    }
    // Only calls measure time, so only they need a look at the clock before the append.
    let is_call = matches!(body, MessageBody::ToolCallUpdate(_));
    let now = if is_call { record.root.clock().now() } else { state.last_time };
    if let Err(misfit) = state.watch.observe(body, now) {
        let why = match misfit {
            Misfit::ResultWithoutCall => "a result for a call that is not open",
            Misfit::CallIndexReused => "a call under the index of an earlier one",
        };
        discard(record, &mut state, why);
        return Said::GoOn;
    }
    let mut over_turns = false;
    match body {
        MessageBody::Chunk(chunk) if !chunk.thinking => state.note_text(&chunk.content),
        MessageBody::TurnFinished(turn) => {
            state.turn_usage = crate::outcome::Usage::default();
            record.root.ledger().charge(&turn.usage);
            state.end_turn();
            state.over = state.over.or_else(|| used_up(record, &state));
            over_turns = !record.limits.turns.allows(state.watch.turns);
        }
        _ => {}
    }
    let wakers = append(record, &mut state, message.into_body());
    drop(state);
    drop(wakers);
    if over_turns { Said::Stop(LimitKind::Turns) } else { Said::GoOn }
}

/// Says a message of a run whose end is decided: what is under way may say how it ended, nothing new begins.
pub(super) fn say_last(record: &RunRecord, message: ProcessingMessage) {
    if let MessageBody::ToolCallUpdate(call) = message.body()
        && message.nesting().is_none()
    {
        let mut state = record.lock();
        if !state.watch.open_calls().any(|(index, _)| index == call.call_index) {
            discard(record, &mut state, "a call that would begin after the end was decided");
            return;
        }
    }
    say(record, message);
}

/// Appends to the log in the run's name. The caller drops the state's lock, then the wakers.
#[inline]
pub(super) fn append<'a>(record: &'a RunRecord, state: &mut RunState, body: MessageBody) -> Wakers<'a> {
    let (time, wakers) = record.root.bus().append(&record.origin, state.next_run_seq, body);
    if state.next_run_seq == 0 {
        state.first_time = time;
    }
    state.next_run_seq += 1;
    state.last_time = time;
    wakers
}

fn discard(record: &RunRecord, state: &mut RunState, why: &'static str) {
    state.late += 1;
    record.root.count_late(1);
    tracing::debug!(run = %record.origin.run_id, why, "message discarded");
}

fn refuses_call(record: &RunRecord, state: &RunState) -> Option<LimitKind> {
    if !record.limits.tool_calls.allows(state.watch.tool_calls + 1) {
        return Some(LimitKind::ToolCalls);
    }
    state.over.or_else(|| record.root.ledger().exhausted())
}

/// Which of the run's own budgets is used up.
fn used_up(record: &RunRecord, state: &RunState) -> Option<LimitKind> {
    let usage = &state.watch.usage;
    if record.limits.tokens.bound().is_some_and(|max| usage.tokens() >= max) {
        return Some(LimitKind::Tokens);
    }
    let cost = usage.cost_usd.unwrap_or(0.0);
    record.limits.cost_usd.bound().is_some_and(|max| cost >= max).then_some(LimitKind::Cost)
}

/// When the run or a live descendant last said something.
pub(super) fn last_activity(record: &std::sync::Arc<RunRecord>) -> Timestamp {
    let subtree = record.root.live_subtree(record);
    let own = record.lock().last_time;
    subtree.iter().map(|run| run.lock().last_time).fold(own, Timestamp::max)
}
