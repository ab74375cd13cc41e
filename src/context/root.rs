//! The shared state of one tree.

use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::ask::Asks;
use super::extension::Extensions;
use super::lockstep::InVain;
use super::record::RunRecord;
use super::spec::{Birth, Entered, RunSpec};
use crate::budget::{Ledger, Refusal, RefusalKind, RunLimits, TreeLimits};
use crate::bus::{EventBus, From, Journal, Retain, Subscription};
use crate::cancel::CancelToken;
use crate::clock::Clock;
use crate::id::{IdHasher, IdMint, RunId};
use crate::message::{Extra, Origin, RunStarted};
use crate::outcome::Usage;
use crate::tree::RunTree;

/// One tree of runs: its log, its account, its live runs. Cheap to clone; clones are the same tree.
#[derive(Clone)]
pub struct Root(Arc<Inner>);

struct Inner {
    root_run_id: RunId,
    bus: Arc<EventBus>,
    ledger: Arc<Ledger>,
    mint: IdMint,
    /// With a seed.
    lockstep: Option<Arc<InVain>>,
    clock: Clock,
    token: CancelToken,
    limits: RunLimits,
    grace: Duration,
    background: BackgroundPolicy,
    has_run: AtomicBool,
    late: AtomicU64,
    /// All live runs by id, for whoever wants to cancel one or to wait for a subtree. Taken alone, for one step.
    live: Mutex<LiveRuns>,
    extensions: Extensions,
    asks: Asks,
    /// Rung whenever a run ends.
    pub(crate) ended: Notify,
}

/// Hashed with less care than usual: all ids in it were minted here, and their last half is random.
pub(crate) type LiveRuns = HashMap<RunId, Arc<RunRecord>, BuildHasherDefault<IdHasher>>;

/// What happens to background runs when the root's own work has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackgroundPolicy {
    /// The root waits for them, within its own limits.
    #[default]
    Join,
    /// They are cancelled.
    Cancel,
}

/// Sets up a [`Root`].
#[derive(Debug, Default)]
pub struct RootBuilder {
    tree: TreeLimits,
    run: RunLimits,
    retain: Retain,
    journal: Option<Arc<dyn Journal>>,
    seed: Option<u64>,
    clock: Option<Clock>,
    grace: Option<Duration>,
    background: BackgroundPolicy,
}

/// How long a tool that does not end on a cancel may take, before its run is settled without it. The time that the
/// command line promises for an interrupted process.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

impl RootBuilder {
    /// Limits of the tree. Default: [`TreeLimits::default`].
    #[must_use]
    pub fn tree_limits(mut self, limits: TreeLimits) -> Self {
        self.tree = limits;
        self
    }

    /// Limits of each run, the root's included. Default: none.
    #[must_use]
    pub fn run_limits(mut self, limits: RunLimits) -> Self {
        self.run = limits;
        self
    }

    /// How much of the log stays in memory. Default: [`Retain::default`].
    #[must_use]
    pub fn retain(mut self, retain: Retain) -> Self {
        self.retain = retain;
        self
    }

    /// Where the whole log goes. Default: nowhere.
    #[must_use]
    pub fn journal(mut self, journal: Arc<dyn Journal>) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Makes ids and jitter depend on this number alone, and the order of the log on nothing that happens on other threads: see
    /// [`Lockstep`](super::Lockstep). With a clock that stands still the log is the same to the byte, as long as all runs are driven by one task or
    /// by a runtime of one thread, and all code runs in this process. Default: none, ids are random.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The clock. Default: the system's.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// How long a tool that ignores a cancel may take. Default: 2 s.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// What happens to background runs at the end. Default: the root waits for them.
    #[must_use]
    pub fn background(mut self, policy: BackgroundPolicy) -> Self {
        self.background = policy;
        self
    }

    /// The tree, without a run yet.
    #[must_use]
    pub fn build(self) -> Root {
        let clock = self.clock.unwrap_or_default();
        let mint = self.seed.map_or_else(IdMint::random, IdMint::seeded);
        Root(Arc::new(Inner {
            root_run_id: mint.mint(clock.now().millis()),
            bus: Arc::new(EventBus::new(clock.clone(), self.retain, self.journal)),
            ledger: Arc::new(Ledger::new(self.tree)),
            mint,
            lockstep: self.seed.map(|_| Arc::default()),
            clock,
            token: CancelToken::new(),
            limits: self.run,
            grace: self.grace.unwrap_or(GRACE),
            background: self.background,
            has_run: AtomicBool::new(false),
            late: AtomicU64::new(0),
            live: Mutex::default(),
            extensions: Extensions::default(),
            asks: Asks::default(),
            ended: Notify::new(),
        }))
    }
}

impl Root {
    /// A tree with every default.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Sets up a tree.
    #[must_use]
    pub fn builder() -> RootBuilder {
        RootBuilder::default()
    }

    /// The id of the root run.
    #[must_use]
    pub fn run_id(&self) -> &RunId {
        &self.0.root_run_id
    }

    /// Reads the log from a position: see [`EventBus::subscribe`].
    #[must_use]
    pub fn subscribe(&self, from: From) -> Subscription {
        self.0.bus.subscribe(from)
    }

