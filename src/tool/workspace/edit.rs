//! `edit_file`: one text of a file for another.

use std::cell::Cell;
use std::io::Read;
use std::ops::Range;

use schemars::JsonSchema;
use serde::Deserialize;

use super::report::{count, size};
use super::root::{Place, Workspace, unreadable};
use super::stop::{Watched, cancelled, check};
use super::write::changeable;
use crate::tool::ToolReply;

/// Bytes of the largest file that is edited: 16 MiB, as for searching. It is held in memory.
pub const EDIT_LIMIT: u64 = 16 * 1024 * 1024;

/// Line numbers that an error lists.
const LISTED_LINES: usize = 20;

/// Arguments of `edit_file`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditFileArgs {
    /// The file, relative to the workspace.
    pub path: String,
    /// The text to replace, exactly as it is in the file but without the line numbers of read_file. It has to occur
    /// exactly once, unless replace_all is set: add lines around it until it does.
    pub old_text: String,
    /// The text to put in its place; may be empty.
    pub new_text: String,
    /// Whether to replace every occurrence. Default: false.
    pub replace_all: Option<bool>,
}

impl Workspace {
    /// Replaces a text in a file, which is then exchanged whole, as by `write_file`.
    ///
    /// Line endings are those of the file, whichever the arguments have: `\n` in them stands for the ending that the
    /// file has at that place.
    #[must_use]
    pub fn edit_file(&self, args: &EditFileArgs, stop: &dyn Fn() -> bool) -> ToolReply {
        self.try_edit(args, stop).unwrap_or_else(|refusal| refusal)
    }

    fn try_edit(&self, args: &EditFileArgs, stop: &dyn Fn() -> bool) -> Result<ToolReply, ToolReply> {
        check(stop)?;
        if args.old_text.is_empty() {
            return Err(ToolReply::error(
                "invalid_arguments",
                "old_text is empty; to create a file or to replace all of it, use write_file",
            ));
        }
        let old = args.old_text.replace("\r\n", "\n");
        let new = args.new_text.replace("\r\n", "\n");
        if old == new {
            return Err(ToolReply::error("no_change", "old_text and new_text are the same"));
        }
        // Taken before the file is read: of two edits in one turn, the second must see what the first one wrote.
        let _changing = self.changing();
        let (place, file, metadata) = self.open_file(&args.path)?;
        changeable(&place, &metadata)?;
        if metadata.len() > EDIT_LIMIT {
            return Err(ToolReply::error(
                "too_large",
                format!(
                    "{}: {} is above the {} limit",
                    place.shown(),
                    size(metadata.len()),
                    size(EDIT_LIMIT)
                ),
            ));
        }
        let content = read_text(&place, file, stop)?;
        let text = Text::new(&content);
        let found = text.find(&old);
        let lines: Vec<usize> = found.iter().map(|range| text.line_of(range.start)).collect();
        match found.len() {
            0 => return Err(not_found(&place, &text, &old)),
            1 => {}
            _ if args.replace_all.unwrap_or(false) => {}
            n => {
                return Err(ToolReply::error(
                    "text_not_unique",
                    format!(
                        "old_text occurs {n} times in {}, at {}; add lines around it until it is unique, or set \
                         replace_all",
                        place.shown(),
                        listed(&lines)
                    ),
                ));
            }
        }
        let edited = text.replace(&found, &new);
        let unchanged = || {
            let now = self.dir().metadata(place.path());
            now.is_ok_and(|now| {
                now.len() == metadata.len() && now.modified().ok() == metadata.modified().ok()
            })
        };
        self.replace(&place, edited.as_bytes(), Some(&metadata), stop, unchanged)?;
        let path = place.shown();
        let times = count(found.len(), "replacement", "replacements");
        let bytes = count(edited.len(), "byte", "bytes");
        let total = count(edited.lines().count(), "line", "lines");
        let at = listed(&lines);
        Ok(ToolReply::ok(format!("edited {path}: {times}, at {at}; now {bytes}, {total}"))
            .shown_as(format!("edited {path} at {at}")))
    }
}

