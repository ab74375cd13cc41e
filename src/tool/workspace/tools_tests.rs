use serde_json::json;

use super::super::test_kit::{Kit, text};
use super::*;
use crate::tool::test_kit::{Bench, error_of};
use crate::tool::{Effect, Policy};

fn bench(kit: &Kit) -> Bench {
    Bench::new(kit.workspace.add_to(&Toolset::new()).unwrap())
}

#[test]
fn the_surface_is_six_tools_two_of_which_write() {
    let tools = Kit::new().workspace.add_to(&Toolset::new()).unwrap();
    let names: Vec<&str> = tools.names().collect();
    assert_eq!(names, ["read_file", "list_directory", "glob", "grep", "write_file", "edit_file"]);
    let writers = tools.filter(|tool| tool.access() == Access::Write);
    assert_eq!(writers.names().collect::<Vec<_>>(), ["write_file", "edit_file"]);
    assert_eq!(
        tools.without(&["write_file", "edit_file"]).filter(|tool| tool.access() != Access::Read).len(),
        0
    );
    for spec in tools.specs().iter() {
        assert!(
            !spec.description.is_empty() && !spec.parameters.to_string().contains("$ref"),
            "{}",
            spec.name
        );
        assert_eq!(tools.get(&spec.name).unwrap().on_cancel(), OnCancel::Grace);
    }
}

#[test]
fn a_person_reads_what_it_is_about() {
    let tools = Kit::new().workspace.add_to(&Toolset::new()).unwrap();
    let status = |name: &str, args: Value| {
        let Value::Object(args) = args else { panic!() };
        tools.get(name).unwrap().status_text(&args)
    };
    assert_eq!(status("read_file", json!({"path": "a.rs"})).as_deref(), Some("Reading a.rs"));
    assert_eq!(status("grep", json!({"pattern": "fn "})).as_deref(), Some("Searching for fn "));
    assert_eq!(status("glob", json!({"pattern": "*.rs"})).as_deref(), Some("Finding *.rs"));
    assert_eq!(status("grep", json!({"pattern": 3})), None);
    assert_eq!(status("edit_file", json!({})), None);
}

#[tokio::test]
async fn they_work_through_a_call() {
    let kit = Kit::with(&[("a.txt", "one\ntwo\n")]);
    let bench = bench(&kit);
    let reply = bench.call("read_file", json!({"path": "a.txt"})).await.reply;
    assert!(!reply.is_error && reply.model_text().contains("two"), "{reply:?}");
    let reply = bench.call("grep", json!({"pattern": "tw."})).await.reply;
    assert!(reply.model_text().contains("a.txt:2:two"), "{reply:?}");
    let reply = bench.call("read_file", json!({"path": 3})).await.reply;
    assert_eq!(error_of(&reply).0, "invalid_tool_arguments");
    assert!(bench.call("read_file", json!({"path": "none.txt"})).await.reply.is_error);
}

#[tokio::test]
async fn writing_waits_to_be_allowed() {
    let kit = Kit::new();
    let mut bench = bench(&kit);
    let args = json!({"path": "new.txt", "content": "text"});
    assert_eq!(error_of(&bench.call("write_file", args.clone()).await.reply).0, "tool_denied");
    assert!(!kit.path("new.txt").exists());
    bench.policy = bench.policy.allow(["write_file"]);
    assert!(!bench.call("write_file", args).await.reply.is_error);
    assert_eq!(std::fs::read_to_string(kit.path("new.txt")).unwrap(), "text");
    // One is not the other.
    let edit = json!({"path": "new.txt", "old_text": "text", "new_text": "x"});
    assert_eq!(error_of(&bench.call("edit_file", edit).await.reply).0, "tool_denied");
}