    /// The tree as it is now.
    #[must_use]
    pub fn snapshot(&self) -> RunTree {
        self.0.bus.snapshot()
    }

    /// What the tree used so far, as its account has it.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.snapshot().usage()
    }

    /// The log.
    #[must_use]
    pub fn bus(&self) -> &Arc<EventBus> {
        &self.0.bus
    }

    /// The account.
    #[must_use]
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.0.ledger
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The grace period.
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.0.grace
    }

    /// What happens to background runs at the end.
    #[must_use]
    pub fn background_policy(&self) -> BackgroundPolicy {
        self.0.background
    }

    /// How many messages came too late and were discarded, in the whole tree.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.0.late.load(Ordering::Relaxed)
    }

    /// How many runs are live.
    #[must_use]
    pub fn live_runs(&self) -> usize {
        self.live().len()
    }

    /// A number in `0..bound` for delays: random, or reproducible with a seed.
    #[must_use]
    pub fn jitter(&self, salt: u64, bound: u64) -> u64 {
        self.0.mint.jitter(salt, bound)
    }

    pub(super) fn lockstep(&self) -> Option<&Arc<InVain>> {
        self.0.lockstep.as_ref()
    }

    pub(crate) fn count_late(&self, messages: u64) {
        self.0.late.fetch_add(messages, Ordering::Relaxed);
    }

    pub(crate) fn token(&self) -> &CancelToken {
        &self.0.token
    }

    pub(super) fn ask_table(&self) -> &Asks {
        &self.0.asks
    }

    pub(super) fn extensions(&self) -> &Extensions {
        &self.0.extensions
    }

    pub(crate) fn ended(&self) -> &Notify {
        &self.0.ended
    }

    pub(crate) fn live(&self) -> MutexGuard<'_, LiveRuns> {
        self.0.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Live runs of the subtree of `top`, itself included, in no order.
    pub(crate) fn live_subtree(&self, top: &Arc<RunRecord>) -> Vec<Arc<RunRecord>> {
        self.live().values().filter(|run| run.is_within(top)).cloned().collect()
    }

    /// How many they are.
    pub(crate) fn count_live_subtree(&self, top: &Arc<RunRecord>) -> usize {
        self.live().values().filter(|run| run.is_within(top)).count()
    }

    /// The same, deepest first, and of those at one depth the eldest first.
    pub(crate) fn live_subtree_upwards(&self, top: &Arc<RunRecord>) -> Vec<Arc<RunRecord>> {
        let runs = self.live_subtree(top);
        // With the keys beside them, so that sorting does not touch each run again and again.
        let key = |run: &RunRecord| (std::cmp::Reverse(run.origin.subtask_depth), run.origin.run_id.clone());
        let mut runs: Vec<_> = runs.into_iter().map(|run| (key(&run), run)).collect();
        runs.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        runs.into_iter().map(|(_, run)| run).collect()
    }

    pub(crate) fn mint(&self) -> RunId {
        self.0.mint.mint(self.0.clock.now().millis())
    }

    /// Whether a run came into being in this tree and this process: such a run has a pipe here, now or earlier.
    pub(crate) fn has_entered(&self, run: &RunId) -> bool {
        self.0.mint.minted(run)
    }

    /// The one root run of this tree.
    ///
    /// # Errors
    ///
    /// A [`Refusal`] if there was one already, or if the limits allow no run at all.
    pub(crate) fn enter(&self, spec: RunSpec) -> Result<Entered, Refusal> {
        let reservation = self.0.ledger.reserve(&spec.noun)?;
        if self.0.has_run.swap(true, Ordering::AcqRel) {
            return Err(Refusal {
                kind: RefusalKind::Total,
                have: 1.0,
                max: 1.0,
                noun: "root run".to_owned(),
            });
        }
        let origin = Origin {
            root_run_id: self.0.root_run_id.clone(),
            run_id: self.0.root_run_id.clone(),
            parent_run_id: None,
            parent_tool_call_id: None,
            subtask_depth: 0,
        };
        let limits = self.0.limits.narrowed_by(&spec.limits);
        let record = RunRecord::new(origin, started(spec), self.clone(), None, self.0.token.clone(), limits);
        let record = Arc::new(record);
        let birth = Birth::new(&record, reservation);
        Ok(Entered { record, birth })
    }
}

/// The first message of the run that a spec describes.
pub(super) fn started(spec: RunSpec) -> RunStarted {
    let task = if spec.task.len() > RunSpec::TASK_BYTES {
        crate::message::cap_text(&spec.task, RunSpec::TASK_BYTES).into()
    } else {
        spec.task
    };
    RunStarted {
        agent: spec.agent,
        title: spec.title,
        task,
        scope: spec.scope,
        producer: spec.producer,
        model: spec.model,
        attempt: spec.attempt,
        branch: spec.branch,
        timeout_ms: spec.limits.wall.bound().map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        extra: Extra::default(),
    }
}

impl Default for Root {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root").field("run_id", &self.0.root_run_id).finish_non_exhaustive()
    }
}
