//! The file of a definition, by the acceptance criteria of the original and what is found in the wild.

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn read(text: &str) -> Result<Definition, DefinitionError> {
    Definition::parse(text, Path::new("agents/from-file.md"))
}

/// Kind and line of the error.
#[track_caller]
fn error(text: &str) -> (DefinitionErrorKind, Option<usize>, String) {
    let error = read(text).unwrap_err();
    assert_eq!(error.path, Path::new("agents/from-file.md"), "{text}");
    (error.kind, error.line, error.message)
}

fn warnings(text: &str) -> Vec<String> {
    parse(text, Path::new("a.md")).warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn c1_front_matter_is_read_and_lists_are_trimmed() {
    let definition = read(
        "---\nname: log-reader\ndescription:   Reads CI logs and names the first real failure.  \ntools: [read, grep, \" ls \", \"\"]\nmodel: small-1\nmaxSteps: 12\n---\n\nYou read build logs.\nCall finish when you know.\n\n",
    )
    .unwrap();
    assert_eq!(&*definition.name, "log-reader");
    assert_eq!(&*definition.description, "Reads CI logs and names the first real failure.");
    assert_eq!(definition.tools, ["read", "grep", "ls"]);
    assert_eq!(definition.model.as_deref(), Some("small-1"));
    assert_eq!(definition.max_steps, Some(12));
    assert_eq!(&*definition.prompt, "You read build logs.\nCall finish when you know.");
}

#[test]
fn c3_without_a_name_it_has_its_files() {
    let name = |path: &str, key: &str| {
        let text = format!("---\n{key}description: d\n---\np");
        Definition::parse(&text, Path::new(path)).map(|definition| definition.name.to_string())
    };
    assert_eq!(name("agents/typo.md", ""), Ok("typo".into()));
    assert_eq!(name("agents/a.b.md", ""), Ok("a.b".into()));
    assert_eq!(name("agents/x.md", "name: '  '\n"), Ok("x".into()));
    // Numbers are names too, as they are written.
    assert_eq!(name("agents/x.md", "name: 007\n"), Ok("007".into()));
    // Beside the original: a file that is nothing but its ending has no name that anybody could call.
    assert_eq!(name("agents/.md", "").unwrap_err().kind, DefinitionErrorKind::BadName);
}

#[test]
fn c4_to_c8_what_is_missing_is_named_with_its_line() {
    use DefinitionErrorKind::{NoDescription, NoPrompt, Yaml};
    let of = |text| {
        let (kind, line, _) = error(text);
        (kind, line)
    };
    assert_eq!(of("only text"), (NoDescription, Some(1)));
    assert_eq!(of(""), (NoDescription, Some(1)));
    assert_eq!(of("\n---\ndescription: d\nnever closed"), (NoDescription, Some(2)));
    assert_eq!(of("---\nname: x\n---\nbody"), (NoDescription, Some(1)));
    assert_eq!(of("---\ndescription: ''\n---\nbody"), (NoDescription, Some(2)));
    assert_eq!(of("---\ndescription: d\n---\n \n\t\n"), (NoPrompt, Some(5)));
    assert_eq!(of("---\ndescription: d\ntools: [a\n---\nbody").0, Yaml);
    assert_eq!(of("---\ndescription: d\nname: a\nname: b\n---\nbody"), (Yaml, Some(4)));
    assert_eq!(of("---\n- a\n- b\n---\nbody"), (Yaml, Some(2)));
    // Beside the original: `---x` opens no front matter.
    assert_eq!(of("---x\ndescription: d\n---\nbody"), (NoDescription, Some(1)));
    let (_, _, message) = error("---\nname: x\n");
    assert_eq!(message, "the front matter is not closed; put a line `---` below it");
}

#[test]
fn byte_order_marks_and_line_ends_of_windows_change_nothing() {
    let plain = read("---\ndescription: d\ntools:\n  - a\n  - b\n---\none\ntwo").unwrap();
    let windows =
        read("\u{feff}\r\n---\r\ndescription: d\r\ntools:\r\n  - a\r\n  - b\r\n---\r\none\r\ntwo\r\n")
            .unwrap();
    assert_eq!(Definition { tools_line: plain.tools_line, ..windows }, plain);
}

#[test]
fn names_are_of_a_documented_set() {
    let of = |name: &str| read(&format!("---\nname: {name}\ndescription: d\n---\np"));
    for name in ["reviewer", "a", "A-1_b.c", "x".repeat(64).as_str()] {
        assert_eq!(&*of(name).unwrap().name, name);
    }
    for name in ["'a/b: c'", "'../x'", "-a", ".a", "'a b'", "été", &"x".repeat(65)] {
        let error = of(name).unwrap_err();
        assert_eq!((error.kind, error.line), (DefinitionErrorKind::BadName, Some(2)), "{name}");
    }
    assert!(of("Code Reviewer").unwrap_err().message.ends_with("such as code-reviewer"));
}

#[test]
fn values_of_another_type_are_named_with_their_line() {
    let of = |line: &str| {
        let (kind, at, message) = error(&format!("---\ndescription: d\n{line}\n---\np"));
        assert_eq!((kind, at), (DefinitionErrorKind::BadValue, Some(3)), "{line}: {message}");
        message
    };
    assert_eq!(of("name: [a]"), "`name` is a list; give a text");
    assert_eq!(
        of("tools: {a: b}"),
        "`tools` is a mapping; give a list of names, or names with commas between them"
    );
    assert_eq!(
        of("tools: [[a]]"),
        "`tools` is a list; give a list of names, or names with commas between them"
    );
    assert_eq!(of("max_steps: many"), "`max_steps` is a text; give a whole number");
    assert_eq!(of("max_steps: -1"), "`max_steps` is a number of another range; give a whole number");
    assert_eq!(of("max_steps: 0"), "max_steps is 0, which leaves no step; give at least 1, or leave it out");
    assert!(of(&format!("tools: [{}]", "a,".repeat(101))).contains("101 names"));
}

#[test]
fn limits_have_the_words_of_the_flags() {
    let definition = read(
        "---\ndescription: d\nmax_steps: 9\nlimits: { max_turns: 5, max-tool-calls: 7, timeout: 1h30m, idle_timeout: 90s, budget_tokens: unlimited, budget_usd: 0.5 }\n---\np",
    )
    .unwrap();
    let expected = RunLimits {
        tool_calls: Limit::At(7),
        wall: Limit::At(Duration::from_secs(5400)),
        idle: Limit::At(Duration::from_secs(90)),
        cost_usd: Limit::At(0.5),
        ..RunLimits::default()
    };
    assert_eq!((definition.max_steps, definition.limits), (Some(5), expected));
    let of = |limit: &str| {
        let (kind, line, message) = error(&format!("---\ndescription: d\nlimits: {{ {limit} }}\n---\np"));
        assert_eq!((kind, line), (DefinitionErrorKind::BadLimit, Some(3)), "{limit}");
        message
    };
    assert_eq!(
        of("timeout: 90"),
        "the limit `timeout` is 90; give a number with its unit, such as 90s or 5m, or `unlimited`"
    );
    assert_eq!(of("max_turns: 0"), "the limit `max_turns` is 0; give a whole number from 1, or `unlimited`");
    assert_eq!(
        of("budget_usd: -1"),
        "the limit `budget_usd` is -1; give an amount such as 0.50, or `unlimited`"
    );
    assert_eq!(of("timout: 5s"), "there is no limit `timout`; did you mean `timeout`?");
    assert_eq!(
        of("max_depth: 2"),
        "the limit `max_depth` is one of a whole tree; give it to the program as a flag"
    );
}

/// As such files are found in the wild: lists with commas, aliases of models, colours, descriptions full of colons.
#[test]
fn files_of_other_programs_are_taken_as_they_are() {
    let definition = read(
        "---\nname: code-reviewer\ndescription: Use this agent when: code was written. Examples: <example>user: \"it's done\"</example>\n  and when: somebody asks\ntools: Read, Grep, Glob, Bash(git log:*, git diff:*)\nmodel: inherit\ncolor: blue\nlimits:\n  timeout: 5m\n---\nYou review.",
    )
    .unwrap();
    assert_eq!(
        &*definition.description,
        "Use this agent when: code was written. Examples: <example>user: \"it's done\"</example> and when: somebody asks"
    );
    assert_eq!(definition.tools, ["Read", "Grep", "Glob", "Bash(git log:*, git diff:*)"]);
    assert_eq!((definition.model, definition.limits.wall), (None, Limit::At(Duration::from_secs(300))));
    for description in ["*fast* reviews", "@someone: does", "\"Quick\" look: at it", "ends with a colon:"] {
        let text = format!("---\ndescription: {description}\nmodel: sonnet\ntools: *\n---\np");
        let definition = read(&text).unwrap();
        assert_eq!(&*definition.description, description);
        assert_eq!((definition.model.as_deref(), definition.tools), (Some("sonnet"), vec!["*".to_owned()]));
    }
    // What cannot be mended this way stays an error, with the line of the text as it is.
    let (kind, line, _) = error("---\ndescription: fine: yes\nname: [a\n---\np");
    assert_eq!((kind, line.is_some()), (DefinitionErrorKind::Yaml, true));
}

/// What would cost a lot to read, or has no end, is refused at once.
#[test]
fn bombs_are_refused() {
    let mut laughs = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..9 {
        let below = format!("*a{},", level - 1).repeat(9);
        laughs.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    for keys in
        [laughs, "tools: &x [*x]".to_owned(), format!("x: {}", "[".repeat(5000)), "? [a]\n: b".to_owned()]
    {
        let text = format!("---\ndescription: d\n{keys}\n---\np");
        assert_eq!(error(&text).0, DefinitionErrorKind::Yaml, "{}", &keys[..10]);
    }
    let (_, line, message) = error("---\ndescription: d\ntools: [a\n---\np");
    assert!(line.is_some() && !message.contains(" at line "), "{message}");
    assert!(message.ends_with("; mend that line, or put quotes around its value"), "{message}");
}

#[test]
fn unknown_keys_are_told_with_what_may_be_meant() {
    let text = "---\ndescription: d\ncolor: red\ntols: a\nzzz: 1\n---\np";
    assert_eq!(
        warnings(text),
        [
            "a.md:4: the key `tols` has no effect; did you mean `tools`?",
            "a.md:5: the key `zzz` has no effect"
        ]
    );
}

#[test]
fn schemas_stand_in_the_file_or_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.md");
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("good.json", r#"{"type": "object"}"#);
    write("text.json", "no JSON");
    write("list.json", "[]");
    write("bad.json", r#"{"type": "objekt"}"#);
    let of = |schema: &str| {
        let definition =
            Definition::parse(&format!("---\ndescription: d\noutput_schema: {schema}\n---\np"), &path);
        definition.map(|definition| Value::clone(&definition.output_schema.unwrap()))
    };
    assert_eq!(of("{ type: object, required: [n] }"), Ok(json!({ "type": "object", "required": ["n"] })));
    assert_eq!(of("good.json"), Ok(json!({ "type": "object" })));
    for (schema, says) in [
        ("text.json", "is no JSON: "),
        ("list.json", "is no JSON schema: it is no object"),
        ("bad.json", "is no JSON schema: "),
        ("missing.json", "cannot be read: "),
        ("../good.json", "does not lie beside the file"),
        ("/etc/hostname", "does not lie beside the file"),
        ("[1]", "is no schema; give a mapping"),
        ("{ type: objekt }", "output_schema is no JSON schema: "),
    ] {
        let error = of(schema).unwrap_err();
        assert_eq!((error.kind, error.line), (DefinitionErrorKind::BadSchema, Some(3)), "{schema}");
        assert!(error.message.contains(says), "{schema}: {}", error.message);
    }
}

proptest! {
    /// Whatever a file has, it is a definition that keeps its promises or an error with a text: never a panic.
    #[test]
    fn any_text_is_read_or_refused(text in "(---\n|name|description|tools|limits|model|: |\n|  |- |\\[|\\]|\\{|\\}|\"|'|&a |\\*a|#|é|x|9|,|\\||\t|---){0,40}") {
        match read(&text) {
            Ok(definition) => prop_assert!(is_name(&definition.name) && !definition.prompt.trim().is_empty()),
            Err(error) => prop_assert!(!error.message.is_empty() && error.line != Some(0)),
        }
    }

    /// A description that is written on one line comes out as it was written.
    #[test]
    fn descriptions_need_no_quotes(text in "[A-Za-z(<][A-Za-z0-9:,.'\"<>/ ()-]{0,60}[a-z.)]") {
        let definition = read(&format!("---\ndescription: {text}\n---\np"));
        prop_assert_eq!(&*definition.unwrap().description, text.as_str());
    }
}
