use std::collections::HashSet;
use std::process::Command;

use serde_json::{Value, json};

use super::program::{Ran, Scripted, anabranch, finish, golden, golden_directory, parent_of, without_times};

/// The run of the golden files: two levels, a child that fails, a tool that does not exist.
fn nested(args: &[&str]) -> Ran {
    let mut command =
        anabranch(&["run", "count the files", "--model", "script:nested.script.json", "--seed", "7"]);
    command.args(args).current_dir(golden_directory());
    finish(command)
}

#[test]
fn a_nested_run_is_golden_in_each_form() {
    let log = nested(&["--output", "jsonl"]).verified();
    assert_eq!((log.status, &*log.stderr), (0, ""));
    golden("nested.jsonl", &without_times(&log.stdout));

    let tree = nested(&["--output", "tree"]);
    assert_eq!((tree.status, &*tree.stderr), (0, ""));
    golden("nested.events.txt", &without_times(&tree.stdout));

    for args in [&["--output", "text"][..], &["--output", "auto"], &[]] {
        let text = nested(args);
        assert_eq!((text.status, &*text.stdout, &*text.stderr), (0, "There are 12 files.\n", ""));
    }

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log.jsonl");
    std::fs::write(&path, without_times(&log.stdout)).unwrap();
    golden("nested.tree.txt", &finish(anabranch(&["replay", path.to_str().unwrap()])).stdout);
}

#[test]
fn a_seed_gives_the_same_ids_again() {
    let ids = |args: &[&str]| -> HashSet<String> {
        let messages = nested(&[args, &["--output", "jsonl"]].concat()).messages();
        messages.iter().map(|message| message["run_id"].as_str().unwrap().to_owned()).collect()
    };
    let once = ids(&[]);
    assert_eq!(once.len(), 4);
    assert_eq!(once, ids(&[]));

    let script = Scripted::new(parent_of(1, json!([{"text": "3"}])));
    let id = |seed: &str| script.run(&["--output", "jsonl", "--seed", seed]).messages()[0]["run_id"].clone();
    assert_ne!(id("1"), id("2"));
}

#[test]
fn what_went_wrong_goes_to_stderr_in_each_form() {
    let turns = json!([{"text": "Half", "error": {"kind": "auth", "message": "no \u{1b}[31mkey"}}]);
    let script = Scripted::new(json!([{ "turns": turns }]));
    for output in ["auto", "text", "tree", "jsonl"] {
        let ran = script.run(&["--output", output]);
        assert_eq!(ran.status, 1);
        assert!(
            ran.stderr.starts_with("failed: the model call failed (auth): no ␛[31mkey\n"),
            "{}",
            ran.stderr
        );
        assert_eq!(ran.stdout.is_empty(), matches!(output, "auto" | "text"), "{}", ran.stdout);
    }
}

#[test]
fn a_structured_result_is_json_and_nothing_else() {
    let script = Scripted::new(json!([{"turns": [{"text": "```json\n{\"files\": 12}\n```"}]}]));
    script.write("schema.json", r#"{"type": "object", "required": ["files"]}"#);
    let ran = script.run(&["--schema", "schema.json"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert_eq!(serde_json::from_str::<Value>(&ran.stdout).unwrap(), json!({"files": 12}));

    script.write("schema.json", r#"{"type": "object", "required": ["folders"]}"#);
    let ran = script.run(&["--schema", "schema.json"]);
    assert_eq!((ran.status, &*ran.stdout), (1, ""), "{}", ran.stderr);
}

/// A result that the events have said is not said again; one that they cut is whole.
#[test]
fn the_tree_as_lines_has_the_whole_result_once() {
    let long = (0..60).map(|line| format!("line {line}\n")).collect::<String>();
    let script = Scripted::new(json!([{"turns": [{"text": long}]}]));
    let ran = script.run(&["--output", "tree"]);
    assert_eq!(ran.stdout.matches("| line 0\n").count(), 1);
    assert_eq!(ran.stdout.lines().filter(|line| line.starts_with("= line ")).count(), 60, "{}", ran.stdout);

    let script = Scripted::new(json!([{"turns": [{"text": "short"}]}]));
    assert_eq!(script.run(&["--output", "tree"]).stdout.matches("short").count(), 1);
}

/// More than a pipe holds, from one run and from many at once: each line whole, none missing.
#[test]
fn a_flood_arrives_whole() {
    let turns = json!([{"generate": {"chunks": 2000, "text": "many words "}}]);
    let script = Scripted::new(parent_of(5, turns));
    let ran = script.run(&["--output", "jsonl"]).verified();
    assert_eq!((ran.status, ran.of_kind("chunk").len() >= 10_000), (0, true));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_1_and_is_told() {
    let script = Scripted::new(parent_of(2, json!([{"text": "3"}])));
    for output in ["jsonl", "tree", "text"] {
        let mut command = script.command(&["--output", output]);
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let child = command.stdout(full).stderr(std::process::Stdio::piped()).spawn().unwrap();
        let ran = super::program::Running::new(child).end();
        assert_eq!(ran.status, 1, "{output}");
        assert!(ran.stderr.contains("cannot write to stdout: No space left"), "{output}: {}", ran.stderr);
    }
}

/// On a terminal, made by `script` where there is one: what is switched on is switched off, the tree is there once when
/// it is done, and the result after it.
#[cfg(target_os = "linux")]
#[test]
fn the_live_tree_leaves_a_terminal_as_it_found_it() {
    let script = Scripted::new(parent_of(3, json!([{"chunks": ["a ", "b ", "c"], "chunk_delay_ms": 60}])));
    let program = format!("{} run go --model script:script.json", env!("CARGO_BIN_EXE_anabranch"));
    for (colours, no_color) in [(true, ""), (false, "1")] {
        let mut command = Command::new("script");
        command.args(["-qec", &program, "/dev/null"]).current_dir(script.path());
        command.env("TERM", "xterm").env("NO_COLOR", no_color).stdin(std::process::Stdio::null());
        if Command::new("script").arg("--version").output().is_err() {
            return;
        }
        let ran = finish(command);
        assert_eq!(ran.status, 0, "{ran:?}");
        let count = |what: &str| ran.stdout.matches(what).count();
        assert!(count("\x1b[?2026h") > 2, "{ran:?}");
        assert_eq!(count("\x1b[?2026h"), count("\x1b[?2026l"));
        assert_eq!(count("\x1b[?7l"), count("\x1b[?7h"));
        assert_eq!((count("\x1b[?25l"), count("\x1b[?1049h")), (0, 0));
        assert_eq!(ran.stdout.contains("\x1b[38;5;"), colours, "{ran:?}");
        let end = ran.stdout.rfind("✓ ").map(|_| ran.stdout.rsplit("4 runs").next().unwrap()).unwrap();
        assert!(end.contains("Done."), "{ran:?}");
        assert_eq!(count("Done."), 1 + usize::from(count("│ Done.") > 0), "{ran:?}");
    }
}
