use super::*;
use crate::tool::workspace::test_kit::{Kit, go, refusal, text};

fn glob(kit: &Kit, pattern: &str) -> ToolReply {
    glob_in(kit, pattern, None)
}

fn glob_in(kit: &Kit, pattern: &str, path: Option<&str>) -> ToolReply {
    kit.workspace.glob(&GlobArgs { pattern: pattern.into(), path: path.map(Into::into) }, &go)
}

fn tree() -> Kit {
    Kit::with(&[
        ("Cargo.toml", ""),
        ("src/a.rs", ""),
        ("src/a/z.rs", ""),
        ("src/a/y.txt", ""),
        ("src-gen/b.rs", ""),
        ("tests/ä ö.rs", ""),
    ])
}

#[test]
fn paths_are_sorted_component_by_component() {
    let reply = glob(&tree(), "*.rs");
    assert_eq!(text(&reply), "src/a/z.rs\nsrc/a.rs\nsrc-gen/b.rs\ntests/ä ö.rs");
    assert_eq!(reply.for_person.as_deref(), Some("4 files"));
}

#[test]
fn patterns_work_as_people_write_them() {
    let kit = tree();
    let root = kit.workspace.root().display().to_string();
    for (pattern, path, expected) in [
        ("src/*.rs", None, "src/a.rs"),
        ("./src/**/*.rs", None, "src/a/z.rs\nsrc/a.rs"),
        ("src/", None, "src/a/y.txt\nsrc/a/z.rs\nsrc/a.rs"),
        ("*.{toml,txt}", None, "Cargo.toml\nsrc/a/y.txt"),
        ("a/*.rs", Some("src"), "src/a/z.rs"),
        ("src/a/*.rs", Some("src"), "src/a/z.rs"),
        ("**/a/*", None, "src/a/y.txt\nsrc/a/z.rs"),
        ("!*.rs", None, "Cargo.toml\nsrc/a/y.txt"),
        ("src/*", None, "src/a.rs"),
        (&format!("{root}/src/*.rs"), None, "src/a.rs"),
        ("*.py", None, "[no files match \"*.py\" in 6 files]"),
        ("none/*.py", Some("src"), "[no files match \"none/*.py\" in 3 files]"),
    ] {
        assert_eq!(text(&glob_in(&kit, pattern, path)), expected, "{pattern}");
    }
}

#[test]
fn ignore_rules_count_without_git_too() {
    let kit = Kit::with(&[
        (".gitignore", "/target\n*.log\n"),
        ("src/.ignore", "generated.rs\n!kept.log\n"),
        ("src/generated.rs", ""),
        ("src/kept.log", ""),
        ("src/a.log", ""),
        ("src/a.rs", ""),
        ("target/debug/a.rs", ""),
        ("target/a.log", ""),
    ]);
    assert_eq!(text(&glob(&kit, "**")), "src/a.rs\nsrc/kept.log");
    // The rules above the directory that is searched count, and those above the workspace do not.
    assert_eq!(text(&glob_in(&kit, "**", Some("src"))), "src/a.rs\nsrc/kept.log");
    std::fs::write(kit.outside(".gitignore"), "*\n").unwrap();
    assert_eq!(text(&glob(&kit, "**")), "src/a.rs\nsrc/kept.log");
    // What is asked for by path is not ignored.
    assert_eq!(text(&glob_in(&kit, "**", Some("target"))), "target/a.log\ntarget/debug/a.rs");
    assert_eq!(text(&glob(&kit, "target/debug/*.rs")), "target/debug/a.rs");
}

#[test]
fn hidden_files_are_found_when_they_are_named_or_known() {
    let kit = Kit::with(&[
        (".env", ""),
        (".github/workflows/ci.yml", ""),
        (".git/config", ""),
        (".cache/x", ""),
        (".cache/.y", ""),
        ("a/.b/c", ""),
    ]);
    assert_eq!(text(&glob(&kit, "**")), ".github/workflows/ci.yml");
    assert_eq!(text(&glob(&kit, ".env*")), ".env");
    assert_eq!(text(&glob(&kit, "a/.b/*")), "a/.b/c");
    assert_eq!(text(&glob_in(&kit, "**", Some(".cache"))), ".cache/x");
    assert_eq!(text(&glob(&kit, ".*/**")), ".cache/.y\n.cache/x\n.github/workflows/ci.yml");
}

