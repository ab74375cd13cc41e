//! A run that can `grep`: it searches, reads the best places, and reports.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::lines::{self, DEFINITION_PATTERN, LineKind};
use super::model::{Conversation, Turn};
use super::rank::{self, Candidate, Known, Windows};
use super::report::{Place, PlaceKind, Report};
use super::results::{self, Hit, Lines};
use super::terms::{Term, Terms, WEAKEST};

/// So many terms are searched for at once; more would be a search for everything.
const MOST_TERMS: usize = 4;
/// So many lines of each pattern are enough to rank.
const MOST_HITS: u64 = 300;
/// So many places are read, and reported of each kind.
const MOST_PLACES: usize = 8;
/// More are read than reported: what was read may turn out to be a test.
const MOST_READ: usize = 12;
/// Beside the places that were asked for, so many of the other kind.
const MOST_OTHERS: usize = 3;
/// So much of a file is read around a place: a definition, its documentation, and the start of its body.
const LINES_BEFORE: u64 = 36;
const LINES_AFTER: u64 = 24;
/// In so many files that are named like the topic, the other words of the question are searched for.
const MOST_TOPICAL: usize = 2;
const MOST_TOPICAL_HITS: u64 = 40;
const TOPICAL_CONTEXT: u64 = 6;
/// So many lines of a place are quoted.
const QUOTED: u64 = 4;
/// Of a line that is longer, the part around the term is quoted.
const LONGEST_LINE: usize = 150;

/// What the search has to do next.
#[derive(Debug)]
pub(super) enum Search {
    /// Call tools.
    Go(Turn),
    /// It is done.
    Done(Report),
}

/// Decides by what has been done since the task was given.
pub(super) fn next(conversation: &Conversation<'_>, terms: &Terms) -> Search {
    let greps: Vec<_> = conversation.results("grep").collect();
    if greps.is_empty() {
        if terms.focus.is_empty() || !conversation.may_call("grep") {
            return Search::Done(Report::default());
        }
        return Search::Go(first_turn(conversation, terms));
    }
    let mut report = Report { terms: texts(&terms.focus), ..Report::default() };
    let (mut hits, mut topical): (Vec<Hit>, Vec<Hit>) = (Vec::new(), Vec::new());
    let mut known = Known::default();
    for result in &greps {
        if result.is_error {
            report.failures.push(format!("grep: {}", results::failure(result.content)));
            continue;
        }
        if let Some(path) = result.arguments.get("path").and_then(Value::as_str) {
            let (found, lines) = results::in_file(path, result.content);
            topical.extend(found);
            known.windows.entry(path.into()).or_default().extend(lines);
            continue;
        }
        let found = results::hits(result.content);
        report.cut |= found.cut;
        hits.extend(found.hits);
    }
    for hit in &hits {
        if lines::begins_tests(&hit.text) {
            let from = known.tests_from.entry(Arc::clone(&hit.path)).or_insert(hit.line);
            *from = hit.line.min(*from);
        }
    }
    let mut seen = HashSet::new();
    let matches = |hit: &Hit| terms.focus.iter().any(|term| term.regex.is_match(&hit.text));
    hits.retain(|hit| matches(hit) && seen.insert((Arc::clone(&hit.path), hit.line)));
    topical.retain(|hit| seen.insert((Arc::clone(&hit.path), hit.line)));
    report.hits = hits.len();
    report.files = hits.iter().map(|hit| &hit.path).collect::<HashSet<_>>().len();

    let mut reads = conversation.results("read_file").peekable();
    if reads.peek().is_none() && conversation.may_call("read_file") && !hits.is_empty() {
        let places = best(rank::candidates(&hits, &known, terms), terms, MOST_READ);
        return Search::Go(second_turn(conversation, terms, &report, &places));
    }
    for result in reads {
        let path = result.arguments.get("path").and_then(Value::as_str).unwrap_or_default();
        if result.is_error {
            report.failures.push(format!("read_file {path}: {}", results::failure(result.content)));
        } else {
            known.windows.entry(path.into()).or_default().extend(results::lines(result.content));
        }
    }
    hits.extend(topical);
    let mut candidates = rank::candidates(&hits, &known, terms);
    let windows = &known.windows;
    if !windows.is_empty() {
        // Only what was read can be quoted, and is known to be no test.
        candidates
            .retain(|place| windows.get(&place.path).is_some_and(|lines| lines.contains_key(&place.line)));
    }
    let places = best(candidates, terms, MOST_PLACES);
    report.places = places.iter().map(|candidate| place(candidate, terms, &hits, windows)).collect();
    Search::Done(report)
}

fn texts(terms: &[Term]) -> Vec<String> {
    terms.iter().map(|term| term.text.clone()).collect()
}

