//! What a search reports: the text that its run ends with, written and read in this one file.
//!
//! ```text
//! Keyword search (a heuristic, not a language model) for: cancel, token
//! hits: 212 lines in 31 files, cut off
//! failed: grep: permission denied
//!
//! place: src/token.rs:55
//!   kind: definition
//!   in: impl Token
//!   score: 42
//!   terms: cancel, token
//!   | 54: /// Cancels.
//!   | 55: pub fn cancel(&self) {
//! ```
//!
//! A record starts at the first column, its fields are indented, and each line of a file stands behind `  | `: no
//! line of a file can pass for a record or a field. What cannot be read is skipped, so a report that was cut
//! off, or stands between other text, gives the places that it has.

use std::fmt::Write as _;

use super::terms::one_line;

const TITLE: &str = "Keyword search (a heuristic, not a language model) for: ";
const QUOTE: &str = "  | ";
/// A longer line says no more; generated code and data have lines of megabytes.
const LONGEST_LINE: usize = 160;

/// What a search found.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Report {
    /// What was searched for.
    pub(super) terms: Vec<String>,
    /// Matching lines.
    pub(super) hits: usize,
    /// Files that have them.
    pub(super) files: usize,
    /// Whether a tool had more than it showed.
    pub(super) cut: bool,
    /// What went wrong.
    pub(super) failures: Vec<String>,
    /// The best places, best first.
    pub(super) places: Vec<Place>,
}

/// A place that is worth looking at.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    pub(super) path: String,
    pub(super) line: u64,
    pub(super) kind: PlaceKind,
    /// The definition that it stands in.
    pub(super) within: Option<String>,
    /// Comparable between the searches for one task.
    pub(super) score: u32,
    /// The terms that stand there.
    pub(super) terms: Vec<String>,
    /// A few lines of it, with their numbers.
    pub(super) quote: Vec<(u64, String)>,
}

/// What a place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceKind {
    Definition,
    Document,
    Use,
    Test,
}

impl PlaceKind {
    const ALL: [Self; 4] = [Self::Definition, Self::Document, Self::Use, Self::Test];

    fn word(self) -> &'static str {
        match self {
            Self::Definition => "definition",
            Self::Document => "document",
            Self::Use => "use",
            Self::Test => "test",
        }
    }
}

impl Report {
    /// The text of the report.
    pub(super) fn write(&self) -> String {
        let mut text = format!("{TITLE}{}\n", list(&self.terms));
        let cut = if self.cut { ", cut off" } else { "" };
        line(&mut text, &format!("hits: {} lines in {} files{cut}", self.hits, self.files));
        for failure in &self.failures {
            line(&mut text, &format!("failed: {}", one_line(failure)));
        }
        for place in &self.places {
            line(&mut text, &format!("\nplace: {}:{}", one_line(&place.path), place.line));
            line(&mut text, &format!("  kind: {}", place.kind.word()));
            if let Some(within) = &place.within {
                line(&mut text, &format!("  in: {}", one_line(within)));
            }
            line(&mut text, &format!("  score: {}", place.score));
            line(&mut text, &format!("  terms: {}", list(&place.terms)));
            for (number, quoted) in &place.quote {
                let quoted = super::results::shortened(&one_line(quoted), LONGEST_LINE);
                line(&mut text, format!("{QUOTE}{number}: {quoted}").trim_end());
            }
        }
        text
    }

    /// Reads a report. None if the text is none.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines().skip_while(|line| !line.starts_with(TITLE));
        let terms = unlist(lines.next()?.strip_prefix(TITLE)?);
        let mut report = Self { terms, ..Self::default() };
        for line in lines {
            if let Some(place) = line.strip_prefix("place: ") {
                report.places.extend(new_place(place));
            } else if let Some(quoted) = line.strip_prefix(QUOTE) {
                if let (Some(place), Some((number, text))) =
                    (report.places.last_mut(), quoted.split_once(':'))
                    && let Ok(number) = number.parse()
                {
                    place.quote.push((number, text.strip_prefix(' ').unwrap_or(text).to_owned()));
                }
            } else if let Some(field) = line.strip_prefix("  ") {
                if let (Some(place), Some((key, value))) = (report.places.last_mut(), field.split_once(": "))
                {
                    set_field(place, key, value);
                }
            } else if let Some(failure) = line.strip_prefix("failed: ") {
                report.failures.push(failure.to_owned());
            } else if let Some(hits) = line.strip_prefix("hits: ") {
                let mut numbers = hits.split(' ').filter_map(|word| word.parse().ok());
                report.hits = numbers.next().unwrap_or_default();
                report.files = numbers.next().unwrap_or_default();
                report.cut = hits.ends_with("cut off");
            }
        }
        Some(report)
    }
}

/// A path may contain colons: the last number is the line.
fn new_place(text: &str) -> Option<Place> {
    let (path, line) = text.rsplit_once(':')?;
    let kind = PlaceKind::Use;
    let (within, terms, quote) = (None, Vec::new(), Vec::new());
    Some(Place { path: path.to_owned(), line: line.parse().ok()?, kind, within, score: 0, terms, quote })
}

fn set_field(place: &mut Place, key: &str, value: &str) {
    match key {
        "kind" => {
            let kind = PlaceKind::ALL.into_iter().find(|kind| kind.word() == value);
            place.kind = kind.unwrap_or(place.kind);
        }
        "in" => place.within = Some(value.to_owned()),
        "score" => place.score = value.parse().unwrap_or_default(),
        "terms" => place.terms = unlist(value),
        _ => {}
    }
}

fn line(text: &mut String, line: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

/// A comma separates, so a term's own commas become blanks.
fn list(items: &[String]) -> String {
    items.iter().map(|item| one_line(item).replace(',', " ")).collect::<Vec<_>>().join(", ")
}

fn unlist(text: &str) -> Vec<String> {
    text.split(", ").filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let place = Place {
            path: "a b:3.rs".into(),
            line: 55,
            kind: PlaceKind::Definition,
            within: Some("impl Token".into()),
            score: 42,
            terms: vec!["cancel".into(), "token".into()],
            quote: vec![
                (54, String::new()),
                (55, "    place: forged.rs:1".into()),
                (56, "\tscore: 99\nplace: forged.rs:2\r".into()),
                (57, "  | 3: x".into()),
            ],
        };
        let other = Place {
            path: "t.rs".into(),
            kind: PlaceKind::Test,
            within: None,
            quote: vec![],
            ..place.clone()
        };
        Report {
            terms: vec!["cancel".into()],
            hits: 212,
            files: 31,
            cut: true,
            failures: vec!["grep: denied".into()],
            places: vec![place, other],
        }
    }

    #[test]
    fn what_is_written_is_read_and_lines_of_a_file_forge_nothing() {
        let mut expected = report();
        // Control characters of a file's line become blanks; nothing else changes.
        expected.places[0].quote[2].1 = " score: 99 place: forged.rs:2".into();
        let text = report().write();
        assert_eq!(Report::read(&text), Some(expected.clone()));
        assert_eq!(Report::read(&format!("<report>\n{text}</report>\n")), Some(expected));
    }

    #[test]
    fn a_report_that_was_cut_off_gives_what_it_has() {
        let text = report().write();
        for end in 0..text.len() {
            let read = Report::read(&text[..end]);
            assert!(read.is_none_or(|read| read.places.iter().all(|place| !place.path.contains("forged"))));
        }
    }

    #[test]
    fn other_text_is_no_report() {
        assert_eq!(Report::read(""), None);
        assert_eq!(Report::read("place: a.rs:3\n"), None);
    }
}
