use serde_json::json;

use super::*;

fn rule(text: &str) -> Rule {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn args(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap()
}

#[test]
fn a_rule_speaks_of_tools_and_of_the_agents_that_call_them() {
    for (text, agent, tool, speaks) in [
        ("write_file", "any", "write_file", true),
        ("write_file", "any", "write_files", false),
        ("*_file", "any", "write_file", true),
        ("{read,write}_*", "any", "write_file", true),
        ("*", "any", "grep", true),
        ("reviewer:edit_file", "reviewer", "edit_file", true),
        ("reviewer:edit_file", "other", "edit_file", false),
        ("review*:*", "reviewer", "edit_file", true),
        ("Review*:*", "reviewEr", "edit_file", true),
        ("reviewer:Edit_file", "reviewer", "edit_file", false),
        (" write_file ", "any", "write_file", true),
    ] {
        let rule = rule(text);
        assert_eq!(rule.speaks_of(tool) && rule.speaks_for(agent), speaks, "{text} {agent} {tool}");
    }
}

#[test]
fn arguments_are_compared_as_they_are_and_as_paths() {
    let secret = rule("write_file(path=secret/**)");
    for (path, fits) in [
        ("secret/key", Fits::Surely),
        ("secret/deep/key", Fits::Surely),
        ("src/key", Fits::No),
        // Another way to the same file, and one that only looks like it.
        ("src/../secret/key", Fits::Perhaps),
        ("./secret/key", Fits::Perhaps),
        ("secret//key", Fits::Surely),
        ("secret/../src/key", Fits::Perhaps),
        ("secretkey", Fits::No),
        ("", Fits::No),
    ] {
        assert_eq!(secret.fits(args(&json!({ "path": path })), None), fits, "{path}");
    }
    assert_eq!(rule("f(path=*.md)").fits(args(&json!({"path": "docs/a.md"})), None), Fits::No);
    assert_eq!(rule("f(path=**/*.md)").fits(args(&json!({"path": "docs/a.md"})), None), Fits::Surely);
    // What the tool says that the path leads to.
    let leads = json!({ "path": "secret/key" });
    assert_eq!(secret.fits(args(&json!({"path": "link/key"})), Some(args(&leads))), Fits::Perhaps);
    assert_eq!(secret.fits(args(&leads), Some(args(&leads))), Fits::Surely);
    // All of several, values that are no texts, and arguments that are not there.
    let both = rule("f(path=a*; count=3 ;flags=\\[*\\])");
    assert_eq!(both.fits(args(&json!({"path": "ab", "count": 3, "flags": [1]})), None), Fits::Surely);
    assert_eq!(both.fits(args(&json!({"path": "ab", "count": 4, "flags": [1]})), None), Fits::No);
    assert_eq!(both.fits(args(&json!({"path": "ab"})), None), Fits::No);
    assert!(rule("f").is_about_all_arguments() && !both.is_about_all_arguments());
}

#[test]
fn what_is_no_rule_is_said() {
    for (text, reason) in [
        ("", "the tool is missing"),
        ("write file", "' ' cannot stand in the name"),
        ("write_file(path=a", "the `)` at its end is missing"),
        ("write_file()", "is no ARGUMENT=PATTERN"),
        ("write_file(path)", "\"path\" is no ARGUMENT=PATTERN"),
        ("write_file(=a)", "the argument before the `=` is missing"),
        ("write_file(path=)", "the pattern after the `=` is missing"),
        ("write_file(path=[a)", "is no pattern"),
        (":write_file", "the agent before the `:` is missing"),
        ("a:", "the tool is missing"),
        ("a:b:c", "':' cannot stand in the name"),
    ] {
        let error = text.parse::<Rule>().expect_err(text).to_string();
        assert!(error.contains(reason), "{text}: {error}");
        assert!(error.contains("a rule is [AGENT:]TOOL[(ARGUMENT=PATTERN;…)]"), "{text}: {error}");
    }
}
