//! What the core knows of one live run: shared by its pipe, its context, and whoever cancels it.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::pause::PersonWaits;
use super::relayed::Relayed;
use super::root::Root;
use super::work::Work;
use crate::budget::RunLimits;
use crate::cancel::CancelToken;
use crate::id::Seq;
use crate::message::{FinalCounters, Origin, RunStarted, Scope, Timestamp};
use crate::outcome::{LimitKind, SubAgentOutcome, Usage};
use crate::tree::RunWatch;

/// How much text a run's partial result keeps, in bytes.
const PARTIAL_BYTES: usize = 64 * 1024;

/// One run, from `enter` to its terminal.
pub(crate) struct RunRecord {
    pub(crate) origin: Arc<Origin>,
    pub(crate) started: Arc<RunStarted>,
    pub(crate) root: Root,
    pub(crate) parent: Option<Arc<RunRecord>>,
    pub(crate) token: CancelToken,
    pub(crate) limits: RunLimits,
    /// Taken before the bus's lock, never after it: so `run_seq` rises with `seq`. Wakers are woken after both are free.
    state: Mutex<RunState>,
    live_foreground: AtomicUsize,
    live_background: AtomicUsize,
    /// Operations of this run and its descendants that may end in their own time after a cancel.
    grace_holds: AtomicUsize,
    next_call: AtomicU32,
    /// How many messages went straight into the log in the poll of the producer that is under way. Only that poll writes it.
    pub(crate) straight: AtomicU32,
    pub(crate) work: Work,
    pub(crate) person_waits: PersonWaits,
}

/// The part of a run that its messages change.
#[derive(Debug, Default)]
pub(crate) struct RunState {
    pub(crate) watch: RunWatch,
    pub(crate) next_run_seq: Seq,
    pub(crate) first_time: Timestamp,
    pub(crate) last_time: Timestamp,
    pub(crate) closed: bool,
    /// The outcome is decided: foreground children are over.
    pub(crate) decided: bool,
    /// No run may begin below any more.
    pub(crate) settling: bool,
    /// The result with which the run ends, whatever else ends it.
    pub(crate) accepted: Option<Box<Value>>,
    /// Producers work inside the run's own: a result of theirs is not yet one of the run.
    pub(crate) works_inside: bool,
    /// How somebody else than its own pipe ended the run.
    pub(crate) ended_outside: Option<Box<SubAgentOutcome>>,
    pub(crate) late: u64,
    /// What its terminal says. Boxed, as whatever only the end needs: there may be very many runs that wait.
    pub(crate) counters: Option<Box<FinalCounters>>,
    /// What the turn that is under way used so far; charged when it finishes, or when the run does.
    pub(crate) turn_usage: Usage,
    pub(crate) children_usage: Usage,
    /// The limit that was gone over: the run is stopped before it begins anything new.
    pub(crate) over: Option<LimitKind>,
    /// The limit for which a message was refused that the run wanted to say: it ends with it.
    pub(crate) stopped: Option<LimitKind>,
    pub(crate) relayed: Relayed,
    /// Who is told of the end.
    pub(crate) told: Option<Told>,
    text: String,
    text_is_old: bool,
}

/// Called once with the outcome of a run that has begun, by whoever ends it: when its terminal is in the log and before anybody
/// who waits for its end is woken. It only notes something down: it runs in drops too.
pub(crate) struct Told(pub(crate) Box<dyn FnOnce(&SubAgentOutcome) + Send>);

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Told")
    }
}

impl RunState {
    /// Whether a run of this scope may no longer begin below.
    pub(crate) fn refuses(&self, scope: Scope) -> bool {
        self.closed || self.settling || self.decided && scope == Scope::Foreground
    }

    /// Notes text for the partial result: the latest turn that said something.
    pub(crate) fn note_text(&mut self, piece: &str) {
        if std::mem::take(&mut self.text_is_old) {
            self.text.clear();
        }
        let room = piece.floor_char_boundary(PARTIAL_BYTES.saturating_sub(self.text.len()));
        self.text.push_str(piece.get(..room).unwrap_or_default());
    }

    /// A turn is over: text that comes now begins anew.
    pub(crate) fn end_turn(&mut self) {
        self.text_is_old = true;
    }

