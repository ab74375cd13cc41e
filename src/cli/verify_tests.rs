//! `verify`, from a file to its output and its status.

use super::super::sample::{two_children, whole};
use super::*;

fn run(log: &str) -> (String, ExitStatus) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("log.jsonl");
    std::fs::write(&file, log).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = verify(&file, &mut out, &mut err);
    assert!(err.is_empty());
    (String::from_utf8(out).unwrap(), status)
}

#[test]
fn a_log_that_holds_is_counted() {
    assert_eq!(run(&whole().log()), ("ok: 21 messages, 3 runs\n".into(), ExitStatus::Completed));
}

#[test]
fn each_violation_is_named_with_its_place() {
    let mut log = whole();
    let late = log.messages.len();
    log.text("a", "late", true);
    assert_eq!(
        run(&log.log()),
        (format!("I3 at seq {late}: chunk of run a after its run_finished\n"), ExitStatus::Failed)
    );
    let (out, status) = run(&two_children().log());
    assert_eq!(status, ExitStatus::Failed);
    assert!(out.contains("I1 at seq 14: run root has no run_finished\n"), "{out}");
}

#[test]
fn a_line_that_is_no_message_does_not_hold() {
    let (out, status) = run(&format!("{}\n", whole().log()));
    assert_eq!((&*out, status), ("line 22: empty\n", ExitStatus::Failed));
    assert_eq!(run(""), ("no message in this log\n".into(), ExitStatus::Failed));
}

#[test]
fn what_cannot_be_opened_is_bad_usage() {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    assert_eq!(verify(Path::new("no/such/log"), &mut out, &mut err), ExitStatus::Usage);
    assert!(String::from_utf8(err).unwrap().starts_with("error: cannot read no/such/log: "));
}
