//! Server-sent events out of bytes that may be split anywhere.

use memchr::memchr2;

/// The longest event that is taken, in bytes. Far above what providers send, and a bound on what a broken or hostile
/// server can make this process keep.
pub(super) const MAX_EVENT: usize = 16 * 1024 * 1024;

/// How much of a body that is no event stream is kept to be read as an error.
const MAX_BARE: usize = 64 * 1024;

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event<'a> {
    /// Its name; empty if it has none.
    pub(super) name: &'a [u8],
    /// Its data, several lines joined.
    pub(super) data: &'a [u8],
}

/// More than [`MAX_EVENT`] without an end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// The reader: it copies a line only where a piece ends in the middle of it, and each byte once.
#[derive(Debug, Clone, Default)]
pub(super) struct EventReader {
    /// The line under way.
    line: Vec<u8>,
    /// The last piece ended with a carriage return: a line feed that comes next belongs to it.
    after_cr: bool,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// What came that is no event, while there was none.
    bare: Vec<u8>,
    bytes: u64,
    events: u64,
}

impl EventReader {
    /// Takes the next piece, and hands over the events that it completes.
    pub(super) fn push(&mut self, piece: &[u8], mut each: impl FnMut(Event<'_>)) -> Result<(), TooLong> {
        self.bytes += piece.len() as u64;
        let mut rest = piece;
        loop {
            if self.after_cr && !rest.is_empty() {
                self.after_cr = false;
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
            let Some((head, tail)) = memchr2(b'\n', b'\r', rest).and_then(|at| rest.split_at_checked(at))
            else {
                self.line.extend_from_slice(rest);
                return self.bounded();
            };
            self.after_cr = tail.first() == Some(&b'\r');
            rest = tail.get(1..).unwrap_or_default();
            if self.line.is_empty() {
                self.line(head, &mut each);
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(head);
                self.line(&line, &mut each);
                // The room is used again.
                line.clear();
                self.line = line;
            }
            self.bounded()?;
        }
    }

    /// The body has ended. A last event without the blank line after it is handed over all the same: some servers leave
    /// it out. It may be cut.
    pub(super) fn end(&mut self, mut each: impl FnMut(Event<'_>)) {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.line(&line, &mut each);
        }
        self.line(b"", &mut each);
    }

    fn bounded(&self) -> Result<(), TooLong> {
        if self.line.len() + self.data.len() > MAX_EVENT { Err(TooLong) } else { Ok(()) }
    }

    fn line(&mut self, line: &[u8], each: &mut impl FnMut(Event<'_>)) {
        // A byte order mark may stand before the first line.
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        if line.is_empty() {
            if self.has_data {
                self.events += 1;
                self.bare = Vec::new();
                each(Event { name: &self.name, data: &self.data });
            }
            self.has_data = false;
            self.name.clear();
            self.data.clear();
            return;
        }
        let (field, value) = match memchr2(b':', b':', line).and_then(|at| line.split_at_checked(at)) {
            Some((field, value)) => {
                let value = value.get(1..).unwrap_or_default();
                (field, value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, b"".as_slice()),
        };
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            // Older servers write an error as a field of that name.
            b"error" => {
                self.has_data = true;
                self.name = b"error".to_vec();
                self.data.extend_from_slice(value);
            }
            // A comment keeps the connection alive.
            b"" | b"id" | b"retry" => {}
            _ if self.events == 0 && self.bare.len() < MAX_BARE => {
                let line = line.get(..MAX_BARE).unwrap_or(line);
                self.bare.extend_from_slice(line);
                self.bare.push(b'\n');
            }
            _ => {}
        }
    }

    /// What came that is no event, up to 64 KiB; empty once there was an event.
    pub(super) fn bare(&self) -> &[u8] {
        &self.bare
    }

    /// How many bytes came.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many events came.
    pub(super) fn events(&self) -> u64 {
        self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut reader = EventReader::default();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        for piece in pieces {
            reader.push(piece, |event| found.push((text(event.name), text(event.data)))).unwrap();
        }
        reader.end(|event| found.push((text(event.name), text(event.data))));
        found
    }

    #[test]
    fn events_are_the_same_however_the_bytes_are_split() {
        let body = "\u{feff}: hello\r\nevent: a\r\ndata: {\"x\":\r\ndata:1}\r\n\r\n\ndata: 日本🦀\n\nid: 7\nretry: 1\nevent: b\rdata: two\r\rdata: last".as_bytes();
        let whole = read(&[body]);
        let expected = [("a", "{\"x\":\n1}"), ("", "日本🦀"), ("b", "two"), ("", "last")];
        assert_eq!(whole, expected.map(|(name, data)| (name.to_owned(), data.to_owned())));
        for at in 0..=body.len() {
            let (one, two) = body.split_at(at);
            assert_eq!(read(&[one, two]), whole, "split at {at}");
        }
        let single: Vec<&[u8]> = body.chunks(1).collect();
        assert_eq!(read(&single), whole);
    }

    #[test]
    fn what_is_no_event_stream_is_kept_to_be_quoted() {
        let mut reader = EventReader::default();
        reader.push(b"<html>\n<body>no", |_| panic!("no event")).unwrap();
        reader.end(|_| panic!("no event"));
        assert_eq!(reader.bare(), b"<html>\n<body>no\n");
        assert_eq!((reader.bytes(), reader.events()), (15, 0));
    }

    #[test]
    fn an_event_without_an_end_is_bounded() {
        let mut reader = EventReader::default();
        let piece = vec![b'x'; 1 << 20];
        let ended = (0..20).find(|_| reader.push(&piece, |_| {}).is_err());
        assert_eq!(ended, Some(16));
    }
}
