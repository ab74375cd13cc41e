use super::*;
use crate::tool::workspace::OUTPUT_LIMIT;
use crate::tool::workspace::test_kit::{Kit, go, refusal, text};

fn args(pattern: &str) -> GrepArgs {
    GrepArgs { pattern: pattern.into(), ..Default::default() }
}

fn grep(kit: &Kit, pattern: &str) -> ToolReply {
    kit.workspace.grep(&args(pattern), &go)
}

#[test]
fn hits_are_sorted_by_path_and_line() {
    let kit = Kit::with(&[
        ("src/b.rs", "let needle = 1;\n\nneedle();\n"),
        ("src/a/c.rs", "// no\n// needle ünd more\r\n"),
        ("README.md", "needle"),
    ]);
    let reply = grep(&kit, "needle");
    assert_eq!(
        text(&reply),
        "README.md:1:needle\nsrc/a/c.rs:2:// needle ünd more\nsrc/b.rs:1:let needle = 1;\nsrc/b.rs:3:needle();"
    );
    assert_eq!(reply.for_person.as_deref(), Some("4 hits in 3 files"));
}

#[test]
fn options_do_what_they_say() {
    let kit = Kit::with(&[("src/a.rs", "f(x)\nF(X)\nf[x]\n"), ("a.py", "f(x)\r\n"), ("src/b.py", "f(x)")]);
    let on = Some(true);
    for (args, expected) in [
        (GrepArgs { fixed_strings: on, ..args("f(x)") }, "a.py:1:f(x)\nsrc/a.rs:1:f(x)\nsrc/b.py:1:f(x)"),
        (
            GrepArgs { ignore_case: on, path: Some("src/a.rs".into()), ..args(r"f\(") },
            "src/a.rs:1:f(x)\nsrc/a.rs:2:F(X)",
        ),
        (GrepArgs { glob: Some("*.py".into()), ..args(r"\)$") }, "a.py:1:f(x)\nsrc/b.py:1:f(x)"),
        (GrepArgs { glob: Some("!*.py".into()), ..args(r"\)$") }, "src/a.rs:1:f(x)\nsrc/a.rs:2:F(X)"),
        (
            GrepArgs { glob: Some("src/*.py".into()), path: Some("src".into()), ..args("f") },
            "src/b.py:1:f(x)",
        ),
        (GrepArgs { path: Some("./src".into()), ..args("F") }, "src/a.rs:2:F(X)"),
        (args("^f.x.$"), "a.py:1:f(x)\nsrc/a.rs:1:f(x)\nsrc/a.rs:3:f[x]\nsrc/b.py:1:f(x)"),
    ] {
        assert_eq!(text(&kit.workspace.grep(&args, &go)), expected, "{args:?}");
    }
}

#[test]
fn no_hits_is_an_answer() {
    let kit = Kit::with(&[("a", "x"), ("b", "y")]);
    let reply = grep(&kit, "z");
    assert_eq!(text(&reply), "[no hits for \"z\" in 2 files]");
    assert_eq!(reply.for_person.as_deref(), Some("no hits in 2 files"));
}

#[test]
fn context_comes_in_groups() {
    let kit = Kit::with(&[("a", "1\n2\nhit\n4\nhit\n6\n7\n8\n9\nhit\n"), ("b", "hit\n2\n")]);
    let reply = kit.workspace.grep(&GrepArgs { context: Some(1), ..args("hit") }, &go);
    assert_eq!(
        text(&reply),
        "a-2-2\na:3:hit\na-4-4\na:5:hit\na-6-6\n--\na-9-9\na:10:hit\n--\nb:1:hit\nb-2-2"
    );
    assert_eq!(reply.for_person.as_deref(), Some("4 hits in 2 files"));
}

