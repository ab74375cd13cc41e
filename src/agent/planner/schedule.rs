//! Which node may begin when: decides, and never waits.

use std::collections::VecDeque;

use super::check::CheckedNode;

/// What is known of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeState {
    /// It waits for so many others.
    Waits(usize),
    /// It may begin.
    Ready,
    /// It was given out.
    Runs,
    /// It completed.
    Completed,
    /// It did not.
    Failed,
    /// It never begins, because this one did not complete.
    Skipped { because: usize },
}

/// The state of an execution.
#[derive(Debug)]
pub(super) struct Schedule {
    states: Vec<NodeState>,
    next: Vec<Vec<usize>>,
    ready: VecDeque<usize>,
}

impl Schedule {
    pub(super) fn new(nodes: &[CheckedNode]) -> Self {
        Self::of(nodes.iter().map(|node| node.next.clone()).collect())
    }

    /// Of the nodes that wait for each, by position.
    pub(super) fn of(next: Vec<Vec<usize>>) -> Self {
        let mut waits = vec![0_usize; next.len()];
        for after in next.iter().flatten() {
            if let Some(waits) = waits.get_mut(*after) {
                *waits += 1;
            }
        }
        let state = |waits: &usize| if *waits == 0 { NodeState::Ready } else { NodeState::Waits(*waits) };
        let states: Vec<NodeState> = waits.iter().map(state).collect();
        let ready = (0..states.len()).filter(|at| states.get(*at) == Some(&NodeState::Ready)).collect();
        Self { states, next, ready }
    }

    /// The next node that may begin; it runs from now on.
    pub(super) fn begin(&mut self) -> Option<usize> {
        let at = self.ready.pop_front()?;
        self.set(at, NodeState::Runs);
        Some(at)
    }

    /// A node that ran has completed.
    pub(super) fn completed(&mut self, at: usize) {
        self.set(at, NodeState::Completed);
        for after in self.after(at) {
            if let Some(NodeState::Waits(left)) = self.state(after) {
                let left = left.saturating_sub(1);
                self.set(after, if left == 0 { NodeState::Ready } else { NodeState::Waits(left) });
                if left == 0 {
                    self.ready.push_back(after);
                }
            }
        }
    }

    /// A node that ran did not complete. What depends on it never begins; those nodes come back.
    pub(super) fn failed(&mut self, at: usize) -> Vec<usize> {
        self.set(at, NodeState::Failed);
        let mut skipped = Vec::new();
        let mut queue = VecDeque::from(self.after(at));
        while let Some(after) = queue.pop_front() {
            if matches!(self.state(after), Some(NodeState::Waits(_))) {
                self.set(after, NodeState::Skipped { because: at });
                skipped.push(after);
                queue.extend(self.after(after));
            }
        }
        skipped
    }

    pub(super) fn state(&self, at: usize) -> Option<NodeState> {
        self.states.get(at).copied()
    }

    fn set(&mut self, at: usize, state: NodeState) {
        if let Some(place) = self.states.get_mut(at) {
            *place = state;
        }
    }

    fn after(&self, at: usize) -> Vec<usize> {
        self.next.get(at).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// All that is below a node.
    fn below(next: &[Vec<usize>], at: usize) -> BTreeSet<usize> {
        let direct = next[at].iter();
        direct.flat_map(|after| below(next, *after).into_iter().chain([*after])).collect()
    }

    #[test]
    fn a_failure_takes_along_what_depends_on_it_and_nothing_else() {
        let mut schedule = Schedule::of(vec![vec![2], vec![2, 3], vec![4], vec![4], vec![], vec![]]);
        assert_eq!([0; 4].map(|_| schedule.begin()), [Some(0), Some(1), Some(5), None]);
        assert_eq!(schedule.failed(0), [2, 4]);
        schedule.completed(1);
        assert_eq!((schedule.begin(), schedule.begin()), (Some(3), None));
        schedule.completed(3);
        assert_eq!(schedule.state(4), Some(NodeState::Skipped { because: 0 }));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// In any graph, with any nodes failing and in any order of ends: a node begins after all that it waits for have completed, and
        /// what never begins is exactly what is below a node that failed.
        #[test]
        fn random_graphs_with_random_failures(
            raw in proptest::collection::vec((0_usize..20, 0_usize..20), 0..60),
            fails in proptest::collection::vec(any::<bool>(), 20),
            picks in proptest::collection::vec(any::<prop::sample::Index>(), 20),
        ) {
            let mut next: Vec<Vec<usize>> = vec![Vec::new(); 20];
            for (one, other) in raw {
                // Only upwards, so there is no cycle; each edge once.
                let (from, to) = (one.min(other), one.max(other));
                if from != to && !next[from].contains(&to) {
                    next[from].push(to);
                }
            }
            let mut schedule = Schedule::of(next.clone());
            let (mut running, mut completed, mut failed) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
            for pick in picks {
                while let Some(at) = schedule.begin() {
                    let waits_for = (0..20).filter(|before| next[*before].contains(&at));
                    prop_assert!(waits_for.into_iter().all(|before| completed.contains(&before)));
                    running.push(at);
                }
                if running.is_empty() {
                    break;
                }
                let at = running.swap_remove(pick.index(running.len()));
                if fails[at] {
                    schedule.failed(at);
                    failed.insert(at);
                } else {
                    schedule.completed(at);
                    completed.insert(at);
                }
            }
            prop_assert!(schedule.begin().is_none() && running.is_empty());
            let lost: BTreeSet<usize> = failed.iter().flat_map(|at| below(&next, *at)).collect();
            for at in 0..20 {
                let is_skipped = matches!(schedule.state(at), Some(NodeState::Skipped { .. }));
                prop_assert_eq!(is_skipped, lost.contains(&at), "node {}", at);
                prop_assert!(is_skipped || completed.contains(&at) || failed.contains(&at));
            }
        }
    }
}
