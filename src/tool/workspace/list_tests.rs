use super::*;
use crate::tool::workspace::test_kit::{Kit, go, refusal, text};

fn list(kit: &Kit, path: Option<&str>) -> ToolReply {
    kit.workspace.list_directory(&ListDirectoryArgs { path: path.map(Into::into) }, &go)
}

#[test]
fn everything_is_listed_but_git() {
    let kit = Kit::with(&[
        (".git/config", ""),
        (".gitignore", "target\n"),
        (".env", "x"),
        ("target/x", ""),
        ("src/main.rs", "fn main() {}"),
        ("b.txt", "hello"),
        ("ä.txt", ""),
    ]);
    kit.sparse("big.bin", 2 << 30);
    let reply = list(&kit, None);
    assert_eq!(
        text(&reply),
        ".env\t1 B\n.gitignore\t7 B\nb.txt\t5 B\nbig.bin\t2.0 GiB\nsrc/\ntarget/\nä.txt\t0 B"
    );
    assert_eq!(reply.for_person.as_deref(), Some("7 entries in ."));
    let reply = list(&kit, Some("src/"));
    assert_eq!(text(&reply), "main.rs\t12 B");
    assert_eq!(reply.for_person.as_deref(), Some("1 entry in src"));
}

#[test]
#[cfg(unix)]
fn links_and_odd_files_are_shown_as_such() {
    let kit = Kit::with(&[("a", "")]);
    kit.link("a", "link");
    kit.link("/etc/passwd", "out");
    let _socket = std::os::unix::net::UnixListener::bind(kit.path("socket")).unwrap();
    assert_eq!(
        text(&list(&kit, None)),
        "a\t0 B\nlink\tlink to a\nout\tlink to /etc/passwd\nsocket\tnot a regular file"
    );
}

#[test]
fn empty_missing_and_files() {
    let kit = Kit::with(&[("a", "")]);
    kit.dir("empty");
    assert_eq!(text(&list(&kit, Some("empty"))), "[the directory is empty]");
    assert_eq!(
        refusal(&list(&kit, Some("emty"))),
        ("not_found", "\"emty\" does not exist; did you mean empty?")
    );
    assert_eq!(refusal(&list(&kit, Some("a"))), ("not_a_directory", "a is a file, not a directory"));
}

#[test]
fn large_directories_are_cut() {
    let kit = Kit::new();
    for n in 0..1000 {
        kit.file(&format!("{n:04}{}", "x".repeat(91)), "");
    }
    // 95 of the name, the tab, `0 B` and the line break are 100 bytes.
    let reply = list(&kit, None);
    let reply_text = text(&reply);
    let (_, note) = reply_text.rsplit_once('\n').unwrap();
    assert_eq!(note, "[614 of 1000 entries shown; glob finds files by name]");
    assert_eq!(reply_text.lines().count(), 615);
    assert_eq!(reply.for_person.as_deref(), Some("1000 entries in ."));
}

#[test]
fn it_stops_when_told() {
    let kit = Kit::with(&[("a", ""), ("b", "")]);
    let reply = kit.workspace.list_directory(&ListDirectoryArgs::default(), &|| true);
    assert_eq!(refusal(&reply).0, "cancelled");
}
