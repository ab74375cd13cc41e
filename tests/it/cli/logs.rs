use std::process::Stdio;

use serde_json::{Value, json};

use super::program::{Ran, Running, Scripted, anabranch, finish, parent_of, without_times};

fn read_back(script: &Scripted, command: &str, args: &[&str], log: impl AsRef<[u8]>) -> Ran {
    let path = script.write("log.jsonl", log);
    let mut program = anabranch(&[command, path.to_str().unwrap()]);
    program.args(args);
    finish(program)
}

#[test]
fn a_log_gives_the_same_tree_as_the_live_run() {
    let script = Scripted::new(parent_of(3, json!([{"thinking": "So.", "chunks": ["a ", "b"]}])));
    let live = script.run(&["--output", "tree", "--seed", "7"]);
    let log = script.run(&["--output", "jsonl", "--seed", "7"]).verified();
    assert_eq!((live.status, log.status), (0, 0));
    let replay = |output| read_back(&script, "replay", &["--output", output], &log.stdout);

    assert_eq!(without_times(&replay("events").stdout), without_times(&live.stdout));
    assert_eq!(replay("text").stdout, script.run(&[]).stdout);
    assert_eq!(replay("jsonl").stdout, log.stdout);
    let tree: Value = serde_json::from_str(&replay("json").stdout).unwrap();
    assert_eq!(tree["root"]["children"].as_array().unwrap().len(), 3);
    let tree = read_back(&script, "replay", &[], &log.stdout);
    assert_eq!((tree.status, tree.stdout.lines().count(), &*tree.stderr), (0, 5, ""));
}

#[test]
fn a_log_can_come_by_a_pipe() {
    let script = Scripted::new(parent_of(1, json!([{"text": "3"}])));
    let log = script.run(&["--output", "jsonl"]);
    let path = script.write("log.jsonl", &log.stdout);
    for (command, said) in [("verify", "ok: "), ("replay", "✓ go")] {
        let mut program = anabranch(&[command, "-"]);
        program.stdin(std::fs::File::open(&path).unwrap());
        let ran = finish(program);
        assert!(ran.status == 0 && ran.stdout.starts_with(said), "{ran:?}");
    }
}

#[test]
fn what_is_no_message_is_reported_by_line_and_nothing_else_is_lost() {
    let script = Scripted::new(parent_of(1, json!([{"text": "3"}])));
    let log = script.run(&["--output", "jsonl", "--seed", "7"]).stdout;
    let lines: Vec<&str> = log.lines().collect();
    let foreign = script.run(&["--output", "jsonl", "--seed", "8"]).stdout;
    let (whole, half) = lines.split_at(lines.len() - 1);
    let with = |at: usize, line: &[u8]| {
        let mut bytes = Vec::new();
        for (number, old) in lines.iter().enumerate() {
            if number == at {
                bytes.extend_from_slice(line);
                bytes.push(b'\n');
            }
            bytes.extend_from_slice(old.as_bytes());
            bytes.push(b'\n');
        }
        bytes
    };
    let cut = format!("{}\n{}", whole.join("\n"), &half[0][..half[0].len() / 2]);
    let mut extra = with(2, b"not a message");
    extra.extend_from_slice(b"{\"type\":");
    let table: Vec<(Vec<u8>, i32, &[&str])> = vec![
        (with(1, b"not a message"), 0, &["line 2: "]),
        (with(3, foreign.lines().next().unwrap().as_bytes()), 0, &["line 4: ", "another root"]),
        (with(2, b"\xff\xfe"), 0, &["line 3: ", "invalid UTF-8"]),
        (with(2, b""), 0, &["line 3: ", "empty"]),
        (
            with(2, b"{\"type\":\"chunk\",\"content\":\"a\",\"done\":true}"),
            0,
            &["line 3: ", "without an envelope"],
        ),
        (cut.clone().into_bytes(), 1, &["cut off in the middle", "interrupted"]),
        (extra, 0, &["line 3: ", "cut off in the middle"]),
    ];
    for (bytes, status, said) in table {
        let replayed = read_back(&script, "replay", &[], &bytes);
        assert_eq!(replayed.status, status, "{replayed:?}");
        assert!(
            replayed.stdout.contains("go (agent)") && replayed.stdout.contains("child 0"),
            "{replayed:?}"
        );
        let verified = read_back(&script, "verify", &[], &bytes);
        assert_eq!((verified.status, &*verified.stderr), (1, ""), "{verified:?}");
        for words in said {
            assert!(replayed.stderr.contains(words), "no {words:?}: {replayed:?}");
        }
        assert!(verified.stdout.contains(said[0]), "no {:?}: {verified:?}", said[0]);
        // What it takes for messages is exactly the log.
        let clean = read_back(&script, "replay", &["--output", "jsonl"], &bytes).stdout;
        assert!(log.starts_with(&clean) && clean.lines().count() >= whole.len(), "{clean}");
    }
}

#[test]
fn an_empty_log_is_1() {
    let script = Scripted::new(json!([]));
    for bytes in ["", "\n\n", "no log\n"] {
        let (replayed, verified) =
            (read_back(&script, "replay", &[], bytes), read_back(&script, "verify", &[], bytes));
        assert_eq!((replayed.status, verified.status), (1, 1));
        assert!(replayed.stderr.contains("no message in this log"), "{replayed:?}");
        assert!(verified.stdout.contains("no message in this log"), "{verified:?}");
    }
}

#[test]
fn the_status_of_a_replay_is_that_of_its_root() {
    for (turns, status) in
        [(json!([{"text": "3"}]), 0), (json!([{"error": {"kind": "auth", "message": "no"}}]), 1)]
    {
        let script = Scripted::new(json!([{ "turns": turns }]));
        let log = script.run(&["--output", "jsonl"]);
        assert_eq!((log.status, read_back(&script, "replay", &[], log.stdout).status), (status, status));
    }
    let script = Scripted::new(json!([{"turns": [{"text": "3"}]}]));
    let log = script.run(&["--output", "jsonl", "--max-turns", "0"]);
    assert_eq!(read_back(&script, "replay", &[], log.stdout).status, 3);
}

/// A violation names its invariant and its place.
#[test]
fn a_log_that_does_not_hold_is_1() {
    let script = Scripted::new(parent_of(1, json!([{"text": "3"}])));
    let log = script.run(&["--output", "jsonl"]).stdout;
    let mut lines: Vec<&str> = log.lines().collect();
    let ends = lines.iter().position(|line| line.contains("run_finished")).unwrap();
    lines.remove(ends);
    let verified = read_back(&script, "verify", &[], lines.join("\n") + "\n");
    assert_eq!(verified.status, 1);
    assert!(verified.stdout.contains("I1") && verified.stdout.contains("I6"), "{}", verified.stdout);
}

/// A reader that has seen enough is no failure of what it read.
#[test]
fn a_reader_may_leave_a_replay() {
    let script = Scripted::new(parent_of(40, json!([{"generate": {"chunks": 100, "text": "many words "}}])));
    let path = script.write("log.jsonl", script.run(&["--output", "jsonl"]).stdout);
    for output in ["jsonl", "events"] {
        let mut command = anabranch(&["replay", path.to_str().unwrap(), "--output", output]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut running = Running::new(child);
        running.line();
        running.close_stdout();
        assert_eq!(running.end().stderr, "");
    }
}
