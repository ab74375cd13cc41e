//! The part of a log that is in memory.

use std::collections::VecDeque;

use crate::id::Seq;
use crate::message::ProcessingMessage;

/// Messages of one segment: 20 KiB, small enough to be a small step for a small tree.
const SEGMENT: usize = 256;

/// The last messages of a log, in segments: growing copies nothing, and what falls off makes room for what comes.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// All but the first and the last are full.
    segments: VecDeque<VecDeque<ProcessingMessage>>,
    spare: Vec<VecDeque<ProcessingMessage>>,
    first_seq: Seq,
    len: usize,
}

impl Window {
    pub(super) fn first_seq(&self) -> Seq {
        self.first_seq
    }

    pub(super) fn next_seq(&self) -> Seq {
        self.first_seq + self.len as Seq
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn push(&mut self, message: ProcessingMessage) {
        self.len += 1;
        if let Some(last) = self.segments.back_mut()
            && last.len() < SEGMENT
        {
            last.push_back(message);
            return;
        }
        let mut segment = self.spare.pop().unwrap_or_else(|| VecDeque::with_capacity(SEGMENT));
        segment.push_back(message);
        self.segments.push_back(segment);
    }

    pub(super) fn pop(&mut self) -> Option<ProcessingMessage> {
        let first = self.segments.front_mut()?;
        let message = first.pop_front()?;
        if first.is_empty() {
            self.spare.extend(self.segments.pop_front());
        }
        self.len -= 1;
        self.first_seq += 1;
        Some(message)
    }

    /// At most `max` messages from `seq` on, which is not before the first.
    pub(super) fn read(&self, seq: Seq, max: usize, into: &mut VecDeque<ProcessingMessage>) {
        let skip = usize::try_from(seq.saturating_sub(self.first_seq)).unwrap_or(usize::MAX);
        let first = self.segments.front().map_or(0, VecDeque::len);
        let (segment, skip) = match skip.checked_sub(first) {
            None => (0, skip),
            Some(beyond) => (1 + beyond / SEGMENT, beyond % SEGMENT),
        };
        let mut left = max;
        let mut skip = skip;
        for segment in self.segments.iter().skip(segment) {
            let end = segment.len().min(skip.saturating_add(left));
            let start = std::mem::take(&mut skip).min(end);
            into.extend(segment.range(start..end).cloned());
            left -= end - start;
            if left == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Chunk, MessageBody};

    fn texts(window: &Window, seq: Seq, max: usize) -> Vec<u64> {
        let mut read = VecDeque::new();
        window.read(seq, max, &mut read);
        let text = |message: ProcessingMessage| match message.body() {
            MessageBody::Chunk(chunk) => chunk.content.parse().unwrap(),
            _ => panic!(),
        };
        read.into_iter().map(text).collect()
    }

    #[test]
    fn it_reads_the_same_whatever_fell_off() {
        let mut window = Window::default();
        for seq in 0..2000_u64 {
            window.push(Chunk::text(seq.to_string()).into());
            // A window of 700 that gives up 300 at once, so that segments begin and end anywhere.
            if window.len() > 700 {
                (0..300).for_each(|_| assert!(window.pop().is_some()));
            }
            assert_eq!(window.next_seq(), seq + 1);
            for from in [
                window.first_seq(),
                window.first_seq() + 255,
                window.first_seq() + 256,
                seq,
                seq + 1,
                seq + 9,
            ] {
                let expected: Vec<_> = (from..=seq).take(64).collect();
                assert_eq!(texts(&window, from, 64), expected, "from {from} of {seq}");
            }
        }
        while window.pop().is_some() {}
        assert_eq!((window.len(), window.first_seq(), texts(&window, 2000, 64).len()), (0, 2000, 0));
        window.push(Chunk::text("2000").into());
        assert_eq!(texts(&window, 2000, 64), [2000]);
    }
}
