//! `read_file`: lines of one file.

use std::borrow::Cow;
use std::cell::Cell;
use std::io::{self, Read};

use encoding_rs_io::DecodeReaderBytesBuilder;
use schemars::JsonSchema;
use serde::Deserialize;

use super::report::{Report, capped, count, size};
use super::root::{Place, Workspace, unreadable};
use super::stop::{Watched, cancelled};
use crate::tool::ToolReply;

/// Lines in one reply, unless `limit` says otherwise: longer than nearly every source file.
pub const READ_LINES: usize = 1_000;

/// Characters shown of one line.
pub const READ_LINE_CHARS: usize = 2_000;

/// Bytes that are read after the offset, to find the ends of the lines and to count the rest: 16 MiB take about
/// 10 ms.
pub const COUNT_LIMIT: u64 = 16 * 1024 * 1024;

/// Bytes that are skipped to find the offset: 256 MiB are millions of lines and take less than a second.
pub const SEEK_LIMIT: u64 = 256 * 1024 * 1024;

/// Bytes that are read at once, and between two looks at `stop`.
const BLOCK: usize = 64 * 1024;

/// Bytes at the beginning that are looked through for a NUL, which makes a file binary: as in git.
const BINARY_PROBE: usize = 8_000;

/// Arguments of `read_file`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadFileArgs {
    /// The file, relative to the workspace.
    pub path: String,
    /// The first line to read, counted from 1. Default: 1.
    #[schemars(range(min = 1))]
    pub offset: Option<usize>,
    /// How many lines to read. Default: 1000.
    #[schemars(range(min = 1))]
    pub limit: Option<usize>,
}

impl Workspace {
    /// Lines of a file, each as its number, a tab, and its text; a last line in brackets says where to go on. UTF-16
    /// with a byte order mark is decoded; other bytes that are not UTF-8 are shown as U+FFFD, and that is said.
    #[must_use]
    pub fn read_file(&self, args: &ReadFileArgs, stop: &dyn Fn() -> bool) -> ToolReply {
        self.try_read(args, stop).unwrap_or_else(|refusal| refusal)
    }

    fn try_read(&self, args: &ReadFileArgs, stop: &dyn Fn() -> bool) -> Result<ToolReply, ToolReply> {
        let (place, file, metadata) = self.open_file(&args.path)?;
        let stopped = Cell::new(false);
        let mut reader = DecodeReaderBytesBuilder::new()
            .utf8_passthru(true)
            .strip_bom(true)
            .build(Watched::new(file, u64::MAX, stop, &stopped));
        let mut lines = Lines::new(args.offset.unwrap_or(1).max(1), args.limit.unwrap_or(READ_LINES).max(1));
        let mut block = vec![0; BLOCK];
        let (mut skipped, mut read) = (0, 0);
        let complete = loop {
            let length = match fill(&mut reader, &mut block) {
                Ok(length) => length,
                Err(_) if stopped.get() => return Err(cancelled()),
                Err(error) => return Err(unreadable(place.path(), &error)),
            };
            let bytes = block.get(..length).unwrap_or_default();
            if bytes.is_empty() {
                break true;
            }
            if skipped + read == 0 && bytes.iter().take(BINARY_PROBE).any(|byte| *byte == 0) {
                return Err(ToolReply::error(
                    "binary_file",
                    format!("{} is a binary file of {}", place.shown(), size(metadata.len())),
                ));
            }
            let length = u64::try_from(length).unwrap_or(u64::MAX);
            if lines.number < lines.offset {
                skipped += length;
                if skipped > SEEK_LIMIT {
                    return Err(past_end(&lines, &place, &format!("the first {}", size(SEEK_LIMIT))));
                }
            } else {
                read += length;
            }
            lines.feed(bytes);
            if read > COUNT_LIMIT {
                break false;
            }
        };
        lines.end(complete);
        lines.reply(&place, metadata.len(), complete)
    }
}

