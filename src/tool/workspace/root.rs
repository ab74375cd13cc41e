//! The workspace: one directory, and the rule that no path leads out of it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata};

use super::closed::Closed;
use super::report::shown;
use super::suggest;
use crate::error::{Error, ErrorKind, Result};
use crate::tool::ToolReply;

/// Symbolic links followed for one path before it counts as a loop: the limit of Linux.
const MAX_LINKS: usize = 40;

/// A directory that tools may use, and nothing outside of it. Clones are the same workspace.
///
/// Paths are relative to it; an absolute path is accepted if it begins with it. Symbolic links are followed as long as
/// they stay inside. The rule holds twice: a path is first resolved component by component, without ever looking
/// outside, so that a refusal can say why; then the file is opened relative to the directory's handle, in a way in
/// which the operating system refuses to leave it (`cap-std`). So exchanging a directory for a link between the two
/// gains nothing. What remains of the race: the exchanged path can lead to another place *inside* the workspace.
///
/// Hard links and mounts look like any other file and are not refused.
#[derive(Debug, Clone)]
pub struct Workspace {
    inner: Arc<Inner>,
    closed: Closed,
}

#[derive(Debug)]
struct Inner {
    /// Without symbolic links.
    root: PathBuf,
    /// Absolute, as it was given: models repeat the spelling that they were told.
    given: PathBuf,
    dir: Dir,
    /// Held while a file is changed: a turn's calls run concurrently, and of two edits of one file the second has to
    /// see what the first one wrote.
    changing: Mutex<()>,
}

impl Workspace {
    /// Opens a directory.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Read`] if it does not exist, is not a directory, or cannot be read.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref();
        let read_error = |source: io::Error| {
            let kind = ErrorKind::Read { path: dir.to_owned(), reason: source.to_string() };
            Error::caused_by(kind, source)
        };
        let given = std::path::absolute(dir).map_err(read_error)?;
        let root = given.canonicalize().map_err(read_error)?;
        if !root.is_dir() {
            return Err(
                ErrorKind::Read { path: dir.to_owned(), reason: "it is not a directory".into() }.into()
            );
        }
        let handle = Dir::open_ambient_dir(&root, ambient_authority()).map_err(read_error)?;
        // A directory can be opened without the right to list it: say so now, not in the first tool call.
        handle.entries().map_err(read_error)?;
        let inner = Inner { root, given, dir: handle, changing: Mutex::new(()) };
        Ok(Self { inner: Arc::new(inner), closed: Closed::default() })
    }

    /// The directory, absolute and without symbolic links.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.inner.root
    }

    pub(super) fn closed(&self) -> &Closed {
        &self.closed
    }

    pub(super) fn with_closed(&self, closed: Closed) -> Self {
        Self { inner: Arc::clone(&self.inner), closed }
    }

    /// The handle that everything is opened through.
    pub(super) fn dir(&self) -> &Dir {
        &self.inner.dir
    }

    /// The right to change files. A panic of another holder does not matter: the lock guards no data, and a file is
    /// exchanged whole or not at all.
    pub(super) fn changing(&self) -> MutexGuard<'_, ()> {
        self.inner.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a path leads, whether or not anything is there. Follows links, and refuses what leaves the workspace.
    pub(super) fn resolve(&self, given: &str) -> Result<Place, ToolReply> {
        if given.is_empty() {
            return Err(invalid(given, "it is empty; `.` is the workspace itself"));
        }
        if given.contains('\0') {
            return Err(invalid(given, "it contains a NUL character"));
        }
        let mut todo = Vec::new();
        self.push_steps(&mut todo, Path::new(given)).ok_or_else(|| outside(given))?;
        let mut at = PathBuf::new();
        let mut links = 0;
        while let Some(step) = todo.pop() {
            let Step::Down(name) = step else {
                // Out of the workspace and back in again is refused too: what lies outside is never looked at.
                if !at.pop() {
                    return Err(outside(given));
                }
                continue;
            };
            at.push(&name);
            if is_git(&name) {
                return Err(ToolReply::error(
                    "path_not_allowed",
                    format!("{:?} is or leads into a .git directory, which tools may not touch", given),
                ));
            }
            match self.dir().symlink_metadata(&at) {
                Ok(metadata) if metadata.is_symlink() => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(invalid(given, "it is a loop of symbolic links"));
                    }
                    let target = self.dir().read_link_contents(&at).map_err(|e| unreadable(&at, &e))?;
                    at.pop();
                    if target.has_root() {
                        at.clear();
                    }
                    self.push_steps(&mut todo, &target).ok_or_else(|| outside(given))?;
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                    at.pop();
                    return Err(not_a_directory(&at));
                }
                Err(error) => return Err(unreadable(&at, &error)),
            }
        }
        Ok(Place { relative: at })
    }

    /// Where a path leads, and what is there.
    pub(super) fn existing(&self, given: &str) -> Result<(Place, Metadata), ToolReply> {
        let place = self.resolve(given)?;
        match self.dir().metadata(place.path()) {
            Ok(metadata) => Ok((place, metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(suggest::not_found(self, &place, given))
            }
            Err(error) => Err(unreadable(place.path(), &error)),
        }
    }

    /// Opens a regular file for reading. Named pipes and devices are refused: opening one may block for ever.
    pub(super) fn open_file(&self, given: &str) -> Result<(Place, File, Metadata), ToolReply> {
        let (place, metadata) = self.existing(given)?;
        if metadata.is_dir() {
            return Err(is_directory(&place));
        }
        if !metadata.is_file() {
            return Err(not_a_file(&place));
        }
        let file = self.dir().open(place.path()).map_err(|e| unreadable(place.path(), &e))?;
        let metadata = file.metadata().map_err(|e| unreadable(place.path(), &e))?;
        Ok((place, file, metadata))
    }

    /// An absolute path inside the workspace, relative to it.
    pub(super) fn relative_to_root<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        path.strip_prefix(&self.inner.root).or_else(|_| path.strip_prefix(&self.inner.given)).ok()
    }

    /// Pushes the steps of a path, so that the first is popped first; none if it begins outside of the workspace.
    fn push_steps(&self, todo: &mut Vec<Step>, path: &Path) -> Option<()> {
        let relative = if path.has_root() { self.relative_to_root(path)? } else { path };
        let mut steps = Vec::new();
        for component in relative.components() {
            match component {
                Component::Normal(name) => steps.push(Step::Down(name.to_owned())),
                Component::ParentDir => steps.push(Step::Up),
                Component::CurDir => {}
                Component::RootDir | Component::Prefix(_) => return None,
            }
        }
        todo.extend(steps.into_iter().rev());
        Some(())
    }
}

