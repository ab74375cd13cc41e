//! In which order things that depend on one another can be done, and where that is impossible.

use std::collections::VecDeque;

/// What came of ordering.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    /// Those that can be done, each after what it depends on; of those that could be next, the first one first.
    pub(super) sorted: Vec<usize>,
    /// Circles, each as its members in order, the first one not repeated.
    pub(super) cycles: Vec<Vec<usize>>,
    /// Those that are in no circle and wait for one.
    pub(super) behind: Vec<usize>,
}

/// Orders `count` things by pairs of (before, after). Pairs that name others are left out.
pub(super) fn order(count: usize, pairs: &[(usize, usize)]) -> Order {
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut waits_for = vec![0_usize; count];
    for (before, after) in pairs {
        if let (Some(next), Some(waits_for)) = (next.get_mut(*before), waits_for.get_mut(*after)) {
            next.push(*after);
            *waits_for += 1;
        }
    }
    let is_free = |waits_for: &[usize], at: usize| waits_for.get(at) == Some(&0);
    let mut ready: VecDeque<usize> = (0..count).filter(|at| is_free(&waits_for, *at)).collect();
    let mut order = Order::default();
    while let Some(at) = ready.pop_front() {
        order.sorted.push(at);
        for after in next.get(at).into_iter().flatten() {
            if let Some(waits) = waits_for.get_mut(*after) {
                *waits -= 1;
                if *waits == 0 {
                    ready.push_back(*after);
                }
            }
        }
    }
    let mut reported = vec![false; count];
    for at in (0..count).filter(|at| !is_free(&waits_for, *at)) {
        if reported.get(at) == Some(&true) {
            continue;
        }
        match circle(at, &next) {
            Some(cycle) => {
                for member in &cycle {
                    if let Some(reported) = reported.get_mut(*member) {
                        *reported = true;
                    }
                }
                order.cycles.push(cycle);
            }
            None => order.behind.push(at),
        }
    }
    order
}

/// The shortest way from a thing back to itself.
fn circle(start: usize, next: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut came_from: Vec<Option<usize>> = vec![None; next.len()];
    let mut queue = VecDeque::from([start]);
    while let Some(at) = queue.pop_front() {
        for after in next.get(at)? {
            if *after == start {
                let (mut path, mut step) = (vec![at], at);
                while let Some(Some(before)) = came_from.get(step).filter(|_| step != start) {
                    step = *before;
                    path.push(step);
                }
                path.reverse();
                return Some(path);
            }
            if let Some(seen @ None) = came_from.get_mut(*after) {
                *seen = Some(at);
                queue.push_back(*after);
            }
        }
    }
    None
}

/// A circle as people read it: `a -> b -> a`.
pub(super) fn circle_text<'a>(cycle: &[usize], id: impl Fn(usize) -> &'a str) -> String {
    let path: Vec<&str> = cycle.iter().chain(cycle.first()).map(|at| id(*at)).collect();
    path.join(" -> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_first_is_first_and_the_rest_keeps_its_order() {
        assert_eq!(order(4, &[(3, 0), (0, 1)]).sorted, [2, 3, 0, 1]);
        assert_eq!(order(0, &[]), Order::default());
        assert_eq!(order(1, &[(0, 7), (7, 0)]).sorted, [0]);
    }

    #[test]
    fn a_circle_is_named_by_its_shortest_way_and_what_waits_for_it_is_told_apart() {
        let found = order(6, &[(0, 1), (1, 2), (2, 3), (3, 1), (2, 1), (3, 4)]);
        assert_eq!((found.sorted, found.behind), (vec![0, 5], vec![4]));
        assert_eq!(found.cycles, [vec![1, 2], vec![3, 1, 2]]);
        assert_eq!(order(1, &[(0, 0)]).cycles, [vec![0]]);
    }
}
