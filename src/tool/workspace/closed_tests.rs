use super::*;
use crate::tool::workspace::test_kit::{Kit, go, text};
use crate::tool::workspace::{GlobArgs, GrepArgs, ListDirectoryArgs};

/// A kit in which these places are closed.
fn closed(files: &[&str], places: &'static [&'static str]) -> (Kit, Workspace) {
    let kit = Kit::new();
    for file in files {
        kit.file(file, "needle\n");
    }
    let workspace =
        kit.workspace.closed_where(move |place| places.iter().any(|closed| place == Path::new(closed)));
    (kit, workspace)
}

fn glob(workspace: &Workspace, pattern: &str, path: Option<&str>) -> String {
    text(&workspace.glob(&GlobArgs { pattern: pattern.into(), path: path.map(Into::into) }, &go))
}

fn grep(workspace: &Workspace, path: &str) -> String {
    text(
        &workspace.grep(
            &GrepArgs { pattern: "needle".into(), path: Some(path.into()), ..GrepArgs::default() },
            &go,
        ),
    )
}

fn list(workspace: &Workspace, path: &str) -> String {
    text(&workspace.list_directory(&ListDirectoryArgs { path: Some(path.into()) }, &go))
}

const ONE: &str = "[1 place left out, since a rule forbids it]";

#[test]
fn a_closed_directory_is_closed_with_all_that_is_in_it() {
    let (_kit, workspace) = closed(&["a/in/x", "a/y", "b"], &["a"]);
    assert_eq!(grep(&workspace, "."), format!("b:1:needle\n{ONE}"));
    assert_eq!(glob(&workspace, "**", None), format!("b\n{ONE}"));
    assert_eq!(list(&workspace, "."), format!("b\t7 B\n{ONE}"));
    // The beginning of a pattern is no way around it.
    for pattern in ["a/*", "a/in/*", "a/in/x", "./a/in/**"] {
        assert!(glob(&workspace, pattern, None).ends_with(&format!("in 0 files]\n{ONE}")), "{pattern}");
    }
    // What is named is for whoever admits the call; what is in it is asked about one by one.
    assert_eq!(grep(&workspace, "a"), "a/in/x:1:needle\na/y:1:needle");
    assert_eq!(glob(&workspace, "in/*", Some("a")), "a/in/x");
    assert_eq!(list(&workspace, "a"), "in/\ny\t7 B");
}

/// What would not be shown anyway is not counted: that would tell of it.
#[test]
fn only_what_a_walk_would_come_upon_is_counted() {
    let (kit, workspace) = closed(&["a", ".env", "ignored", "b"], &["a", ".env", "ignored"]);
    kit.file(".gitignore", "ignored\n");
    assert_eq!(grep(&workspace, "."), format!("b:1:needle\n{ONE}"));
    let listed = list(&workspace, ".");
    assert_eq!(listed, ".gitignore\t8 B\nb\t7 B\n[3 places left out, since a rule forbids them]");
}

#[test]
#[cfg(unix)]
fn a_link_to_a_closed_place_is_not_shown() {
    let (kit, workspace) = closed(&["a/in/x", "b/c"], &["a"]);
    kit.link("../a/in/x", "b/to_x");
    kit.link("../a", "b/to_a");
    kit.link("c", "b/to_c");
    assert_eq!(
        list(&workspace, "b"),
        "c\t7 B\nto_c\tlink to c\n[2 places left out, since a rule forbids them]"
    );
    assert!(glob(&workspace, "to_a/**", Some("b")).ends_with(ONE));
}

#[test]
fn what_is_closed_is_not_suggested() {
    let (_kit, workspace) = closed(&["secret/key", "secrets"], &["secret", "deep"]);
    let named = |path: &str| workspace.existing(path).unwrap_err().model_text();
    assert!(named("secretz").contains("did you mean secrets?"), "{}", named("secretz"));
    assert!(!named("secret/none/x").contains("; secret does"), "{}", named("secret/none/x"));
}