/// Reads until the block is full or the file ends: a decoder may give a few bytes at a time.
fn fill(reader: &mut impl Read, block: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = block.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match reader.read(rest)? {
            0 => break,
            length => filled += length,
        }
    }
    Ok(filled)
}

fn past_end(lines: &Lines, place: &Place, what: &str) -> ToolReply {
    let has = count(lines.number.saturating_sub(1), "line", "lines");
    ToolReply::error(
        "offset_past_end",
        format!("{}: {what} has {has}; offset {} is past that", place.shown(), lines.offset),
    )
}

/// Takes a file block by block and keeps the lines that were asked for.
struct Lines {
    offset: usize,
    limit: usize,
    report: Report,
    /// The line that the next byte belongs to.
    number: usize,
    /// Whether that line has begun.
    begun: bool,
    /// Its beginning, if it was asked for.
    line: Vec<u8>,
    shown: usize,
    full: bool,
    lossy: bool,
}

impl Lines {
    fn new(offset: usize, limit: usize) -> Self {
        Self {
            offset,
            limit,
            report: Report::default(),
            number: 1,
            begun: false,
            line: Vec::new(),
            shown: 0,
            full: false,
            lossy: false,
        }
    }

    fn wanted(&self) -> bool {
        !self.full && self.number >= self.offset && self.shown < self.limit
    }

    fn feed(&mut self, block: &[u8]) {
        for piece in block.split_inclusive(|byte| *byte == b'\n') {
            if self.wanted() {
                // No more of a line than could be shown (a character has at most four bytes), and its end, so that
                // it is cut visibly.
                let room = (READ_LINE_CHARS * 4 + 4).saturating_sub(self.line.len());
                self.line.extend(piece.iter().take(room));
            }
            self.begun = true;
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        if self.wanted() {
            let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let text = String::from_utf8_lossy(line);
            let cut = capped(&text, READ_LINE_CHARS);
            // A NUL far behind the beginning of a text: most consumers of a reply do not bear one.
            let clean = cut.replace('\0', "\u{fffd}");
            let replaced = matches!(text, Cow::Owned(_)) && cut.contains('\u{fffd}');
            self.lossy |= replaced || cut.contains('\0');
            self.full = !self.report.line(&format!("{}\t{clean}", self.number));
            self.shown += usize::from(!self.full);
        }
        self.line.clear();
        self.begun = false;
        self.number += 1;
    }

    /// Ends the last line: one without a line break, or one that was too long to be read to its end but can be shown
    /// as far as any line is.
    fn end(&mut self, complete: bool) {
        if self.begun && (complete || self.line.len() > READ_LINE_CHARS * 4) {
            self.end_line();
        }
    }

    fn reply(mut self, place: &Place, bytes: u64, complete: bool) -> Result<ToolReply, ToolReply> {
        let total = self.number.saturating_sub(1);
        if complete && total > 0 && self.offset > total {
            return Err(past_end(&self, place, "it"));
        }
        let path = place.shown();
        if total == 0 {
            self.report.note("the file is empty");
            return Ok(ToolReply::ok(self.report.finish()).shown_as(format!("{path}, empty")));
        }
        let last = (self.offset + self.shown).saturating_sub(1);
        let of = if complete {
            total.to_string()
        } else {
            format!("more than {total} (the file has {})", size(bytes))
        };
        let range = format!("{}-{last} of {of}", self.offset);
        if !complete || last < total {
            self.report.note(&format!("lines {range}; ask for offset {}", last + 1));
        } else if self.offset > 1 {
            self.report.note(&format!("lines {range}"));
        }
        if self.lossy {
            self.report.note("not all of it is UTF-8: other bytes are shown as \u{fffd}");
        }
        let all = complete && self.offset == 1 && last == total;
        let person = if all { count(total, "line", "lines") } else { format!("lines {range}") };
        Ok(ToolReply::ok(self.report.finish()).shown_as(format!("{path}, {person}")))
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
