//! Which of many matching lines a person would have looked at first.
//!
//! Lines that match are gathered into places; a place is worth what its best line says (a definition whose name is the term
//! above a heading, above documentation, above a use), what other terms stand near, and what its file is.
//! The numbers are tuned by hand on real source trees; only their order of magnitude matters.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::lines::{self, Defined, FileKind, LineKind};
use super::report::PlaceKind;
use super::results::{Hit, Lines};
use super::terms::{self, Term, Terms};

/// Lines of one place are at most so far from the next one.
const NEAR: u64 = 10;
/// A place is at most so many lines long.
const LONGEST: u64 = 30;
/// Each further place of one file counts so much less: eight places in one file are one place.
const SAME_FILE: f64 = 0.66;
/// Each further place with the very same line: the implementations of one method.
const SAME_LINE: f64 = 0.45;
/// Longer lines are tables, data or generated: they have any word by accident.
const LONG_LINE: usize = 240;

/// A place and what it is worth.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) path: Arc<str>,
    pub(super) line: u64,
    pub(super) text: String,
    pub(super) kind: PlaceKind,
    pub(super) within: Option<String>,
    pub(super) score: f64,
    pub(super) terms: Vec<String>,
}

/// A place that has but one of several terms is worth at least so much of one that has all.
const LEAST_COVERAGE: f64 = 0.35;
/// Of lines that say the same, the one with most matching lines so near.
const CROWD: u64 = 4;

/// A term in so many lines is as common as any.
const COMMON: usize = 300;

/// What was read of each file.
pub(super) type Windows = HashMap<Arc<str>, Lines>;

/// What is known beside the lines that match.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) windows: Windows,
    /// Where the tests inside of a file begin.
    pub(super) tests_from: HashMap<Arc<str>, u64>,
}

/// All places, best first.
pub(super) fn candidates(hits: &[Hit], known: &Known, terms: &Terms) -> Vec<Candidate> {
    let mut files: BTreeMap<&Arc<str>, BTreeMap<u64, &str>> = BTreeMap::new();
    for hit in hits {
        files.entry(&hit.path).or_default().insert(hit.line, &hit.text);
    }
    let weighted = Weighted::new(terms, &files);
    let empty = Lines::new();
    let mut found = Vec::new();
    for (path, matched) in &files {
        let file = File {
            path,
            kind: lines::file_kind(path),
            hits: matched.len(),
            window: known.windows.get(*path).unwrap_or(&empty),
            tests_from: known.tests_from.get(*path).copied().unwrap_or(u64::MAX),
        };
        found.extend(
            weighted.groups(path, matched).iter().filter_map(|group| weighted.candidate(&file, group)),
        );
    }
    found.sort_by(|one, two| {
        two.score.total_cmp(&one.score).then_with(|| (&one.path, one.line).cmp(&(&two.path, two.line)))
    });
    found
}

/// The source files among these places whose name has a term of the focus.
pub(super) fn topical_files<'a>(places: &'a [Candidate], terms: &Terms) -> Vec<&'a str> {
    let mut files: Vec<&str> = Vec::new();
    for place in places {
        let file = place.path.rsplit('/').next().unwrap_or(&place.path);
        let topical = terms.focus.iter().any(|term| term.regex.is_match(file));
        if topical && lines::file_kind(&place.path) == FileKind::Source && !files.contains(&&*place.path) {
            files.push(&place.path);
        }
    }
    files
}

/// The best of them, few of one file.
pub(super) fn select(mut candidates: Vec<Candidate>, most: usize) -> Vec<Candidate> {
    let mut files: HashMap<Arc<str>, i32> = HashMap::new();
    let mut lines: HashMap<String, i32> = HashMap::new();
    let mut selected = Vec::new();
    while selected.len() < most {
        let worth = |candidate: &Candidate| {
            let in_file = files.get(&candidate.path).copied().unwrap_or(0);
            let with_line = lines.get(candidate.text.trim()).copied().unwrap_or(0);
            candidate.score * SAME_FILE.powi(in_file) * SAME_LINE.powi(with_line)
        };
        let best = candidates
            .iter()
            .enumerate()
            .max_by(|(at, one), (other_at, two)| worth(one).total_cmp(&worth(two)).then(other_at.cmp(at)));
        let Some((at, best)) = best else { break };
        let score = worth(best);
        let mut best = candidates.remove(at);
        best.score = score;
        *files.entry(Arc::clone(&best.path)).or_default() += 1;
        *lines.entry(best.text.trim().to_owned()).or_default() += 1;
        selected.push(best);
    }
    selected
}

/// A file with lines that match.
struct File<'a> {
    path: &'a Arc<str>,
    kind: FileKind,
    hits: usize,
    window: &'a Lines,
    tests_from: u64,
}

