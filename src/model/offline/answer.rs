//! The text of an answer.

use super::report::{Place, PlaceKind, Report};
use super::results::shortened;
use super::terms::Terms;

/// So many places are shown, and so many tests.
const MOST_PLACES: usize = 7;
const MOST_TESTS: usize = 5;
/// A place below this share of the best one is noise.
const LEAST_SHARE: f64 = 0.25;
/// Two places of one file that are nearer than this are one.
const SAME_PLACE: u64 = 6;
/// So many places of one file.
const MOST_OF_A_FILE: usize = 3;
/// So much text of a search that reports in its own words.
const LONGEST_PROSE: usize = 2000;

/// What this is; every answer ends with it.
const WHAT_THIS_IS: &str = "This is a keyword heuristic without a language model: it ranks matching lines and \
                            understands none of them. `--model` takes a real one.\n";

/// What the searches for one task brought.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// How many searches were delegated and came back.
    pub(super) searches: usize,
    /// Those that report places.
    pub(super) reports: Vec<Report>,
    /// Query and answer of those that report in their own words.
    pub(super) prose: Vec<(String, String)>,
    /// What went wrong.
    pub(super) failures: Vec<String>,
}

/// The answer to a task; each piece is one delta.
pub(super) fn compose(terms: &Terms, mut findings: Findings) -> Vec<String> {
    // The best of each search is shown: it may be all there is of a rare term.
    let first = |report: &Report| report.places.first().map(|place| (place.path.clone(), place.line));
    let best: Vec<(String, u64)> = findings.reports.iter().filter_map(first).collect();
    let reported: Vec<Place> =
        findings.reports.iter_mut().flat_map(|report| std::mem::take(&mut report.places)).collect();
    let (tests, places) = reported.into_iter().partition(|place| place.kind == PlaceKind::Test);
    let places = diverse(merged(places, &best, terms), &best, MOST_PLACES);
    let tests = diverse(merged(tests, &best, terms), &best, MOST_TESTS);
    // Tests that nobody asked for are better than nothing.
    let show_tests = terms.wants_tests || places.is_empty();
    let mut pieces = vec![lead(terms, &places, if show_tests { &tests } else { &[] }, &findings)];
    pieces.extend(places.iter().enumerate().map(|(at, place)| shown(at + 1, place)));
    if show_tests && !tests.is_empty() {
        pieces.push("Tests:\n\n".to_owned());
        pieces.extend(tests.iter().zip(places.len() + 1..).map(|(place, number)| shown(number, place)));
    }
    for (query, text) in &findings.prose {
        let text = shortened(text.trim(), LONGEST_PROSE);
        let quoted: String = text.lines().map(|line| format!("> {line}\n")).collect();
        pieces.push(format!("The search for {query} answered in its own words:\n\n{quoted}\n"));
    }
    pieces.extend(closing(terms, &findings));
    pieces
}

/// The first sentence: the best place, or that there is none.
fn lead(terms: &Terms, places: &[Place], tests: &[Place], findings: &Findings) -> String {
    let about = names(terms);
    let tested = match tests.first() {
        Some(test) => format!(" Tests that mention it start at {}:{}.", test.path, test.line),
        None if terms.wants_tests && !places.is_empty() => " No tests that mention it were found.".to_owned(),
        None => String::new(),
    };
    match places.first() {
        Some(best) => {
            let line =
                best.quote.iter().find(|(number, _)| *number == best.line).map(|(_, text)| text.trim());
            let line = line
                .filter(|line| !line.contains('`'))
                .map_or_else(String::new, |line| format!(" (`{line}`)"));
            let files = main_files(places);
            let mostly =
                if files.is_empty() { String::new() } else { format!(" Most places are in {files}.") };
            format!("The best match for {about} is {}:{}{line}.{mostly}{tested}\n\n", best.path, best.line)
        }
        None if !tests.is_empty() => format!("Only tests mention {about}.\n\n"),
        None if !findings.prose.is_empty() => format!("What was found about {about}:\n\n"),
        None => {
            format!("Nothing was found for {about}. Other words, or a name from the code, may do better.\n\n")
        }
    }
}