/// The best places of the kind that was asked for, and some of the other.
fn best(candidates: Vec<Candidate>, terms: &Terms, most: usize) -> Vec<Candidate> {
    let (tests, others): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|candidate| candidate.kind == PlaceKind::Test);
    let (most_tests, most_others) = if terms.only_tests { (most, MOST_OTHERS) } else { (MOST_OTHERS, most) };
    let mut best = rank::select(others, most_others);
    best.extend(rank::select(tests, most_tests));
    best.sort_by(|one, two| two.score.total_cmp(&one.score));
    best
}

/// Several narrow patterns instead of one: a tool shows only the first so many lines of what matches, and they must not
/// all be from the first folder, or from a list of changes.
fn first_turn(conversation: &Conversation<'_>, terms: &Terms) -> Turn {
    let focus: Vec<&Term> = terms.focus.iter().take(MOST_TERMS).collect();
    let any = alternatives(&focus);
    let mut greps = vec![(format!("{DEFINITION_PATTERN}{any}"), lines::source_glob(), MOST_HITS)];
    if terms.wants_tests {
        greps.push((any.clone(), lines::test_glob(), MOST_HITS));
    }
    if !terms.only_tests {
        greps.push((any.clone(), lines::source_glob(), MOST_HITS));
        greps.push((any.clone(), lines::document_glob(), MOST_HITS / 2));
        greps.push((any, lines::other_glob(), MOST_HITS / 8));
    }
    greps.push((lines::TEST_MODULE.to_owned(), "*.rs".to_owned(), MOST_HITS));
    let pairs = pairs(&focus, terms);
    if !pairs.is_empty() {
        let glob = if terms.only_tests { lines::test_glob() } else { String::new() };
        greps.push((pairs.join("|"), glob, MOST_HITS / 2));
    }
    let mut calls: Vec<(String, Value)> = Vec::new();
    for (pattern, glob, most) in greps {
        let mut arguments = json!({ "pattern": pattern, "ignore_case": false, "max_results": most });
        if let (false, Value::Object(object)) = (glob.is_empty(), &mut arguments) {
            object.insert("glob".to_owned(), glob.into());
        }
        let call = ("grep".to_owned(), conversation.fitting("grep", arguments));
        // A `grep` without globs makes some of them the same.
        if !calls.contains(&call) {
            calls.push(call);
        }
    }
    let what = if terms.only_tests { "tests" } else { "definitions, documents and uses" };
    Turn { text: vec![format!("Searching for {what} of {}.", quoted(&focus))], calls }
}

/// Lines that have two of the terms: few, and worth more than many lines that have one.
fn pairs(focus: &[&Term], terms: &Terms) -> Vec<String> {
    let others: Vec<&Term> = focus.iter().copied().chain(&terms.context).take(MOST_TERMS * 2).collect();
    let mut pairs = Vec::new();
    for (at, one) in focus.iter().enumerate() {
        for two in others.iter().skip(at + 1) {
            pairs.push(format!("{}.*{}", one.pattern, two.pattern));
            pairs.push(format!("{}.*{}", two.pattern, one.pattern));
        }
    }
    pairs.truncate(MOST_TERMS * 4);
    pairs
}

fn alternatives(terms: &[&Term]) -> String {
    let patterns: Vec<&str> = terms.iter().map(|term| term.pattern.as_str()).collect();
    format!("(?:{})", patterns.join("|"))
}

/// The terms as a person reads them.
pub(super) fn quoted(terms: &[&Term]) -> String {
    terms.iter().map(|term| format!("`{}`", term.text)).collect::<Vec<_>>().join(", ")
}

fn second_turn(
    conversation: &Conversation<'_>,
    terms: &Terms,
    report: &Report,
    places: &[Candidate],
) -> Turn {
    let reads = windows_of(places).into_iter().map(|(path, first, last)| {
        let arguments = json!({ "path": path, "offset": first, "limit": last - first + 1 });
        ("read_file".to_owned(), conversation.fitting("read_file", arguments))
    });
    let mut calls: Vec<(String, Value)> = reads.collect();
    let telling = terms.context.iter().filter(|term| term.weight > WEAKEST);
    let context: Vec<&Term> = telling.take(MOST_TERMS).collect();
    if !context.is_empty() {
        // Where the topic has a file of its own, what the question does to it is a word of that file.
        for path in rank::topical_files(places, terms).into_iter().take(MOST_TOPICAL) {
            let arguments = json!({
                "pattern": alternatives(&context), "ignore_case": false, "path": path,
                "context": TOPICAL_CONTEXT, "max_results": MOST_TOPICAL_HITS,
            });
            calls.push(("grep".to_owned(), conversation.fitting("grep", arguments)));
        }
    }
    let text = format!(
        "{} in {} match; reading the best {}.",
        count(report.hits, "line", "lines"),
        count(report.files, "file", "files"),
        count(places.len(), "place", "places")
    );
    Turn { text: vec![text], calls }
}

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// What to read of which file: windows around the places, those of one file that touch as one.
fn windows_of(places: &[Candidate]) -> Vec<(&str, u64, u64)> {
    let mut windows: Vec<(&str, u64, u64)> = Vec::new();
    for place in places {
        let first = place.line.saturating_sub(LINES_BEFORE).max(1);
        let last = place.line.saturating_add(LINES_AFTER);
        let touching = windows.iter_mut().find(|(path, from, to)| {
            *path == &*place.path && first <= to.saturating_add(1) && *from <= last.saturating_add(1)
        });
        match touching {
            Some((_, from, to)) => (*from, *to) = (first.min(*from), last.max(*to)),
            None => windows.push((&place.path, first, last)),
        }
    }
    windows
}

