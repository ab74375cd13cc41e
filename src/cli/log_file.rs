//! Reads a log, line by line: each line is a message, or a problem that says where and why.
//!
//! Never more than one line is held, and of a line no more than a cap: a file of any size and kind can be given.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use super::text::one_line;
use crate::error::{Error, ErrorKind, Result};
use crate::id::RunId;
use crate::message::ProcessingMessage;

/// The longest line that is read, in bytes. Messages are capped far below that; what is longer is no log.
const LINE_CAP: usize = 16 * 1024 * 1024;

/// How much of a bad line is quoted, in bytes.
const QUOTED: usize = 60;

/// A log as it is read.
#[derive(Debug)]
pub struct LogFile<R> {
    reader: R,
    line: u64,
    root: Option<RunId>,
    cap: usize,
    failed: bool,
}

/// What one line is.
#[derive(Debug)]
pub enum LogLine {
    /// A message of the log's root, with its envelope.
    Message(ProcessingMessage),
    /// Something else.
    Problem(LineProblem),
}

/// A line that is no message of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineProblem {
    /// From 1.
    pub line: u64,
    /// What kind of problem.
    pub kind: ProblemKind,
    /// What is wrong, for people.
    pub reason: String,
    /// How the line begins, made harmless for a terminal.
    pub start: String,
}

/// Kinds of [`LineProblem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProblemKind {
    /// Nothing on the line.
    Empty,
    /// Not UTF-8.
    Encoding,
    /// Not a message.
    NotAMessage,
    /// A message without an envelope: nobody knows where it belongs.
    Unstamped,
    /// A message of another root than the log's first one.
    Foreign,
    /// The last line, ended in its middle: the writer was.
    Cut,
    /// Longer than any message.
    TooLong,
}

impl fmt::Display for LineProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)?;
        if self.start.is_empty() { Ok(()) } else { write!(f, " (it begins: {})", self.start) }
    }
}

/// Opens a log file; `-` is standard input.
///
/// # Errors
///
/// [`ErrorKind::Read`] if it does not exist, is a directory, or may not be read.
pub fn open_log(path: &Path) -> Result<LogFile<Box<dyn BufRead>>> {
    if path == Path::new("-") {
        return Ok(LogFile::new(Box::new(io::stdin().lock())));
    }
    let fail =
        |error: io::Error| Error::new(ErrorKind::Read { path: path.to_owned(), reason: error.to_string() });
    // Opening a directory works on some systems; only reading it fails.
    if std::fs::metadata(path).map_err(fail)?.is_dir() {
        return Err(fail(io::Error::other("it is a directory, not a log")));
    }
    Ok(LogFile::new(Box::new(BufReader::with_capacity(64 * 1024, File::open(path).map_err(fail)?))))
}

impl<R: BufRead> LogFile<R> {
    /// Reads a log from its first byte.
    pub fn new(reader: R) -> Self {
        Self { reader, line: 0, root: None, cap: LINE_CAP, failed: false }
    }

    fn read_line(&mut self) -> io::Result<Option<LogLine>> {
        let mut bytes = Vec::new();
        let mut limited = io::Read::take(&mut self.reader, self.cap as u64 + 1);
        if limited.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(None);
        }
        self.line += 1;
        let ended = bytes.pop_if(|last| *last == b'\n').is_some();
        if !ended && bytes.len() > self.cap {
            self.skip_line()?;
            let reason = format!("longer than {} bytes, which no message is", self.cap);
            return Ok(Some(self.problem(ProblemKind::TooLong, reason, &bytes)));
        }
        bytes.pop_if(|last| *last == b'\r');
        let line = bytes.strip_prefix("\u{feff}".as_bytes()).filter(|_| self.line == 1).unwrap_or(&bytes);
        Ok(Some(self.read_message(line, ended)))
    }

    fn read_message(&mut self, line: &[u8], ended: bool) -> LogLine {
        let text = match std::str::from_utf8(line) {
            Ok(text) => text,
            Err(_) if !ended => return self.cut(line),
            Err(error) => {
                let reason = format!("invalid UTF-8 at byte {}", error.valid_up_to());
                return self.problem(ProblemKind::Encoding, reason, line);
            }
        };
        if text.trim().is_empty() {
            return self.problem(ProblemKind::Empty, "empty".into(), &[]);
        }
        let message = match ProcessingMessage::from_json(text) {
            Ok(message) => message,
            Err(_) if !ended => return self.cut(line),
            Err(error) => {
                // The parser counts lines within the line.
                let reason = error.to_string().replace(" at line 1 column ", " at column ");
                return self.problem(ProblemKind::NotAMessage, reason, line);
            }
        };
        let Some(nesting) = message.nesting() else {
            let reason = format!("a {} message without an envelope", message.body().kind());
            return self.problem(ProblemKind::Unstamped, reason, line);
        };
        let root = self.root.get_or_insert_with(|| nesting.origin.root_run_id.clone());
        if *root != nesting.origin.root_run_id {
            let reason = format!("a message of another root, {}", nesting.origin.root_run_id);
            return self.problem(ProblemKind::Foreign, reason, line);
        }
        LogLine::Message(message)
    }

    /// Drops the rest of a line that is too long.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let buffer = self.reader.fill_buf()?;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let (used, done) = end.map_or((buffer.len(), buffer.is_empty()), |end| (end + 1, true));
            self.reader.consume(used);
            if done {
                return Ok(());
            }
        }
    }

    fn cut(&self, line: &[u8]) -> LogLine {
        self.problem(ProblemKind::Cut, "cut off in the middle, and the log ends here".into(), line)
    }

    fn problem(&self, kind: ProblemKind, reason: String, bytes: &[u8]) -> LogLine {
        let head = bytes.get(..QUOTED.min(bytes.len())).unwrap_or_default();
        // A character that the quote itself cut in two is left out; one that the line has wrong shows as �.
        let head = match std::str::from_utf8(head) {
            Err(error) if error.error_len().is_none() && bytes.len() > QUOTED => {
                head.get(..error.valid_up_to()).unwrap_or_default()
            }
            _ => head,
        };
        LogLine::Problem(LineProblem {
            line: self.line,
            kind,
            reason,
            start: one_line(&String::from_utf8_lossy(head)),
        })
    }
}

impl<R: BufRead> Iterator for LogFile<R> {
    type Item = io::Result<LogLine>;

    /// The next line. After an error of the reader there is none.
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let line = self.read_line().transpose();
        self.failed = matches!(line, Some(Err(_)));
        line
    }
}

#[cfg(test)]
#[path = "log_file_tests.rs"]
mod tests;
