//! Files as they lie on a disk: looked at before they are opened, and never read further than to a bound.

use std::fs::{File, Metadata};
use std::io::Read;
use std::path::Path;
use std::time::SystemTime;

use super::error::{DefinitionError, DefinitionErrorKind};

/// The largest file: more than any system prompt that a model can keep in mind.
pub(super) const MAX_BYTES: u64 = 256 * 1024;

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) modified: Option<SystemTime>,
    pub(super) bytes: u64,
}

impl Stamp {
    pub(super) fn of(path: &Path) -> std::io::Result<Self> {
        std::fs::metadata(path).map(|metadata| Self::from(&metadata))
    }
}

impl From<&Metadata> for Stamp {
    fn from(metadata: &Metadata) -> Self {
        Self { modified: metadata.modified().ok(), bytes: metadata.len() }
    }
}

/// The text of an ordinary file.
pub(super) fn read_text(path: &Path) -> Result<String, DefinitionError> {
    use DefinitionErrorKind::{NotText, TooLarge, Unreadable};
    let fail = |line, kind, message: String| DefinitionError::new(path, line, kind, message);
    let unreadable = |error: std::io::Error| {
        fail(None, Unreadable, format!("it cannot be read: {error}; mend or remove it"))
    };
    // Before it is opened: opening a pipe that nobody writes to would never end.
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if metadata.is_dir() {
        return Err(fail(None, Unreadable, "it is a directory; give it a name without .md".to_owned()));
    }
    if !metadata.is_file() {
        return Err(fail(None, Unreadable, "it is no ordinary file; remove it".to_owned()));
    }
    let too_large = || fail(None, TooLarge, format!("it has more than {MAX_BYTES} bytes; shorten it"));
    if metadata.len() > MAX_BYTES {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    // It may have grown meanwhile.
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(too_large());
    }
    let line_at = |at: usize| bytes.iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        return Err(fail(
            Some(line_at(at)),
            NotText,
            "it has a NUL byte; save it as text in UTF-8".to_owned(),
        ));
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(error) => {
            let line = line_at(error.valid_up_to());
            Err(fail(Some(line), NotText, "it is not UTF-8; save it as text in UTF-8".to_owned()))
        }
    }
}
