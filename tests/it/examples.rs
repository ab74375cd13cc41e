//! Each example runs and prints what its first lines promise.

#[path = "../../examples/as_tool.rs"]
#[expect(dead_code, reason = "its main is for cargo")]
mod as_tool;
#[path = "../../examples/ask.rs"]
#[expect(dead_code, reason = "its main is for cargo")]
mod ask;
#[cfg(feature = "catalogue")]
#[path = "../../examples/catalogue.rs"]
#[expect(dead_code, reason = "its main is for cargo")]
mod catalogue;
#[cfg(feature = "codeact")]
#[path = "../../examples/codeact.rs"]
#[expect(dead_code, reason = "its main is for cargo")]
mod codeact;
#[cfg(feature = "codeact")]
#[path = "../../examples/compound.rs"]
#[expect(dead_code, reason = "its main is for cargo")]
mod compound;
#[path = "../../examples/detached.rs"]
#[expect(dead_code, reason = "its main is for cargo")]
mod detached;
#[path = "../../examples/frame.rs"]
#[expect(dead_code, reason = "its main is for cargo")]
mod frame;
#[path = "../../examples/hello.rs"]
#[expect(dead_code, reason = "its main is for cargo")]
mod hello;
#[path = "../../examples/nested.rs"]
#[expect(dead_code, reason = "its main is for cargo")]
mod nested;
#[path = "../../examples/plan.rs"]
#[expect(dead_code, reason = "its main is for cargo")]
mod plan;
#[path = "../../examples/watch.rs"]
#[expect(dead_code, reason = "its main is for cargo")]
mod watch;

macro_rules! printed {
    ($example:ident) => {{
        let mut out = Vec::new();
        $example::run(&mut out).await.unwrap();
        String::from_utf8(out).unwrap()
    }};
}

#[tokio::test]
async fn hello_greets() {
    assert_eq!(printed!(hello), "Hello, world.\noutcome: Some(String(\"said it\"))\n");
}

#[tokio::test]
async fn nested_shows_three_levels_in_one_order() {
    let printed = printed!(nested);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!((lines[0], lines[1]), ("run_started", "  run_started"));
    let of_depth_two = lines.iter().filter(|line| **line == "    run_finished").count();
    assert_eq!((of_depth_two, lines[lines.len() - 2]), (2, "run_finished"));
    assert_eq!(lines[lines.len() - 1], "outcome: Some(String(\"north: true, south: true\"))");
}

#[tokio::test(start_paused = true)]
async fn detached_fetches_what_was_found() {
    let expected = [
        "Look around. started",
        "  north started",
        "  south started",
        "says: Meanwhile I look around here.",
        "  says: the sea",
        "  says: a mountain",
        "\"north\" \"completed\": \"a mountain\"",
        "\"south\" \"completed\": \"the sea\"",
        "says: Both have reported.",
        "outcome: Some(String(\"Both have reported.\"))",
    ];
    assert_eq!(printed!(detached).lines().collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn as_tool_delegates() {
    let expected = "→ review\n  → count_lines\n  ← count_lines\n← review\nSome(String(\"The reviewer says that it is short.\"))\n";
    assert_eq!(printed!(as_tool), expected);
}

#[cfg(feature = "catalogue")]
#[tokio::test]
async fn catalogue_delegates_to_an_agent_that_has_just_come() {
    let expected = "\
agent: Have a verse written and judged.
poet: A line on rivers.
poet completed: it parts and joins again
critic: Judge: it parts and joins again
critic blocked: One line is too little.
the poet's log: 5 messages, 0 lost
";
    assert_eq!(printed!(catalogue), expected);
}

/// Each definition of the gallery is one that the program can use as it is.
#[cfg(feature = "cli")]
#[test]
fn the_gallery_of_agents_can_be_used() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["agents", "--output", "json", "--agents", "examples/agents", "--workspace", "src"])
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let listing: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> =
        listing["agents"].as_array().unwrap().iter().map(|agent| agent["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["inventory", "planner", "researcher", "reviewer", "test-writer", "writer"]);
    assert_eq!([&listing["errors"], &listing["warnings"]], [&serde_json::json!([]); 2]);
}

/// The offline model hands a task to an agent that it names, as far as it goes: a keyword search.
#[cfg(feature = "cli")]
#[test]
fn the_gallery_works_offline() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["run", "ask the reviewer where cancellation is handled", "--agents", "examples/agents"])
        .args(["--workspace", "src", "--output", "text"])
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        printed.starts_with("reviewer (completed):\n\nThe best match for `cancellation` is "),
        "{printed}"
    );
}

