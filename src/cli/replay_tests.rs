//! `replay`, from a file to its two outputs and its status.

use std::path::PathBuf;

use super::super::sample::{two_children, whole};
use super::*;

const PIPE: Streams =
    Streams { stdout_draws: false, stderr_draws: false, stdout_is_terminal: false, colours: true };

fn run(log: &[u8], output: ReplayOutput) -> (String, String, ExitStatus) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("log.jsonl");
    std::fs::write(&file, log).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = replay(&ReplayArgs { file, output }, PIPE, &mut out, &mut err);
    (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), status)
}

const TREE: &str = "\
✓ find where cancellation is handled (worker) · 2.0s · 1.5k tokens · 2 calls
├ ✓ cancel (worker) · 0.6s · 1 call
└ ✗ abort (worker) · 1.0s · 1 call · failed: nothing found
3 runs · 1.5k tokens · $0.0123 · 2.0s
";

#[test]
fn a_log_gives_its_tree_its_result_and_its_messages() {
    let log = whole().log();
    let bytes = log.as_bytes();
    assert_eq!(run(bytes, ReplayOutput::Tree), (TREE.into(), String::new(), ExitStatus::Completed));
    assert_eq!(run(bytes, ReplayOutput::Text).0, "In src/cancel.rs.\nThat is all.\n");
    assert_eq!(run(bytes, ReplayOutput::Jsonl).0, log);
    let json: serde_json::Value = serde_json::from_str(&run(bytes, ReplayOutput::Json).0).unwrap();
    assert_eq!(json, whole().tree().to_json());
    assert!(run(bytes, ReplayOutput::Events).0.starts_with("[1] ▶ find where"));
}

#[test]
fn bad_lines_are_reported_and_the_tree_is_that_of_the_others() {
    let log = whole().log();
    let bad = format!("garbage\n{log}{{\"type\":");
    let (out, err, status) = run(bad.as_bytes(), ReplayOutput::Tree);
    assert_eq!((&*out, status), (TREE, ExitStatus::Completed));
    assert_eq!(err.lines().count(), 2, "{err}");
    assert!(err.starts_with("warning: line 1: not a message: "), "{err}");
    assert!(err.contains("warning: line 23: cut off in the middle"), "{err}");
    assert_eq!(run(bad.as_bytes(), ReplayOutput::Jsonl).0, log);
    let much = "garbage\n".repeat(1000) + &log;
    let (_, err, _) = run(much.as_bytes(), ReplayOutput::Tree);
    assert_eq!(err.lines().count(), 21);
    assert!(err.ends_with("warning: 980 more lines are no messages of this log\n"), "{err}");
}

#[test]
fn the_status_is_that_of_the_root() {
    let log = two_children();
    let (out, err, status) = run(log.log().as_bytes(), ReplayOutput::Tree);
    assert!(out.starts_with("! find where") && status == ExitStatus::Failed, "{out}");
    assert_eq!(err, "warning: interrupted: the log ends before its root run does\n");
    for (outcome, status) in [
        ("failed", ExitStatus::Failed),
        ("stopped", ExitStatus::Stopped),
        ("cancelled", ExitStatus::Cancelled),
    ] {
        let mut log = two_children();
        log.end("b", "cancelled", "cancelled by parent").end("root", outcome, "the\x07 reason");
        let (out, err, found) = run(log.log().as_bytes(), ReplayOutput::Text);
        assert_eq!((&*out, &*err, found), ("", &*format!("{outcome}: the␇ reason\n"), status));
    }
    let (_, err, status) = run(b"", ReplayOutput::Tree);
    assert_eq!((&*err, status), ("error: no message in this log\n", ExitStatus::Failed));
}

#[test]
fn what_cannot_be_opened_is_bad_usage() {
    let args = ReplayArgs { file: PathBuf::from("no/such/log"), output: ReplayOutput::Tree };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    assert_eq!(replay(&args, PIPE, &mut out, &mut err), ExitStatus::Usage);
    assert!(String::from_utf8(err).unwrap().starts_with("error: cannot read no/such/log: "));
}

#[test]
fn a_closed_pipe_is_quiet_and_a_full_disk_is_not() {
    struct Fails(io::ErrorKind);
    impl Write for Fails {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("log.jsonl");
    std::fs::write(&file, whole().log()).unwrap();
    for output in [ReplayOutput::Tree, ReplayOutput::Events, ReplayOutput::Jsonl, ReplayOutput::Json] {
        let args = ReplayArgs { file: file.clone(), output };
        let mut err = Vec::new();
        replay(&args, PIPE, &mut Fails(io::ErrorKind::BrokenPipe), &mut err);
        assert!(err.is_empty());
        let status = replay(&args, PIPE, &mut Fails(io::ErrorKind::StorageFull), &mut err);
        assert_eq!(status, ExitStatus::Failed);
        assert!(String::from_utf8(err).unwrap().starts_with("error: cannot write to stdout: "));
    }
}
