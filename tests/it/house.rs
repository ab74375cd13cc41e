//! The order of the house, read from `src/lib.rs`, and the habits that the compiler does not check.

use std::fs;
use std::path::{Path, PathBuf};

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// All source files with their text, sorted.
fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found.sort();
    found
}

/// The rooms in their order.
fn rooms() -> Vec<String> {
    let lib = fs::read_to_string(src().join("lib.rs")).unwrap();
    let rooms = lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    rooms.map(str::to_owned).collect()
}

/// The room of a file: the first part of its path, without the ending.
fn room_of(path: &Path) -> String {
    let inside = path.strip_prefix(src()).unwrap();
    let first = inside.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
    first.trim_end_matches(".rs").trim_end_matches("_tests").to_owned()
}

/// A file's code: without comments, and without what stands below its test module.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn is_test_file(path: &Path) -> bool {
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    name.ends_with("_tests") || name == "test_kit"
}

/// The names that a line takes from the crate: `crate::a::b` and each of `crate::{a::b, c}`.
fn uses(line: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
    };
    line.split("crate::")
        .skip(1)
        .flat_map(|rest| match rest.strip_prefix('{') {
            Some(list) => list.split(',').map(word).collect::<Vec<_>>(),
            None => vec![word(rest)],
        })
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn no_room_uses_one_below_it() {
    let rooms = rooms();
    assert!(rooms.len() > 5, "{rooms:?}");
    let place = |room: &str| rooms.iter().position(|other| other == room);
    let mut wrong = Vec::new();
    for (path, text) in files(&src()) {
        // Tests use the whole house.
        let Some(own) = place(&room_of(&path)).filter(|_| !is_test_file(&path)) else { continue };
        for (line, code) in code(&text) {
            let below = uses(code).into_iter().filter(|used| place(used).is_some_and(|used| used > own));
            wrong.extend(below.map(|used| format!("{}:{line} uses {used}", path.display())));
        }
    }
    assert!(wrong.is_empty(), "upward imports:\n{}", wrong.join("\n"));
}

#[test]
fn every_folder_and_file_of_the_house_is_a_declared_room() {
    let rooms = rooms();
    for (path, _) in files(&src()) {
        let room = room_of(&path);
        assert!(room == "lib" || room == "main" || rooms.contains(&room), "{} is in no room", path.display());
    }
}

#[test]
fn no_source_file_is_longer_than_500_lines() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let long: Vec<String> = files(&src())
        .into_iter()
        .chain(files(&tests))
        .filter(|(_, text)| text.lines().count() > 500)
        .map(|(path, text)| format!("{}: {} lines", path.display(), text.lines().count()))
        .collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn a_folders_mod_rs_has_no_logic() {
    let mut wrong = Vec::new();
    for (path, text) in files(&src()) {
        if !path.ends_with("mod.rs") {
            continue;
        }
        let mut in_use = false;
        for (line, code) in code(&text) {
            let code = code.trim();
            let starts = [
                "mod ",
                "pub mod ",
                "pub(crate) mod ",
                "use ",
                "pub use ",
                "pub(crate) use ",
                "pub(super) use ",
                "#",
            ];
            let is_listed = code.is_empty() || in_use || starts.iter().any(|start| code.starts_with(start));
            if !is_listed {
                wrong.push(format!("{}:{line}: {code}", path.display()));
            }
            in_use = (in_use || code.contains("use ")) && !code.ends_with(';');
        }
    }
    assert!(wrong.is_empty(), "logic in a mod.rs:\n{}", wrong.join("\n"));
}

#[test]
fn only_the_pipe_appends_to_the_log() {
    let mut wrong = Vec::new();
    for (path, text) in files(&src()) {
        if ["forward", "bus"].contains(&room_of(&path).as_str()) {
            continue;
        }
        let appends = ["bus().append", "bus.append", ".append_stamped("];
        for (line, code) in code(&text) {
            if appends.iter().any(|append| code.contains(append)) {
                wrong.push(format!("{}:{line}: {}", path.display(), code.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "appends outside the pipe:\n{}", wrong.join("\n"));
}

/// The tree is a pure fold: no time, no tasks, nothing asynchronous.
#[test]
fn the_tree_and_the_messages_do_no_io() {
    for (path, text) in files(&src()) {
        let pure = ["id", "error", "outcome", "message", "tree"].contains(&room_of(&path).as_str());
        if !pure || is_test_file(&path) {
            continue;
        }
        for (line, code) in code(&text) {
            let impure = [
                "tokio",
                "async ",
                ".await",
                "std::fs",
                "std::net",
                // The trait `std::io::Write` into memory is none.
                "stdout",
                "stdin",
                "File::",
                "SystemTime::now",
                "Instant::now",
            ];
            let found = impure.iter().find(|word| code.contains(**word));
            assert!(found.is_none(), "{}:{line} uses {:?}", path.display(), found);
        }
    }
}