    /// The partial result.
    pub(crate) fn take_text(&mut self) -> Option<Value> {
        let text = std::mem::take(&mut self.text);
        (!text.is_empty()).then_some(Value::String(text))
    }
}

impl RunRecord {
    pub(crate) fn new(
        origin: Origin,
        started: RunStarted,
        root: Root,
        parent: Option<Arc<Self>>,
        token: CancelToken,
        limits: RunLimits,
    ) -> Self {
        Self {
            origin: Arc::new(origin),
            started: Arc::new(started),
            root,
            parent,
            token,
            limits,
            state: Mutex::default(),
            live_foreground: AtomicUsize::new(0),
            live_background: AtomicUsize::new(0),
            grace_holds: AtomicUsize::new(0),
            next_call: AtomicU32::new(0),
            straight: AtomicU32::new(0),
            work: Work::default(),
            person_waits: PersonWaits::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, RunState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much of its own budget the run has used, and how much there was, if it is used up.
    pub(crate) fn over_budget(&self) -> Option<(f64, f64)> {
        let state = self.lock();
        match state.over? {
            LimitKind::Cost => Some((state.watch.usage.cost_usd?, self.limits.cost_usd.bound()?)),
            _ => Some((state.watch.usage.tokens() as f64, self.limits.tokens.bound()? as f64)),
        }
    }

    pub(crate) fn scope(&self) -> Scope {
        self.started.scope
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Whether it is `top` or below it.
    pub(crate) fn is_within(self: &Arc<Self>, top: &Arc<Self>) -> bool {
        top.parent.is_none() || self.lineage().any(|above| Arc::ptr_eq(above, top))
    }

    /// The run itself, its parent, and so on to the root.
    pub(crate) fn lineage(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        std::iter::successors(Some(self), |record| record.parent.as_ref())
    }

    /// The counters that this run is in. A background run may outlive its parent, so every ancestor counts it.
    fn counters(&self) -> impl Iterator<Item = &AtomicUsize> {
        let parent = self.parent.as_ref();
        let is_foreground = self.scope() == Scope::Foreground;
        let foreground = parent.filter(|_| is_foreground).map(|parent| &parent.live_foreground);
        let above = parent.filter(|_| !is_foreground).into_iter().flat_map(Self::lineage);
        foreground.into_iter().chain(above.map(|above| &above.live_background))
    }

    pub(crate) fn count_birth(&self) {
        self.counters().for_each(|counter| _ = counter.fetch_add(1, Ordering::AcqRel));
    }

    pub(crate) fn count_end(&self) {
        self.counters().for_each(|counter| _ = counter.fetch_sub(1, Ordering::AcqRel));
    }

    /// How many runs below must end before this one: all of them for the root and for a cancelled run, else the foreground.
    pub(crate) fn awaited(&self) -> usize {
        let all = self.parent.is_none() || self.token.is_cancelled();
        if all { self.live_children() } else { self.live_foreground() }
    }

    /// Lets no child enter any more, if there is none to wait for. One step with the look, so that none is born in between.
    pub(crate) fn stop_births(&self) -> bool {
        let mut state = self.lock();
        state.settling |= self.awaited() == 0;
        state.settling
    }

    pub(crate) fn live_foreground(&self) -> usize {
        self.live_foreground.load(Ordering::Acquire)
    }

    /// Foreground children, and background runs at any depth.
    pub(crate) fn live_children(&self) -> usize {
        self.live_foreground() + self.live_background.load(Ordering::Acquire)
    }

    pub(crate) fn mint_call_index(&self) -> u32 {
        self.next_call.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn grace_holds(&self) -> usize {
        self.grace_holds.load(Ordering::Acquire)
    }

    pub(crate) fn add_grace_hold(self: &Arc<Self>) {
        for record in self.lineage() {
            record.grace_holds.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn drop_grace_hold(self: &Arc<Self>) {
        for record in self.lineage() {
            record.grace_holds.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl fmt::Debug for RunRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunRecord")
            .field("origin", &self.origin)
            .field("title", &self.started.title)
            .finish_non_exhaustive()
    }
}
