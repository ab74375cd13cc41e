//! A workspace in a temporary directory, for the tests of this room.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::Workspace;
use crate::tool::ToolReply;

/// Never stops.
pub(super) fn go() -> bool {
    false
}

/// A workspace `ws` in a directory of its own, so that there is an outside.
pub(super) struct Kit {
    outer: TempDir,
    pub(super) workspace: Workspace,
}

impl Kit {
    pub(super) fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir(outer.path().join("ws")).unwrap();
        let workspace = Workspace::open(outer.path().join("ws")).unwrap();
        Self { outer, workspace }
    }

    /// With files, given as (path, content).
    pub(super) fn with(files: &[(&str, &str)]) -> Self {
        let kit = Self::new();
        for (path, content) in files {
            kit.file(path, content);
        }
        kit
    }

    pub(super) fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// A file of so many bytes that takes no room on the disk.
    pub(super) fn sparse(&self, path: &str, bytes: u64) {
        fs::File::create(self.path(path)).unwrap().set_len(bytes).unwrap();
    }

    pub(super) fn dir(&self, path: &str) {
        fs::create_dir_all(self.path(path)).unwrap();
    }

    #[cfg(unix)]
    pub(super) fn link(&self, target: impl AsRef<Path>, path: &str) {
        std::os::unix::fs::symlink(target, self.path(path)).unwrap();
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.workspace.root().join(path)
    }

    /// Beside the workspace.
    pub(super) fn outside(&self, path: &str) -> PathBuf {
        self.outer.path().join(path)
    }

    pub(super) fn content(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// Every name in the workspace, sorted.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.workspace.root())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// The text of a reply that succeeded.
#[track_caller]
pub(super) fn text(reply: &ToolReply) -> String {
    assert!(!reply.is_error, "{reply:?}");
    reply.model_text()
}

/// The code and the message of a reply that failed.
#[track_caller]
pub(super) fn refusal(reply: &ToolReply) -> (&str, &str) {
    assert!(reply.is_error, "{reply:?}");
    (reply.for_model["error"].as_str().unwrap(), reply.for_model["message"].as_str().unwrap())
}

/// True if permissions bind this process; they do not bind the superuser.
#[cfg(unix)]
pub(super) fn permissions_bind(unreadable: &Path) -> bool {
    fs::read_dir(unreadable).is_err() && fs::read(unreadable).is_err()
}