enum Step {
    Up,
    Down(OsString),
}

/// A place in the workspace: no links in its path when it was resolved, and perhaps nothing there.
#[derive(Debug, Clone)]
pub(super) struct Place {
    relative: PathBuf,
}

impl Place {
    /// Relative to the workspace; `.` for itself.
    pub(super) fn path(&self) -> &Path {
        if self.relative.as_os_str().is_empty() { Path::new(".") } else { &self.relative }
    }

    /// Relative to the workspace; empty for itself.
    pub(super) fn relative(&self) -> &Path {
        &self.relative
    }

    /// For a model.
    pub(super) fn shown(&self) -> String {
        shown(&self.relative)
    }
}

/// True for `.git`, in every spelling that a file system without case takes for it.
pub(super) fn is_git(name: &OsStr) -> bool {
    name.eq_ignore_ascii_case(".git")
}

pub(super) fn outside(given: &str) -> ToolReply {
    ToolReply::error(
        "path_outside_workspace",
        format!(
            "{:?} leads outside of the workspace; use paths relative to the workspace, without links out of it",
            given
        ),
    )
}

fn invalid(given: &str, reason: &str) -> ToolReply {
    ToolReply::error("invalid_path", format!("the path {:?} is not usable: {reason}", given))
}

pub(super) fn is_directory(place: &Place) -> ToolReply {
    ToolReply::error("is_directory", format!("{} is a directory; list_directory shows it", place.shown()))
}

pub(super) fn not_a_directory(path: &Path) -> ToolReply {
    ToolReply::error("not_a_directory", format!("{} is a file, not a directory", shown(path)))
}

pub(super) fn not_a_file(place: &Place) -> ToolReply {
    ToolReply::error(
        "not_a_file",
        format!("{} is neither a file nor a directory (a pipe, a socket or a device)", place.shown()),
    )
}

pub(super) fn unreadable(path: &Path, error: &io::Error) -> ToolReply {
    ToolReply::error("unreadable", cannot_read(path, error))
}

/// `cannot read private: Permission denied (os error 13)`.
pub(super) fn cannot_read(path: &Path, error: &io::Error) -> String {
    format!("cannot read {}: {error}", shown(path))
}

#[cfg(test)]
#[path = "root_tests.rs"]
mod tests;
