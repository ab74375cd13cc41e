//! The detached subtasks of one tree: who there is, and who waits for whom.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::cycles::Waits;
use super::subtask::Subtask;
use crate::context::RunContext;
use crate::id::RunId;
use crate::message::Scope;

/// The detached subtasks of one tree, owned by the tree. Dropped with it, it ends every task that is left.
#[derive(Debug, Default)]
pub(super) struct OfTree(Arc<Registry>);

impl Drop for OfTree {
    fn drop(&mut self) {
        // All runs of the tree are terminal. Whoever still holds the registry is one of the tasks that end here.
        self.0.end();
    }
}

/// What the two tools share.
#[derive(Debug, Default)]
pub(super) struct Registry {
    /// Each step under it is a look or a move. The state of a subtask may be looked at meanwhile, and nothing else is locked; no
    /// task is spawned and no run ended under it, since what those run may come back here.
    table: Mutex<Table>,
    /// Rung whenever a subtask has settled.
    settled: Notify,
}

#[derive(Debug, Default)]
struct Table {
    /// In the order of their starts.
    entries: Vec<Entry>,
    /// Places of subtasks that are about to begin.
    reserved: usize,
    waits: Waits,
    ended: bool,
}

#[derive(Debug)]
struct Entry {
    subtask: Arc<Subtask>,
    task: AbortHandle,
}

/// The tree has had as many detached subtasks as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full {
    pub(super) have: usize,
    pub(super) max: usize,
}

/// Who asks: the run that calls and those that it works for.
#[derive(Debug)]
pub(super) struct Asker {
    /// The run itself first, the root last.
    lineage: Vec<RunId>,
    /// The one of them that cannot end before the call does, and for which others can wait: the next background run, or the root.
    owner: RunId,
}

impl Asker {
    pub(super) fn of(run: &RunContext) -> Self {
        let lineage = || run.record().lineage();
        let owner = lineage().find(|above| above.scope() == Scope::Background || above.parent.is_none());
        Self {
            lineage: lineage().map(|above| above.origin.run_id.clone()).collect(),
            owner: owner.map_or_else(|| run.run_id().clone(), |owner| owner.origin.run_id.clone()),
        }
    }

    /// Its id first, the root's last.
    pub(super) fn into_lineage(self) -> Vec<RunId> {
        self.lineage
    }

    /// Whether this run, or one below it, started the subtask.
    pub(super) fn has_started(&self, subtask: &Subtask) -> bool {
        self.lineage.first().is_some_and(|run| subtask.is_below(run))
    }

    pub(super) fn is_or_works_for(&self, run: &RunId) -> bool {
        self.lineage.contains(run)
    }
}

impl Registry {
    /// That of the caller's tree.
    pub(super) fn of(run: &RunContext) -> Arc<Self> {
        Arc::clone(&run.root().extension::<OfTree>().0)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more.
    pub(super) fn reserve(self: &Arc<Self>, max: usize) -> Result<Place, Full> {
        let mut table = self.table();
        let have = table.entries.len() + table.reserved;
        if have >= max {
            return Err(Full { have, max });
        }
        table.reserved += 1;
        drop(table);
        Ok(Place { registry: Arc::clone(self) })
    }

    /// All subtasks, in the order of their starts.
    pub(super) fn all(&self) -> Vec<Arc<Subtask>> {
        self.table().entries.iter().map(|entry| Arc::clone(&entry.subtask)).collect()
    }

    /// A subtask has settled.
    pub(super) fn ring(&self) {
        self.settled.notify_waiters();
    }

    /// Notes that the asker waits for those of the subtasks that are running, for as long as the guard lives.
    ///
    /// # Errors
    ///
    /// The circle of waits that this would close, in words.
    pub(super) fn begin_wait(
        self: &Arc<Self>,
        asker: &Asker,
        subtasks: &[Arc<Subtask>],
    ) -> Result<Waiting, String> {
        let running = subtasks.iter().filter(|subtask| subtask.is_running());
        let targets = running.map(|subtask| subtask.run_id().clone()).collect();
        let mut table = self.table();
        // One step with the look for circles: of two runs that begin to wait for each other, the second one sees the first.
        match table.waits.begin(&asker.owner, targets) {
            Ok(key) => Ok(Waiting { registry: Arc::clone(self), key }),
            Err(circle) => {
                let name = |run: &RunId| {
                    let found = table.entries.iter().find(|entry| entry.subtask.run_id() == run);
                    found.map_or_else(|| run.to_string(), |entry| entry.subtask.name())
                };
                Err(circle.iter().map(name).collect::<Vec<_>>().join(" waits for "))
            }
        }
    }

    /// Resolves when none of them is running.
    pub(super) async fn all_settled(&self, subtasks: &[Arc<Subtask>]) {
        let mut left = subtasks;
        loop {
            let settled = self.settled.notified();
            let mut settled = std::pin::pin!(settled);
            // Registered before the look, so that an end in between is not missed.
            settled.as_mut().enable();
            // What has settled stays so: it is not looked at again.
            while let Some((first, rest)) = left.split_first()
                && !first.is_running()
            {
                left = rest;
            }
            if left.is_empty() {
                return;
            }
            settled.await;
        }
    }

    fn end(&self) {
        let mut table = self.table();
        table.ended = true;
        let entries = std::mem::take(&mut table.entries);
        drop(table);
        for entry in entries {
            entry.task.abort();
        }
    }
}

/// The place of a subtask that is about to begin. Dropped, it is given back.
#[derive(Debug)]
pub(super) struct Place {
    registry: Arc<Registry>,
}

impl Place {
    /// The subtask has begun, on this task.
    pub(super) fn fill(self, subtask: Arc<Subtask>, task: AbortHandle) {
        let mut table = self.registry.table();
        if table.ended {
            drop(table);
            // The tree ended meanwhile.
            task.abort();
        } else {
            table.entries.push(Entry { subtask, task });
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.registry.table().reserved -= 1;
    }
}

/// A wait that is under way.
#[derive(Debug)]
pub(super) struct Waiting {
    registry: Arc<Registry>,
    key: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.registry.table().waits.end(self.key);
    }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
