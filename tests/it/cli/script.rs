//! `anabranch script`: a file in, what it returns out.

use std::process::{Command, Output};

use serde_json::json;

const PROGRAM: &str = env!("CARGO_BIN_EXE_anabranch");

struct Place(tempfile::TempDir);

impl Place {
    fn new(script: &str) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.write("review.js", script);
        let agents = json!({ "anabranch_script": 1, "agents": [
            { "when": { "prompt": "Fail" }, "turns": [{ "error": { "message": "no", "kind": "auth" } }] },
            { "turns": [{ "text": "fine" }] },
        ] });
        place.write("model.json", &agents.to_string());
        place
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(PROGRAM)
            .args(["script", "--model", "script:model.json"])
            .args(args)
            .current_dir(self.0.path())
            .output()
            .unwrap()
    }
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_script_runs_with_its_inputs_in_both_sandboxes() {
    let place =
        Place::new("log('begins'); return [inputs.path, inputs.lines, await agent('Review ' + inputs.path)]");
    for sandbox in ["in-process", "process"] {
        let output = place.run(&[
            "review.js",
            "--input",
            "path=src",
            "--input",
            "lines=[1,2]",
            "--sandbox",
            sandbox,
            "--output",
            "text",
        ]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        let value: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
        assert_eq!(value, json!(["src", [1, 2], "fine"]));
    }
    let output = place.run(&["review.js", "--input", "path=src", "--output", "tree"]);
    let lines = out(&output);
    assert!(
        lines.contains("▶ review.js (script, script:model.json)") && lines.contains("▶ agent 1"),
        "{lines}"
    );
    let output = place.run(&["review.js", "--input", "path=src", "--output", "jsonl"]);
    place.write("log.jsonl", &out(&output));
    let verified =
        Command::new(PROGRAM).args(["verify", "log.jsonl"]).current_dir(place.0.path()).output().unwrap();
    assert_eq!(verified.status.code(), Some(0), "{}", out(&verified));
}

#[test]
fn what_a_script_throws_is_a_failure_with_its_place() {
    let place = Place::new("const a = 1;\nawait agent('Fail');");
    let output = place.run(&["review.js", "--output", "text"]);
    assert_eq!((output.status.code(), out(&output)), (Some(1), String::new()));
    assert!(
        err(&output).contains("Orchestration script failed: agent 1: the model call failed (auth): no"),
        "{}",
        err(&output)
    );
    // The lines stand as they are: the last one points into the one above.
    assert!(err(&output).contains("\n      your code, line 2: await agent('Fail');\n"), "{}", err(&output));
    let place = Place::new("return await parallel([1, 2, 3].map(n => () => agent('x')))");
    let output = place.run(&["review.js", "--max-agent-calls", "2", "--output", "text"]);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&out(&output)).unwrap(),
        json!(["fine", "fine", null])
    );
}

#[test]
fn bad_usage_says_what_and_where() {
    let place = Place::new("const a = 1;\nconst b = ;\n");
    place.write("empty.js", "\n");
    place.write("binary.js", "\u{0}");
    std::fs::write(place.0.path().join("latin.js"), [b'a', 0xFF]).unwrap();
    for (args, texts) in [
        (vec!["review.js"], vec!["at line 2: SyntaxError", "your code, line 2: const b = ;"]),
        (vec!["review.js"], vec!["';' (your code", "= ;); mend the script"]),
        (vec!["empty.js"], vec!["it is empty"]),
        (vec!["latin.js"], vec!["save it as UTF-8"]),
        (vec!["nope.js"], vec!["invalid value 'nope.js' for 'FILE'", "name a file"]),
        (vec!["."], vec!["'.'"]),
        (vec!["review.js", "--input", "x"], vec!["NAME=VALUE"]),
        (vec!["review.js", "--max-concurrent-agents", "0"], vec!["--max-concurrent-agents"]),
    ] {
        let output = place.run(&args);
        assert_eq!((output.status.code(), out(&output)), (Some(2), String::new()), "{args:?}");
        for text in texts {
            assert!(err(&output).contains(text), "{args:?}: {text} is not in {}", err(&output));
        }
    }
    let place = Place::new("return 1");
    let output = place.run(&["review.js", "--input", "a=1", "--input", "a=2"]);
    assert!(err(&output).contains("it is given twice"), "{}", err(&output));
}

#[test]
fn a_script_may_say_in_its_first_line_what_runs_it() {
    let place = Place::new("\u{feff}#!/usr/bin/env -S anabranch script\nreturn 7\n");
    let output = place.run(&["review.js", "--output", "text"]);
    assert_eq!((output.status.code(), out(&output).trim()), (Some(0), "7"), "{}", err(&output));
}

#[test]
fn a_script_may_come_from_standard_input() {
    use std::io::Write;
    let place = Place::new("");
    let mut child = Command::new(PROGRAM)
        .args(["script", "-", "--output", "text"])
        .current_dir(place.0.path())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"return 40 + 2").unwrap();
    assert_eq!(out(&child.wait_with_output().unwrap()), "42\n");
}
