//! Waiting that is no work: without the run's permit.

use super::run::RunContext;

impl RunContext {
    /// Awaits something that is not this run's own work, such as the end of a background run. Meanwhile the run's permit is free
    /// for others; before this returns the run has one again, which may mean to wait for it. Foreground children need none of
    /// this: their pipes do it.
    ///
    /// Where permits are not limited, it is `work.await`.
    ///
    /// # Cancel safety
    ///
    /// As that of `work`. Dropped, the run has its permit again if one is free.
    pub async fn without_permit<F: Future>(&self, work: F) -> F::Output {
        if !self.root().ledger().has_permits() {
            return work.await;
        }
        let away = Away::begin(self);
        let output = work.await;
        away.come_back().await;
        output
    }
}

/// While it lives, the run holds no permit.
struct Away<'a> {
    run: &'a RunContext,
    is_back: bool,
}

impl<'a> Away<'a> {
    fn begin(run: &'a RunContext) -> Self {
        drop(run.record().work.wait_begins());
        Self { run, is_back: false }
    }

    async fn come_back(mut self) {
        self.is_back = true;
        let record = self.run.record();
        if record.work.wait_ended() {
            let permit = record.root.ledger().permit();
            // A run that is cancelled goes on without one: it only ends.
            if let Ok(permit) = record.token.or_cancel(permit).await {
                record.work.start(permit);
            }
        }
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        let record = self.run.record();
        if !self.is_back
            && record.work.wait_ended()
            && let Some(permit) = record.root.ledger().try_permit()
        {
            record.work.start(permit);
        }
    }
}
