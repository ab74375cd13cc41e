use std::fs;

use super::*;
use crate::error::ErrorKind;
use crate::tool::workspace::test_kit::{Kit, go, refusal, text};
use crate::tool::workspace::{GlobArgs, GrepArgs, ListDirectoryArgs, ReadFileArgs, WriteFileArgs};

fn read(kit: &Kit, path: &str) -> ToolReply {
    kit.workspace.read_file(&ReadFileArgs { path: path.into(), ..Default::default() }, &go)
}

fn write(kit: &Kit, path: &str) -> ToolReply {
    kit.workspace.write_file(&WriteFileArgs { path: path.into(), content: "written".into() }, &go)
}

#[test]
fn a_workspace_is_a_directory_that_exists() {
    let kit = Kit::with(&[("file", "")]);
    for (name, reason) in
        [("file", "it is not a directory"), ("none", "No such file or directory (os error 2)")]
    {
        let path = kit.path(name);
        let error = Workspace::open(&path).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Read { path, reason: reason.into() });
    }
}

#[test]
fn paths_inside_are_accepted_in_every_spelling() {
    let kit = Kit::with(&[("a/b.txt", "hello")]);
    let absolute = kit.path("a/b.txt");
    for path in
        ["a/b.txt", "./a/b.txt", "a//b.txt", "a/../a/b.txt", "none/../a/./b.txt", absolute.to_str().unwrap()]
    {
        assert_eq!(text(&read(&kit, path)), "1\thello", "{path}");
    }
}

#[test]
fn no_path_leads_out_by_dots_or_by_being_absolute() {
    let kit = Kit::with(&[("a/b.txt", "hello")]);
    fs::write(kit.outside("secret"), "secret").unwrap();
    let outside = kit.outside("secret");
    // A name that only begins like the workspace's is not inside.
    let beside = format!("{}x/secret", kit.workspace.root().display());
    let up_and_back = format!("../{}/a/b.txt", "ws");
    let through = format!("{}/../secret", kit.workspace.root().display());
    for path in [
        "..",
        "../secret",
        "a/../../secret",
        "none/../../secret",
        "/",
        "/etc/passwd",
        outside.to_str().unwrap(),
        &beside,
        &up_and_back,
        &through,
    ] {
        let message = format!(
            "{path:?} leads outside of the workspace; use paths relative to the workspace, without links out of it"
        );
        let expected = ("path_outside_workspace", message.as_str());
        assert_eq!(refusal(&read(&kit, path)), expected);
        assert_eq!(refusal(&write(&kit, path)), expected);
        let list = ListDirectoryArgs { path: Some(path.into()) };
        assert_eq!(refusal(&kit.workspace.list_directory(&list, &go)), expected);
        let grep = GrepArgs { pattern: "x".into(), path: Some(path.into()), ..Default::default() };
        assert_eq!(refusal(&kit.workspace.grep(&grep, &go)), expected);
        let glob = GlobArgs { pattern: "*".into(), path: Some(path.into()) };
        assert_eq!(refusal(&kit.workspace.glob(&glob, &go)), expected);
    }
    assert_eq!(fs::read_to_string(outside).unwrap(), "secret");
    assert!(!kit.outside("wsx").exists());
}

#[test]
#[cfg(unix)]
fn no_link_leads_out() {
    let kit = Kit::with(&[("a/b.txt", "hello")]);
    fs::create_dir(kit.outside("other")).unwrap();
    fs::write(kit.outside("other/secret"), "secret").unwrap();
    kit.link(kit.outside("other/secret"), "file");
    kit.link("../other/secret", "relative");
    kit.link(kit.outside("other"), "dir");
    kit.link("dir", "chain");
    kit.link("../chain/secret", "a/chain");
    kit.link(kit.outside("other/new"), "dangling");
    kit.link("/", "root");
    for path in [
        "file",
        "relative",
        "dir/secret",
        "dir/new",
        "chain/secret",
        "a/chain",
        "dangling",
        "root/etc/passwd",
    ] {
        assert_eq!(refusal(&read(&kit, path)).0, "path_outside_workspace", "{path}");
        assert_eq!(refusal(&write(&kit, path)).0, "path_outside_workspace", "{path}");
    }
    assert_eq!(refusal(&write(&kit, "dir/sub/new")).0, "path_outside_workspace");
    assert_eq!(fs::read_to_string(kit.outside("other/secret")).unwrap(), "secret");
    assert_eq!(fs::read_dir(kit.outside("other")).unwrap().count(), 1);

    let grep = GrepArgs { pattern: "secret".into(), ..Default::default() };
    assert_eq!(text(&kit.workspace.grep(&grep, &go)), "[no hits for \"secret\" in 1 file]");
    let glob = GlobArgs { pattern: "**".into(), path: None };
    assert_eq!(text(&kit.workspace.glob(&glob, &go)), "a/b.txt");
}

