//! What is wrong with a file that was to be a definition.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::outcome::words;

/// Why a file, or a directory, is no use. The others are used all the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DefinitionError {
    /// The file or directory.
    pub path: PathBuf,
    /// The line, from 1, where it is known.
    pub line: Option<usize>,
    /// Which kind.
    pub kind: DefinitionErrorKind,
    /// What is wrong and how to mend it.
    pub message: String,
}

words! {
    /// The kinds of [`DefinitionError`], by their words on the wire. Others may come.
    DefinitionErrorKind {
        /// There is no front matter, or no description in it.
        NoDescription = "no_description",
        /// The body is blank.
        NoPrompt = "no_prompt",
        /// The front matter is no YAML.
        Yaml = "yaml",
        /// The name has characters that a name cannot have, or is too long.
        BadName = "bad_name",
        /// A value has a type or a size that it cannot have.
        BadValue = "bad_value",
        /// A limit that there is not, or a value that is none.
        BadLimit = "bad_limit",
        /// The schema is not there, or is none.
        BadSchema = "bad_schema",
        /// Another file of the directory has the name.
        Duplicate = "duplicate",
        /// It cannot be read, or is no ordinary file.
        Unreadable = "unreadable",
        /// It is no text in UTF-8.
        NotText = "not_text",
        /// The file is too large.
        TooLarge = "too_large",
        /// The directory has too many files.
        TooMany = "too_many",
        /// None of the tools that it lists is there.
        UnknownTools = "unknown_tools",
    }
}

impl DefinitionError {
    pub(super) fn new(
        path: &Path,
        line: Option<usize>,
        kind: DefinitionErrorKind,
        message: impl Into<String>,
    ) -> Self {
        Self { path: path.to_owned(), line, kind, message: message.into() }
    }
}

impl fmt::Display for DefinitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_place(f, &self.path, self.line)?;
        f.write_str(&self.message)
    }
}

impl std::error::Error for DefinitionError {}

/// Something in a definition that has no effect, or not the one that its author may expect. It is used all the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DefinitionWarning {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1, where it is known.
    pub line: Option<usize>,
    /// What it is.
    pub message: String,
}

impl fmt::Display for DefinitionWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_place(f, &self.path, self.line)?;
        f.write_str(&self.message)
    }
}

fn write_place(f: &mut fmt::Formatter<'_>, path: &Path, line: Option<usize>) -> fmt::Result {
    match line {
        Some(line) => write!(f, "{}:{line}: ", path.display()),
        None => write!(f, "{}: ", path.display()),
    }
}
