use super::*;
use crate::model::offline::terms;

fn place(path: &str, line: u64, score: u32, kind: PlaceKind) -> Place {
    let quote = vec![(line, format!("line {line}"))];
    Place { path: path.into(), line, kind, within: None, score, terms: vec!["retry".into()], quote }
}

fn report(places: Vec<Place>) -> Report {
    Report { terms: vec!["retry".into()], places, ..Report::default() }
}

/// The places of an answer, in order.
fn places(task: &str, reports: Vec<Report>) -> Vec<String> {
    let text = compose(&terms::of_task(task), Findings { reports, ..Findings::default() }).concat();
    let numbered = text
        .lines()
        .filter_map(|line| Some(line.split_once(". ").filter(|(n, _)| n.parse::<u8>().is_ok())?.1));
    numbered.map(str::to_owned).collect()
}

#[test]
fn reports_are_merged_ranked_and_cut() {
    use PlaceKind::Use;
    let one = report(vec![place("a.rs", 10, 90, Use), place("b.rs", 1, 50, Use), place("c.rs", 1, 5, Use)]);
    let two = report(vec![place("b.rs", 4, 60, Use), place("d.rs", 1, 80, Use)]);
    assert_eq!(places("retry", vec![one, two]), ["a.rs:10", "d.rs:1", "b.rs:4"]);
}

#[test]
fn few_of_one_file_and_the_best_of_each_search() {
    use PlaceKind::Use;
    let many = (0..9).map(|n| place("a.rs", n * 100, 90, Use));
    let others = (0..9).map(|n| place(&format!("{n}.rs"), 1, 80, Use));
    let rare = report(vec![place("rare.rs", 1, 3, Use)]);
    let found = places("retry", vec![report(many.chain(others).collect()), rare]);
    assert_eq!(found.len(), MOST_PLACES);
    assert_eq!(found.iter().filter(|place| place.starts_with("a.rs")).count(), MOST_OF_A_FILE);
    assert_eq!(found.last().unwrap(), "rare.rs:1");
}

#[test]
fn tests_are_shown_if_they_are_asked_for_or_all_there_is() {
    use PlaceKind::{Test, Use};
    let both = || vec![report(vec![place("t.rs", 1, 90, Test), place("a.rs", 1, 20, Use)])];
    assert_eq!(places("retry", both()), ["a.rs:1"]);
    assert_eq!(places("retry and its tests", both()), ["a.rs:1", "t.rs:1"]);
    assert_eq!(places("retry", vec![report(vec![place("t.rs", 1, 90, Test)])]), ["t.rs:1"]);
}

#[test]
fn what_went_wrong_and_what_this_is_stand_at_the_end() {
    let mut cut = report(vec![]);
    (cut.cut, cut.failures) = (true, vec!["grep: denied".into()]);
    let findings = Findings {
        searches: 2,
        reports: vec![cut],
        failures: vec!["the search for `x`: refused".into()],
        ..Findings::default()
    };
    let pieces = compose(&terms::of_task("retry"), findings);
    assert_eq!(
        pieces.concat(),
        "Nothing was found for `retry`. Other words, or a name from the code, may do better.\n\n\
         Searched for `retry` in 2 sub-agents.\n\
         There are more matches than a search shows; a rarer word narrows it down.\n\
         Failed: the search for `x`: refused\n\
         Failed: grep: denied\n\
         This is a keyword heuristic without a language model: it ranks matching lines and understands none of \
         them. `--model` takes a real one.\n"
    );
    assert_eq!(pieces.len(), 6);
}

#[test]
fn the_lead_names_the_files_that_have_most() {
    use PlaceKind::{Test, Use};
    let found = vec![
        place("a.rs", 1, 90, Use),
        place("a.rs", 50, 80, Use),
        place("b.rs", 1, 70, Use),
        place("t.rs", 9, 70, Test),
    ];
    let pieces = compose(
        &terms::of_task("retry, tests?"),
        Findings { reports: vec![report(found)], ..Findings::default() },
    );
    assert_eq!(
        pieces[0],
        "The best match for `retry` is a.rs:1 (`line 1`). Most places are in a.rs. Tests that mention it start at t.rs:9.\n\n"
    );
    assert_eq!(pieces[1], "1. a.rs:1\n       1 | line 1\n\n");
}
