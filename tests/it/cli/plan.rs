use std::process::Command;

use serde_json::{Value, json};

use super::program::{Ran, Running, Scripted, anabranch, finish};

/// `anabranch plan` with the offline model on a small workspace.
fn offline(args: &[&str]) -> (Scripted, Ran) {
    let script = Scripted::new(json!([]));
    script.write("retry.py", "def retry(call):\n    return call()\n");
    script.write("test_retry.py", "def test_retry():\n    assert retry(lambda: 1) == 1\n");
    let mut command = anabranch(&[&["plan"], args].concat());
    command.current_dir(script.path());
    let ran = finish(command);
    (script, ran)
}

fn scripted(script: &Scripted, args: &[&str]) -> Command {
    let mut command = anabranch(&[&["plan", "--model", "script:script.json"], args].concat());
    command.current_dir(script.path());
    command
}

fn graph(nodes: &[&str], edges: &[(&str, &str)]) -> String {
    let node = |id: &&str| json!({"id": id, "agent": "agent", "prompt": format!("Do {id}.")});
    let nodes: Vec<Value> = nodes.iter().map(node).collect();
    let edges: Vec<Value> = edges.iter().map(|(from, to)| json!({"from": from, "to": to})).collect();
    format!("{:#}", json!({"nodes": nodes, "edges": edges}))
}

#[test]
fn it_plans_and_runs_out_of_the_box() {
    let question = "where is retry handled, and what tests it?";
    let (_, ran) = offline(&[question]);
    let planned: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.status, planned["nodes"].as_array().unwrap().len()), (0, 3), "{ran:?}");

    let (script, ran) = offline(&[question, "--execute", "--save", "graph.json"]);
    assert_eq!((ran.status, &*ran.stderr), (0, ""));
    assert!(ran.stdout.starts_with("The best match for `retry` is retry.py:1"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("Tests:\n\n2. test_retry.py:1") && ran.stdout.contains("keyword heuristic"),
        "{}",
        ran.stdout
    );
    let saved: Value =
        serde_json::from_str(&std::fs::read_to_string(script.path().join("graph.json")).unwrap()).unwrap();
    assert_eq!(saved, planned);

    let (_, ran) = offline(&[question, "--execute", "--output", "jsonl"]);
    let ran = ran.verified();
    let starts = ran.of_kind("run_started");
    let producers: Vec<&str> = starts.iter().map(|start| start["producer"].as_str().unwrap()).collect();
    assert_eq!(producers[..2], ["graph_executor", "graph_planner"]);
    assert_eq!(starts.len(), 5);
}

#[test]
fn a_graph_that_cannot_run_is_2_with_all_that_is_wrong() {
    let script = Scripted::new(json!([]));
    script.write(
        "bad.json",
        "{\"nodes\": [\n  {\"id\": \"a\", \"agent\": \"agent\", \"prompt\": \"x\"},\n  {\"id\": \"b\", \"agent\": \"nobody\", \"prompt\": \"x\"},\n  {\"id\": \"c\", \"tool\": \"grep\"}],\n \"edges\": [{\"from\": \"a\", \"to\": \"b\"}, {\"from\": \"b\", \"to\": \"a\"}, {\"from\": \"b\", \"to\": \"z\"}]}",
    );
    script.write("cut.json", "{\"nodes\": [");
    script.write("typo.json", "{\"nodes\": [\n{\"id\": \"a\", \"promt\": \"x\"}]}");
    let table: &[(&[&str], &[&str])] = &[
        (
            &["--graph", "bad.json", "--execute"],
            &[
                "bad.json cannot run",
                "line 2: cycle at node a: a -> b -> a wait",
                "line 3: unknown_node at node b",
                "the agents are: agent, search",
                "line 4: missing_input at node c",
                "dangling_edge at edge b -> z",
            ],
        ),
        (&["--graph", "bad.json"], &["cannot run"]),
        (&["--graph", "cut.json"], &["cut.json", "line 1", "write {\"nodes\""]),
        (&["--graph", "typo.json"], &["`promt`", "line 2"]),
        (&["--graph", "no.json"], &["no.json", "a file that can be read"]),
        (&["--graph", "."], &["'--graph'"]),
        (&["x", "--execute", "--resume", "no.jsonl"], &["no.jsonl"]),
        (&["x", "--execute", "--resume", "bad.json"], &["no graph was run", "plan --execute --output jsonl"]),
        (&["x", "--resume", "bad.json"], &["--execute"]),
        (&["x", "--save", "no/graph.json"], &["--save", "its directory does not exist"]),
        (&["x", "--save", "."], &["--save"]),
        (&[" "], &["the task is empty"]),
        (&[], &["<OBJECTIVE>"]),
    ];
    for (args, said) in table {
        let ran = finish(scripted(&script, args));
        assert_eq!((ran.status, &*ran.stdout), (2, ""), "{args:?}: {}", ran.stderr);
        for words in *said {
            assert!(ran.stderr.contains(words), "{args:?} does not say {words:?}: {}", ran.stderr);
        }
    }
    let left: Vec<_> = std::fs::read_dir(script.path()).unwrap().collect();
    assert_eq!(left.len(), 4, "{left:?}");
}

