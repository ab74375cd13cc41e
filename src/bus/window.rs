//! The part of a log that is in memory.

use std::collections::VecDeque;

use std::sync::Arc;

use crate::id::Seq;
use crate::message::{Chunk, MessageBody, Nesting, Origin, ProcessingMessage, Timestamp};
use crate::tree::RunTree;

/// Messages of one segment: 14 KiB, small enough to be a small step for a small tree.
const SEGMENT: usize = 256;

/// The last messages of a log, in segments: growing copies nothing, and what falls off makes room for what comes.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// All but the first and the last are full.
    segments: VecDeque<Segment>,
    spare: Vec<Segment>,
    first_seq: Seq,
    len: usize,
}

/// A message without what its neighbours have too: smaller, and the count of its origin's references is touched only where
/// somebody reads it.
#[derive(Debug)]
struct Entry {
    body: MessageBody,
    run_seq: Seq,
    time: Timestamp,
    /// Which of the segment's origins.
    origin: usize,
}

#[derive(Debug)]
struct Segment {
    entries: VecDeque<Entry>,
    /// One for each stretch of messages by the same run.
    origins: Vec<Arc<Origin>>,
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
    pub(super) fn push(&mut self, body: MessageBody, origin: &Arc<Origin>, run_seq: Seq, time: Timestamp) {
        self.len += 1;
        if self.segments.back().is_none_or(|last| last.entries.len() >= SEGMENT) {
            self.begin_segment();
        }
        let Some(segment) = self.segments.back_mut() else { return };
        if segment.origins.last().is_none_or(|last| !Arc::ptr_eq(last, origin)) {
            segment.origins.push(Arc::clone(origin));
        }
        segment.entries.push_back(Entry { body, run_seq, time, origin: segment.origins.len() - 1 });
    }

    #[cold]
    fn begin_segment(&mut self) {
        let new = || Segment { entries: VecDeque::with_capacity(SEGMENT), origins: Vec::new() };
        self.segments.push_back(self.spare.pop().unwrap_or_else(new));
    }

    /// Moves the first message into a tree; its size.
    pub(super) fn fold_into(&mut self, tree: &mut RunTree) -> Option<usize> {
        let segment = self.segments.front_mut()?;
        let Entry { body, run_seq, time, origin } = segment.entries.pop_front()?;
        if let Some(origin) = segment.origins.get(origin) {
            tree.apply_body(origin, self.first_seq, run_seq, time, &body);
        }
        if segment.entries.is_empty() {
            segment.origins.clear();
            self.spare.extend(self.segments.pop_front());
        }
        self.len -= 1;
        self.first_seq += 1;
        Some(body.approx_bytes())
    }

    /// At most `max` messages from `seq` on, which is not before the first.
    pub(super) fn read(&self, seq: Seq, max: usize, into: &mut VecDeque<ProcessingMessage>) {
        let skip = usize::try_from(seq.saturating_sub(self.first_seq)).unwrap_or(usize::MAX);
        let first = self.segments.front().map_or(0, |first| first.entries.len());
        let (segment, mut skip) = match skip.checked_sub(first) {
            None => (0, skip),
            Some(beyond) => (1 + beyond / SEGMENT, beyond % SEGMENT),
        };
        let mut seq = seq;
        let end = seq.saturating_add(max as Seq);
        for Segment { entries, origins } in self.segments.iter().skip(segment) {
            let from = std::mem::take(&mut skip).min(entries.len());
            let to = entries.len().min(from.saturating_add((end - seq) as usize));
            let Some(first_origin) = origins.first() else { continue };
            // Mapped one to one, which lets the queue write each message where it stays.
            into.extend(entries.range(from..to).map(|entry| {
                let Entry { body, run_seq, time, origin } = entry;
                let origin = Arc::clone(origins.get(*origin).unwrap_or(first_origin));
                let nesting = Nesting { origin, seq, run_seq: *run_seq, time: *time };
                seq += 1;
                ProcessingMessage::new(copy_of(body)).stamped(nesting)
            }));
            if seq == end {
                return;
            }
        }
    }
}

/// A clone; that of the most frequent body without a call.
#[inline]
fn copy_of(body: &MessageBody) -> MessageBody {
    match body {
        MessageBody::Chunk(Chunk { content, done, thinking, meta: None }) => {
            Chunk { content: Arc::clone(content), done: *done, thinking: *thinking, meta: None }.into()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;

    fn origin(run: u64) -> Arc<Origin> {
        let root_run_id = RunId::parse("root");
        let parent_run_id = Some(root_run_id.clone());
        let run_id = RunId::parse(&run.to_string());
        Arc::new(Origin { root_run_id, run_id, parent_run_id, parent_tool_call_id: None, subtask_depth: 1 })
    }

    fn push(window: &mut Window, seq: u64, origins: &[Arc<Origin>]) {
        // Stretches of ten messages by three runs in turn.
        let origin = &origins[(seq / 10 % 3) as usize];
        window.push(Chunk::text(seq.to_string()).into(), origin, seq * 2, Timestamp::from_micros(seq * 3));
    }

    /// Reads, and checks that each message is what was pushed under its `seq`.
    fn read(window: &Window, from: Seq, origins: &[Arc<Origin>]) -> Vec<u64> {
        let mut messages = VecDeque::new();
        window.read(from, 64, &mut messages);
        let checked = messages.into_iter().map(|message| {
            let nesting = message.nesting().unwrap().clone();
            let seq = nesting.seq;
            let MessageBody::Chunk(chunk) = message.body() else { panic!() };
            assert_eq!(*chunk.content, *seq.to_string());
            assert_eq!((nesting.run_seq, nesting.time.micros()), (seq * 2, seq * 3));
            assert!(Arc::ptr_eq(&nesting.origin, &origins[(seq / 10 % 3) as usize]));
            seq
        });
        checked.collect()
    }

    #[test]
    fn it_reads_the_same_whatever_fell_off() {
        let origins = [origin(0), origin(1), origin(2)];
        let (mut window, mut tree) = (Window::default(), RunTree::new());
        for seq in 0..2000 {
            push(&mut window, seq, &origins);
            // A window of 700 that gives up 300 at once, so that segments begin and end anywhere.
            if window.len() > 700 {
                (0..300).for_each(|_| assert!(window.fold_into(&mut tree).is_some()));
            }
            assert_eq!((window.next_seq(), window.first_seq()), (seq + 1, tree.next_seq()));
            let first = window.first_seq();
            for from in [first, first + 255, first + 256, first + 300, seq, seq + 1, seq + 9] {
                let expected: Vec<_> = (from..=seq).take(64).collect();
                assert_eq!(read(&window, from, &origins), expected, "from {from} of {seq}");
            }
        }
        while window.fold_into(&mut tree).is_some() {}
        assert_eq!((window.len(), window.first_seq(), tree.next_seq()), (0, 2000, 2000));
        assert!(read(&window, 2000, &origins).is_empty());
        assert_eq!(tree.diagnostics(), crate::tree::Diagnostics::default());
        push(&mut window, 2000, &origins);
        assert_eq!(read(&window, 2000, &origins), [2000]);
        // What fell off is not held: the window has one reference at most for each stretch of its segments.
        assert!(origins.iter().all(|origin| Arc::strong_count(origin) < 8));
    }
}
