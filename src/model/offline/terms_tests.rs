use super::*;

fn texts(terms: &[Term]) -> Vec<&str> {
    terms.iter().map(|term| term.text.as_str()).collect()
}

/// Focus and context of a task.
#[track_caller]
fn check(task: &str, focus: &[&str], context: &[&str]) -> Terms {
    let terms = of_task(task);
    assert_eq!((texts(&terms.focus), texts(&terms.context)), (focus.to_vec(), context.to_vec()), "{task}");
    terms
}

#[test]
fn what_carries_meaning() {
    assert!(
        check("where is cancellation handled, and what tests it?", &["cancellation"], &["handled"])
            .wants_tests
    );
    assert!(
        !check(
            "how does CancellationToken wake its waiters?",
            &["CancellationToken", "wake", "waiters"],
            &[]
        )
        .wants_tests
    );
    check("where are .gitignore files parsed?", &[".gitignore"], &["files", "parsed"]);
    check("what does `retry` do on a 429?", &["retry", "429"], &[]);
    check("Find uses of \"no such file\" in src/main.rs", &["no such file", "src/main.rs"], &[]);
    check("what does JoinHandle::abort() do", &["JoinHandle::abort"], &["JoinHandle"]);
    check(
        "the user's read/write limits, e.g. max_depth",
        &["user", "limits", "max_depth"],
        &["read", "write"],
    );
    check("why don't sub-agents see --max-depth?", &["sub-agents", "--max-depth"], &[]);
    check("how are errors handled", &["errors", "handled"], &[]);
}

#[test]
fn tasks_without_meaning() {
    for task in ["", "   ", "???", "what is it?", "a b c", "12", "\u{0}\u{1}"] {
        let terms = of_task(task);
        assert!(terms.focus.is_empty() || task == "12", "{task:?}: {:?}", texts(&terms.focus));
    }
    check("explain everything", &["everything", "explain"], &[]);
    assert!(check("how are the tests run?", &["run"], &[]).wants_tests);
    assert!(check("tests", &["tests"], &[]).wants_tests);
}

#[test]
fn other_languages() {
    check("wo wird die Größe geprüft?", &["wo", "wird", "die", "Größe", "geprüft"], &[]);
    let terms = check("取消在哪里 “état”", &["取消在哪里", "état"], &[]);
    assert!(terms.focus[1].regex.is_match("l'État"));
    assert!(of_task("größe").focus[0].regex.is_match("DateiGröße"));
}

#[test]
fn a_long_task_names_its_topic_early() {
    let task: String = (0..500).map(|n| format!("topic{n} ")).collect();
    assert_eq!(of_task(&task).focus.len(), MOST_TERMS);
}

#[test]
fn queries() {
    let terms = of_query("`cancellation` (for: where is cancellation handled, and what tests it?)");
    assert_eq!((texts(&terms.focus), texts(&terms.context)), (vec!["cancellation"], vec!["handled"]));
    assert!(terms.wants_tests && !terms.only_tests);
    let terms = of_query("tests of `retry`, `429` (for: what does retry do on a 429 answer, and its tests)");
    assert_eq!((texts(&terms.focus), texts(&terms.context)), (vec!["retry", "429"], vec!["answer"]));
    assert!(terms.wants_tests && terms.only_tests);
    let terms = of_query("where is the journal written?");
    assert_eq!((texts(&terms.focus), texts(&terms.context)), (vec!["journal"], vec!["written"]));
}

#[test]
fn patterns_find_variants_and_nothing_else() {
    for (task, found, not_found) in [
        ("cancellation", "cancel Cancelled is_cancelled CancellationToken preCancel", "scancel"),
        ("retry", "retry Retries no_retry RetryPolicy retried", "retrieve noretry"),
        (
            "CancellationToken",
            "cancellation_token CancellationTokens MyCancellationToken cancellation-token",
            "cancel",
        ),
        ("run_search", "RunSearch run_search run-search", "search prerun_search"),
        ("sub-agents", "sub-agent SubAgentTool subagents sub_agent", "subject"),
        ("NaN", "NaN nan is_nan allow_nan", "tabnanny nanny"),
        ("bus", "bus EventBus event_bus buss BusError", "busy robust"),
        ("429", "429 (429)", "4290 a429"),
        ("what is in chat.rs?", "chat Chat", "that"),
        ("`a+b`", "a+b", "aab cab"),
    ] {
        let term = of_task(task).focus.remove(0);
        for word in found.split(' ') {
            assert!(term.regex.is_match(word), "{} does not find {word}", term.pattern);
        }
        for word in not_found.split(' ') {
            assert!(!term.regex.is_match(word), "{} finds {word}", term.pattern);
        }
    }
}

#[test]
fn parts_of_names() {
    for (name, expected) in [
        ("CancellationToken", "cancellation token"),
        ("HTTPServer2", "http server2"),
        ("max_depth", "max depth"),
        ("--max-depth", "max depth"),
        ("ÄrgerÜber", "ärger über"),
        ("", ""),
        ("SSE", "sse"),
    ] {
        assert_eq!(parts(name).join(" "), expected);
    }
}