#[test]
fn many_files_are_cut_with_a_note() {
    let kit = Kit::new();
    for n in 0..=GLOB_RESULTS {
        kit.file(&format!("{n:05}"), "");
    }
    let reply = glob(&kit, "*");
    let expected: Vec<String> = (0..GLOB_RESULTS).map(|n| format!("{n:05}")).collect();
    assert_eq!(
        text(&reply),
        format!("{}\n[1000 of more files shown; narrow the pattern or the path]", expected.join("\n"))
    );
    assert_eq!(reply.for_person.as_deref(), Some("1000 of more files"));
}

#[test]
fn long_paths_stay_below_the_output_limit() {
    let kit = Kit::new();
    let long = "d".repeat(200);
    for n in 0..400 {
        kit.file(&format!("{long}/{n:03}"), "");
    }
    let reply = text(&glob(&kit, "**"));
    let (paths, note) = reply.rsplit_once('\n').unwrap();
    assert!(paths.len() <= crate::tool::workspace::OUTPUT_LIMIT);
    assert_eq!(paths.lines().count(), 299);
    assert_eq!(note, "[299 of more files shown; narrow the pattern or the path]");
}

#[test]
fn bad_globs_and_places_are_refused() {
    let kit = tree();
    assert_eq!(
        refusal(&glob(&kit, "")),
        ("invalid_pattern", "the glob is empty; `**` matches every file, `*.rs` those with that extension")
    );
    assert_eq!(
        refusal(&glob(&kit, "a[")),
        (
            "invalid_pattern",
            "\"a[\" is not a valid glob: unclosed character class; missing ']'; put a backslash before a bracket \
             or brace that is part of a name"
        )
    );
    assert_eq!(refusal(&glob(&kit, "../*")).0, "path_outside_workspace");
    assert_eq!(refusal(&glob(&kit, "/etc/*")).0, "path_outside_workspace");
    assert_eq!(
        refusal(&glob_in(&kit, "*", Some("src/a.rs"))),
        ("not_a_directory", "src/a.rs is a file, not a directory")
    );
}

#[test]
#[cfg(unix)]
fn names_cannot_forge_lines() {
    use std::os::unix::ffi::OsStrExt;
    let kit = Kit::new();
    kit.file("a\nb", "");
    let odd = kit.workspace.root().join(std::ffi::OsStr::from_bytes(b"\xff.rs"));
    std::fs::write(odd, "").unwrap();
    assert_eq!(text(&glob(&kit, "*")), "a\\nb\n\u{fffd}.rs");
}

#[test]
#[cfg(unix)]
fn directories_that_cannot_be_read_are_said() {
    use std::os::unix::fs::PermissionsExt;
    let kit = Kit::with(&[("a/x", ""), ("b/y", ""), ("c/z", "")]);
    std::fs::set_permissions(kit.path("b"), PermissionsExt::from_mode(0o000)).unwrap();
    if crate::tool::workspace::test_kit::permissions_bind(&kit.path("b")) {
        assert_eq!(text(&glob(&kit, "*")), "a/x\nc/z\n[cannot read b: Permission denied (os error 13)]");
    }
    std::fs::set_permissions(kit.path("b"), PermissionsExt::from_mode(0o700)).unwrap();
}

#[test]
fn it_stops_when_told() {
    let kit = tree();
    let polls = std::cell::Cell::new(0);
    for after in 0..8 {
        polls.set(0);
        let stop = || polls.replace(polls.get() + 1) >= after;
        let reply = kit.workspace.glob(&GlobArgs { pattern: "*".into(), path: None }, &stop);
        assert_eq!(refusal(&reply), ("cancelled", "cancelled before it was done; no file was changed"));
        assert_eq!(polls.get(), after + 1);
    }
}
