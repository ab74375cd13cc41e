//! A run that was given what others found: it answers from that, and searches no more.

use super::answer::{self, Findings};
use super::model::{query, tagged};
use super::report::Report;
use super::terms;

/// The answer to a task whose brief has inputs; none if it has none, or is a search that got some along.
pub(super) fn answer(task: &str) -> Option<Vec<String>> {
    let inputs = blocks(task);
    if inputs.is_empty() || query(task).is_some() {
        return None;
    }
    let before = task.split("\nInput `").next().unwrap_or_default();
    let question = tagged(before, "<question>", "</question>").unwrap_or(before);
    let terms = terms::of_task(question);
    if terms.focus.is_empty() {
        return Some(answer::no_terms());
    }
    let mut findings = Findings::default();
    for (name, text) in inputs {
        match Report::read(&text) {
            Some(report) => findings.reports.push(report),
            None => findings.prose.push((format!("`{name}`"), text)),
        }
    }
    findings.searches = findings.reports.len() + findings.prose.len();
    Some(answer::compose(&terms, findings))
}

/// The inputs of a brief: a line ``Input `name`:``, then a block between fences of backquotes that do not occur in it.
fn blocks(task: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = task.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("Input `").and_then(|rest| rest.strip_suffix("`:")) else {
            continue;
        };
        let fence =
            lines.by_ref().find(|line| !line.trim().is_empty()).and_then(|line| line.strip_suffix("text"));
        let Some(fence) = fence.filter(|fence| fence.len() >= 3 && fence.bytes().all(|byte| byte == b'`'))
        else {
            continue;
        };
        let inside: Vec<&str> = lines.by_ref().take_while(|line| *line != fence).collect();
        blocks.push((name.to_owned(), inside.join("\n")));
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::super::report::{Place, PlaceKind};
    use super::*;

    fn report(path: &str, kind: PlaceKind) -> String {
        let place = Place {
            path: path.into(),
            line: 3,
            kind,
            within: None,
            score: 10,
            terms: vec!["retry".into()],
            quote: vec![(3, "fn retry() {".into())],
        };
        Report { terms: vec!["retry".into()], places: vec![place], ..Report::default() }.write()
    }

    #[test]
    fn reports_are_joined_and_other_text_is_quoted() {
        let task = format!(
            "Answer.\n\n<question>\nwhere is retry handled, and what tests it?\n</question>\n\nThe inputs are.\n\nInput `code`:\n\n```text\n{}```\n\nInput `tests`:\n\n```text\n{}```\n\nInput `b`:\n\n````text\nsaid ```\n```\nInput `c`:\n````\n",
            report("a.rs", PlaceKind::Definition),
            report("t.rs", PlaceKind::Test),
        );
        let text = answer(&task).unwrap().concat();
        assert!(text.starts_with("The best match for `retry` is a.rs:3 (`fn retry() {`). Tests that mention it start at t.rs:3."), "{text}");
        assert!(
            text.contains(
                "The search for `b` answered in its own words:\n\n> said ```\n> ```\n> Input `c`:\n"
            ),
            "{text}"
        );
        assert!(text.contains("in 3 sub-agents") && text.contains("keyword heuristic"), "{text}");
    }

    #[test]
    fn a_task_without_inputs_and_a_search_are_not_for_this() {
        for task in [
            "where is retry?",
            "Input `a`:",
            "Input `a`:\n\nno fence\n",
            "<query>\nx\n</query>\n\nInput `a`:\n\n```text\nx\n```\n",
        ] {
            assert_eq!(answer(task), None, "{task}");
        }
    }
}