/// Reads a whole text, and refuses what is not one.
fn read_text(place: &Place, file: impl Read, stop: &dyn Fn() -> bool) -> Result<String, ToolReply> {
    let (stopped, mut bytes) = (Cell::new(false), Vec::new());
    let read = Watched::new(file, EDIT_LIMIT + 1, stop, &stopped).read_to_end(&mut bytes);
    if stopped.get() {
        return Err(cancelled());
    }
    read.map_err(|error| unreadable(place.path(), &error))?;
    if bytes.contains(&0) {
        return Err(ToolReply::error(
            "binary_file",
            format!("{} is a binary file; edit_file changes text in UTF-8", place.shown()),
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        ToolReply::error(
            "invalid_utf8",
            format!("{} is not UTF-8 (first at byte {offset}); edit_file would damage it", place.shown()),
        )
    })
}

fn not_found(place: &Place, text: &Text, old: &str) -> ToolReply {
    let mut message = format!("old_text does not occur in {}", place.shown());
    let similar = text.find_but_for_space(old);
    let numbered = |line: &str| {
        line.split_once('\t').is_some_and(|(n, _)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    if old.lines().all(numbered) {
        message.push_str("; leave out the line numbers and tabs that read_file puts before each line");
    } else if !similar.is_empty() {
        message.push_str(&format!("; it does but for spaces and tabs at {}", listed(&similar)));
    } else {
        message.push_str("; read the file again and copy the text exactly");
    }
    ToolReply::error("text_not_found", message)
}

/// `line 7`, `lines 1, 5 and 9`, `lines 1, 5, 9 and 30 more`.
fn listed(lines: &[usize]) -> String {
    let shown: Vec<String> = lines.iter().take(LISTED_LINES).map(ToString::to_string).collect();
    let more = lines.len().saturating_sub(LISTED_LINES);
    match shown.split_last() {
        Some((only, [])) => format!("line {only}"),
        Some((last, rest)) if more == 0 => format!("lines {} and {last}", rest.join(", ")),
        Some(_) | None => format!("lines {} and {more} more", shown.join(", ")),
    }
}

/// A text whose line endings are all `\n`, and what they were.
struct Text {
    text: String,
    /// Where in `text` the line breaks are that were `\r\n`, sorted.
    crlf: Vec<usize>,
}

impl Text {
    fn new(content: &str) -> Self {
        let mut text = String::with_capacity(content.len());
        let mut crlf = Vec::new();
        let mut pieces = content.split("\r\n").peekable();
        while let Some(piece) = pieces.next() {
            text.push_str(piece);
            if pieces.peek().is_some() {
                crlf.push(text.len());
                text.push('\n');
            }
        }
        Self { text, crlf }
    }

    fn find(&self, old: &str) -> Vec<Range<usize>> {
        self.text.match_indices(old).map(|(start, _)| start..start + old.len()).collect()
    }

    /// The content with `new` in place of each range, and with the line endings that it had.
    fn replace(&self, ranges: &[Range<usize>], new: &str) -> String {
        let mut out = String::with_capacity(self.text.len() + self.crlf.len());
        let mut done = 0;
        for range in ranges {
            self.push_original(&mut out, done..range.start);
            if self.ends_lines_with_crlf(range) {
                out.push_str(&new.replace('\n', "\r\n"));
            } else {
                out.push_str(new);
            }
            done = range.end;
        }
        self.push_original(&mut out, done..self.text.len());
        out
    }

    /// Whether lines at a range end with `\r\n`: the first line break from its beginning on says it, or, after the
    /// last one of the file, that.
    fn ends_lines_with_crlf(&self, range: &Range<usize>) -> bool {
        let (before, after) = self.text.split_at(range.start);
        let line_break = after.find('\n').map(|at| range.start + at).or_else(|| before.rfind('\n'));
        line_break.is_some_and(|at| self.crlf.binary_search(&at).is_ok())
    }

    fn push_original(&self, out: &mut String, range: Range<usize>) {
        let mut done = range.start;
        let first = self.crlf.partition_point(|at| *at < range.start);
        for at in self.crlf.iter().skip(first).take_while(|at| **at < range.end) {
            out.push_str(self.text.get(done..*at).unwrap_or_default());
            out.push('\r');
            done = *at;
        }
        out.push_str(self.text.get(done..range.end).unwrap_or_default());
    }

    /// From 1.
    fn line_of(&self, at: usize) -> usize {
        1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count()
    }

    /// The lines at which `old` would begin if white space did not count.
    fn find_but_for_space(&self, old: &str) -> Vec<usize> {
        let squeezed = |line: &str| line.split_whitespace().collect::<String>();
        let old: Vec<String> = old.trim().lines().map(squeezed).collect();
        let lines: Vec<String> = self.text.lines().map(squeezed).collect();
        if old.iter().all(String::is_empty) {
            return Vec::new();
        }
        let same = |(at, window): (usize, &[String])| (window == old.as_slice()).then_some(at + 1);
        lines.windows(old.len()).enumerate().filter_map(same).collect()
    }
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