/// The terms with what each says in this collection of lines.
struct Weighted<'a> {
    terms: &'a Terms,
    weights: Vec<f64>,
}

impl<'a> Weighted<'a> {
    /// A term that stands in few lines says more than one that stands in hundreds of them. How rare a term is that was not
    /// searched for, nobody knows: it says what an average one does.
    fn new(terms: &'a Terms, files: &BTreeMap<&Arc<str>, BTreeMap<u64, &str>>) -> Self {
        let rarity = |term: &Term| {
            let lines = files.values().flat_map(BTreeMap::values);
            let count = lines.filter(|line| term.regex.is_match(line)).count().clamp(1, COMMON);
            0.5 + 1.0 - to_float(count).ln() / to_float(COMMON).ln()
        };
        let focus = terms.focus.iter().map(|term| term.weight * rarity(term));
        let context = terms.context.iter().map(|term| term.weight * 0.8);
        Self { terms, weights: focus.chain(context).collect() }
    }

    fn each(&self) -> impl Iterator<Item = (usize, &Term, f64)> {
        self.terms.all().zip(&self.weights).enumerate().map(|(at, (term, weight))| (at, term, *weight))
    }

    /// Matching lines that are near one another. A definition that has a term in its name begins a place of its own.
    fn groups<'t>(&self, path: &str, matched: &BTreeMap<u64, &'t str>) -> Vec<Vec<(u64, &'t str)>> {
        let mut groups: Vec<Vec<(u64, &str)>> = Vec::new();
        for (&line, &text) in matched {
            let begins = self.defines(path, text);
            let joins = groups.last().is_some_and(|group| {
                let first = group.first().map_or(0, |(line, _)| *line);
                let last = group.last().map_or(0, |(line, _)| *line);
                line.saturating_sub(last) <= NEAR && line.saturating_sub(first) <= LONGEST
            });
            match groups.last_mut() {
                Some(group) if joins && !begins => group.push((line, text)),
                _ => groups.push(vec![(line, text)]),
            }
        }
        groups
    }

    fn is_topic(&self, path: &str) -> bool {
        let file = path.rsplit('/').next().unwrap_or(path);
        self.terms.focus.iter().any(|term| term.regex.is_match(file))
    }

    fn defines(&self, path: &str, text: &str) -> bool {
        lines::defined_name(path, text)
            .is_some_and(|name| self.terms.focus.iter().any(|term| term.regex.is_match(&name)))
    }

    fn candidate(&self, file: &File<'_>, group: &[(u64, &str)]) -> Option<Candidate> {
        let (path, window) = (file.path, file.window);
        let crowd = |line: u64| group.iter().filter(|(other, _)| other.abs_diff(line) <= CROWD).count();
        let scored = group
            .iter()
            .map(|(line, text)| (*line, *text, self.line_score(path, text) + 0.05 * to_float(crowd(*line))));
        let (line, text, best) = scored.max_by(|one, two| one.2.total_cmp(&two.2).then(two.0.cmp(&one.0)))?;
        let near: BTreeMap<u64, &str> = window
            .range(line.saturating_sub(NEAR)..=line.saturating_add(NEAR))
            .map(|(line, text)| (*line, text.as_str()))
            .chain(group.iter().copied())
            .collect();
        let (mut around, mut there, mut all, mut names) = (0.0, 0.0, 0.0, Vec::new());
        for (_, term, weight) in self.each() {
            all += weight;
            let in_line = term.regex.is_match(text);
            let in_near = in_line || near.values().any(|near| term.regex.is_match(near));
            if in_near || term.regex.is_match(path) {
                there += weight;
                names.push(term.text.clone());
            }
            if in_near && !in_line {
                around += weight;
            }
        }
        let enclosing = enclosing(path, line, window);
        let kind = self.kind(file, line, text, enclosing.as_ref());
        let many = 0.3 * to_float(group.len()).ln_1p();
        // Several of the terms near one another say more than one of them, however often.
        let coverage = LEAST_COVERAGE + (1.0 - LEAST_COVERAGE) * there / all.max(f64::MIN_POSITIVE);
        Some(Candidate {
            path: Arc::clone(path),
            line,
            text: text.to_owned(),
            within: enclosing.map(|(_, text)| text).filter(|_| kind != PlaceKind::Document),
            score: (best + 0.4 * around + many) * coverage * self.factor(file, kind),
            terms: names,
            kind,
        })
    }

    /// What one line says by itself.
    fn line_score(&self, path: &str, text: &str) -> f64 {
        let kind = lines::line_kind(path, text);
        let mut score = 0.0;
        for (at, term, weight) in self.each() {
            if !term.regex.is_match(text) {
                continue;
            }
            // What the question does to its topic is worth as much as the topic, in a file that has the topic's name.
            let focus = at < self.terms.focus.len() || self.is_topic(path);
            let factor = match &kind {
                LineKind::Definition { name, of } if focus => named(path, name, *of, term),
                LineKind::Definition { .. } => 1.2,
                // A heading that is little else than the term is about the term.
                LineKind::Heading => {
                    2.0 + term
                        .regex
                        .find(text)
                        .map_or(0.0, |found| to_float(found.len()) / to_float(text.len().max(1)))
                }
                LineKind::Doc => 1.5,
                LineKind::Code => 1.0,
                LineKind::Comment => 0.9,
                LineKind::Import => 0.25,
            };
            let again = term.regex.find_iter(text).count().clamp(1, 4) - 1;
            score += weight * factor * (1.0 + 0.1 * to_float(again));
        }
        if text.len() > LONG_LINE { score * 0.75 } else { score }
    }

    fn kind(&self, file: &File<'_>, line: u64, text: &str, enclosing: Option<&(u64, String)>) -> PlaceKind {
        let (path, window) = (file.path, file.window);
        let marked = |line: u64| {
            // An attribute stands directly above, with at most a few other attributes between.
            window.range(line.saturating_sub(4)..line).any(|(_, text)| lines::is_test_attribute(text))
        };
        let is_test = file.kind == FileKind::Test
            || line >= file.tests_from
            || lines::is_test_line(path, text)
            || marked(line)
            || enclosing.is_some_and(|(line, text)| marked(*line) || lines::is_test_line(path, text));
        let defines = |name: &str| self.terms.focus.iter().any(|term| term.regex.is_match(name));
        match lines::line_kind(path, text) {
            _ if is_test => PlaceKind::Test,
            LineKind::Definition { name, .. } if defines(&name) => PlaceKind::Definition,
            LineKind::Heading => PlaceKind::Document,
            _ if file.kind == FileKind::Document => PlaceKind::Document,
            _ => PlaceKind::Use,
        }
    }

    /// What the file says: foreign and generated files are the last that anybody wants to see.
    fn factor(&self, file: &File<'_>, kind: PlaceKind) -> f64 {
        let (path, hits) = (file.path, file.hits);
        let kind = match file.kind {
            FileKind::Foreign => 0.12,
            _ if kind == PlaceKind::Test => {
                if self.terms.wants_tests {
                    1.0
                } else {
                    0.55
                }
            }
            FileKind::Source | FileKind::Test => 1.0,
            FileKind::Document => 0.75,
            FileKind::Example => 0.5,
            FileKind::Data => 0.6,
        };
        let (folders, file) = path.rsplit_once('/').unwrap_or(("", path));
        let named = |text: &str| self.terms.focus.iter().any(|term| term.regex.is_match(text));
        let name = if named(file) {
            1.4
        } else if named(folders) {
            1.15
        } else {
            1.0
        };
        kind * name * (1.0 + 0.1 * to_float(hits).ln_1p())
    }
}

