//! The context of one run: what its producer may ask and do.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};

use super::lockstep::Lockstep;
use super::record::RunRecord;
use super::root::{Root, started};
use super::spec::{Birth, EnterError, Entered, RunSpec};
use crate::budget::{Refusal, RefusalKind, RunLimits, WhenFull};
use crate::cancel::{CancelToken, Cancelled};
use crate::id::RunId;
use crate::message::{FinalCounters, Origin, Scope};
use crate::outcome::{CancelledBy, LimitKind, Usage};

/// The context of one run. Cheap to clone; clones are the same run.
#[derive(Debug, Clone)]
pub struct RunContext(Arc<RunRecord>);

impl RunContext {
    pub(crate) fn of(record: Arc<RunRecord>) -> Self {
        Self(record)
    }

    pub(crate) fn record(&self) -> &Arc<RunRecord> {
        &self.0
    }

    /// The tree.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.0.root
    }

    /// Where the run stands.
    #[must_use]
    pub fn origin(&self) -> &Arc<Origin> {
        &self.0.origin
    }

    /// The run's id.
    #[must_use]
    pub fn run_id(&self) -> &RunId {
        &self.0.origin.run_id
    }

    /// 0 at the root.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.0.origin.subtask_depth
    }

    /// The agent's name.
    #[must_use]
    pub fn agent(&self) -> &Arc<str> {
        &self.0.started.agent
    }

    /// The agent's name, and those of the runs above it, up to the root's.
    pub(crate) fn agents(&self) -> Vec<&str> {
        self.0.lineage().map(|record| &*record.started.agent).collect()
    }

    /// The run's title.
    #[must_use]
    pub fn title(&self) -> &Arc<str> {
        &self.0.started.title
    }

    /// What the run may use.
    #[must_use]
    pub fn limits(&self) -> &RunLimits {
        &self.0.limits
    }

    /// What the run came to in numbers, as its terminal says it; none before it has settled.
    #[must_use]
    pub fn final_counters(&self) -> Option<FinalCounters> {
        self.0.lock().counters.as_deref().copied()
    }

    /// The run's cancellation.
    #[must_use]
    pub fn token(&self) -> &CancelToken {
        &self.0.token
    }

    /// Waits for `work` or for the run's cancel: see [`CancelToken::or_cancel`].
    ///
    /// # Errors
    ///
    /// [`Cancelled`], and `work` is dropped.
    ///
    /// # Cancel safety
    ///
    /// As that of `work`.
    pub async fn or_cancel<F: Future>(&self, work: F) -> Result<F::Output, Cancelled> {
        self.0.token.or_cancel(work).await
    }

    /// The index of the run's next tool call: the key that `tool_call_update` and its result carry.
    #[must_use]
    pub fn mint_call_index(&self) -> u32 {
        self.0.mint_call_index()
    }

    /// Reports what the turn under way used so far: cumulative, replaces earlier reports of the turn. It counts even if the run
    /// ends before the turn does; the turn's `turn_finished` replaces it.
    pub fn report_turn_usage(&self, usage: Usage) {
        self.0.lock().turn_usage = usage;
    }

    /// The limit of the run or the tree that is used up, if one is: then nothing new may begin.
    #[must_use]
    pub fn exhausted(&self) -> Option<LimitKind> {
        self.0.lock().over.or_else(|| self.0.root.ledger().exhausted())
    }

    /// Whether a child could be allowed at all as far as depth goes; where not, spawn tools are not offered.
    #[must_use]
    pub fn may_nest(&self) -> bool {
        self.0.root.ledger().limits().depth.allows(self.depth().saturating_add(1))
    }

    /// The one way in which a child comes into being: cancellation, depth, budget, total, identity, and limits that only narrow.
    ///
    /// # Errors
    ///
    /// [`EnterError::Refused`] with the limit that refuses, [`EnterError::Cancelled`] if this run is cancelled or has settled.
    pub fn enter(&self, spec: RunSpec) -> Result<Entered, EnterError> {
        if let Some(cancelled) = self.0.token.cancelled() {
            return Err(cancelled.into());
        }
        let depth = enter_subagent_depth(self, &spec.noun)?;
        if let Some((have, max)) = self.0.over_budget() {
            return Err(Refusal { kind: RefusalKind::Budget, have, max, noun: spec.noun.to_string() }.into());
        }
        let ledger = self.0.root.ledger();
        let reservation = ledger.reserve(&spec.noun)?;
        if ledger.limits().when_full == WhenFull::Refuse && ledger.free_permits() == Some(0) {
            // A parent that will wait for this child gives its own permit to it.
            let inherits = spec.scope == Scope::Foreground && self.0.work.holds_permit();
            if !inherits {
                let max = f64::from(ledger.limits().live.bound().unwrap_or(0));
                return Err(
                    Refusal { kind: RefusalKind::Live, have: max, max, noun: spec.noun.to_string() }.into()
                );
            }
        }
        let root = self.0.root.clone();
        let origin = Origin {
            root_run_id: root.run_id().clone(),
            run_id: root.mint(),
            parent_run_id: Some(self.run_id().clone()),
            parent_tool_call_id: spec.tool_call_id.clone(),
            subtask_depth: depth,
        };
        let mut limits = self.0.limits.narrowed_by(&spec.limits);
        // The time of this run bounds its children anyway, whom its end cancels. Inherited, it would be a second timer that
        // runs out in the same moment: which of both came first would decide whether this run goes on after its deadline.
        limits.wall = spec.limits.wall;
        let (token, parent) = (self.0.token.child(), Some(Arc::clone(&self.0)));
        let record = Arc::new(RunRecord::new(origin, started(spec), root, parent, token, limits));
        let state = self.0.lock();
        if state.refuses(record.scope()) {
            return Err(Cancelled { by: CancelledBy::Parent }.into());
        }
        let birth = Birth::new(&record, reservation);
        drop(state);
        Ok(Entered { record, birth })
    }

    /// Says with which result the run ends although its producer still works, or that there is none any more; the last word counts. A
    /// limit or a cancel that strikes later ends the work, and the run completes with the result all the same; a failure is one. For
    /// producers that tell somebody that a result was taken. After a cancel nothing is noted, nor of a producer that works inside another
    /// one's run: what its result means is the other's to say.
    pub fn accept_result(&self, result: Option<serde_json::Value>) {
        let mut state = self.0.lock();
        if !state.works_inside && !self.0.token.is_cancelled() {
            state.accepted = result.map(Box::new);
        }
    }

    /// While it lives, a producer works inside the run's own.
    pub(crate) fn work_inside(&self) -> WorkInside {
        self.0.lock().works_inside = true;
        WorkInside(Arc::clone(&self.0))
    }

    /// Says that an operation of this run may take the grace period to end after a cancel, because dropping it would not end it
    /// or would leave something half done. Without one, a cancelled run is dropped at once.
    #[must_use]
    pub fn hold_grace(&self) -> GraceHold {
        self.0.add_grace_hold();
        GraceHold(Arc::clone(&self.0))
    }

    /// The right to wait for other threads where they are polled: in a tree with a seed.
    #[must_use]
    pub fn lockstep(&self) -> Option<Lockstep> {
        self.0.root.lockstep().map(|tree| Lockstep::of(tree, &self.0.token))
    }

    /// Runs blocking work on a thread of its own. A cancel waits for it for the grace period; after that the run settles without
    /// it, and what it returns is discarded and counted as late. In a tree with a seed it is waited for where this is polled
    /// ([`Lockstep`]), so that pieces of work end in the order of their begin; what takes seconds is better done with
    /// [`RunContext::blocking_for_long`].
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the run was cancelled before the work began.
    ///
    /// # Panics
    ///
    /// Goes on with the work's own panic, which the run's pipe turns into a failure.
    ///
    /// # Cancel safety
    ///
    /// Dropping it abandons the work, which goes on to its end unseen.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Cancelled> {
        self.on_thread(self.lockstep(), work).await
    }

    /// As [`RunContext::blocking`], for work that takes so long that nobody is to wait for it in place: also in a tree with a seed, and
    /// its end then has the order of time.
    ///
    /// # Errors
    ///
    /// As [`RunContext::blocking`].
    ///
    /// # Panics
    ///
    /// As [`RunContext::blocking`].
    ///
    /// # Cancel safety
    ///
    /// As [`RunContext::blocking`].
    pub async fn blocking_for_long<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Cancelled> {
        self.on_thread(None, work).await
    }

    async fn on_thread<T: Send + 'static>(
        &self,
        lockstep: Option<Lockstep>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Cancelled> {
        if let Some(cancelled) = self.0.token.cancelled() {
            return Err(cancelled);
        }
        let hold = self.hold_grace();
        let (deliver, result) = tokio::sync::oneshot::channel();
        let (root, token) = (self.0.root.clone(), self.0.token.clone());
        // Nothing is ever sent: that the sender is gone says that the work is done.
        let (working, watched) = match lockstep {
            Some(lockstep) => {
                let (working, is_done) = sync_channel::<()>(1);
                (Some(working), Some((lockstep, is_done)))
            }
            None => (None, None),
        };
        tokio::task::spawn_blocking(move || {
            let _working = working;
            // It may have waited for a free thread for long: after a cancel nothing begins.
            if token.is_cancelled() {
                return;
            }
            let output = catch_unwind(AssertUnwindSafe(work));
            if deliver.send(output).is_err() {
                root.count_late(1);
            }
        });
        if let Some((mut lockstep, is_done)) = watched {
            lockstep.wait(|time| is_done.recv_timeout(time) != Err(RecvTimeoutError::Timeout));
        }
        let output = result.await;
        drop(hold);
        match output {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(panic)) => resume_unwind(panic),
            // Not begun: the run was cancelled before a thread was free, or the runtime is shutting down.
            Err(_) => Err(self.0.token.cancelled().unwrap_or(Cancelled { by: CancelledBy::Shutdown })),
        }
    }
}

/// The gate of depth: the depth that a child would have.
///
/// # Errors
///
/// The standard refusal, which says `noun`, if it would be too deep.
pub fn enter_subagent_depth(cx: &RunContext, noun: &str) -> Result<u32, Refusal> {
    let depth = cx.depth().saturating_add(1);
    let limit = cx.root().ledger().limits().depth;
    if limit.allows(depth) {
        return Ok(depth);
    }
    let max = f64::from(limit.bound().unwrap_or(u32::MAX));
    Err(Refusal { kind: RefusalKind::Depth, have: f64::from(cx.depth()), max, noun: noun.to_owned() })
}

/// While it lives, a cancel of its run waits for the grace period. See [`RunContext::hold_grace`].
#[derive(Debug)]
pub struct GraceHold(Arc<RunRecord>);

impl Drop for GraceHold {
    fn drop(&mut self) {
        self.0.drop_grace_hold();
    }
}

/// See [`RunContext::work_inside`]. Those of one run follow one another.
#[derive(Debug)]
pub(crate) struct WorkInside(Arc<RunRecord>);

impl Drop for WorkInside {
    fn drop(&mut self) {
        self.0.lock().works_inside = false;
    }
}