#[tokio::test]
async fn frame_gives_a_result_or_says_why_there_is_none() {
    let expected = [
        "review -> success: \"One defect.\" {\"defects\":[\"`x` is never read\"]}",
        "review -> failed: \"{\\\"status\\\":\\\"fine\\\",\\\"summary\\\":\\\"No defects.\\\"}\" since {\"class\":\"not_schema\",\"path\":\"/status\",\"reason\":\"\\\"fine\\\" is not one of \\\"success\\\", \\\"partial\\\" or \\\"failed\\\"\"}",
        "Some(String(\"One file has a defect, the other was not reviewed.\"))",
    ];
    assert_eq!(printed!(frame).lines().collect::<Vec<_>>(), expected);
}

#[cfg(feature = "codeact")]
#[tokio::test]
async fn compound_gets_code_that_compiles_at_its_second_pass() {
    let printed = printed!(compound);
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines[0].starts_with("pass 1: not yet: ") && lines[1].contains("your code, line 2"), "{printed}");
    assert_eq!(
        lines[3..],
        [
            "pass 2: passed",
            "2 passes: passed",
            "const words = inputs.text.split(' ');",
            "return words.length;"
        ][..]
    );
}

#[tokio::test]
async fn ask_brings_each_answer_to_its_call() {
    let expected = "Update the site > editor > publisher wants to call publish with {\"page\":\"news\"}\n\
                    Update the site > editor > publisher wants to call publish with {\"page\":\"prices\"}\n\
                    \"The site is up to date.\"\n";
    assert_eq!(printed!(ask), expected);
}

#[cfg(feature = "codeact")]
#[tokio::test(start_paused = true)]
async fn codeact_runs_two_children_from_one_action() {
    let printed = printed!(codeact);
    let at = |line: &str| printed.find(line).unwrap_or_else(|| panic!("{line} is not in\n{printed}"));
    assert!(at("root call 2 run_subtask") < at("root/pipe started"), "{printed}");
    assert!(at("root/pipe started") < at("root/bus done"), "{printed}");
    assert!(printed.ends_with("outcome: Some(Object {\"total\": Number(12)})\n"), "{printed}");
}

#[cfg(feature = "cli")]
#[test]
fn the_script_of_a_survey_puts_answers_together() {
    let root = env!("CARGO_MANIFEST_DIR");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["script", "examples/survey.js", "--input", "topics=[\"cancel\"]", "--output", "text"])
        .current_dir(root)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.starts_with("cancel: ") && printed.contains("cancel.rs"), "{printed}");
}

#[tokio::test]
async fn plan_runs_two_nodes_and_joins_them() {
    let printed = printed!(plan);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!((lines[0], lines[1]), ("short: step_started", "long: step_started"));
    assert_eq!(lines[lines.len() - 2..], ["both: step_completed", "outcome: Some(Number(6))"]);
}

#[tokio::test]
async fn watch_joins_late_and_comes_back() {
    let expected = "joined after message 1\ntext so far: Some(\"one two \")\nthen chunk\nthen chunk\nthen run_finished\n\
                    outcome: Some(String(\"counted\")), the same in the tree: true\n";
    assert_eq!(printed!(watch), expected);
}
