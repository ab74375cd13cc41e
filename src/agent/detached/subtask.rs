//! One detached subtask, as far as others may ask for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};

use crate::id::RunId;
use crate::message::{cap_map, cap_text, map_bytes};
use crate::outcome::{OutcomeKind, SubAgentOutcome};
use crate::tool::SubAgentRun;

/// How much of a description a row repeats, in bytes: a line.
const DESCRIPTION_BYTES: usize = 200;

/// A result is never cut to less, in bytes.
const LEAST_ROOM: usize = 256;

/// A detached subtask.
#[derive(Debug)]
pub(super) struct Subtask {
    run_id: RunId,
    /// The same as text: what a model sends.
    id: String,
    description: Arc<str>,
    /// The run that started it, that one's parent, and so on to the root.
    started_by: Vec<RunId>,
    /// Taken alone or inside the registry's lock, for a look or a move: no other is taken meanwhile.
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Running,
    Settled {
        kind: OutcomeKind,
        /// What the row says besides the status, until it is handed over.
        payload: Option<Map<String, Value>>,
    },
}

/// How much a reply may still carry.
#[derive(Debug)]
pub(super) struct Room {
    bytes: usize,
    /// Whether a row already carries something: the first one that does is never held back.
    is_used: bool,
    /// Whether something was held back.
    pub(super) holds_back: bool,
}

impl Room {
    pub(super) fn new(bytes: usize) -> Self {
        Self { bytes, is_used: false, holds_back: false }
    }
}

impl Subtask {
    pub(super) fn new(run_id: RunId, description: Arc<str>, started_by: Vec<RunId>) -> Self {
        let id = run_id.to_string();
        Self { run_id, id, description, started_by, state: Mutex::new(State::Running) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn run_id(&self) -> &RunId {
        &self.run_id
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Whether this run, or one below it, started it.
    pub(super) fn is_below(&self, run: &RunId) -> bool {
        self.started_by.contains(run)
    }

    /// Its name for a person and a model.
    pub(super) fn name(&self) -> String {
        format!("{:?} ({})", cap_text(&self.description, DESCRIPTION_BYTES), self.id)
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(*self.lock(), State::Running)
    }

    /// It ended. What comes later changes nothing.
    pub(super) fn settle(&self, run: &SubAgentRun, outcome: &SubAgentOutcome) {
        let reply = run.settle(outcome, &self.id);
        // A subtask that ended without an answer did not do what it was asked, as one that is waited for at once.
        let kind = if reply.is_error && outcome.is_ok() { OutcomeKind::Failed } else { outcome.kind() };
        let payload = match reply.for_model {
            Value::Object(mut error) if reply.is_error => {
                let (code, text) = (error.remove("error"), error.remove("message"));
                // The row says these itself.
                error.remove("run_id");
                error.remove("description");
                error.insert("error".into(), text.unwrap_or_default());
                error.insert("code".into(), code.unwrap_or_default());
                error
            }
            value => Map::from_iter([("result".to_owned(), value)]),
        };
        let mut state = self.lock();
        if matches!(*state, State::Running) {
            *state = State::Settled { kind, payload: Some(payload) };
        }
    }

    /// Its row without a result, and whether it has settled.
    pub(super) fn row(&self) -> (Map<String, Value>, bool) {
        let (status, has_settled) = match *self.lock() {
            State::Running => ("running", false),
            State::Settled { kind, .. } => (kind.as_str(), true),
        };
        let entries = [
            ("subtask_id", json!(self.id)),
            ("depth", json!(self.started_by.len())),
            ("description", json!(cap_text(&self.description, DESCRIPTION_BYTES))),
            ("status", json!(status)),
        ];
        (entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(), has_settled)
    }

    /// Completes the row of a subtask that has settled: with what it came to, if nobody got that yet and there is room for it.
    pub(super) fn hand_over(&self, row: &mut Map<String, Value>, room: &mut Room) {
        let mut state = self.lock();
        let State::Settled { payload, .. } = &mut *state else { return };
        let Some(had) = payload.as_ref() else {
            row.insert("delivered".into(), json!(true));
            return;
        };
        let size = map_bytes(had);
        let fits = size <= room.bytes;
        if !fits && room.is_used {
            row.insert("held_back".into(), json!(true));
            room.holds_back = true;
            return;
        }
        // The lock is held until it is taken: no other wait gets it too.
        let had = payload.take().unwrap_or_default();
        drop(state);
        row.extend(if fits { had } else { cap_map(had, room.bytes.max(LEAST_ROOM)) });
        room.bytes = room.bytes.saturating_sub(size);
        room.is_used = true;
    }
}

#[cfg(test)]
#[path = "subtask_tests.rs"]
mod tests;
