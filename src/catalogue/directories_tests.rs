//! Directories of definitions: which one counts, what is told, what is read anew.

use std::fs;
use std::time::SystemTime;

use tempfile::TempDir;

use super::*;

fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn agent(description: &str) -> String {
    format!("---\ndescription: {description}\n---\nDo it.")
}

/// Name and description of each.
fn agents(listing: &Listing) -> Vec<(&str, &str)> {
    listing.definitions.iter().map(|one| (&*one.name, &*one.description)).collect()
}

/// File name and kind of each error.
fn errors(listing: &Listing) -> Vec<(String, DefinitionErrorKind)> {
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    listing.errors.iter().map(|error| (name(&error.path), error.kind)).collect()
}

#[test]
fn c9_the_first_directory_wins_and_one_bad_file_hides_no_other() {
    let one = directory(&[
        ("b.md", &agent("first b")),
        ("bad.md", "no front matter"),
        ("notes.txt", &agent("no definition")),
        ("X.MD", &agent("no definition")),
        (".hidden.md", &agent("no definition")),
    ]);
    fs::create_dir(one.path().join("team")).unwrap();
    fs::write(one.path().join("team/x.md"), agent("no definition")).unwrap();
    let two =
        directory(&[("a.md", &agent("a")), ("B.md", &agent("second b")), ("bad.md", &agent("good here"))]);
    let catalogue = Catalogue::new([one.path(), Path::new("/no/such/directory"), two.path(), one.path()]);
    assert_eq!(catalogue.directories().len(), 3);
    let listing = catalogue.read();
    assert_eq!(agents(&listing), [("a", "a"), ("b", "first b"), ("bad", "good here")]);
    assert_eq!(errors(&listing), [("bad.md".to_owned(), DefinitionErrorKind::NoDescription)]);
    assert_eq!(listing.find(" BAD ").unwrap().path, two.path().join("bad.md"));
    let shadowed = Shadowed { name: "B".into(), path: two.path().join("B.md"), by: one.path().join("b.md") };
    assert_eq!(listing.shadowed, [shadowed]);
}

#[test]
fn c10_no_directory_is_no_error() {
    assert_eq!(Catalogue::default().read(), Listing::default());
    assert_eq!(Catalogue::new(["/no/such/directory"]).read(), Listing::default());
}

/// Beside the original: of two names that differ in the case of their letters only one could ever be called.
#[test]
fn names_are_unique_whatever_their_case() {
    let found = directory(&[
        ("a.md", "---\nname: Same\ndescription: d\n---\np"),
        ("b.md", "---\nname: sAME\ndescription: d\n---\np"),
        ("c.md", &agent("c")),
    ]);
    let listing = Catalogue::new([found.path()]).read();
    assert_eq!(agents(&listing), [("Same", "d"), ("c", "c")]);
    assert_eq!(errors(&listing), [("b.md".to_owned(), DefinitionErrorKind::Duplicate)]);
    assert!(
        listing.errors[0].message.contains("a.md has the name \"Same\" already"),
        "{}",
        listing.errors[0]
    );
}

#[test]
fn files_that_are_no_text_are_errors_with_their_place() {
    use DefinitionErrorKind::{BadName, NotText, TooLarge, Unreadable};
    let found = directory(&[(".md", &agent("d")), ("good.md", &agent("good")), ("nul.md", "---\na\0")]);
    let at = |name: &str| found.path().join(name);
    fs::create_dir(at("directory.md")).unwrap();
    fs::write(at("latin.md"), b"---\ndescription: \xe9t\xe9\n---\np").unwrap();
    fs::write(at("huge.md"), "x".repeat(300 * 1024)).unwrap();
    let mut expected = vec![
        (".md", BadName),
        ("directory.md", Unreadable),
        ("huge.md", TooLarge),
        ("latin.md", NotText),
        ("nul.md", NotText),
    ];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(at("loop.md"), at("loop.md")).unwrap();
        std::os::unix::fs::symlink("nowhere", at("dangling.md")).unwrap();
        std::os::unix::fs::symlink(at("good.md"), at("link.md")).unwrap();
        // A pipe that nobody writes to would block whoever opens it.
        assert!(std::process::Command::new("mkfifo").arg(at("pipe.md")).status().unwrap().success());
        expected.extend([("loop.md", Unreadable), ("dangling.md", Unreadable), ("pipe.md", Unreadable)]);
        expected.sort_unstable_by_key(|(name, _)| *name);
    }
    let listing = Catalogue::new([found.path()]).read();
    let expected: Vec<_> = expected.into_iter().map(|(name, kind)| (name.to_owned(), kind)).collect();
    assert_eq!(errors(&listing), expected);
    assert_eq!(listing.errors.iter().filter_map(|error| error.line).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(listing.find("good").map(|one| &*one.description), Some("good"));
    assert_eq!(listing.find("link").is_some(), cfg!(unix));
    let not_one = Catalogue::new([at("good.md")]).read();
    assert_eq!(errors(&not_one), [("good.md".to_owned(), Unreadable)]);
}

