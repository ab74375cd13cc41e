//! Which positions of a log have been seen: what is new, what comes late, what comes twice.

use std::collections::BTreeMap;

use crate::id::Seq;

/// How many holes of a log are remembered, so that what fills one later is told from a repetition. More than any
/// shuffle of a live stream makes; 1.5 MiB at most.
const HOLES: usize = 64 * 1024;

/// The positions seen so far: all below `next`, but for the holes.
#[derive(Debug, Clone, Default)]
pub(super) struct Positions {
    next: Seq,
    /// The first position of each hole, and the one behind its last.
    holes: BTreeMap<Seq, Seq>,
    missing: u64,
}

/// How a position relates to those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Higher than all before.
    Next,
    /// It fills a hole.
    Filling,
    /// It was there before.
    Repeated,
}

impl Positions {
    /// Notes a position.
    #[inline]
    pub(super) fn note(&mut self, seq: Seq) -> Arrival {
        if seq < self.next {
            return self.fill(seq);
        }
        if seq > self.next {
            self.missing += seq - self.next;
            self.remember(self.next, seq);
        }
        self.next = seq.saturating_add(1);
        Arrival::Next
    }

    fn fill(&mut self, seq: Seq) -> Arrival {
        let hole = self.holes.range(..=seq).next_back().map(|(start, end)| (*start, *end));
        let Some((start, end)) = hole.filter(|(_, end)| seq < *end) else { return Arrival::Repeated };
        self.holes.remove(&start);
        self.missing -= 1;
        if start < seq {
            self.remember(start, seq);
        }
        if seq + 1 < end {
            self.remember(seq + 1, end);
        }
        Arrival::Filling
    }

    fn remember(&mut self, start: Seq, end: Seq) {
        self.holes.insert(start, end);
        // The oldest hole is the least likely to be filled. It stays counted as missing.
        if self.holes.len() > HOLES {
            self.holes.pop_first();
        }
    }

    /// The position that comes next.
    pub(super) fn next(&self) -> Seq {
        self.next
    }

    /// How many positions below the next one have not been seen.
    pub(super) fn missing(&self) -> u64 {
        self.missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_position_is_told_apart() {
        let mut seen = Positions::default();
        let arrivals: Vec<Arrival> = [0, 4, 2, 2, 1, 3, 4, 5].map(|seq| seen.note(seq)).into();
        use Arrival::{Filling, Next, Repeated};
        assert_eq!(arrivals, [Next, Next, Filling, Repeated, Filling, Filling, Repeated, Next]);
        assert_eq!((seen.next(), seen.missing()), (6, 0));
    }

    #[test]
    fn the_ends_of_the_range_and_too_many_holes_are_no_trouble() {
        let mut seen = Positions::default();
        assert_eq!(seen.note(u64::MAX), Arrival::Next);
        assert_eq!(seen.missing(), u64::MAX);
        assert_eq!(seen.note(0), Arrival::Filling);
        assert_eq!(seen.note(u64::MAX - 1), Arrival::Filling);
        for seq in 1..200_000 {
            seen.note(seq * 2);
        }
        assert!(seen.holes.len() <= HOLES);
        assert_eq!(seen.note(3), Arrival::Repeated, "the oldest hole is forgotten");
        assert_eq!(seen.missing(), u64::MAX - 2 - 199_999);
    }
}