/// What it says that a definition's name has the term: most, if the name is the term, of a type, and of the file.
fn named(path: &str, name: &str, of: Defined, term: &Term) -> f64 {
    if !term.regex.is_match(name) {
        return 1.2;
    }
    let parts = terms::parts(name);
    let whole = parts.concat();
    let file = path.rsplit('/').next().unwrap_or(path);
    let of_file = terms::parts(file.split('.').next().unwrap_or(file)).concat() == whole;
    let is_term = whole.starts_with(&term.plain) && whole.len() <= term.plain.len() + 4;
    let begins = parts.first().is_some_and(|first| first.starts_with(&term.plain));
    let base = if is_term {
        4.0
    } else if begins {
        3.0
    } else {
        2.6
    };
    let of = match of {
        Defined::Type => 1.1,
        Defined::Function => 1.0,
        Defined::Value => 0.6,
    };
    base * of + if of_file { 0.8 } else { 0.0 }
}

/// The nearest definition above a line that is indented less: what the line stands in.
fn enclosing(path: &str, line: u64, window: &Lines) -> Option<(u64, String)> {
    let depth = indent(window.get(&line)?);
    let mut least = depth;
    for (number, text) in window.range(..line).rev() {
        if text.trim().is_empty() || indent(text) >= least {
            continue;
        }
        least = indent(text);
        if let Some(name) = lines::defined_name(path, text) {
            let keyword =
                text.split_whitespace().take_while(|word| !word.contains(&name)).last().unwrap_or_default();
            return Some((*number, format!("{keyword} {name}").trim().to_owned()));
        }
        if least == 0 {
            break;
        }
    }
    None
}

fn indent(text: &str) -> usize {
    text.chars().take_while(|c| c.is_whitespace()).count()
}

/// Counts here are far below the numbers that a float cannot hold.
#[expect(clippy::cast_precision_loss, reason = "counts of lines are small")]
fn to_float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
#[path = "rank_tests.rs"]
mod tests;