/// What a rule on the path forbids cannot be had by beginning above it: each walk leaves it out, and says that it did.
#[tokio::test]
async fn a_walk_from_above_shows_nothing_that_a_rule_forbids() {
    let kit = Kit::with(&[
        ("secrets/key", "needle k"),
        ("secrets/old/key", "needle o"),
        ("src/.env", "needle e"),
        ("src/a.rs", "needle a"),
    ]);
    let mut bench = bench(&kit);
    bench.policy = Policy::default().with(Effect::Deny, "*(path=secrets/**)".parse().unwrap());
    for (tool, args, expected) in [
        (
            "grep",
            json!({ "pattern": "needle" }),
            "src/a.rs:1:needle a\n[2 places left out, since a rule forbids them]",
        ),
        (
            "grep",
            json!({ "pattern": "needle", "path": "secrets" }),
            "[no hits for \"needle\" in 0 files]\n[2 places left out, since a rule forbids them]",
        ),
        ("glob", json!({ "pattern": "**" }), "src/a.rs\n[2 places left out, since a rule forbids them]"),
        (
            "glob",
            json!({ "pattern": "secrets/old/*" }),
            "[no files match \"secrets/old/*\" in 0 files]\n[1 place left out, since a rule forbids it]",
        ),
        ("list_directory", json!({}), "secrets/\nsrc/"),
        ("list_directory", json!({ "path": "secrets" }), "[2 places left out, since a rule forbids them]"),
    ] {
        assert_eq!(text(&bench.call(tool, args.clone()).await.reply), expected, "{tool} {args}");
    }
    let named = bench.call("grep", json!({ "pattern": "needle", "path": "secrets/key" })).await.reply;
    assert_eq!(error_of(&named).0, "tool_denied");
    // A rule on one tool is a rule on that tool, one on other arguments says nothing of places, and the agent is looked at too.
    for other in ["glob(path=secrets/**)", "grep(pattern=other;path=secrets/**)", "other:*(path=secrets/**)"]
    {
        bench.policy = Policy::default().with(Effect::Deny, other.parse().unwrap());
        let reply = bench.call("grep", json!({ "pattern": "needle" })).await.reply;
        assert_eq!(
            text(&reply),
            "secrets/key:1:needle k\nsecrets/old/key:1:needle o\nsrc/a.rs:1:needle a",
            "{other}"
        );
    }
    // By a list of what is to be asked for, where nobody was: a place that nobody was asked for is left out.
    bench.policy = Policy::default().with(Effect::Ask, "grep(path=secrets/*)".parse().unwrap());
    let reply = bench.call("grep", json!({ "pattern": "needle" })).await.reply;
    assert_eq!(text(&reply), "src/a.rs:1:needle a\n[2 places left out, since a rule forbids them]");
}

/// A rule on a path holds for whatever leads to the place: other spellings, absolute paths, symbolic links.
#[cfg(unix)]
#[test]
fn a_rule_on_a_path_is_about_the_place() {
    let kit = Kit::new();
    kit.file("secret/key", "k");
    kit.file("docs/a.md", "a");
    kit.link("../secret", "docs/link");
    let tools = kit.workspace.add_to(&Toolset::new()).unwrap();
    let policy = Policy::default()
        .with(Effect::Allow, "write_file(path=docs/**)".parse().unwrap())
        .with(Effect::Deny, "read_file(path=secret/**)".parse().unwrap());
    let effect = |tool: &str, path: &str| {
        let args = Map::from_iter([("path".to_owned(), json!(path))]);
        policy.rule_on(&**tools.get(tool).unwrap(), &args, "agent").effect
    };
    let absolute = kit.path("secret/key").display().to_string();
    for path in ["secret/key", "./secret/key", "docs/link/key", "docs/../secret/key", &absolute] {
        assert_eq!(effect("read_file", path), Effect::Deny, "{path}");
    }
    // The workspace itself, whether it is named or not.
    let whole = Policy::default().with(Effect::Deny, "grep(path=.)".parse().unwrap());
    for args in [json!({}), json!({ "path": null }), json!({ "path": "docs/.." })] {
        let grep = &**tools.get("grep").unwrap();
        let args = args.as_object().unwrap();
        assert_eq!(whole.rule_on(grep, args, "agent").effect, Effect::Deny, "{args:?}");
    }
    assert_eq!(effect("read_file", "docs/a.md"), Effect::Allow);
    assert_eq!(effect("write_file", "docs/new/b.md"), Effect::Allow);
    for path in ["docs/link/key", "docs/link/new", "src/a.rs", "../docs/a.md"] {
        assert_eq!(effect("write_file", path), Effect::Ask, "{path}");
    }
}
