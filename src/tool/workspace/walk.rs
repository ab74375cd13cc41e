//! The files below a directory, in order, without what the ignore rules and good sense leave out.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use ignore::{IncrementalIgnore, WalkBuilder};

use super::root::{Place, Workspace, cannot_read, is_git};

/// Hidden names that are searched all the same: people write what is in them, and it tells how a project is built.
/// All else that is hidden is caches, editors' state and secrets.
const SEARCHED_HIDDEN: [&str; 12] = [
    ".buildkite",
    ".ci",
    ".circleci",
    ".devcontainer",
    ".forgejo",
    ".gitea",
    ".github",
    ".gitlab",
    ".gitlab-ci.yml",
    ".pre-commit-config.yaml",
    ".travis.yml",
    ".woodpecker",
];

/// What a walk comes upon.
#[derive(Debug)]
pub(super) enum Found {
    /// A regular file, relative to the workspace.
    File(PathBuf),
    /// A directory that cannot be listed, with the reason: a note for the reply.
    Unreadable(String),
    /// It was told to stop, and ends here.
    Stopped,
}

/// An iterator over the files below a place: sorted by path, component by component. Symbolic links are neither
/// followed nor yielded.
pub(super) struct Walk<'a> {
    workspace: &'a Workspace,
    rules: Option<IncrementalIgnore>,
    /// What the rules' paths are relative to.
    rules_from: PathBuf,
    hidden: bool,
    stop: &'a dyn Fn() -> bool,
    /// How many places were passed over because they are closed.
    left_out: usize,
    /// What to visit, the next one last.
    todo: Vec<Entry>,
}

struct Entry {
    path: PathBuf,
    is_dir: bool,
}

impl<'a> Walk<'a> {
    /// A walk from a directory; with `hidden`, hidden files too.
    pub(super) fn new(
        workspace: &'a Workspace,
        from: &Place,
        hidden: bool,
        stop: &'a dyn Fn() -> bool,
    ) -> Self {
        let mut rules_from = PathBuf::new();
        let mut rules = rules(workspace.root());
        // What is ignored itself was asked for by its path: then only the rules inside of it count.
        if rules.as_mut().is_some_and(|rules| rules.matched(from.relative(), true).is_ignore()) {
            from.relative().clone_into(&mut rules_from);
            rules = self::rules(&workspace.root().join(from.relative()));
        }
        let start = Entry { path: from.relative().to_owned(), is_dir: true };
        Self { workspace, rules, rules_from, hidden, stop, left_out: 0, todo: vec![start] }
    }

    /// How many places it has passed over because they are closed.
    pub(super) fn left_out(&self) -> usize {
        self.left_out
    }

    /// Lists a directory: its children are what to visit next.
    fn descend(&mut self, dir: &Path) -> Result<(), Found> {
        let at = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        let unreadable = |error| Found::Unreadable(cannot_read(dir, &error));
        let (mut children, mut failed) = (Vec::new(), Ok(()));
        for entry in self.workspace.dir().read_dir(at).map_err(unreadable)? {
            if (self.stop)() {
                return Err(Found::Stopped);
            }
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    failed = Err(unreadable(error));
                    break;
                }
            };
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() || kind.is_file() {
                let child = Entry { path: dir.join(entry.file_name()), is_dir: kind.is_dir() };
                if self.wants(&child) {
                    children.push(child);
                }
            }
        }
        children.sort_by(|one, two| Reverse(&one.path).cmp(&Reverse(&two.path)));
        self.todo.append(&mut children);
        failed
    }

    fn wants(&mut self, entry: &Entry) -> bool {
        let name = entry.path.file_name().unwrap_or_default();
        if is_git(name) {
            return false;
        }
        let hidden = name.as_encoded_bytes().starts_with(b".");
        if hidden && !self.hidden && !SEARCHED_HIDDEN.iter().any(|searched| name == *searched) {
            return false;
        }
        let Ok(path) = entry.path.strip_prefix(&self.rules_from) else { return false };
        if self.rules.as_mut().is_some_and(|rules| rules.matched(path, entry.is_dir).is_ignore()) {
            return false;
        }
        // Last, so that what would not be searched anyway is not counted.
        let is_closed = self.workspace.is_closed(&entry.path);
        self.left_out += usize::from(is_closed);
        !is_closed
    }
}

impl Iterator for Walk<'_> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        while let Some(entry) = self.todo.pop() {
            if (self.stop)() {
                self.todo.clear();
                return Some(Found::Stopped);
            }
            if !entry.is_dir {
                return Some(Found::File(entry.path));
            }
            if let Err(found) = self.descend(&entry.path) {
                if matches!(found, Found::Stopped) {
                    self.todo.clear();
                }
                return Some(found);
            }
        }
        None
    }
}

/// The ignore rules at and below a directory: the workspace's own, none of its parents or of the user.
fn rules(root: &Path) -> Option<IncrementalIgnore> {
    WalkBuilder::new(root)
        .hidden(false)
        .parents(false)
        .git_global(false)
        .require_git(false)
        .build_matchers()
        .into_iter()
        .next()
}