fn place(candidate: &Candidate, terms: &Terms, hits: &[Hit], windows: &Windows) -> Place {
    let mut quote = windows.get(&candidate.path).map_or_else(Vec::new, |window| quote(candidate, window));
    if quote.is_empty() {
        // Nothing was read: the lines that matched are what there is.
        let near = |hit: &&Hit| hit.path == candidate.path && hit.line.abs_diff(candidate.line) < QUOTED;
        quote = hits.iter().filter(near).map(|hit| (hit.line, hit.text.clone())).collect();
        quote.sort();
    }
    for (_, text) in &mut quote {
        *text = excerpt(text, terms);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "scores are small and positive"
    )]
    let score = (candidate.score * 10.0).round() as u32;
    Place {
        path: candidate.path.to_string(),
        line: candidate.line,
        kind: candidate.kind,
        within: candidate.within.clone(),
        score,
        terms: candidate.terms.clone(),
        quote,
    }
}

/// Of a long line the part around the first term.
fn excerpt(line: &str, terms: &Terms) -> String {
    if line.chars().count() <= LONGEST_LINE {
        return line.to_owned();
    }
    let at = terms.focus.iter().filter_map(|term| term.regex.find(line)).map(|found| found.start()).min();
    let before = line.get(..at.unwrap_or(0)).map_or(0, |before| before.chars().count());
    let start = before.saturating_sub(LONGEST_LINE / 3);
    let part: String = line.chars().skip(start).collect();
    results::shortened(&if start == 0 { part } else { format!("…{part}") }, LONGEST_LINE)
}

/// The line and what explains it: the first line of its documentation and what follows; of documentation, what it
/// documents.
fn quote(candidate: &Candidate, window: &Lines) -> Vec<(u64, String)> {
    let line = candidate.line;
    let is_document = candidate.kind == PlaceKind::Document;
    let is_heading = lines::line_kind(&candidate.path, &candidate.text) == LineKind::Heading;
    let follow = if is_document && !is_heading { 1 } else { QUOTED };
    let mut numbers: Vec<u64> = first_line_of_documentation(line, window).into_iter().collect();
    numbers.extend(line..line.saturating_add(follow));
    if lines::line_kind(&candidate.path, &candidate.text) == LineKind::Doc {
        numbers.retain(|number| *number <= line.saturating_add(1));
        let explains = |text: &str| {
            lines::line_kind(&candidate.path, text) == LineKind::Doc || text.trim_start().starts_with("#[")
        };
        // `//!` documents the file, and what was not read in between may be anything.
        let outer = !candidate.text.trim_start().starts_with("//!");
        let mut below = window.range(line..).zip(line..).take_while(|((number, _), at)| **number == *at);
        let documented =
            below.find(|((_, text), _)| !explains(text)).map(|(found, _)| found).filter(|_| outer);
        numbers.extend(documented.map(|(number, _)| *number));
    }
    numbers.dedup();
    let depth = |text: &str| text.chars().take_while(|c| c.is_whitespace()).count();
    // What is indented less is not part of it any more.
    let least = depth(&candidate.text);
    let inside = |text: &str| is_document || text.trim().is_empty() || depth(text) >= least;
    let lines = numbers.into_iter().filter_map(|number| Some((number, window.get(&number)?)));
    let mut quote: Vec<(u64, String)> =
        lines.take_while(|(_, text)| inside(text)).map(|(number, text)| (number, text.clone())).collect();
    while quote.last().is_some_and(|(_, text)| text.trim().is_empty()) {
        quote.pop();
    }
    quote
}

/// The first of the comment lines that stand directly above, attributes between them or not. None if they may begin
/// above what was read: half a sentence explains nothing.
fn first_line_of_documentation(line: u64, window: &Lines) -> Option<u64> {
    let mut first = None;
    for at in (1..line).rev() {
        let text = window.get(&at)?.trim_start();
        if text.starts_with("//") && !text.starts_with("//!") {
            first = Some(at);
        } else if !text.starts_with("#[") && !text.starts_with('@') {
            return first;
        }
    }
    first
}

#[cfg(test)]
#[path = "searcher_tests.rs"]
mod tests;
