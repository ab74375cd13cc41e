use std::fs::File;

use serde_json::json;

use super::program::{Scripted, anabranch, finish};

/// Status 2, nothing on stdout, and on stderr what is wrong, where, and how to do it right.
#[test]
fn bad_usage_is_2_and_says_how_to_do_it_right() {
    let script = Scripted::new(json!([{"turns": [{"text": "Done."}]}]));
    let table: &[(&[&str], &[&str])] = &[
        (&["run", ""], &["'<TASK>'", "the task is empty"]),
        (&["run", " \n"], &["'<TASK>'", "the task is empty"]),
        (&["run"], &["<TASK>"]),
        (&["run", "x", "--bogus"], &["--bogus"]),
        (&["run", "x", "y"], &["'y'"]),
        (&["run", "x", "--output", "json"], &["--output", "jsonl"]),
        (&["run", "x", "--max-turns", "-1"], &["--max-turns", "not a whole number", "unlimited"]),
        (&["run", "x", "--max-depth", "many"], &["--max-depth", "not a whole number"]),
        (&["run", "x", "--timeout", "5"], &["--timeout", "90s"]),
        (&["run", "x", "--budget-usd", "nan"], &["--budget-usd", "0.50"]),
        (&["run", "x", "--seed", "abc"], &["--seed", "a whole number"]),
        (&["run", "x", "--tools", "nope"], &["--tools", "chaos"]),
        (&["run", "x", "--allow", "nope"], &["no tool \"nope\"", "read_file, list_directory, glob, grep"]),
        (&["run", "x", "--allow", "chaos_hang"], &["no tool \"chaos_hang\""]),
        (&["run", "x", "--allow", "grep", "--deny", "grep"], &["--deny", "in --allow"]),
        (&["run", "x", "--model", "nope"], &["--model", "script:FILE"]),
        (&["run", "x", "--model", "script:nope.json"], &["nope.json", "No such file"]),
        (&["run", "x", "--model", "gorq:m"], &["--model", "gorq:m", "openai, anthropic, gemini, ollama"]),
        (&["run", "x", "--model", "openai:"], &["--model", "PROVIDER:MODEL"]),
        (&["run", "x", "--model", "anthropic:m"], &["anthropic needs a key", "ANTHROPIC_API_KEY"]),
        (
            &["run", "x", "--model", "openai:m", "--base-url", "host:1"],
            &["base URL", "http://127.0.0.1:8080/v1"],
        ),
        (&["run", "x", "--model", "openai:m", "--base-url", "http://example.com/v1"], &["OPENAI_API_KEY"]),
        (&["run", "x", "--workspace", "nope"], &["--workspace", "nope", "a directory that can be read"]),
        (&["run", "x", "--workspace", "script.json"], &["--workspace", "a directory that can be read"]),
        (&["run", "x", "--schema", "nope.json"], &["--schema", "nope.json"]),
        (&["run", "x", "--agents", "nope"], &["--agents", "nope", "a directory that can be read"]),
        (&["agents", "--agents", "nope"], &["--agents", "nope", "a directory that can be read"]),
        (&["agents", "--workspace", "nope"], &["--workspace", "a directory that can be read"]),
        (&["agents", "--output", "yaml"], &["--output", "json"]),
        (&["replay", "nope.jsonl"], &["nope.jsonl"]),
        (&["replay", "."], &["a directory"]),
        (&["verify", "nope.jsonl"], &["nope.jsonl"]),
        (&["nope"], &["nope"]),
        (&[], &["Usage"]),
    ];
    for (args, said) in table {
        let mut command = anabranch(args);
        command.current_dir(script.path());
        let ran = finish(command);
        assert_eq!((ran.status, &*ran.stdout), (2, ""), "{args:?}: {}", ran.stderr);
        for words in *said {
            assert!(ran.stderr.contains(words), "{args:?} does not say {words:?}: {}", ran.stderr);
        }
    }
}