/// The files that have several of the places.
fn main_files(places: &[Place]) -> String {
    let mut files: Vec<&str> = Vec::new();
    for place in places {
        let count = places.iter().filter(|other| other.path == place.path).count();
        if count > 1 && !files.contains(&place.path.as_str()) {
            files.push(&place.path);
        }
    }
    match files.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

fn names(terms: &Terms) -> String {
    terms.focus.iter().map(|term| format!("`{}`", term.text)).collect::<Vec<_>>().join(", ")
}

/// One place: where, what it stands in, and a few lines.
fn shown(number: usize, place: &Place) -> String {
    let within = place
        .within
        .as_ref()
        .map_or_else(String::new, |within| format!(" (in `{}`)", within.replace('`', "")));
    let mut text = format!("{number}. {}:{}{within}\n", place.path, place.line);
    let indent =
        place.quote.iter().filter(|(_, line)| !line.trim().is_empty()).map(|(_, line)| indent(line)).min();
    for (line, quoted) in &place.quote {
        let rest: String = quoted.chars().skip(indent.unwrap_or(0)).collect();
        text.push_str(format!("   {line:>5} | {rest}").trim_end());
        text.push('\n');
    }
    text.push('\n');
    text
}

fn indent(line: &str) -> usize {
    line.chars().take_while(|c| c.is_whitespace()).count()
}

/// One place once, with its best score; what stands for more of the task's terms comes first.
fn merged(mut places: Vec<Place>, first: &[(String, u64)], terms: &Terms) -> Vec<Place> {
    let worth = |place: &Place| {
        let stands = |text: &str| place.terms.iter().any(|term| term == text);
        let all: f64 = terms.all().map(|term| term.weight).sum();
        let there: f64 = terms.all().filter(|term| stands(&term.text)).map(|term| term.weight).sum();
        f64::from(place.score) * (0.4 + 0.6 * there / all.max(1.0))
    };
    places.sort_by(|one, two| {
        worth(two).total_cmp(&worth(one)).then_with(|| (&one.path, one.line).cmp(&(&two.path, two.line)))
    });
    let best = places.first().map_or(0.0, worth);
    let mut merged: Vec<Place> = Vec::new();
    for place in places {
        let same =
            |kept: &&mut Place| kept.path == place.path && kept.line.abs_diff(place.line) <= SAME_PLACE;
        if let Some(kept) = merged.iter_mut().find(same) {
            let new: Vec<String> =
                place.terms.into_iter().filter(|term| !kept.terms.contains(term)).collect();
            kept.terms.extend(new);
        } else if worth(&place) >= best * LEAST_SHARE || first.contains(&(place.path.clone(), place.line)) {
            merged.push(place);
        }
    }
    merged
}

/// The best places in their order, few of one file, those that must be shown among them.
fn diverse(places: Vec<Place>, best: &[(String, u64)], most: usize) -> Vec<Place> {
    let is_best = |place: &Place| best.iter().any(|(path, line)| *path == place.path && *line == place.line);
    let mut reserved = places.iter().filter(|place| is_best(place)).count().min(most);
    let mut kept: Vec<Place> = Vec::new();
    for place in places {
        let of_file = kept.iter().filter(|other| other.path == place.path).count();
        if kept.len() == most {
            break;
        }
        if is_best(&place) {
            reserved = reserved.saturating_sub(1);
            kept.push(place);
        } else if of_file < MOST_OF_A_FILE && kept.len() + reserved < most {
            kept.push(place);
        }
    }
    kept
}

/// What was searched, what went wrong, and what this is.
fn closing(terms: &Terms, findings: &Findings) -> Vec<String> {
    let mut searched: Vec<&str> = Vec::new();
    let known = terms.focus.iter().map(|term| term.text.as_str());
    for term in
        known.chain(findings.reports.iter().flat_map(|report| report.terms.iter().map(String::as_str)))
    {
        if !searched.contains(&term) {
            searched.push(term);
        }
    }
    let mut text = format!(
        "Searched for {}",
        searched.iter().map(|term| format!("`{term}`")).collect::<Vec<_>>().join(", ")
    );
    match findings.searches {
        0 => {}
        1 => text.push_str(" in one sub-agent"),
        several => text.push_str(&format!(" in {several} sub-agents")),
    }
    text.push_str(".\n");
    let mut pieces = vec![text];
    if findings.reports.iter().any(|report| report.cut) {
        pieces.push("There are more matches than a search shows; a rarer word narrows it down.\n".to_owned());
    }
    let reported = findings.reports.iter().flat_map(|report| &report.failures);
    pieces.extend(findings.failures.iter().chain(reported).map(|failure| format!("Failed: {failure}\n")));
    pieces.push(WHAT_THIS_IS.to_owned());
    pieces
}

/// The answer to a task that has no word to search for.
pub(super) fn no_terms() -> Vec<String> {
    vec![
        "There is no word in this task that could be searched for. Ask with a name from the code, a word, or a \
         quoted string.\n"
            .to_owned(),
        WHAT_THIS_IS.to_owned(),
    ]
}

/// The answer where nothing can be searched.
pub(super) fn no_tools() -> Vec<String> {
    vec![
        "The offline model answers questions about a source tree by keyword search. For that it needs the tools \
         `grep` and `read_file`, better also `run_search`; none of them is on offer in this run.\n"
            .to_owned(),
        WHAT_THIS_IS.to_owned(),
    ]
}

/// The answer where a structured value is asked for.
pub(super) fn no_schema() -> Vec<String> {
    vec![
        "The offline model cannot fill a schema: it only finds places in a source tree.\n".to_owned(),
        WHAT_THIS_IS.to_owned(),
    ]
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
