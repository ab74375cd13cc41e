//! The tools that read and change one directory: `read_file`, `list_directory`, `glob`, `grep`, `write_file` and
//! `edit_file`, as synchronous operations of a [`Workspace`]. Call them on a thread that may block.
//!
//! Each operation takes its arguments and `stop`, which it polls for each file and each block of a file: once
//! `stop` answers true, the operation returns the error `cancelled` and has changed no file.
//!
//! # What is searched
//!
//! Walks (`glob`, `grep`) see what a person would search by hand: files that `.gitignore` and `.ignore` do not rule
//! out, also where there is no git repository; no hidden files, but those that describe builds (`.github`, `.ci` and
//! the like). Ignore rules above the workspace and those of the user do not count: the same workspace gives the same
//! answer on every machine. What is asked for by path is searched even if it is hidden or ignored, and a glob that
//! names a dot file finds dot files. Walks do not follow symbolic links.
//!
//! What the rules on a tool's `path` forbid is not shown by a walk from above either, nor by a listing; nor is what a person would have
//! to be asked for. How many places were left out is said, and not which ([`Workspace::closed_where`]).
//!
//! `.git` is closed to every tool, to reading as to writing: its configuration may hold credentials, and its hooks are
//! programs that run later.
//!
//! A name is shown with its control characters escaped, and with U+FFFD for what is not UTF-8: such a file is listed
//! and searched, but cannot be asked for by path.
//!
//! # Error codes
//!
//! | code | meaning |
//! |---|---|
//! | `path_outside_workspace` | the path leads out, by `..`, by being absolute, or by a symbolic link |
//! | `path_not_allowed` | the path leads into `.git` |
//! | `invalid_path` | empty, has a NUL in it, or is a loop of links |
//! | `not_found` | nothing is there; similar names are suggested |
//! | `is_directory`, `not_a_directory`, `not_a_file` | something else is there |
//! | `unreadable`, `unwritable`, `read_only` | the operating system, or the file's permissions, refuse |
//! | `binary_file`, `invalid_utf8`, `too_large` | the file's content does not suit the tool |
//! | `offset_past_end` | the file has fewer lines |
//! | `invalid_pattern` | an empty or malformed regular expression or glob |
//! | `invalid_arguments` | the arguments contradict themselves |
//! | `text_not_found`, `text_not_unique`, `no_change` | an edit that cannot be made |
//! | `changed_meanwhile` | somebody else changed the file during an edit |
//! | `cancelled` | `stop` said so |

mod closed;
mod edit;
mod glob;
mod grep;
mod list;
mod read;
mod report;
mod root;
mod stop;
mod suggest;
mod tools;
mod walk;
mod write;

#[cfg(test)]
mod test_kit;

pub use edit::{EDIT_LIMIT, EditFileArgs};
pub use glob::{GLOB_RESULTS, GlobArgs};
pub use grep::{GREP_CONTEXT, GREP_LINE_CHARS, GREP_RESULTS, GrepArgs, SEARCH_LIMIT};
pub use list::{LIST_ENTRIES, ListDirectoryArgs};
pub use read::{COUNT_LIMIT, READ_LINE_CHARS, READ_LINES, ReadFileArgs, SEEK_LIMIT};
pub use report::OUTPUT_LIMIT;
pub use root::Workspace;
pub use write::WriteFileArgs;
