use super::*;
use crate::tool::workspace::test_kit::{Kit, go, refusal, text};

fn args(path: &str, old: &str, new: &str) -> EditFileArgs {
    EditFileArgs { path: path.into(), old_text: old.into(), new_text: new.into(), replace_all: None }
}

fn edit(kit: &Kit, path: &str, old: &str, new: &str) -> ToolReply {
    kit.workspace.edit_file(&args(path, old, new), &go)
}

#[test]
fn one_occurrence_is_replaced() {
    let kit = Kit::with(&[("src/a.rs", "fn a() {}\nfn b() {}\nfn ü() {}\n")]);
    let reply = edit(&kit, "src/a.rs", "fn b() {}\nfn ü", "fn c() {}\nfn d() {}\nfn e");
    assert_eq!(text(&reply), "edited src/a.rs: 1 replacement, at line 2; now 40 bytes, 4 lines");
    assert_eq!(reply.for_person.as_deref(), Some("edited src/a.rs at line 2"));
    assert_eq!(kit.content("src/a.rs"), "fn a() {}\nfn c() {}\nfn d() {}\nfn e() {}\n");
    assert_eq!(
        text(&edit(&kit, "src/a.rs", "fn c() {}\n", "")),
        "edited src/a.rs: 1 replacement, at line 2; now 30 bytes, 3 lines"
    );
}

#[test]
fn several_occurrences_need_replace_all() {
    let kit = Kit::with(&[("a", "x = 1\ny\nx = 2; x = 3\n")]);
    assert_eq!(
        refusal(&edit(&kit, "a", "x =", "z =")),
        (
            "text_not_unique",
            "old_text occurs 3 times in a, at lines 1, 3 and 3; add lines around it until it is unique, or set \
             replace_all"
        )
    );
    assert_eq!(kit.content("a"), "x = 1\ny\nx = 2; x = 3\n");
    let all = EditFileArgs { replace_all: Some(true), ..args("a", "x =", "z =") };
    assert_eq!(
        text(&kit.workspace.edit_file(&all, &go)),
        "edited a: 3 replacements, at lines 1, 3 and 3; now 21 bytes, 3 lines"
    );
    assert_eq!(kit.content("a"), "z = 1\ny\nz = 2; z = 3\n");
}

#[test]
fn many_lines_are_listed_in_part() {
    let lines: Vec<usize> = (1..=23).collect();
    assert_eq!(
        listed(&lines),
        "lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20 and 3 more"
    );
}

#[test]
fn line_endings_are_kept() {
    for (content, old, new, expected) in [
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "b", "x\ny", "a\r\nx\r\ny\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "b\r\n", "", "a\r\nc\r\n"),
        ("a\r\nb\r\nc", "c", "x\ny", "a\r\nb\r\nx\r\ny"),
        ("a\r\nb\r\nc", "\nb\n", "\n", "a\r\nc"),
        ("a\nb\nc\n", "a\r\nb", "x\r\ny", "x\ny\nc\n"),
        ("a\nb\r\nc\nd\r\n", "b\nc", "x\ny", "a\nx\r\ny\nd\r\n"),
        ("a\nb\r\nc\nd\r\n", "c", "x\ny", "a\nb\r\nx\ny\nd\r\n"),
        ("a\rb\n", "b", "x", "a\rx\n"),
        ("a", "a", "x\ny", "x\ny"),
        ("\u{feff}a\r\n", "a", "b", "\u{feff}b\r\n"),
    ] {
        let kit = Kit::with(&[("f", content)]);
        assert!(!edit(&kit, "f", old, new).is_error, "{content:?}");
        assert_eq!(kit.content("f"), expected, "{content:?}");
    }
}

#[test]
fn an_edit_that_changes_nothing_is_refused() {
    let kit = Kit::with(&[("a", "x\n")]);
    let same = ("no_change", "old_text and new_text are the same");
    assert_eq!(refusal(&edit(&kit, "a", "x", "x")), same);
    assert_eq!(refusal(&edit(&kit, "a", "x\n", "x\r\n")), same);
    assert_eq!(
        refusal(&edit(&kit, "a", "", "x")),
        ("invalid_arguments", "old_text is empty; to create a file or to replace all of it, use write_file")
    );
}

