//! `write_file`, and how a file is exchanged whole.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, File, Metadata, OpenOptions};
use schemars::JsonSchema;
use serde::Deserialize;

use super::report::{count, shown};
use super::root::{Place, Workspace, is_directory, not_a_file, unreadable};
use super::stop::check;
use crate::tool::ToolReply;

/// Bytes that are written between two looks at `stop`.
const BLOCK: usize = 1024 * 1024;

/// Names that are tried for the temporary file; each one taken is left over from a process that was killed.
const TEMP_NAMES: usize = 100;

/// Arguments of `write_file`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteFileArgs {
    /// The file, relative to the workspace. It is created, with its directories, or replaced.
    pub path: String,
    /// The whole new content.
    pub content: String,
}

impl Workspace {
    /// Creates a file, with the directories above it, or replaces its content.
    ///
    /// The new content is written to a temporary file beside it, which then takes its place: nobody sees half a file,
    /// also not after a crash. Permissions of an existing file are kept; its owner is not, nor are hard links to it. A
    /// read-only file is not replaced. Of a symbolic link, the file that it leads to is replaced.
    #[must_use]
    pub fn write_file(&self, args: &WriteFileArgs, stop: &dyn Fn() -> bool) -> ToolReply {
        self.try_write(args, stop).unwrap_or_else(|refusal| refusal)
    }

    fn try_write(&self, args: &WriteFileArgs, stop: &dyn Fn() -> bool) -> Result<ToolReply, ToolReply> {
        check(stop)?;
        // Taken before the place is looked at: what is found there is then still true when it is replaced.
        let _changing = self.changing();
        let place = self.resolve(&args.path)?;
        let existing = match self.dir().metadata(place.path()) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(unreadable(place.path(), &error)),
        };
        if let Some(metadata) = &existing {
            changeable(&place, metadata)?;
        }
        if args.path.ends_with('/') {
            return Err(ToolReply::error(
                "is_directory",
                format!("{}/ names a directory; end the path with the name of a file", place.shown()),
            ));
        }
        self.replace(&place, args.content.as_bytes(), existing.as_ref(), stop, || true)?;
        let path = place.shown();
        let bytes = count(args.content.len(), "byte", "bytes");
        let lines = count(args.content.lines().count(), "line", "lines");
        let what = if existing.is_some() { "replaced" } else { "created" };
        Ok(ToolReply::ok(format!("{what} {path}: {bytes}, {lines}"))
            .shown_as(format!("{what} {path} ({lines})")))
    }

    /// Puts a new content in the place of a file, whole or not at all. `still` is asked last, before it is too late.
    pub(super) fn replace(
        &self,
        place: &Place,
        content: &[u8],
        existing: Option<&Metadata>,
        stop: &dyn Fn() -> bool,
        still: impl FnOnce() -> bool,
    ) -> Result<(), ToolReply> {
        let parent = place.relative().parent().unwrap_or(Path::new(""));
        if !parent.as_os_str().is_empty() {
            self.dir().create_dir_all(parent).map_err(|error| unwritable(parent, &error))?;
        }
        let failed = |error| unwritable(place.path(), &error);
        let (mut file, temp) = Temp::create(self.dir(), parent, existing.is_some()).map_err(failed)?;
        if let Some(existing) = existing {
            file.set_permissions(existing.permissions()).map_err(failed)?;
        }
        for block in content.chunks(BLOCK) {
            check(stop)?;
            file.write_all(block).map_err(failed)?;
        }
        // Before the rename: else a crash could leave the new name with an empty file.
        file.sync_all().map_err(failed)?;
        // Closed before the rename: Windows does not like to move an open file.
        drop(file);
        check(stop)?;
        if !still() {
            return Err(ToolReply::error(
                "changed_meanwhile",
                format!("{} was changed by somebody else meanwhile; read it again", place.shown()),
            ));
        }
        temp.take_the_place_of(place.path()).map_err(failed)
    }
}

/// Refuses what cannot be replaced.
pub(super) fn changeable(place: &Place, metadata: &Metadata) -> Result<(), ToolReply> {
    if metadata.is_dir() {
        return Err(is_directory(place));
    }
    if !metadata.is_file() {
        return Err(not_a_file(place));
    }
    if metadata.permissions().readonly() {
        // The rename would succeed, but whoever made it read-only did not want that.
        return Err(ToolReply::error("read_only", format!("{} is read-only", place.shown())));
    }
    Ok(())
}

fn unwritable(path: &Path, error: &io::Error) -> ToolReply {
    ToolReply::error("unwritable", format!("cannot write {}: {error}", shown(path)))
}

/// A temporary file, which is removed unless it took a place.
struct Temp<'a> {
    dir: &'a Dir,
    path: PathBuf,
    done: bool,
}

impl<'a> Temp<'a> {
    /// Creates one in `parent`. A private one can be read by nobody else, until it gets other permissions.
    fn create(dir: &'a Dir, parent: &Path, private: bool) -> io::Result<(File, Self)> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        if private {
            use cap_std::fs::OpenOptionsExt;
            options.mode(0o600);
        }
        #[cfg(not(unix))]
        let _ = private;
        let mut result = Err(io::ErrorKind::AlreadyExists.into());
        for n in 0..TEMP_NAMES {
            // Hidden and with the process in its name: two processes do not meet, and walks do not see it. Short,
            // because the file's own name may be as long as names can be.
            let path = parent.join(format!(".anabranch-{}-{n}.tmp", std::process::id()));
            result = dir.open_with(&path, &options).map(|file| (file, Self { dir, path, done: false }));
            if !matches!(&result, Err(error) if error.kind() == io::ErrorKind::AlreadyExists) {
                break;
            }
        }
        result
    }

    fn take_the_place_of(mut self, path: &Path) -> io::Result<()> {
        self.dir.rename(&self.path, self.dir, path)?;
        self.done = true;
        Ok(())
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if !self.done {
            // If that fails too, there is nobody left to tell: the reply says why the write failed.
            let _ = self.dir.remove_file(&self.path);
        }
    }
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