#[test]
fn a_malformed_script_is_reported_by_path_and_key() {
    let script = Scripted::new(json!([]));
    let table: &[(&[u8], &[&str])] = &[
        (br#"{"anabranch_script":1,"agents":[{"turnz":[]}]}"#, &["agents[0].turnz", "\"turns\""]),
        (
            br#"{"anabranch_script":1,"agents":[{"turns":[{"text":5}]}]}"#,
            &["agents[0].turns[0].text", "a string"],
        ),
        (br#"{"anabranch_script":1,"#, &["not JSON", "line 1"]),
        (br#"{"agents":[]}"#, &["anabranch_script"]),
        (b"", &["not JSON"]),
        (b"\xff{}", &["UTF-8"]),
    ];
    for (bytes, said) in table {
        script.write("script.json", bytes);
        let ran = script.run(&[]);
        assert_eq!((ran.status, &*ran.stdout), (2, ""), "{}", ran.stderr);
        for words in ["script.json"].iter().chain(*said) {
            assert!(ran.stderr.contains(words), "no {words:?} in {}", ran.stderr);
        }
    }
}

#[test]
fn a_schema_that_is_none_is_2() {
    let script = Scripted::new(json!([{"turns": [{"text": "Done."}]}]));
    for (schema, said) in [("{", "not JSON"), (r#"{"type": 5}"#, "not a JSON schema")] {
        script.write("schema.json", schema);
        let ran = script.run(&["--schema", "schema.json"]);
        assert_eq!((ran.status, &*ran.stdout), (2, ""));
        assert!(ran.stderr.contains("schema.json") && ran.stderr.contains(said), "{}", ran.stderr);
    }
}

/// A flag that names a file without an end is answered as soon as it is clear that it is not what was meant.
#[cfg(unix)]
#[test]
fn a_file_without_an_end_is_2() {
    for flags in [
        ["run", "--schema", "/dev/zero", "x"],
        ["run", "--model", "script:/dev/zero", "x"],
        ["plan", "--graph", "/dev/zero", "x"],
    ] {
        let ran = finish(anabranch(&flags));
        assert_eq!((ran.status, &*ran.stdout), (2, ""), "{}", ran.stderr);
        assert!(ran.stderr.contains("/dev/zero") && ran.stderr.contains("more than"), "{}", ran.stderr);
    }
}

/// A file that is binary, not UTF-8, or 2 GB large is answered, quickly, and the run goes on.
#[test]
fn no_file_of_the_workspace_is_too_much() {
    let call = |name: &str, arguments| json!({"name": name, "arguments": arguments});
    let script = Scripted::new(json!([{"turns": [
        {"tool_calls": [
            call("read_file", json!({"path": "binary"})),
            call("read_file", json!({"path": "latin"})),
            call("read_file", json!({"path": "sparse"})),
            call("grep", json!({"pattern": "needle"})),
            json!({"name": "grep", "arguments": "{no JSON"}),
            call("no_such_tool", json!({})),
        ]},
        {"text": "Done."},
    ]}]));
    script.write("binary", b"needle\0\x01\x02");
    script.write("latin", b"caf\xe9 needle\n");
    script.write("plain", "a needle\n");
    File::create(script.path().join("sparse")).unwrap().set_len(2 << 30).unwrap();

    let ran = script.run(&["--output", "jsonl"]).verified();
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let mut results = ran.of_kind("tool_result_update");
    results.sort_by_key(|result| result["call_index"].as_u64());
    assert_eq!(results.len(), 6);
    assert!(results.iter().all(|result| result.to_string().len() < 10_000), "{}", ran.stdout);
    let found = results[3]["result"].to_string();
    assert!(found.contains("plain") && found.contains("a needle"), "{found}");
    let failed: Vec<bool> = results.iter().map(|result| result["is_error"] == true).collect();
    assert_eq!((failed[0], failed[4], failed[5]), (true, true, true), "{results:#?}");
    assert!(results[5]["result"].to_string().contains("no_such_tool"));
}

#[cfg(unix)]
#[test]
fn an_unreadable_workspace_is_2() {
    use std::os::unix::fs::PermissionsExt;
    let script = Scripted::new(json!([{"turns": [{"text": "Done."}]}]));
    let closed = script.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o0)).unwrap();
    if std::fs::read_dir(&closed).is_ok() {
        // Whoever runs the test may read everything.
        return;
    }
    let ran = script.run(&["--workspace", "closed"]);
    assert_eq!((ran.status, &*ran.stdout), (2, ""));
    assert!(ran.stderr.contains("--workspace") && ran.stderr.contains("denied"), "{}", ran.stderr);
}

/// A schema that no run could be held against is bad usage, not a run that fails.
#[test]
fn a_schema_that_cannot_be_compiled_is_bad_usage() {
    let script = Scripted::new(json!([{"turns": [{"text": "Done."}]}]));
    let deep = format!("{}true{}", "{\"items\":".repeat(100), "}".repeat(100));
    for (schema, said) in
        [(deep.as_str(), "levels"), ("[]", "schema"), ("7", "schema"), ("{\"type\": 7}", "schema")]
    {
        script.write("schema.json", schema);
        let ran = script.run(&["--schema", "schema.json"]);
        assert_eq!((ran.status, &*ran.stdout), (2, ""), "{}", ran.stderr);
        assert!(ran.stderr.contains("--schema") && ran.stderr.contains(said), "{}", ran.stderr);
    }
}
