use std::cell::Cell;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::program::{Ran, Running, Scripted, parent_of};

/// Sooner than the grace period: nothing had to be forced.
const PROMPT: Duration = Duration::from_millis(1900);

/// `chaos_busy` has begun: before that, a cancel would find nothing that ignores it.
fn is_busy(message: &Value) -> bool {
    message["type"] == "tool_call_update" && message["message"] == "busy"
}

/// Every run was cancelled: by the end of the process, or the root by `by` and all others by their parents.
fn assert_cancelled(ran: &Ran, runs: usize, by: &str) {
    assert_eq!(
        (ran.status, ran.stderr.lines().next().unwrap_or_default()),
        (130, &*format!("cancelled by {by}"))
    );
    let ends = ran.of_kind("run_finished");
    assert_eq!(ends.len(), runs, "{}", ran.stdout);
    for end in ends {
        let by = if end["parent_run_id"].is_null() || by == "shutdown" { by } else { "parent" };
        assert_eq!((&end["outcome"], &end["by"]), (&json!("cancelled"), &json!(by)), "{end}");
    }
}

#[test]
fn a_signal_ends_every_run_and_the_log_is_complete() {
    let script = Scripted::new(parent_of(3, json!([{"text": "partial", "hang": true}])));
    for (signal, by) in [("INT", "user"), ("TERM", "shutdown"), ("HUP", "shutdown")] {
        let children = Cell::new(0);
        let running = script.run_until(&[], |message| {
            let speaks = message["content"] == "partial" && message["parent_run_id"].is_string();
            children.set(children.get() + u32::from(speaks));
            children.get() == 3
        });
        running.signal(signal);
        assert_cancelled(&running.end().verified(), 4, by);
    }
}

#[test]
fn a_signal_is_heard_in_each_phase() {
    let waits = |turn: Value| Scripted::new(parent_of(2, json!([turn, {"text": "3"}])));
    let call = |name: &str, arguments: Value| json!({"tool_calls": [{"name": name, "arguments": arguments}]});
    let limited = json!({"error": {"kind": "rate_limit", "message": "slow", "retry_after_ms": 100_000}});
    let table: [(Value, &[&str], &str); 5] = [
        (json!({"delay_ms": 100_000, "text": "late"}), &[], "run_started"),
        (limited, &[], "retrying"),
        (call("chaos_sleep", json!({"ms": 100_000})), &["--tools", "chaos"], "tool_call_update"),
        (call("chaos_hang", json!({})), &["--tools", "chaos"], "tool_call_update"),
        (json!({"hang": true}), &["--max-live", "1"], "queued"),
    ];
    for (turn, args, kind) in table {
        let script = waits(turn);
        let running =
            script.run_until(args, |message| message["type"] == kind && message["subtask_depth"] == 1);
        let begin = Instant::now();
        running.signal("INT");
        let ran = running.end().verified();
        assert_eq!(ran.status, 130, "{kind}: {ran:?}");
        assert!(
            ran.of_kind("run_finished").iter().all(|end| end["outcome"] == "cancelled"),
            "{}",
            ran.stdout
        );
        assert!(begin.elapsed() < PROMPT, "{kind}: {:?}", begin.elapsed());
    }
}

#[test]
fn what_ignores_a_cancel_is_abandoned_after_the_grace_period() {
    let turns = json!([{"tool_calls": [{"name": "chaos_busy", "arguments": {"ms": 60_000}}]}, {"text": "3"}]);
    let script = Scripted::new(json!([{ "turns": turns }]));
    let running = script.run_until(&["--tools", "chaos"], is_busy);
    running.signal("INT");
    let ran = running.end().verified();
    assert_eq!((ran.status, &ran.of_kind("run_finished")[0]["forced"]), (130, &json!(true)), "{ran:?}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let turns = json!([{"tool_calls": [{"name": "chaos_busy", "arguments": {"ms": 60_000}}]}, {"text": "3"}]);
    let script = Scripted::new(json!([{ "turns": turns }]));
    let running = script.run_until(&["--tools", "chaos"], is_busy);
    let begin = Instant::now();
    running.signal("INT");
    // Two signals that come at the same moment are one to a process: so they are sent until it has ended.
    let ran = running.end_with(Duration::from_millis(50), |running| running.signal("INT"));
    assert_eq!(ran.status, 130);
    assert!(begin.elapsed() < PROMPT, "{:?}", begin.elapsed());
    assert!(ran.stdout.ends_with('\n'), "the last line is whole: {}", ran.stdout);
}

/// Nobody reads its output, so it waits; a signal ends it all the same, and does not wait for the reader.
#[test]
fn a_signal_is_heard_while_the_output_is_stuck() {
    let script =
        Scripted::new(json!([{"turns": [{"generate": {"chunks": 200_000, "text": "many words "}}]}]));
    for output in ["jsonl", "tree"] {
        let mut command = script.command(&["--output", output]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut running = Running::new(child);
        running.line();
        let begin = Instant::now();
        running.signal("INT");
        assert_eq!(running.end_unread().status, 130);
        assert!(begin.elapsed() < PROMPT, "{output}: {:?}", begin.elapsed());
    }
}

#[test]
fn a_reader_that_leaves_cancels_the_run_quietly() {
    let script =
        Scripted::new(parent_of(2, json!([{"generate": {"chunks": 200_000, "text": "many words "}}])));
    for output in ["jsonl", "tree"] {
        let mut command = script.command(&["--output", output]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut running = Running::new(child);
        running.line();
        running.close_stdout();
        let ran = running.end();
        // As lines, it may have said everything before its reader left.
        assert!(ran.status == 130 || output == "tree" && ran.status == 0, "{ran:?}");
        assert_eq!(ran.stderr, "");
    }
}

#[test]
fn a_standard_output_that_is_closed_is_no_panic() {
    let script = Scripted::new(parent_of(2, json!([{"text": "3"}])));
    for output in ["jsonl", "tree", "text"] {
        let line = format!(
            "{} run go --model script:script.json --output {output} >&-",
            env!("CARGO_BIN_EXE_anabranch")
        );
        let mut command = Command::new("sh");
        command.args(["-c", &line]).current_dir(script.path()).stdin(Stdio::null());
        let ran = super::program::finish(command);
        assert_eq!((ran.status, &*ran.stderr), (0, ""), "{output}");
    }
}

/// What it was started to ignore, it ignores: `nohup` works.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_is_ignored_from_the_start_stays_ignored() {
    let script = Scripted::new(parent_of(1, json!([{"text": "partial", "hang": true}])));
    let line = format!(
        "trap '' HUP; exec {} run go --model script:script.json --output jsonl",
        env!("CARGO_BIN_EXE_anabranch")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(script.path()).stdin(Stdio::null());
    let running = Running::until(command, |message| message["content"] == "partial");
    running.signal("HUP");
    running.signal("INT");
    assert_cancelled(&running.end().verified(), 2, "user");
}