#[test]
fn a_text_that_does_not_occur_comes_with_a_hint() {
    let kit = Kit::with(&[("a", "fn a() {\n    b();\n}\n")]);
    for (old, hint) in [
        ("nothing like it", "; read the file again and copy the text exactly"),
        ("fn a() {\n\tb();\n}", "; it does but for spaces and tabs at line 1"),
        (
            "1\tfn a() {\n2\t    b();",
            "; leave out the line numbers and tabs that read_file puts before each line",
        ),
        (" \n ", "; read the file again and copy the text exactly"),
    ] {
        let message = format!("old_text does not occur in a{hint}");
        assert_eq!(refusal(&edit(&kit, "a", old, "x")), ("text_not_found", message.as_str()));
    }
}

#[test]
fn what_is_not_text_is_not_edited() {
    let kit = Kit::new();
    kit.file("binary", b"a\0b");
    kit.file("latin1", b"gr\xfcn");
    kit.sparse("big", EDIT_LIMIT + 1);
    kit.dir("dir");
    assert_eq!(
        refusal(&edit(&kit, "binary", "a", "b")),
        ("binary_file", "binary is a binary file; edit_file changes text in UTF-8")
    );
    assert_eq!(
        refusal(&edit(&kit, "latin1", "n", "m")),
        ("invalid_utf8", "latin1 is not UTF-8 (first at byte 2); edit_file would damage it")
    );
    assert_eq!(refusal(&edit(&kit, "big", "a", "b")), ("too_large", "big: 16 MiB is above the 16 MiB limit"));
    assert_eq!(refusal(&edit(&kit, "dir", "a", "b")).0, "is_directory");
    assert_eq!(refusal(&edit(&kit, "none", "a", "b")), ("not_found", "\"none\" does not exist"));
}

#[test]
#[cfg(unix)]
fn permissions_and_links_are_kept() {
    use std::os::unix::fs::PermissionsExt;
    let kit = Kit::with(&[("script", "old"), ("locked", "old")]);
    kit.link("script", "link");
    std::fs::set_permissions(kit.path("script"), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(kit.path("locked"), PermissionsExt::from_mode(0o444)).unwrap();
    assert_eq!(
        text(&edit(&kit, "link", "old", "new")),
        "edited script: 1 replacement, at line 1; now 3 bytes, 1 line"
    );
    assert!(kit.path("link").is_symlink());
    assert_eq!(std::fs::metadata(kit.path("script")).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(refusal(&edit(&kit, "locked", "old", "new")).0, "read_only");
}

#[test]
fn concurrent_edits_of_one_file_all_count() {
    let content: String = (0..16).map(|n| format!("<{n}>\n")).collect();
    let kit = Kit::with(&[("a", &content)]);
    std::thread::scope(|scope| {
        for n in 0..16 {
            let kit = &kit;
            let (old, new) = (format!("<{n}>"), format!("[{n}]"));
            scope.spawn(move || assert!(!edit(kit, "a", &old, &new).is_error));
        }
    });
    assert_eq!(kit.content("a"), content.replace('<', "[").replace('>', "]"));
}

#[test]
fn a_file_that_changed_meanwhile_is_left_alone() {
    let kit = Kit::with(&[("a", "old")]);
    let polls = std::cell::Cell::new(0);
    // Changed by somebody else after it was read: at the last look at `stop` before the rename.
    let stop = || {
        if polls.replace(polls.get() + 1) == 4 {
            kit.file("a", "changed");
        }
        false
    };
    let reply = kit.workspace.edit_file(&args("a", "old", "new"), &stop);
    assert_eq!(
        refusal(&reply),
        ("changed_meanwhile", "a was changed by somebody else meanwhile; read it again")
    );
    assert_eq!((kit.content("a").as_str(), kit.names()), ("changed", vec!["a".to_owned()]));
}

#[test]
fn stopping_leaves_the_file() {
    let kit = Kit::with(&[("a", "old")]);
    for after in 0..5 {
        let polls = std::cell::Cell::new(0);
        let stop = || polls.replace(polls.get() + 1) >= after;
        assert_eq!(refusal(&kit.workspace.edit_file(&args("a", "old", "new"), &stop)).0, "cancelled");
        assert_eq!((kit.content("a").as_str(), kit.names()), ("old", vec!["a".to_owned()]));
    }
}
