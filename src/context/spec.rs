//! What is asked for when a run is to come into being, and the right to begin it.

use std::sync::{Arc, LazyLock};

use super::record::RunRecord;
use super::run::RunContext;
use crate::budget::{Refusal, Reservation, RunLimits};
use crate::cancel::Cancelled;
use crate::id::ToolCallId;
use crate::message::Scope;

/// How many characters of the task make the title.
const TITLE_CHARS: usize = 60;

/// Shared by all runs that say nothing else.
static GENERATOR: LazyLock<Arc<str>> = LazyLock::new(|| "generator".into());
static SUBTASK: LazyLock<Arc<str>> = LazyLock::new(|| "subtask".into());

/// What a run is: what its `run_started` says, and what it may use.
#[derive(Debug, Clone)]
pub struct RunSpec {
    /// The agent's name.
    pub agent: Arc<str>,
    /// A few words for a person.
    pub title: Arc<str>,
    /// The instructions. In the log they are cut after [`RunSpec::TASK_BYTES`].
    pub task: Arc<str>,
    /// Whether it ends with its parent's turn (the default) or with the root.
    pub scope: Scope,
    /// What kind of producer runs it: `tool_loop`, `codeact`, or an author's own word.
    pub producer: Arc<str>,
    /// The model it uses, if one.
    pub model: Option<Arc<str>>,
    /// The call of the parent that spawns it, if one does.
    pub tool_call_id: Option<ToolCallId>,
    /// From 1, if it is a repeated attempt.
    pub attempt: Option<u32>,
    /// The branch of an ensemble.
    pub branch: Option<String>,
    /// Its own limits; its parent's narrow them. Default: the parent's alone.
    pub limits: RunLimits,
    /// What a refusal calls it. Default `subtask`.
    pub noun: Arc<str>,
}

impl RunSpec {
    /// How many bytes of the instructions go into the log: enough for a person to know what was asked, while a thousand runs
    /// that were handed a whole file each do not repeat it a thousand times.
    pub const TASK_BYTES: usize = 8 * 1024;

    /// A foreground run of `agent` on `task`, titled with the task's first words.
    #[must_use]
    pub fn new(agent: impl Into<Arc<str>>, task: impl Into<Arc<str>>) -> Self {
        let task = task.into();
        let first_line = task.trim_start().lines().next().unwrap_or_default();
        let is_title = first_line.len() == task.len() && first_line.len() <= TITLE_CHARS;
        Self {
            agent: agent.into(),
            title: if is_title { task.clone() } else { crate::tree::cut(first_line, TITLE_CHARS).into() },
            task,
            scope: Scope::Foreground,
            producer: GENERATOR.clone(),
            model: None,
            tool_call_id: None,
            attempt: None,
            branch: None,
            limits: RunLimits::default(),
            noun: SUBTASK.clone(),
        }
    }

    /// With this title.
    #[must_use]
    pub fn titled(mut self, title: impl Into<Arc<str>>) -> Self {
        self.title = title.into();
        self
    }

    /// Spawned by this call.
    #[must_use]
    pub fn called_by(mut self, call: Option<ToolCallId>) -> Self {
        self.tool_call_id = call;
        self
    }

    /// With this scope.
    #[must_use]
    pub fn scoped(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// With these limits.
    #[must_use]
    pub fn limited(mut self, limits: RunLimits) -> Self {
        self.limits = limits;
        self
    }

    /// With this kind of producer.
    #[must_use]
    pub fn produced_by(mut self, producer: impl Into<Arc<str>>) -> Self {
        self.producer = producer.into();
        self
    }
}

/// The right to begin one run: what [`RunContext::enter`] gives out.
///
/// It holds the run's place in the tree's total. Dropped without being forwarded, the place is given back and the run never
/// existed.
#[derive(Debug)]
pub struct Entered {
    pub(crate) record: Arc<RunRecord>,
    pub(crate) birth: Birth,
}

/// A run that may begin: its place in the tree's total, and among those that its ancestors wait for. Dropped, it gives both
/// back.
#[derive(Debug)]
pub(crate) struct Birth {
    record: Arc<RunRecord>,
    reservation: Option<Reservation>,
}

impl Birth {
    /// The caller holds the lock of the parent's state, so that the parent does not settle meanwhile.
    pub(super) fn new(record: &Arc<RunRecord>, reservation: Reservation) -> Self {
        record.count_birth();
        Self { record: Arc::clone(record), reservation: Some(reservation) }
    }

    /// The run has begun.
    pub(crate) fn commit(mut self) {
        if let Some(reservation) = self.reservation.take() {
            reservation.commit();
        }
    }
}

impl Drop for Birth {
    fn drop(&mut self) {
        if self.reservation.take().is_some() {
            self.record.count_end();
            self.record.root.ended().notify_waiters();
        }
    }
}

impl Entered {
    /// The context of the run that is to begin: its producer needs it.
    #[must_use]
    pub fn context(&self) -> RunContext {
        RunContext::of(Arc::clone(&self.record))
    }
}

/// Why a run did not come into being. A cancel is not a refusal: nobody is to work around it.
#[derive(Debug, Clone, PartialEq)]
pub enum EnterError {
    /// A limit refuses it; the model may read why and go on without.
    Refused(Refusal),
    /// The run that wants to spawn is cancelled.
    Cancelled(Cancelled),
}

impl From<Cancelled> for EnterError {
    fn from(cancelled: Cancelled) -> Self {
        Self::Cancelled(cancelled)
    }
}

impl From<Refusal> for EnterError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