#[test]
fn more_hits_than_asked_for_are_said() {
    let kit = Kit::with(&[("a", "hit\n2\n3\nhit\n5\n6\nhit\n"), ("b", "hit\n")]);
    let reply = kit.workspace.grep(&GrepArgs { max_results: Some(2), context: Some(1), ..args("hit") }, &go);
    assert_eq!(
        text(&reply),
        "a:1:hit\na-2-2\na-3-3\na:4:hit\na-5-5\n[2 of more hits shown; narrow the pattern or the path]"
    );
    assert_eq!(reply.for_person.as_deref(), Some("2 of more hits in 1 file"));
    // Exactly as many as there are: nothing was cut.
    let reply = kit.workspace.grep(&GrepArgs { max_results: Some(4), ..args("hit") }, &go);
    assert_eq!(text(&reply), "a:1:hit\na:4:hit\na:7:hit\nb:1:hit");
    let reply = kit.workspace.grep(&GrepArgs { max_results: Some(3), ..args("hit") }, &go);
    assert_eq!(
        text(&reply),
        "a:1:hit\na:4:hit\na:7:hit\n[3 of more hits shown; narrow the pattern or the path]"
    );
}

#[test]
fn the_reply_is_capped() {
    let line = format!("hit{}\n", "x".repeat(250));
    let kit = Kit::with(&[("a", &line.repeat(1000))]);
    let reply = text(&kit.workspace.grep(&GrepArgs { max_results: Some(10_000), ..args("hit") }, &go));
    let (lines, note) = reply.rsplit_once('\n').unwrap();
    assert!(lines.len() <= OUTPUT_LIMIT && lines.len() > OUTPUT_LIMIT - 300);
    assert_eq!(
        note,
        format!("[{} of more hits shown; narrow the pattern or the path]", lines.lines().count())
    );
}

#[test]
fn long_lines_show_the_hit() {
    let (x, y) = ("ü".repeat(1000), "y".repeat(1000));
    let kit = Kit::with(&[("a.min.js", &format!("needle{x}\n{x}needle{y}\n{x}needle\n"))]);
    assert_eq!(
        text(&grep(&kit, "needle")),
        format!(
            "a.min.js:1:needle{}…\na.min.js:2:…{}needle{}…\na.min.js:3:…{}needle",
            "ü".repeat(GREP_LINE_CHARS - 7),
            "ü".repeat(100),
            "y".repeat(GREP_LINE_CHARS - 108),
            "ü".repeat(100),
        )
    );
}

#[test]
fn binary_files_are_skipped_and_said() {
    let kit = Kit::with(&[("a", "hit")]);
    kit.file("early", b"hit\0hit");
    kit.file("late", [b"hit\n", b"no\n".repeat(50_000).as_slice(), b"\0"].concat());
    kit.file("utf16", b"\xff\xfeh\0i\0t\0\n\0");
    assert_eq!(text(&grep(&kit, "hit")), "a:1:hit\nutf16:1:hit\n[skipped 2 binary files]");
    let reply = kit.workspace.grep(&GrepArgs { path: Some("early".into()), ..args("hit") }, &go);
    assert_eq!(text(&reply), "[no hits for \"hit\" in 0 files]\n[skipped 1 binary file]");
}

#[test]
fn large_files_are_skipped_without_being_read() {
    let kit = Kit::with(&[("a", "hit")]);
    kit.sparse("big.bin", 2 << 30);
    kit.file("limit.txt", [b"hit\n".repeat(4 * 1024 * 1024).as_slice(), b"x"].concat());
    let polls = std::cell::Cell::new(0);
    let stop = || {
        polls.set(polls.get() + 1);
        false
    };
    assert_eq!(
        text(&kit.workspace.grep(&args("hit"), &stop)),
        "a:1:hit\n[skipped big.bin: 2.0 GiB is above the 16 MiB search limit]\n\
         [skipped limit.txt: 16 MiB is above the 16 MiB search limit]"
    );
    assert!(polls.get() < 20, "{}", polls.get());
    for n in 0..6 {
        kit.sparse(&format!("c{n}"), 3 << 30);
    }
    let reply = text(&grep(&kit, "hit"));
    assert_eq!(reply.lines().last().unwrap(), "[skipped 3 more files above the 16 MiB search limit]");
    assert_eq!(reply.lines().count(), 7);
}

#[test]
fn bytes_that_are_not_utf8_are_searched_and_said() {
    let kit = Kit::with(&[("b", "hit")]);
    kit.file("a", b"\xff before\nhit gr\xfcn\n");
    assert_eq!(
        text(&grep(&kit, "hit")),
        "a:2:hit gr\u{fffd}n\nb:1:hit\n[a is not all UTF-8: other bytes are shown as \u{fffd}]"
    );
}

