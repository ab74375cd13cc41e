//! The tree's account: how many runs there were, what they used, and who may work now.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::limits::{Limit, TreeLimits};
use super::refusal::{Refusal, RefusalKind};
use crate::outcome::{LimitKind, Usage};

/// The account of one tree.
#[derive(Debug)]
pub struct Ledger {
    limits: TreeLimits,
    total: AtomicU64,
    tokens: AtomicU64,
    /// Billionths of a US dollar: money adds up exactly.
    cost_nano: AtomicU64,
    work: Option<Arc<Semaphore>>,
}

const NANO: f64 = 1e9;

impl Ledger {
    /// An account with nothing on it.
    #[must_use]
    pub fn new(limits: TreeLimits) -> Self {
        // A semaphore counts at most 2^29 or so; a limit above that is none.
        let work = limits.live.bound().and_then(|live| usize::try_from(live).ok());
        let work = work.map(|live| Arc::new(Semaphore::new(live.min(Semaphore::MAX_PERMITS))));
        Self {
            limits,
            total: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
            cost_nano: AtomicU64::new(0),
            work,
        }
    }

    /// The limits it holds.
    #[must_use]
    pub fn limits(&self) -> &TreeLimits {
        &self.limits
    }

    /// Reserves the place of one more run. Dropped without [`Reservation::commit`], the place is given back.
    ///
    /// # Errors
    ///
    /// A [`Refusal`] if the tree has had all its runs or its budget is used up.
    pub fn reserve(self: &Arc<Self>, noun: &str) -> Result<Reservation, Refusal> {
        if let Some((have, max)) = self.over_budget() {
            return Err(Refusal { kind: RefusalKind::Budget, have, max, noun: noun.to_owned() });
        }
        let total = self.limits.total;
        let taken = self.total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |have| {
            total.allows(have + 1).then_some(have + 1)
        });
        match (taken, total) {
            (Err(have), Limit::At(max)) => {
                let (have, max) = (have as f64, max as f64);
                Err(Refusal { kind: RefusalKind::Total, have, max, noun: noun.to_owned() })
            }
            _ => Ok(Reservation { ledger: Arc::clone(self), committed: false }),
        }
    }

    /// Charges what a turn used. It is charged even where it goes over the budget: it was used.
    pub fn charge(&self, usage: &Usage) {
        if usage.tokens() > 0 {
            self.tokens.fetch_add(usage.tokens(), Ordering::Relaxed);
        }
        if let Some(cost) = usage.cost_usd {
            // Negative or absurd prices saturate: `as` on floats does not wrap.
            self.cost_nano.fetch_add((cost * NANO).round() as u64, Ordering::Relaxed);
        }
    }

    /// Which budget of the tree is used up, if one is.
    #[must_use]
    pub fn exhausted(&self) -> Option<LimitKind> {
        if self.limits.tokens.bound().is_some_and(|max| self.tokens() >= max) {
            return Some(LimitKind::Tokens);
        }
        self.limits.cost_usd.bound().is_some_and(|max| self.cost_usd() >= max).then_some(LimitKind::Cost)
    }

    fn over_budget(&self) -> Option<(f64, f64)> {
        match self.exhausted()? {
            LimitKind::Cost => Some((self.cost_usd(), self.limits.cost_usd.bound()?)),
            _ => Some((self.tokens() as f64, self.limits.tokens.bound()? as f64)),
        }
    }

    /// How many runs there were.
    #[must_use]
    pub fn total_runs(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// How many tokens were used.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.tokens.load(Ordering::Relaxed)
    }

    /// How many US dollars were used, as far as prices are known.
    #[must_use]
    pub fn cost_usd(&self) -> f64 {
        self.cost_nano.load(Ordering::Relaxed) as f64 / NANO
    }

    /// How many more runs could work now; none if that is not limited.
    #[must_use]
    pub fn free_permits(&self) -> Option<usize> {
        self.work.as_ref().map(|work| work.available_permits())
    }

    /// A permit, if one is free and nobody waits for it.
    #[must_use]
    pub(crate) fn try_permit(&self) -> Option<WorkPermit> {
        match &self.work {
            None => Some(WorkPermit(None)),
            Some(work) => Arc::clone(work).try_acquire_owned().ok().map(|permit| WorkPermit(Some(permit))),
        }
    }

    /// Waits for a permit, first come, first served.
    pub(crate) fn permit(&self) -> impl Future<Output = WorkPermit> + Send + use<> {
        let work = self.work.clone();
        async move {
            match work {
                None => WorkPermit(None),
                // The semaphore is never closed, so this never fails.
                Some(work) => WorkPermit(work.acquire_owned().await.ok()),
            }
        }
    }

    /// Whether permits are limited at all.
    pub(crate) fn has_permits(&self) -> bool {
        self.work.is_some()
    }
}

/// The place of one run in the tree's total.
#[derive(Debug)]
pub struct Reservation {
    ledger: Arc<Ledger>,
    committed: bool,
}

impl Reservation {
    /// The run has come into being: its place stays taken.
    pub fn commit(mut self) {
        self.committed = true;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.committed {
            self.ledger.total.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The right to work now. Dropping it lets the next one work.
#[derive(Debug)]
pub struct WorkPermit(
    #[expect(dead_code, reason = "held for its drop, which gives the permit back")]
    Option<OwnedSemaphorePermit>,
);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reservation_gives_back_or_commits() {
        let ledger = Arc::new(Ledger::new(TreeLimits { total: Limit::At(2), ..TreeLimits::default() }));
        for _ in 0..10 {
            drop(ledger.reserve("subtask").unwrap());
        }
        ledger.reserve("subtask").unwrap().commit();
        ledger.reserve("subtask").unwrap().commit();
        let refusal = ledger.reserve("subtask").unwrap_err();
        assert_eq!((refusal.kind, refusal.have, refusal.max), (RefusalKind::Total, 2.0, 2.0));
        assert_eq!(refusal.to_value()["max_total_runs"], json!(2));
        assert_eq!(ledger.total_runs(), 2);
    }

    #[test]
    fn a_budget_refuses_when_it_is_used_up_and_zero_is_none() {
        let ledger = Arc::new(Ledger::new(TreeLimits {
            tokens: Limit::At(10),
            cost_usd: Limit::At(0.5),
            ..TreeLimits::default()
        }));
        ledger.charge(&Usage { cost_usd: Some(0.1), ..Usage::of_call(4, 5) });
        assert_eq!(ledger.exhausted(), None);
        ledger.charge(&Usage { cost_usd: Some(0.4), ..Usage::default() });
        assert_eq!(ledger.exhausted(), Some(LimitKind::Cost));
        assert_eq!(ledger.reserve("search").unwrap_err().to_value()["used"], json!(0.5));
        let none = Arc::new(Ledger::new(TreeLimits { total: Limit::At(0), ..TreeLimits::default() }));
        assert!(none.reserve("subtask").is_err());
    }

    #[tokio::test]
    async fn permits_return_when_dropped() {
        let ledger = Ledger::new(TreeLimits { live: Limit::At(1), ..TreeLimits::default() });
        let permit = ledger.try_permit().unwrap();
        assert!(ledger.try_permit().is_none());
        drop(permit);
        drop(ledger.permit().await);
        assert_eq!(ledger.free_permits(), Some(1));
    }
}