#[test]
#[cfg(unix)]
fn links_inside_are_followed() {
    let kit = Kit::with(&[("a/b.txt", "hello")]);
    kit.link("a", "dir");
    kit.link(kit.path("a/b.txt"), "absolute");
    kit.link("../absolute", "a/chain");
    kit.link("new.txt", "a/dangling");
    for path in ["dir/b.txt", "absolute", "dir/chain", "dir/../absolute"] {
        assert_eq!(text(&read(&kit, path)), "1\thello", "{path}");
    }
    assert_eq!(text(&write(&kit, "dir/dangling")), "created a/new.txt: 7 bytes, 1 line");
    assert_eq!(text(&write(&kit, "absolute")), "replaced a/b.txt: 7 bytes, 1 line");
    assert!(kit.path("absolute").is_symlink() && kit.path("a/dangling").is_symlink());
    assert_eq!((kit.content("a/new.txt"), kit.content("a/b.txt")), ("written".into(), "written".into()));
}

#[test]
#[cfg(unix)]
fn a_loop_of_links_is_said_to_be_one() {
    let kit = Kit::new();
    kit.link("b", "a");
    kit.link("a", "b");
    assert_eq!(
        refusal(&read(&kit, "a")),
        ("invalid_path", "the path \"a\" is not usable: it is a loop of symbolic links")
    );
}

#[test]
#[cfg(unix)]
fn exchanging_a_directory_for_a_link_gains_nothing() {
    let kit = Kit::with(&[("a/secret", "harmless")]);
    fs::create_dir(kit.outside("other")).unwrap();
    fs::write(kit.outside("other/secret"), "secret").unwrap();
    let place = kit.workspace.resolve("a/secret").unwrap();
    // After the check, before the use.
    fs::rename(kit.path("a"), kit.path("b")).unwrap();
    kit.link(kit.outside("other"), "a");
    assert!(kit.workspace.dir().open(place.path()).is_err());
    let written = kit.workspace.replace(&place, b"x", None, &go, || true);
    assert_eq!(refusal(&written.unwrap_err()).0, "unwritable");
    assert_eq!(fs::read_to_string(kit.outside("other/secret")).unwrap(), "secret");
}

#[test]
fn git_directories_are_closed() {
    let kit = Kit::with(&[(".git/config", "token"), ("sub/.git", "gitdir: x"), (".gitignore", "x")]);
    #[cfg(unix)]
    kit.link(".git/config", "link");
    for path in [".git/config", ".GIT/config", "sub/.git", "a/../.git/hooks/pre-commit", "link"] {
        if cfg!(unix) || path != "link" {
            assert_eq!(refusal(&read(&kit, path)).0, "path_not_allowed", "{path}");
            assert_eq!(refusal(&write(&kit, path)).0, "path_not_allowed", "{path}");
        }
    }
    assert_eq!(text(&read(&kit, ".gitignore")), "1\tx");
}

#[test]
fn unusable_paths_say_why() {
    let kit = Kit::with(&[("file", "")]);
    assert_eq!(
        refusal(&read(&kit, "")),
        ("invalid_path", "the path \"\" is not usable: it is empty; `.` is the workspace itself")
    );
    assert_eq!(
        refusal(&read(&kit, "a\0b")),
        ("invalid_path", "the path \"a\\0b\" is not usable: it contains a NUL character")
    );
    assert_eq!(refusal(&read(&kit, "file/x")), ("not_a_directory", "file is a file, not a directory"));
    assert_eq!(refusal(&read(&kit, &"x".repeat(300))).0, "unreadable");
}

#[test]
fn missing_files_come_with_suggestions() {
    let kit = Kit::with(&[
        ("src/main.rs", ""),
        ("src/mains.rs", ""),
        ("src/other.rs", ""),
        ("README.md", ""),
        ("config.yaml", ""),
    ]);
    let root = kit.workspace.root().file_name().unwrap().to_str().unwrap().to_owned();
    for (path, message) in [
        ("src/mian.rs", "\"src/mian.rs\" does not exist; did you mean src/main.rs or src/mains.rs?"),
        ("sorc/main.rs", "\"sorc/main.rs\" does not exist; did you mean src?"),
        ("srcs/main.rs", "\"srcs/main.rs\" does not exist; did you mean src?"),
        ("readme.md", "\"readme.md\" does not exist; did you mean README.md?"),
        ("config.yml", "\"config.yml\" does not exist; did you mean config.yaml?"),
        ("src/deep/x.rs", "\"src/deep/x.rs\" does not exist; src does"),
        ("src/zzz", "\"src/zzz\" does not exist"),
        (
            &format!("{root}/src/main.rs"),
            &format!("\"{root}/src/main.rs\" does not exist; did you mean src/main.rs?"),
        ),
    ] {
        assert_eq!(refusal(&read(&kit, path)), ("not_found", message));
    }
}
