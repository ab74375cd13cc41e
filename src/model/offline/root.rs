//! A run that can delegate: it asks one search for each group of terms, all at once, and answers from what they report.

use serde_json::json;

use super::answer::{self, Findings};
use super::model::{Conversation, RUN_SEARCH, Turn};
use super::report::Report;
use super::results;
use super::searcher::{self, Search, quoted};
use super::terms::{self, FOR, Term, Terms, one_line};

/// So many searches at once.
const MOST_SEARCHES: usize = 4;
/// So many terms in one search.
const MOST_TERMS: usize = 3;
/// So much of the question goes along with a query, for whoever answers it.
const LONGEST_QUESTION: usize = 160;

/// Decides by what has been done since the task was given.
pub(super) fn next(conversation: &Conversation<'_>) -> Turn {
    let terms = terms::of_task(conversation.task);
    let mut results = conversation.results(RUN_SEARCH).peekable();
    if results.peek().is_none() {
        if terms.focus.is_empty() {
            return Turn::say(answer::no_terms());
        }
        if conversation.may_call(RUN_SEARCH) {
            return delegate(conversation, &terms);
        }
    }
    let mut findings = Findings::default();
    for result in results {
        let query = result.arguments.get("query").and_then(|query| query.as_str()).unwrap_or_default();
        let query = query.split_once(FOR).map_or(query, |(head, _)| head);
        if result.is_error {
            findings.failures.push(format!("the search for {query}: {}", results::failure(result.content)));
            continue;
        }
        let text = results::child_text(result.content);
        match Report::read(&text) {
            Some(report) => findings.reports.push(report),
            None => findings.prose.push((query.to_owned(), text)),
        }
    }
    findings.searches = findings.reports.len() + findings.prose.len();
    if findings.searches == 0 && conversation.offers("grep") {
        // No search could be made: what this run can do itself is better than nothing.
        return search_alone(conversation, &terms, findings.failures);
    }
    Turn::say(answer::compose(&terms, findings))
}

/// Searches in this very run.
pub(super) fn search_alone(conversation: &Conversation<'_>, terms: &Terms, failures: Vec<String>) -> Turn {
    if terms.focus.is_empty() {
        return Turn::say(answer::no_terms());
    }
    match searcher::next(conversation, terms) {
        Search::Go(turn) => turn,
        Search::Done(report) => Turn::say(answer::compose(
            terms,
            Findings { reports: vec![report], failures, ..Findings::default() },
        )),
    }
}

fn delegate(conversation: &Conversation<'_>, terms: &Terms) -> Turn {
    let queries = queries(conversation.task, terms);
    let topics: Vec<String> = groups(terms).iter().map(|group| quoted(group)).collect();
    let tests = if terms.wants_tests { ", and for tests of it" } else { "" };
    let plural = if queries.len() == 1 { "search" } else { "searches" };
    let text = format!("Looking for {}{tests}: {} {plural}.", topics.join("; "), queries.len());
    let calls = queries
        .into_iter()
        .map(|query| (RUN_SEARCH.to_owned(), conversation.fitting(RUN_SEARCH, json!({ "query": query }))));
    Turn { text: vec![text], calls: calls.collect() }
}

/// What to search for to answer a question: a query for each group of terms, and one for tests if it asks for these.
pub(super) fn queries(question: &str, terms: &Terms) -> Vec<String> {
    let question = results::shortened(&plain(question), LONGEST_QUESTION);
    let mut queries: Vec<String> =
        groups(terms).iter().map(|group| format!("{}{FOR}{question})", quoted(group))).collect();
    if terms.wants_tests {
        let all: Vec<&Term> = terms.focus.iter().take(MOST_TERMS).collect();
        queries.push(format!("tests of {}{FOR}{question})", quoted(&all)));
    }
    queries
}

/// A name is a group by itself; words of one clause belong together.
fn groups(terms: &Terms) -> Vec<Vec<&Term>> {
    let joins = |last: &Term, term: &Term| last.is_word && term.is_word && last.clause == term.clause;
    let most = if terms.wants_tests { MOST_SEARCHES - 1 } else { MOST_SEARCHES };
    let mut groups: Vec<Vec<&Term>> = Vec::new();
    for term in &terms.focus {
        match groups.last_mut() {
            Some(group) if group.len() < MOST_TERMS && group.last().is_some_and(|last| joins(last, term)) => {
                group.push(term);
            }
            _ => groups.push(vec![term]),
        }
    }
    // What is more joins the last group, as far as it fits.
    let rest: Vec<&Term> = groups.split_off(most.min(groups.len())).concat();
    if let Some(last) = groups.last_mut() {
        last.extend(rest);
        last.truncate(MOST_TERMS);
    }
    groups
}

/// The question as one line in which nothing is quoted: what is quoted in a query is what to search for.
fn plain(task: &str) -> String {
    let text = one_line(task).replace(['`', '"'], "");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
#[path = "root_tests.rs"]
mod tests;
