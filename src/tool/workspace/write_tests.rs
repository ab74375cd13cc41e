use std::fs;

use super::*;
use crate::tool::workspace::test_kit::{Kit, go, refusal, text};

fn write(kit: &Kit, path: &str, content: &str) -> ToolReply {
    kit.workspace.write_file(&WriteFileArgs { path: path.into(), content: content.into() }, &go)
}

#[test]
fn files_are_created_with_their_directories() {
    let kit = Kit::new();
    let reply = write(&kit, "a/b/ü.txt", "one\ntwö\n");
    assert_eq!(text(&reply), "created a/b/ü.txt: 9 bytes, 2 lines");
    assert_eq!(reply.for_person.as_deref(), Some("created a/b/ü.txt (2 lines)"));
    assert_eq!(kit.content("a/b/ü.txt"), "one\ntwö\n");
    assert_eq!(text(&write(&kit, "empty", "")), "created empty: 0 bytes, 0 lines");
    assert_eq!(kit.names(), ["a", "empty"]);
}

#[test]
fn files_are_replaced_whole() {
    let kit = Kit::with(&[("a", "a long content that was there before")]);
    assert_eq!(text(&write(&kit, "a", "x")), "replaced a: 1 byte, 1 line");
    assert_eq!(kit.content("a"), "x");
    assert_eq!(kit.names(), ["a"]);
}

#[test]
fn whoever_has_the_old_file_open_keeps_it_whole() {
    use std::io::Read;
    let kit = Kit::with(&[("a", "old")]);
    let mut open = fs::File::open(kit.path("a")).unwrap();
    assert!(!write(&kit, "a", "new").is_error);
    let mut seen = String::new();
    open.read_to_string(&mut seen).unwrap();
    assert_eq!((seen.as_str(), kit.content("a").as_str()), ("old", "new"));
}

#[test]
fn a_name_may_be_as_long_as_names_can_be() {
    let kit = Kit::new();
    let name = "x".repeat(255);
    assert_eq!(text(&write(&kit, &name, "")), format!("created {name}: 0 bytes, 0 lines"));
}

#[test]
#[cfg(unix)]
fn permissions_are_kept_and_heeded() {
    use std::os::unix::fs::PermissionsExt;
    let kit = Kit::with(&[("script", "old"), ("secret", "old"), ("locked", "old")]);
    let mode = |path: &str| fs::metadata(kit.path(path)).unwrap().permissions().mode() & 0o7777;
    for (path, bits) in [("script", 0o755), ("secret", 0o600), ("locked", 0o444)] {
        fs::set_permissions(kit.path(path), PermissionsExt::from_mode(bits)).unwrap();
    }
    assert!(!write(&kit, "script", "new").is_error && !write(&kit, "secret", "new").is_error);
    assert_eq!((mode("script"), mode("secret")), (0o755, 0o600));
    assert_eq!(refusal(&write(&kit, "locked", "new")), ("read_only", "locked is read-only"));
    assert_eq!(kit.content("locked"), "old");
    // A new file gets what the process gives to every new file.
    assert!(!write(&kit, "new", "").is_error);
    fs::write(kit.path("like"), "").unwrap();
    assert_eq!(mode("new"), mode("like"));
}

#[test]
fn what_is_not_a_file_is_not_replaced() {
    let kit = Kit::with(&[("dir/a", ""), ("file", "old")]);
    assert_eq!(
        refusal(&write(&kit, "dir", "")),
        ("is_directory", "dir is a directory; list_directory shows it")
    );
    assert_eq!(refusal(&write(&kit, ".", "")).0, "is_directory");
    assert_eq!(
        refusal(&write(&kit, "new/", "")),
        ("is_directory", "new/ names a directory; end the path with the name of a file")
    );
    assert_eq!(refusal(&write(&kit, "file/", "")).0, "is_directory");
    assert_eq!(refusal(&write(&kit, "file/x/y", "")), ("not_a_directory", "file is a file, not a directory"));
    assert_eq!(kit.names(), ["dir", "file"]);
}

#[test]
fn stopping_leaves_the_old_file_and_nothing_else() {
    let kit = Kit::with(&[("a", "old")]);
    let content = "x".repeat(3 * BLOCK);
    let args = WriteFileArgs { path: "a".into(), content };
    // First, before each of three blocks, and before the rename.
    for after in 0..5 {
        let polls = std::cell::Cell::new(0);
        let stop = || polls.replace(polls.get() + 1) >= after;
        assert_eq!(refusal(&kit.workspace.write_file(&args, &stop)).0, "cancelled");
        assert_eq!((kit.content("a").as_str(), kit.names()), ("old", vec!["a".to_owned()]));
    }
}

#[test]
fn a_left_over_temporary_file_is_no_obstacle() {
    let kit = Kit::new();
    let left = format!(".anabranch-{}-0.tmp", std::process::id());
    kit.file(&left, "left over");
    assert_eq!(text(&write(&kit, "a", "new")), "created a: 3 bytes, 1 line");
    assert_eq!(kit.names(), [left.as_str(), "a"]);
    assert_eq!(kit.content(&left), "left over");
}

#[test]
#[cfg(unix)]
fn a_directory_that_cannot_be_written_is_said() {
    use std::os::unix::fs::PermissionsExt;
    let kit = Kit::new();
    kit.dir("d");
    fs::set_permissions(kit.path("d"), PermissionsExt::from_mode(0o555)).unwrap();
    if fs::write(kit.path("d/probe"), "").is_err() {
        assert_eq!(
            refusal(&write(&kit, "d/a", "")),
            ("unwritable", "cannot write d/a: Permission denied (os error 13)")
        );
    }
    fs::set_permissions(kit.path("d"), PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn readers_never_see_half_a_file() {
    let kit = Kit::with(&[("a", &"0".repeat(200_000))]);
    std::thread::scope(|scope| {
        for digit in ["1", "2"] {
            let kit = &kit;
            scope.spawn(move || {
                for _ in 0..10 {
                    assert!(!write(kit, "a", &digit.repeat(200_000)).is_error);
                }
            });
        }
        for _ in 0..50 {
            let seen = kit.content("a");
            assert_eq!(seen.len(), 200_000);
            assert_eq!(seen.trim_start_matches(&seen[..1]), "");
        }
    });
    assert_eq!(kit.names(), ["a"]);
}
