//! `glob`: files by their path.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use schemars::JsonSchema;
use serde::Deserialize;

use super::closed::left_out;
use super::report::{Report, count, escaped, shown};
use super::root::{Place, Workspace, not_a_directory, outside};
use super::stop::cancelled;
use super::walk::{Found, Walk};
use crate::tool::ToolReply;

/// Paths in one reply. More than this is a listing of the project, not an answer.
pub const GLOB_RESULTS: usize = 1_000;

/// Arguments of `glob`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GlobArgs {
    /// A glob: `*` and `?` stay within a name, `**` crosses directories, `{a,b}` and `[ab]` choose. Without a `/` it
    /// matches names at every depth: `*.rs`, `src/**/*_test.go`, `Cargo.{toml,lock}`.
    pub pattern: String,
    /// The directory to look in, relative to the workspace. Default: the whole workspace.
    pub path: Option<String>,
}

impl Workspace {
    /// The files whose paths match, one a line, sorted by path; at most [`GLOB_RESULTS`].
    #[must_use]
    pub fn glob(&self, args: &GlobArgs, stop: &dyn Fn() -> bool) -> ToolReply {
        self.try_glob(args, stop).unwrap_or_else(|refusal| refusal)
    }

    fn try_glob(&self, args: &GlobArgs, stop: &dyn Fn() -> bool) -> Result<ToolReply, ToolReply> {
        let filter = PathFilter::new(self, &args.pattern)?;
        let base = self.existing_dir(args.path.as_deref())?;
        // The literal beginning of a pattern is a path that was asked for: the walk begins there, even if it is
        // ignored, and sees nothing of the rest of the tree.
        let from = self.literal_start(args.path.as_deref(), &filter).unwrap_or_else(|| base.clone());
        let prefix = if from.relative() == base.relative() { "" } else { filter.literal_prefix() };
        let (mut report, mut unreadable) = (Report::default(), Vec::new());
        let (mut seen, mut matched, mut more) = (0, 0, false);
        let mut walk = Walk::new(self, &from, filter.names_hidden(), stop);
        // A walk from the base would not have come to where the pattern begins.
        let is_closed = from
            .relative()
            .ancestors()
            .any(|place| !base.relative().starts_with(place) && self.is_closed(place));
        for found in walk.by_ref().take(if is_closed { 0 } else { usize::MAX }) {
            match found {
                Found::Stopped => return Err(cancelled()),
                Found::Unreadable(note) => unreadable.push(note),
                Found::File(path) => {
                    seen += 1;
                    let below = path.strip_prefix(from.relative()).unwrap_or(&path);
                    if !filter.accepts(&path, &Path::new(prefix).join(below)) {
                        continue;
                    }
                    if matched == GLOB_RESULTS || !report.line(&shown(&path)) {
                        more = true;
                        break;
                    }
                    matched += 1;
                }
            }
        }
        if more {
            report.note(&format!("{matched} of more files shown; narrow the pattern or the path"));
        } else if matched == 0 {
            let files = count(seen, "file", "files");
            report.note(&format!("no files match \"{}\" in {files}", escaped(&args.pattern)));
        }
        report.extend(left_out(walk.left_out() + usize::from(is_closed)));
        report.notes(&unreadable, |n| {
            format!("cannot read {}", count(n, "more directory", "more directories"))
        });
        let person = match matched {
            0 => "no files".to_owned(),
            n if more => format!("{n} of more files"),
            n => count(n, "file", "files"),
        };
        Ok(ToolReply::ok(report.finish()).shown_as(person))
    }

    /// The place of an optional argument `path` that has to be a directory.
    pub(super) fn existing_dir(&self, path: Option<&str>) -> Result<Place, ToolReply> {
        let (place, metadata) = self.existing(path.unwrap_or("."))?;
        if metadata.is_dir() { Ok(place) } else { Err(not_a_directory(place.relative())) }
    }

    /// Where the literal beginning of a pattern leads, if that is a directory in the workspace.
    fn literal_start(&self, base: Option<&str>, filter: &PathFilter) -> Option<Place> {
        let prefix = filter.literal_prefix();
        if prefix.is_empty() {
            return None;
        }
        let joined = base.map_or_else(|| prefix.to_owned(), |base| format!("{base}/{prefix}"));
        let place = self.resolve(&joined).ok()?;
        self.dir().metadata(place.path()).ok()?.is_dir().then_some(place)
    }
}

/// A glob as people write it for tools: relative to the workspace or to the directory that is searched, whichever
/// fits; without a slash for names at every depth; with `!` before it for everything else.
#[derive(Debug)]
pub(super) struct PathFilter {
    pattern: String,
    matcher: GlobMatcher,
    names_only: bool,
    excludes: bool,
}

impl PathFilter {
    pub(super) fn new(workspace: &Workspace, given: &str) -> Result<Self, ToolReply> {
        let (excludes, pattern) = match given.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, given),
        };
        let mut pattern = pattern.trim_start_matches("./").to_owned();
        if Path::new(&pattern).has_root() {
            let inside = workspace.relative_to_root(Path::new(&pattern)).ok_or_else(|| outside(given))?;
            pattern = inside.to_string_lossy().into_owned();
        }
        if pattern.split('/').any(|segment| segment == "..") {
            return Err(outside(given));
        }
        if pattern.is_empty() {
            return Err(ToolReply::error(
                "invalid_pattern",
                "the glob is empty; `**` matches every file, `*.rs` those with that extension",
            ));
        }
        // As in an ignore file, a trailing slash means what is in the directory.
        if pattern.ends_with('/') {
            pattern.push_str("**");
        }
        let glob = GlobBuilder::new(&pattern).literal_separator(true).build().map_err(|error| {
            ToolReply::error(
                "invalid_pattern",
                format!(
                    "{:?} is not a valid glob: {}; put a backslash before a bracket or brace that is part of a name",
                    given,
                    error.kind()
                ),
            )
        })?;
        let names_only = !pattern.contains('/');
        Ok(Self { matcher: glob.compile_matcher(), pattern, names_only, excludes })
    }

    /// Whether a file passes, by its path from the workspace and from the directory that is searched.
    pub(super) fn accepts(&self, from_workspace: &Path, from_base: &Path) -> bool {
        let matches = if self.names_only {
            from_workspace.file_name().is_some_and(|name| self.matcher.is_match(name))
        } else {
            self.matcher.is_match(from_base) || self.matcher.is_match(from_workspace)
        };
        matches != self.excludes
    }

    /// True if the pattern names a dot file or a dot directory.
    pub(super) fn names_hidden(&self) -> bool {
        !self.excludes && self.pattern.split('/').any(|segment| segment.starts_with('.'))
    }

    /// The directories at the beginning of the pattern that have no wildcard in them; perhaps none.
    fn literal_prefix(&self) -> &str {
        let wild = self.pattern.find(['*', '?', '[', '{', '\\']).unwrap_or(self.pattern.len());
        let literal = self.pattern.get(..wild).unwrap_or_default();
        if self.excludes {
            return "";
        }
        literal.rfind('/').and_then(|slash| literal.get(..slash)).unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "glob_tests.rs"]
mod tests;
