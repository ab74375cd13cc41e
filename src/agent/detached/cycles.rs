//! Who waits for whom: waits that could never end are found before they begin.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::id::RunId;

/// The waits of one tree that are under way. A run may be in several at once, and then ends only after all of them: so a
/// circle means that none in it ever ends.
#[derive(Debug, Default)]
pub(super) struct Waits {
    next: u64,
    waits: HashMap<u64, Wait>,
}

#[derive(Debug)]
struct Wait {
    waiter: RunId,
    targets: Vec<RunId>,
}

impl Waits {
    /// Notes a wait, and gives out its key for [`Waits::end`].
    ///
    /// # Errors
    ///
    /// The circle that it would close: the waiter, whom it waits for, whom that one waits for, and so on up to the waiter again.
    pub(super) fn begin(&mut self, waiter: &RunId, targets: Vec<RunId>) -> Result<u64, Vec<RunId>> {
        if let Some(circle) = self.circle(waiter, &targets) {
            return Err(circle);
        }
        let key = self.next;
        self.next += 1;
        self.waits.insert(key, Wait { waiter: waiter.clone(), targets });
        Ok(key)
    }

    pub(super) fn end(&mut self, key: u64) {
        self.waits.remove(&key);
    }

    /// The shortest way from one of the targets to the waiter, as a circle.
    fn circle(&self, waiter: &RunId, targets: &[RunId]) -> Option<Vec<RunId>> {
        let mut edges: HashMap<&RunId, Vec<&RunId>> = HashMap::new();
        for wait in self.waits.values() {
            edges.entry(&wait.waiter).or_default().extend(&wait.targets);
        }
        // Each run with the one that waits for it on the shortest way.
        let mut awaited_by: HashMap<&RunId, &RunId> = HashMap::new();
        let mut seen = HashSet::new();
        let mut queue: VecDeque<&RunId> = VecDeque::new();
        for target in targets {
            if seen.insert(target) {
                queue.push_back(target);
            }
        }
        while let Some(run) = queue.pop_front() {
            if run == waiter {
                let above = |run: &&RunId| awaited_by.get(run).copied();
                let way: Vec<RunId> = std::iter::successors(Some(run), above).cloned().collect();
                return Some([waiter.clone()].into_iter().chain(way.into_iter().rev()).collect());
            }
            for next in edges.get(run).into_iter().flatten().copied() {
                if seen.insert(next) {
                    awaited_by.insert(next, run);
                    queue.push_back(next);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> RunId {
        RunId::parse(name)
    }

    fn ids(names: &str) -> Vec<RunId> {
        names.split(' ').map(id).collect()
    }

    #[test]
    fn a_circle_is_found_over_any_number_of_hops_and_named_in_order() {
        let mut waits = Waits::default();
        assert_eq!(waits.begin(&id("a"), ids("a")), Err(ids("a a")));
        waits.begin(&id("a"), ids("x b")).unwrap();
        assert_eq!(waits.begin(&id("b"), ids("a")), Err(ids("b a b")));
        waits.begin(&id("b"), ids("c y")).unwrap();
        waits.begin(&id("c"), ids("d")).unwrap();
        assert_eq!(waits.begin(&id("d"), ids("y a")), Err(ids("d a b c d")));
        // A short cut makes a shorter circle.
        waits.begin(&id("a"), ids("c")).unwrap();
        assert_eq!(waits.begin(&id("d"), ids("a")), Err(ids("d a c d")));
    }

    #[test]
    fn a_diamond_is_no_circle_and_a_wait_that_ended_counts_no_more() {
        let mut waits = Waits::default();
        waits.begin(&id("a"), ids("b c")).unwrap();
        waits.begin(&id("b"), ids("d")).unwrap();
        let key = waits.begin(&id("c"), ids("d")).unwrap();
        assert_eq!(waits.begin(&id("d"), ids("c")), Err(ids("d c d")));
        waits.end(key);
        let key = waits.begin(&id("d"), ids("c")).unwrap();
        assert_eq!(waits.begin(&id("c"), ids("d")), Err(ids("c d c")));
        waits.end(key);
        waits.begin(&id("c"), ids("d")).unwrap();
    }
}