#[test]
fn a_failed_node_is_1_and_its_graph_is_gone_on_with() {
    let fails = json!([
        {"when": {"title": "a"}, "turns": [{"text": "from a"}]},
        {"turns": [{"error": {"kind": "auth", "message": "no key"}}]},
    ]);
    let script = Scripted::new(fails);
    script.write("graph.json", graph(&["a", "b", "c"], &[("a", "c"), ("b", "c")]));
    let ran =
        finish(scripted(&script, &["--graph", "graph.json", "--execute", "--output", "jsonl"])).verified();
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.starts_with("failed: 1 of 3 nodes did not complete: b failed: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("; skipped: c\n"), "{}", ran.stderr);
    script.write("log.jsonl", &ran.stdout);

    let works = json!({"anabranch_script": 1, "agents": [
        {"when": {"title": "b"}, "turns": [{"text": "from b"}]},
        {"when": {"title": "c", "prompt": "from a[\\s\\S]*from b"}, "turns": [{"text": "both"}]},
    ]});
    script.write("script.json", works.to_string());
    let ran = finish(scripted(&script, &["--execute", "--resume", "log.jsonl"]));
    assert_eq!((ran.status, &*ran.stdout, &*ran.stderr), (0, "both\n", ""));
}

/// A process that was killed leaves a log whose last line may be cut.
#[test]
fn a_killed_execution_is_gone_on_with() {
    let hangs = json!([{"when": {"title": "a"}, "turns": [{"text": "from a"}]}, {"turns": [{"hang": true}]}]);
    let script = Scripted::new(hangs);
    script.write("graph.json", graph(&["a", "b"], &[("a", "b")]));
    let command = scripted(&script, &["--graph", "graph.json", "--execute", "--output", "jsonl"]);
    let running =
        Running::until(command, |message| message["type"] == "run_started" && message["title"] == "b");
    running.signal("KILL");
    let log = running.end().stdout;
    script.write("log.jsonl", format!("{log}{{\"type\":\"chu"));
    script.write(
        "script.json",
        json!({"anabranch_script": 1, "agents": [{"when": {"title": "b"}, "turns": [{"text": "done"}]}]})
            .to_string(),
    );
    let ran = finish(scripted(&script, &["--execute", "--resume", "log.jsonl"]));
    assert_eq!((ran.status, &*ran.stdout), (0, "done\n"), "{}", ran.stderr);
    assert!(
        ran.stderr.starts_with("warning: log.jsonl: line ") && ran.stderr.contains("cut off"),
        "{}",
        ran.stderr
    );
}

#[test]
fn limits_and_signals_end_a_graph_like_any_run() {
    let script = Scripted::new(json!([{"turns": [{"text": "half", "hang": true}]}]));
    script.write("graph.json", graph(&["a", "b"], &[]));
    let args = ["--graph", "graph.json", "--execute", "--output", "jsonl"];
    let ran = finish(scripted(&script, &[&args[..], &["--timeout", "300ms"]].concat())).verified();
    assert_eq!((ran.status, ran.of_kind("run_finished").len()), (3, 3), "{}", ran.stderr);
    // A planner that may have no turn does not begin three times.
    let none = ["an objective", "--max-turns", "0", "--output", "jsonl"];
    let ran = finish(scripted(&script, &none)).verified();
    assert_eq!(ran.status, 3, "{}", ran.stderr);
    let attempts = ran.of_kind("planning_update");
    assert_eq!(attempts.iter().filter(|update| update["phase"] == "generation").count(), 1);
    #[cfg(unix)]
    {
        // When both of its nodes are at work.
        let chunks = std::cell::Cell::new(0);
        let running = Running::until(scripted(&script, &args), |message| {
            chunks.set(chunks.get() + u32::from(message["type"] == "chunk"));
            chunks.get() == 2
        });
        running.signal("INT");
        let ran = running.end().verified();
        assert_eq!((ran.status, ran.of_kind("run_finished").len()), (130, 3), "{}", ran.stderr);
    }
}
