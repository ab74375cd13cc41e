//! Text that an operation answers with: capped lines, then notes in square brackets about what was left out.

use std::borrow::Cow;
use std::path::Path;

/// Bytes of lines in one reply: about 15,000 tokens, which is as much as a model uses well at once. What a reply says
/// about its gaps comes on top, and is short.
pub const OUTPUT_LIMIT: usize = 60 * 1024;

/// Notes of one kind that are spelled out before the rest is only counted.
const NOTES_OF_A_KIND: usize = 5;

/// Characters of one note: a name may be 4,096 bytes long.
const NOTE_CHARS: usize = 400;

/// Lines up to [`OUTPUT_LIMIT`], and notes.
#[derive(Debug, Default)]
pub(super) struct Report {
    text: String,
    notes: Vec<String>,
}

impl Report {
    /// Bytes that still fit, a line break included.
    pub(super) fn room(&self) -> usize {
        OUTPUT_LIMIT.saturating_sub(self.text.len())
    }

    /// Adds a line, unless it does not fit: then false, and nothing is added.
    #[must_use]
    pub(super) fn line(&mut self, line: &str) -> bool {
        let fits = line.len() < self.room();
        if fits {
            self.text.push_str(line);
            self.text.push('\n');
        }
        fits
    }

    /// True if there is no line yet.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Adds a note; the brackets are added here.
    pub(super) fn note(&mut self, note: &str) {
        self.notes.push(format!("[{}]", capped(note, NOTE_CHARS)));
    }

    /// Adds a note if there is one.
    pub(super) fn extend(&mut self, note: Option<String>) {
        self.notes.extend(note.map(|note| format!("[{note}]")));
    }

    /// Adds notes of one kind; of many only some, and `rest` says it for the number of the others.
    pub(super) fn notes(&mut self, notes: &[String], rest: impl Fn(usize) -> String) {
        for note in notes.iter().take(NOTES_OF_A_KIND) {
            self.note(note);
        }
        let more = notes.len().saturating_sub(NOTES_OF_A_KIND);
        if more > 0 {
            self.note(&rest(more));
        }
    }

    /// The whole text, without a line break at its end.
    pub(super) fn finish(mut self) -> String {
        self.text.push_str(&self.notes.join("\n"));
        if self.text.ends_with('\n') {
            self.text.pop();
        }
        self.text
    }
}

/// The text, cut to `chars` characters of which the last is `…` if anything was cut.
pub(super) fn capped(text: &str, chars: usize) -> Cow<'_, str> {
    // In bytes first: that is free, and a character is at least a byte.
    if text.len() <= chars || text.chars().count() <= chars {
        return Cow::Borrowed(text);
    }
    let mut cut: String = text.chars().take(chars.saturating_sub(1)).collect();
    cut.push('…');
    Cow::Owned(cut)
}

/// A path as a model sees it: forward slashes, `.` for the workspace itself. Characters that would break a line, or
/// that a terminal obeys, are escaped: a file's name cannot forge a line of a reply.
pub(super) fn shown(path: &Path) -> String {
    let parts: Vec<String> =
        path.components().map(|part| escaped(&part.as_os_str().to_string_lossy())).collect();
    if parts.is_empty() { ".".to_owned() } else { parts.join("/") }
}

/// The text with its control characters escaped.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// `1 hit`, `2 hits`.
pub(super) fn count(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// A size in the unit that gives it at most four digits: `980 B`, `16 MiB`, `2.0 GiB`. Whole numbers where the rest
/// would be noise.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    // In tenths of the unit, rounded to the nearest: no floating point, so no platform's rounding.
    let mut tenths = u128::from(bytes) * 10;
    let mut unit = "B";
    for name in UNITS {
        tenths = (tenths + 512) / 1024;
        unit = name;
        if tenths < 10_240 {
            break;
        }
    }
    if tenths < 100 {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    } else {
        format!("{} {unit}", (tenths + 5) / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let sizes = [0, 1023, 1024, 1536, 10_240, 16 << 20, 2 << 30, u64::MAX].map(size);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "10 KiB", "16 MiB", "2.0 GiB", "16 EiB"]);
    }

    #[test]
    fn capping_counts_characters() {
        assert_eq!(capped("äöü", 3), "äöü");
        assert_eq!(capped("äöüß", 3), "äö…");
    }

    #[test]
    fn a_name_cannot_forge_a_line() {
        assert_eq!(shown(Path::new("a/b\n[x]\u{1b}[2J")), "a/b\\n[x]\\u{1b}[2J");
        assert_eq!(shown(Path::new("")), ".");
    }

    #[test]
    fn a_report_ends_with_its_notes() {
        let mut report = Report::default();
        assert!(report.line("a"));
        assert!(!report.line(&"x".repeat(OUTPUT_LIMIT)));
        let notes: Vec<String> = (1..=7).map(|n| format!("note {n}")).collect();
        report.notes(&notes, |n| format!("{n} more notes"));
        assert_eq!(report.finish(), "a\n[note 1]\n[note 2]\n[note 3]\n[note 4]\n[note 5]\n[2 more notes]");
    }
}
