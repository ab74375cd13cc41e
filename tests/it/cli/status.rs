use serde_json::{Value, json};

use super::program::{Scripted, parent_of};

fn says(turns: Value) -> Scripted {
    Scripted::new(json!([{ "turns": turns }]))
}

#[test]
fn completed_is_0_failed_is_1() {
    let ran = says(json!([{"text": "Done."}])).run(&[]);
    assert_eq!((ran.status, &*ran.stdout, &*ran.stderr), (0, "Done.\n", ""));

    let ran = says(json!([{"text": "I", "error": {"kind": "auth", "message": "no key"}}])).run(&[]);
    assert_eq!((ran.status, &*ran.stdout), (1, ""));
    assert!(ran.stderr.starts_with("failed: the model call failed (auth): no key\n"), "{}", ran.stderr);
}

#[test]
fn a_limit_is_3_and_says_which() {
    let script = Scripted::new(parent_of(2, json!([{"text": "partial", "hang": true}])));
    let ran = script.run(&["--timeout", "300ms", "--output", "jsonl"]).verified();
    let ends = ran.of_kind("run_finished");
    assert_eq!((ran.status, ends.len()), (3, 3), "{}", ran.stderr);
    assert!(ran.stderr.starts_with("stopped by the limit on time\n"), "{}", ran.stderr);
    let (root, children) = ends.split_last().unwrap();
    assert_eq!((&root["outcome"], &root["limit"]), (&json!("stopped"), &json!("wall")));
    for end in children {
        assert_eq!((&end["outcome"], &end["by"]), (&json!("cancelled"), &json!("deadline_of_parent")));
        assert_eq!(end["partial"], "partial");
    }

    // An idle child is stopped, and its parent goes on.
    let ran = script.run(&["--idle-timeout", "300ms", "--output", "jsonl"]).verified();
    let limits: Vec<Value> = ran.of_kind("run_finished").iter().map(|end| end["limit"].clone()).collect();
    assert_eq!((ran.status, limits), (0, vec![json!("idle"), json!("idle"), Value::Null]));
    let ran = says(json!([{"hang": true}])).run(&["--idle-timeout", "300ms"]);
    assert_eq!((ran.status, &*ran.stderr), (3, "stopped by the limit on idle time\n"));

    let done =
        Scripted::new(parent_of(2, json!([{"text": "3", "usage": {"input_tokens": 5, "output_tokens": 5}}])));
    for (flag, value, limit) in [
        ("--max-turns", "0", "turns"),
        ("--max-turns", "1", "turns"),
        ("--max-tool-calls", "1", "tool_calls"),
        ("--budget-tokens", "1", "tokens"),
        ("--timeout", "0s", "wall"),
    ] {
        let ran = done.run(&[flag, value, "--output", "jsonl"]).verified();
        let root = ran.of_kind("run_finished").pop().unwrap();
        assert_eq!((ran.status, &root["limit"]), (3, &json!(limit)), "{flag} {value}: {}", ran.stderr);
    }
}

#[test]
fn what_a_limit_refuses_its_caller_survives() {
    let script = Scripted::new(parent_of(3, json!([{"text": "3"}])));
    for (flag, value, code, refused) in [
        ("--max-depth", "0", "max_recursion_depth_reached", 3),
        ("--max-runs", "1", "max_total_runs_reached", 3),
        ("--max-runs", "3", "max_total_runs_reached", 1),
    ] {
        let ran = script.run(&[flag, value, "--output", "jsonl"]).verified();
        let results = ran.of_kind("tool_result_update");
        let refusals = results.iter().filter(|result| result["result"]["error"] == code).count();
        assert_eq!((ran.status, refusals), (0, refused), "{flag} {value}: {}", ran.stdout);
    }
}

#[test]
fn one_live_run_at_a_time_is_enough() {
    let script = Scripted::new(parent_of(3, json!([{"delay_ms": 10, "text": "3"}])));
    let ran = script.run(&["--max-live", "1", "--output", "jsonl"]).verified();
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert_eq!(ran.of_kind("queued").len(), 2, "{}", ran.stdout);
}

#[test]
fn a_limit_without_room_for_the_root_runs_nothing() {
    let script = says(json!([{"text": "Done."}]));
    for (flag, value) in [("--max-runs", "0"), ("--budget-tokens", "0"), ("--budget-usd", "0")] {
        let ran = script.run(&[flag, value, "--output", "jsonl"]);
        let said = format!("stopped: {flag} {value} leaves no room for a run\n");
        assert_eq!((ran.status, &*ran.stdout, ran.stderr), (3, "", said));
    }
    let ran = script.run(&["--max-live", "0"]);
    assert_eq!((ran.status, &*ran.stdout), (2, ""));
    assert!(ran.stderr.contains("every run would wait for ever; give at least 1"), "{}", ran.stderr);
}

/// A panic of a tool is its run's failure; where it happened is told once, beside the result.
#[test]
fn a_panic_is_a_failure_and_its_place_is_told() {
    let script = says(json!([{"tool_calls": [{"name": "chaos_panic", "arguments": {}}]}, {"text": "on"}]));
    for output in ["text", "tree", "jsonl"] {
        let ran = script.run(&["--tools", "chaos", "--output", output]);
        assert_eq!(ran.status, 1, "{output}: {}", ran.stderr);
        assert_eq!(ran.stderr.matches("note: panicked at ").count(), 1, "{output}: {}", ran.stderr);
    }
}
