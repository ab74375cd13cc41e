//! `--seed`: the same log each time, but for what the clock says.

use serde_json::{Value, json};

use super::program::Scripted;
use crate::seeded::{assert_same, children, nested, timeless};

/// The log of one run.
fn log(agents: Value) -> Vec<String> {
    let script = Scripted::new(agents);
    script.write("notes.txt", "line 1\nline 2\nline 3\n");
    script.write("more.md", "line 1\n");
    let ran = script.run(&["--seed", "7", "--output", "jsonl"]);
    assert_eq!((ran.status, &*ran.stderr), (0, ""));
    let lines: Vec<String> = ran.stdout.lines().map(str::to_owned).collect();
    let _ = ran.verified();
    timeless(&lines)
}

#[test]
fn ax15_programs_that_run_at_once_give_one_log() {
    let first = log(nested());
    for round in 1..5 {
        assert_same(&first, &log(nested()), round);
    }
}

#[test]
fn ax15_so_do_subtasks_in_the_background() {
    let start =
        |name: &str| json!({ "name": "start_subtask", "arguments": { "description": name, "prompt": name } });
    let calls: Vec<Value> = ["a", "b", "c", "d", "e"].into_iter().map(start).collect();
    let code = "await Promise.all([1, 2, 3].map(async n => { await tools.grep({ pattern: 'line ' + n }); console.log(n) }))";
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [
            { "tool_calls": calls },
            { "tool_calls": [{ "name": "wait_subtasks", "arguments": {} }] },
            { "text": "done" },
        ] },
        { "turns": [{ "code": code }, { "text": "found" }] },
    ]);
    let first = log(agents.clone());
    for round in 1..5 {
        assert_same(&first, &log(agents.clone()), round);
    }
}

#[cfg(unix)]
#[test]
fn a_signal_reaches_programs_that_are_waited_for() {
    let script = Scripted::new(children("abcdefgh", "while (true);"));
    let is_last = |message: &Value| message["type"] == "run_started" && message["title"] == "h";
    let running = script.run_until(&["--seed", "7"], is_last);
    running.signal("INT");
    let ran = running.end();
    assert_eq!(ran.status, 130, "{ran:?}");
    let ends = ran.verified().of_kind("run_finished");
    assert_eq!((ends.len(), &ends[0]["outcome"]), (9, &json!("cancelled")));
}