#[test]
fn a_directory_has_so_many_files() {
    let found = tempfile::tempdir().unwrap();
    for number in 0..=MAX_FILES {
        fs::write(found.path().join(format!("a{number:03}.md")), agent("d")).unwrap();
    }
    let listing = Catalogue::new([found.path()]).read();
    assert_eq!((listing.definitions.len(), listing.find("a200")), (MAX_FILES, None));
    assert_eq!(listing.errors[0].kind, DefinitionErrorKind::TooMany);
}

/// Sets the time of a file, so that it seems to have been written long ago.
fn set_age(path: &Path, seconds: u64) {
    let time = SystemTime::now() - Duration::from_secs(seconds);
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn what_changes_counts_at_the_next_look() {
    let found = directory(&[("a.md", &agent("one"))]);
    let path = found.path().join("a.md");
    let catalogue = Catalogue::new([found.path()]);
    let look = || {
        let listing = catalogue.read();
        listing.definitions.iter().map(|one| one.description.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(look(), ["one"]);
    // At once, with the same size: its date may be the same too.
    fs::write(&path, agent("two")).unwrap();
    assert_eq!(look(), ["two"]);
    set_age(&path, 60);
    assert_eq!(look(), ["two"]);
    // What has not changed since is not read again.
    let first = Arc::clone(catalogue.read().find("a").unwrap());
    assert!(Arc::ptr_eq(&first, catalogue.read().find("a").unwrap()));
    fs::write(&path, agent("three")).unwrap();
    fs::write(found.path().join("b.md"), agent("new")).unwrap();
    assert_eq!(look(), ["three", "new"]);
    fs::remove_file(&path).unwrap();
    assert_eq!(look(), ["new"]);
}

#[test]
fn a_schema_that_changes_counts_too() {
    let found = directory(&[
        ("a.md", "---\ndescription: d\noutput_schema: s.json\n---\np"),
        ("s.json", r#"{"type": "object"}"#),
    ]);
    let catalogue = Catalogue::new([found.path()]);
    set_age(&found.path().join("a.md"), 60);
    set_age(&found.path().join("s.json"), 60);
    assert!(catalogue.read().find("a").is_some());
    fs::write(found.path().join("s.json"), "[]").unwrap();
    assert_eq!(errors(&catalogue.read()), [("a.md".to_owned(), DefinitionErrorKind::BadSchema)]);
    fs::remove_file(found.path().join("s.json")).unwrap();
    assert!(catalogue.read().errors[0].message.contains("cannot be read"));
    fs::write(found.path().join("s.json"), "{}").unwrap();
    assert!(catalogue.read().find("a").is_some());
}

#[test]
fn the_places_are_in_their_order() {
    let catalogue = Catalogue::standard(["/named"], Path::new("/project"));
    let directories: Vec<String> =
        catalogue.directories().iter().map(|path| path.display().to_string()).collect();
    assert_eq!(directories[..3], ["/named", "/project/agents", "/project/.claude/agents"]);
    assert!(directories[3..].iter().all(|path| path.ends_with("anabranch/agents")), "{directories:?}");
}