#[test]
fn ignored_and_hidden_files_are_searched_only_by_path() {
    let kit = Kit::with(&[
        (".gitignore", "target\n"),
        ("target/a", "hit"),
        (".env", "hit"),
        (".ci/run", "hit"),
        (".git/config", "hit"),
        ("a", "hit"),
    ]);
    assert_eq!(text(&grep(&kit, "hit")), ".ci/run:1:hit\na:1:hit");
    for (path, expected) in
        [("target", "target/a:1:hit"), ("target/a", "target/a:1:hit"), (".env", ".env:1:hit")]
    {
        let reply = kit.workspace.grep(&GrepArgs { path: Some(path.into()), ..args("hit") }, &go);
        assert_eq!(text(&reply), expected);
    }
    let reply = kit.workspace.grep(&GrepArgs { glob: Some(".env".into()), ..args("hit") }, &go);
    assert_eq!(text(&reply), ".env:1:hit");
}

#[test]
fn patterns_that_cannot_be_searched_are_refused() {
    let kit = Kit::with(&[("a", "")]);
    assert_eq!(
        refusal(&grep(&kit, "")),
        ("invalid_pattern", "the pattern is empty and would match every line; give the text to search for")
    );
    let reply = grep(&kit, "foo(");
    let (code, message) = refusal(&reply);
    assert_eq!(code, "invalid_pattern");
    assert!(message.starts_with("\"foo(\" is not a valid regular expression: "), "{message}");
    assert!(message.contains("unclosed group"), "{message}");
    assert!(message.ends_with("\nto search for it as plain text, set fixed_strings to true"), "{message}");
    for pattern in ["a\nb", r"a\nb"] {
        assert_eq!(refusal(&grep(&kit, pattern)).0, "invalid_pattern", "{pattern}");
    }
    assert_eq!(refusal(&grep(&kit, "(a{1000}){1000}")).0, "invalid_pattern");
    let reply = kit.workspace.grep(&GrepArgs { glob: Some("[".into()), ..args("a") }, &go);
    assert_eq!(refusal(&reply).0, "invalid_pattern");
    let reply = kit.workspace.grep(&GrepArgs { path: Some("b".into()), ..args("a") }, &go);
    assert_eq!(refusal(&reply), ("not_found", "\"b\" does not exist"));
}

#[test]
#[cfg(unix)]
fn what_cannot_be_read_is_said() {
    use std::os::unix::fs::PermissionsExt;
    let kit = Kit::with(&[("a", "hit"), ("b", "hit"), ("c/d", "hit")]);
    for path in ["b", "c"] {
        std::fs::set_permissions(kit.path(path), PermissionsExt::from_mode(0o000)).unwrap();
    }
    if crate::tool::workspace::test_kit::permissions_bind(&kit.path("c")) {
        assert_eq!(
            text(&grep(&kit, "hit")),
            "a:1:hit\n[cannot read b: Permission denied (os error 13)]\n\
             [cannot read c: Permission denied (os error 13)]"
        );
    }
    std::fs::set_permissions(kit.path("c"), PermissionsExt::from_mode(0o700)).unwrap();
}

#[test]
#[cfg(unix)]
fn pipes_do_not_block() {
    let kit = Kit::with(&[("a", "hit")]);
    let made = std::process::Command::new("mkfifo").arg(kit.path("pipe")).status();
    if made.is_ok_and(|status| status.success()) {
        assert_eq!(text(&grep(&kit, "hit")), "a:1:hit");
        let reply = kit.workspace.grep(&GrepArgs { path: Some("pipe".into()), ..args("hit") }, &go);
        assert_eq!(refusal(&reply).0, "not_a_file");
    }
}

#[test]
fn it_stops_within_a_file() {
    let kit = Kit::with(&[("a", &"no\n".repeat(1_000_000))]);
    for after in [0, 3, 10] {
        let polls = std::cell::Cell::new(0);
        let stop = || polls.replace(polls.get() + 1) >= after;
        assert_eq!(refusal(&kit.workspace.grep(&args("hit"), &stop)).0, "cancelled");
        assert_eq!(polls.get(), after + 1);
    }
}
