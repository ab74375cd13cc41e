//! `anabranch agents`, and runs that delegate to what it lists.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::program::{Ran, Scripted, anabranch, finish};

/// A workspace with agents in both of its directories, one more directory, and a script that delegates.
fn workspace() -> Scripted {
    let call = json!({ "name": "delegate", "arguments": { "agent": "reviewer", "task": "Review it." } });
    let report = json!({ "name": "finish", "arguments": { "status": "completed", "summary": "fine" } });
    let place = Scripted::new(json!([
        { "when": { "depth": 0 }, "turns": [{ "tool_calls": [call] }, { "text": "Done." }] },
        { "when": { "agent": "reviewer" }, "turns": [{ "tool_calls": [report] }] },
    ]));
    for directory in ["agents", ".claude/agents", "more"] {
        fs::create_dir_all(place.path().join(directory)).unwrap();
    }
    let agent =
        |description: &str, keys: &str| format!("---\ndescription: {description}\n{keys}---\nDo it.\n");
    place.write("agents/reviewer.md", agent("Reviews: quickly.", "tools: Read, Grep, Bash\nmodel: sonnet\n"));
    place.write("agents/broken.md", "---\nname: broken\nname: twice\n---\nDo it.\n");
    place.write(".claude/agents/reviewer.md", agent("Hidden.", ""));
    place.write(".claude/agents/idle.md", agent("Has nothing.", "tools: Bash\n"));
    place.write("more/scout.md", agent("Scouts.", "colour: red\n"));
    place
}

fn agents(place: &Path, args: &[&str]) -> Ran {
    let mut command = anabranch(&["agents"]);
    command.args(args).current_dir(place);
    finish(command)
}

#[test]
fn json_has_agents_and_every_error_with_its_place() {
    let place = workspace();
    let ran = agents(place.path(), &["--output", "json", "--agents", "more"]);
    assert_eq!((ran.status, &*ran.stderr), (0, ""));
    let listing: Value = serde_json::from_str(&ran.stdout).unwrap();
    let root = place.path().canonicalize().unwrap();
    let at = |path: &str| json!(root.join(path));
    let expected = json!([
        { "name": "reviewer", "description": "Reviews: quickly.", "path": at("agents/reviewer.md"), "tools": ["Read", "Grep", "Bash"], "model": "sonnet" },
        { "name": "scout", "description": "Scouts.", "path": at("more/scout.md"), "tools": [], "model": null },
    ]);
    assert_eq!(listing["agents"], expected);
    let errors = listing["errors"].as_array().unwrap();
    let places: Vec<Value> =
        errors.iter().map(|error| json!([error["path"], error["line"], error["kind"]])).collect();
    let expected = [
        json!([at("agents/broken.md"), 3, "yaml"]),
        json!([at(".claude/agents/idle.md"), 3, "unknown_tools"]),
    ];
    assert_eq!(places, expected);
    assert!(errors.iter().all(|error| !error["message"].as_str().unwrap().is_empty()));
    assert_eq!(listing["warnings"].as_array().unwrap().len(), 2);
    assert_eq!(listing["shadowed"][0]["path"], at(".claude/agents/reviewer.md"));
}

#[test]
fn text_is_for_a_person() {
    let place = workspace();
    place.write("more/careful.md", "---\ndescription: Looks on.\ndisallowedTools: Write\n---\nLook.\n");
    let expected = "\
scout  (more/scout.md)
  Scouts.
  tools all
reviewer  (agents/reviewer.md)
";
    let ran = agents(place.path(), &["--agents", "more"]);
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let printed = lines(&ran.stdout);
    assert!(lines(expected).iter().all(|line| printed.contains(line)), "{}", ran.stdout);
    for part in [
        "  tools Read, Grep, Bash · model sonnet",
        "  tools all but Write",
        "cannot be used:",
        "  agents/broken.md:3: the front matter is no YAML: ",
        "  more/scout.md:3: the key `colour` has no effect; did you mean `color`?",
        "  agents/reviewer.md:3: there is no tool \"Bash\" here; leave it out",
        "  .claude/agents/reviewer.md: agents/reviewer.md has this name and comes first",
    ] {
        assert!(printed.iter().any(|line| line.starts_with(part)), "{part} is not in\n{}", ran.stdout);
    }
    let empty = tempfile::tempdir().unwrap();
    let ran = agents(empty.path(), &[]);
    assert_eq!(ran.status, 0);
    assert!(
        ran.stdout.starts_with("No agents. A file NAME.md in one of these directories is one: agents, "),
        "{}",
        ran.stdout
    );
}

/// Every agent of a run can delegate to what is there; what cannot be used is told in its log and ends nothing.
#[test]
fn a_run_delegates_by_name() {
    let place = workspace();
    let ran = place.run(&["--output", "jsonl", "--agents", "more"]).verified();
    assert_eq!(ran.status, 0);
    let results = ran.of_kind("tool_result_update");
    let record = &results.iter().find(|result| result["name"] == "delegate").unwrap()["result"];
    assert_eq!((&record["status"], &record["summary"]), (&json!("completed"), &json!("fine")));
    let started = ran.of_kind("run_started");
    assert_eq!(started.iter().map(|run| &run["agent"]).collect::<Vec<_>>(), ["agent", "reviewer"]);
    assert_eq!(record["session"], started[1]["run_id"]);
    let told: Vec<String> = ran.of_kind("error").iter().map(|error| error["message"].to_string()).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("broken.md:3: "), "{told:?}");
    let logged = ran.of_kind("log_update").iter().map(|line| line["content"].to_string()).collect::<String>();
    assert!(
        logged.contains("no tool \\\"Bash\\\" here")
            && logged.contains("the model \\\"sonnet\\\" cannot be had"),
        "{logged}"
    );
}
