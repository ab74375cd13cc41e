//! Where an event of a stream ends, in each framing.

use memchr::memrchr;

use super::lines::{MAX_EVENT, TooLong};

/// How the events of a stream are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// Server-sent events: an empty line ends one.
    Events,
    /// A line each.
    Lines,
    /// The binary event stream of AWS: each begins with its length.
    Lengths,
}

/// Holds back what is no whole event yet.
#[derive(Debug)]
pub(super) struct Whole {
    framing: Framing,
    /// What came of the next event.
    part: Vec<u8>,
    /// How much of it was looked at.
    seen: usize,
}

impl Whole {
    pub(super) fn new(framing: Framing) -> Self {
        Self { framing, part: Vec::new(), seen: 0 }
    }

    /// The events that end in this piece.
    ///
    /// # Errors
    ///
    /// [`TooLong`] if the next one has more than [`MAX_EVENT`] bytes already, or says that it will.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<Vec<u8>, TooLong> {
        self.part.extend_from_slice(piece);
        let end = match self.framing {
            Framing::Events => self.last_blank_line(),
            Framing::Lines => {
                let new = self.part.get(self.seen..).unwrap_or_default();
                memrchr(b'\n', new).map_or(0, |at| self.seen + at + 1)
            }
            Framing::Lengths => self.last_frame()?,
        };
        let events = match end {
            // Nothing is copied while an event goes on.
            0 => Vec::new(),
            _ => {
                let rest = self.part.split_off(end);
                std::mem::replace(&mut self.part, rest)
            }
        };
        self.seen = match self.framing {
            // A blank line may have begun before this piece.
            Framing::Events => self.part.len().saturating_sub(3),
            Framing::Lines | Framing::Lengths => self.part.len(),
        };
        if self.part.len() > MAX_EVENT { Err(TooLong) } else { Ok(events) }
    }

    /// What came behind the last whole event.
    pub(super) fn rest(&self) -> &[u8] {
        &self.part
    }

    /// Just behind the last blank line: a line may end with a line feed, a carriage return, or both.
    fn last_blank_line(&self) -> usize {
        let new = self.part.get(self.seen..).unwrap_or_default();
        let ends = [b"\n\n".as_slice(), b"\r\r", b"\r\n\r\n", b"\n\r\n"];
        let last = ends
            .iter()
            .filter_map(|end| memchr::memmem::rfind(new, end).map(|at| self.seen + at + end.len()));
        last.max().unwrap_or(0)
    }

    fn last_frame(&self) -> Result<usize, TooLong> {
        let mut end = 0;
        loop {
            let Some(length) = self.part.get(end..).and_then(|rest| rest.first_chunk::<4>()) else {
                return Ok(end);
            };
            let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            if length > MAX_EVENT {
                return Err(TooLong);
            }
            // What is shorter than its own frame is none: genai says so.
            let next = end + length.max(16);
            if next > self.part.len() {
                return Ok(end);
            }
            end = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(framing: Framing, body: &[u8], step: usize) -> (Vec<Vec<u8>>, Vec<u8>) {
        let mut reader = Whole::new(framing);
        let pieces = body.chunks(step).map(|piece| reader.push(piece).unwrap());
        let events = pieces.filter(|events| !events.is_empty()).collect();
        (events, reader.rest().to_vec())
    }

    #[test]
    fn events_go_on_whole_however_the_bytes_are_split() {
        let events = b"event: a\ndata: 1\n\n: x\r\n\r\ndata: 2\r\rdata: 3\n\r\ndata: cut\n".as_slice();
        let lines = b"{\"a\":1}\n{\"b\":2}\n{\"cut\"".as_slice();
        let frames = [&[0, 0, 0, 20][..], &[7; 16], &[0, 0, 0, 17], &[8; 13], &[0, 0, 0, 99, 1]].concat();
        for (framing, body, rest) in [
            (Framing::Events, events, b"data: cut\n".as_slice()),
            (Framing::Lines, lines, b"{\"cut\""),
            (Framing::Lengths, &frames, &[0, 0, 0, 99, 1]),
        ] {
            for step in 1..=body.len() {
                let (events, left) = whole(framing, body, step);
                assert_eq!(left, rest, "{framing:?} by {step}");
                assert_eq!([events.concat(), left].concat(), body, "{framing:?} by {step}");
            }
            let (single, _) = whole(framing, body, 1);
            assert!(single.len() > 1, "{framing:?} is told apart");
        }
    }

    #[test]
    fn an_event_without_an_end_is_bounded() {
        for framing in [Framing::Events, Framing::Lines] {
            let mut reader = Whole::new(framing);
            let piece = vec![b'x'; 1 << 20];
            let ended = (0..20).find(|_| reader.push(&piece).is_err());
            assert_eq!(ended, Some(16), "{framing:?}");
        }
        assert_eq!(Whole::new(Framing::Lengths).push(&[1, 0, 0, 1]), Err(TooLong), "it says so itself");
    }
}
