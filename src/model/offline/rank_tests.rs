//! What a person would have looked at first.

use super::*;
use crate::model::offline::terms;

fn hits(lines: &[(&str, u64, &str)]) -> Vec<Hit> {
    lines
        .iter()
        .map(|(path, line, text)| Hit { path: (*path).into(), line: *line, text: (*text).into() })
        .collect()
}

/// The ranking as `path:line`.
fn ranked(task: &str, lines: &[(&str, u64, &str)]) -> Vec<String> {
    let found = candidates(&hits(lines), &Known::default(), &terms::of_task(task));
    found.iter().map(|place| format!("{}:{}", place.path, place.line)).collect()
}

#[test]
fn definitions_before_headings_before_uses_before_imports() {
    let lines = [
        ("src/a.rs", 1, "use crate::cancel;"),
        ("src/b.rs", 7, "    token.cancel();"),
        ("src/c.rs", 7, "pub fn cancel(&self) {"),
        ("README.md", 3, "## Cancelling"),
    ];
    assert_eq!(ranked("cancellation", &lines), ["src/c.rs:7", "README.md:3", "src/b.rs:7", "src/a.rs:1"]);
}

#[test]
fn sources_before_data_before_what_others_wrote() {
    let line = "let cancel = cancel(x);";
    let lines = [
        ("Cargo.lock", 1, line),
        ("vendor/a.rs", 1, line),
        ("config.toml", 1, line),
        ("examples/a.rs", 1, line),
        ("src/a.rs", 1, line),
    ];
    let order = ranked("cancellation", &lines);
    assert_eq!(order[..3], ["src/a.rs:1", "config.toml:1", "examples/a.rs:1"]);
    assert_eq!(order.len(), 5);
}

#[test]
fn several_terms_near_one_another_before_one_term_often() {
    let lines = [
        ("src/a.rs", 1, "retry(retry(retry(x)));"),
        ("src/a.rs", 2, "retry(retry(x));"),
        ("src/b.rs", 1, "if status == 429 {"),
        ("src/b.rs", 3, "    retry(x);"),
    ];
    assert_eq!(ranked("what does retry do on a 429", &lines)[0].split(':').next(), Some("src/b.rs"));
}

#[test]
fn the_file_with_the_name_comes_first() {
    let line = "self.token.cancel();";
    assert_eq!(ranked("cancel", &[("src/a.rs", 1, line), ("src/cancel.rs", 1, line)])[0], "src/cancel.rs:1");
    let lines = [
        ("src/token.rs", 9, "pub fn cancellation_token() {}"),
        ("src/cancellation_token.rs", 9, "pub struct CancellationToken {"),
        ("src/a.rs", 9, "pub struct CancellationTokenBuilder {"),
    ];
    assert_eq!(ranked("CancellationToken", &lines)[0], "src/cancellation_token.rs:9");
}

#[test]
fn each_definition_is_a_place_and_uses_near_it_are_part_of_it() {
    let lines = [
        ("src/a.rs", 1, "pub fn cancel() {"),
        ("src/a.rs", 2, "    inner.cancel();"),
        ("src/a.rs", 5, "pub fn cancel_all() {"),
        ("src/a.rs", 200, "    cancel();"),
    ];
    assert_eq!(ranked("cancel", &lines), ["src/a.rs:1", "src/a.rs:5", "src/a.rs:200"]);
}

#[test]
fn few_of_one_file_and_few_of_one_line() {
    let mut lines = vec![("src/z.rs", 1, "    cancel(this);")];
    let calls: Vec<String> = (0..6).map(|n| format!("    cancel(x{n});")).collect();
    lines.extend(calls.iter().zip(0..).map(|(text, n)| ("src/a.rs", n * 100, text.as_str())));
    let found = candidates(&hits(&lines), &Known::default(), &terms::of_task("cancel"));
    let first: Vec<_> = select(found, 2).iter().map(|place| place.path.to_string()).collect();
    assert_eq!(first, ["src/a.rs", "src/z.rs"]);
    let same: Vec<(String, u64)> = (0..4).map(|n| (format!("src/{n}.rs"), 1)).collect();
    let mut lines: Vec<(&str, u64, &str)> =
        same.iter().map(|(path, line)| (path.as_str(), *line, "    fn cancel(self) -> Data {")).collect();
    lines.push(("src/other.rs", 1, "    self.cancel(now)"));
    lines.push(("src/other.rs", 90, "    pub fn cancel_everything_soon() {"));
    let found = candidates(&hits(&lines), &Known::default(), &terms::of_task("cancel"));
    assert_eq!(&*select(found, 2)[1].path, "src/other.rs");
}

#[test]
fn tests_are_known_by_path_name_attribute_and_module() {
    let lines = [
        ("tests/a.rs", 1, "fn cancels() {"),
        ("a.py", 1, "def test_cancel():"),
        ("src/a.rs", 3, "    fn cancels_too() {"),
        ("src/b.rs", 30, "    cancel();"),
        ("src/b.rs", 3, "    cancel(a);"),
    ];
    let mut known = Known::default();
    let window = [(1, "    #[test]"), (2, "    #[ignore]"), (3, "    fn cancels_too() {")];
    known
        .windows
        .insert("src/a.rs".into(), window.into_iter().map(|(at, text)| (at, text.to_owned())).collect());
    known.tests_from.insert("src/b.rs".into(), 20);
    let found = candidates(&hits(&lines), &known, &terms::of_task("cancel"));
    let not_tests: Vec<_> = found.iter().filter(|place| place.kind != PlaceKind::Test).collect();
    assert_eq!(not_tests.len(), 1);
    assert_eq!((&*not_tests[0].path, not_tests[0].line), ("src/b.rs", 3));
}

#[test]
fn a_place_says_what_it_stands_in() {
    let window =
        ["impl Token {", "    pub fn stop(&self) {", "        let a = 1;", "", "        self.cancel();"];
    let mut known = Known::default();
    let lines = window.iter().zip(1..).map(|(text, at)| (at, (*text).to_owned())).collect();
    known.windows.insert("src/a.rs".into(), lines);
    let found = candidates(&hits(&[("src/a.rs", 5, window[4])]), &known, &terms::of_task("cancel"));
    assert_eq!(found[0].within.as_deref(), Some("fn stop"));
}

#[test]
fn the_order_does_not_depend_on_the_order_of_the_hits() {
    let mut lines = [("b.rs", 1, "cancel();"), ("a.rs", 9, "cancel();"), ("a.rs", 50, "cancel();")];
    let order = ranked("cancel", &lines);
    lines.reverse();
    assert_eq!(ranked("cancel", &lines), order);
    assert!(ranked("cancel", &[]).is_empty());
}
