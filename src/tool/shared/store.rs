//! What one tree has shared, in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::key::{Namespace, name_of};
use crate::context::{Root, RunContext};
use crate::id::RunId;
use crate::message::{cap_value, value_bytes};
use crate::tree::cut;

/// How much is said of a result in a line, in characters.
const ABOUT_CHARS: usize = 120;

/// The shared results of one tree: written once each, never changed, and dropped when the root run ends. Whoever may use the tree's
/// runs may use them.
///
/// # Keys
///
/// A key is a [`Namespace`], a colon and a name, such as `step:count`. No result is ever replaced: where a key is taken, the next one
/// is `step:count-2`, then `step:count-3`, however many write at once.
///
/// # Bounds
///
/// Each namespace has its own, so that none crowds out another: [`SharedResults::MAX_ENTRIES`] results, and together
/// [`SharedResults::MAX_BYTES`]. A result that is larger than [`SharedResults::ENTRY_BYTES`] is cut, at a marker that names both sizes;
/// a model that shares one is told instead. What finds no room is left out and counted.
#[derive(Debug, Clone)]
pub struct SharedResults(Arc<Store>);

#[derive(Debug, Default)]
struct Store(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// In the order in which they came.
    entries: Vec<Arc<SharedResult>>,
    by_key: HashMap<Arc<str>, usize>,
    /// The number that a taken key is tried with next.
    numbers: HashMap<Arc<str>, u32>,
    /// By namespace.
    used: [Used; Namespace::ALL.len()],
    left_out: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Used {
    entries: usize,
    bytes: usize,
}

/// One result.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedResult {
    /// Its key.
    pub key: Arc<str>,
    /// A few words for whoever looks for it; may be empty.
    pub about: Arc<str>,
    /// The result itself; of what failed, why.
    pub value: Value,
    /// Whether it is why something failed.
    pub is_error: bool,
    /// About how many bytes the value has.
    pub bytes: usize,
    /// Who wrote it.
    pub author: Author,
}

/// The run that writes a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    /// Its id.
    pub run_id: RunId,
    /// Its title.
    pub title: Arc<str>,
}

impl From<&RunContext> for Author {
    fn from(run: &RunContext) -> Self {
        Self { run_id: run.run_id().clone(), title: cut(run.title(), ABOUT_CHARS).into() }
    }
}

/// A namespace is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no room for another {namespace}: result of {bytes} bytes; a tree has room for {} results of {} bytes in all",
    SharedResults::MAX_ENTRIES,
    SharedResults::MAX_BYTES
)]
pub struct NoRoom {
    /// Which.
    pub namespace: Namespace,
    /// How large the result is.
    pub bytes: usize,
    /// How many results it has.
    pub have_entries: usize,
    /// How many bytes these have.
    pub have_bytes: usize,
}

impl SharedResults {
    /// The most bytes of one result: 32 KiB, about 8,000 tokens, as much as an edge of a graph brings into a brief.
    pub const ENTRY_BYTES: usize = 32 * 1024;

    /// The most results of one namespace: four graphs of as many nodes as a graph may have.
    pub const MAX_ENTRIES: usize = 256;

    /// The most bytes of all results of one namespace: 2 MiB, so that a tree keeps 8 MiB at the most.
    pub const MAX_BYTES: usize = 2 * 1024 * 1024;

    /// Those of this tree. After the end of its root run there are none, and none are kept.
    #[must_use]
    pub fn of(root: &Root) -> Self {
        Self(root.extension())
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Taken alone, for a look or a move.
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a result under a key of its own, which is returned. In the name, what a key cannot have becomes `-`.
    ///
    /// # Errors
    ///
    /// The namespace is full; the result is left out, and [counted](SharedResults::left_out).
    pub fn put(
        &self,
        namespace: Namespace,
        name: &str,
        about: &str,
        result: Result<Value, String>,
        author: &Author,
    ) -> Result<Arc<str>, NoRoom> {
        let is_error = result.is_err();
        let value = cap_value(result.unwrap_or_else(Value::String), Self::ENTRY_BYTES);
        let bytes = value_bytes(&value);
        let about = cut(about.trim().lines().next().unwrap_or_default(), ABOUT_CHARS).into();
        let base: Arc<str> = format!("{namespace}:{}", name_of(name)).into();
        let mut table = self.table();
        table.reserve(namespace, bytes)?;
        let key = table.free_key(&base);
        let at = table.entries.len();
        table.by_key.insert(Arc::clone(&key), at);
        let author = author.clone();
        table.entries.push(Arc::new(SharedResult {
            key: Arc::clone(&key),
            about,
            value,
            is_error,
            bytes,
            author,
        }));
        Ok(key)
    }

    /// The result under this key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<SharedResult>> {
        let table = self.table();
        table.by_key.get(key).and_then(|at| table.entries.get(*at)).cloned()
    }

    /// All results, in the order in which they came.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<SharedResult>> {
        self.table().entries.clone()
    }

    /// How many results found no room.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.table().left_out
    }
}

impl Table {
    fn reserve(&mut self, namespace: Namespace, bytes: usize) -> Result<(), NoRoom> {
        let Some(used) = self.used.get_mut(namespace.at()) else { return Ok(()) };
        let Used { entries, bytes: had } = *used;
        if entries >= SharedResults::MAX_ENTRIES || had + bytes > SharedResults::MAX_BYTES {
            self.left_out += 1;
            return Err(NoRoom { namespace, bytes, have_entries: entries, have_bytes: had });
        }
        *used = Used { entries: entries + 1, bytes: had + bytes };
        Ok(())
    }

    /// The key, or the first one with a number that is not taken. Each number is tried once.
    fn free_key(&mut self, base: &Arc<str>) -> Arc<str> {
        if !self.by_key.contains_key(base) {
            return Arc::clone(base);
        }
        let number = self.numbers.entry(Arc::clone(base)).or_insert(2);
        loop {
            let key = format!("{base}-{number}");
            *number += 1;
            if !self.by_key.contains_key(key.as_str()) {
                return key.into();
            }
        }
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
