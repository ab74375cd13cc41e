//! `list_directory`: what is in one directory.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;

use super::closed::left_out;
use super::report::{Report, count, shown, size};
use super::root::{Workspace, is_git, unreadable};
use super::stop::check;
use crate::tool::ToolReply;

/// Entries of a directory that are looked at: 100,000 names are about 10 MB of memory.
pub const LIST_ENTRIES: usize = 100_000;

/// Arguments of `list_directory`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListDirectoryArgs {
    /// The directory, relative to the workspace. Default: `.`, the workspace itself.
    pub path: Option<String>,
}

impl Workspace {
    /// The entries of one directory, sorted by name, one a line: `name/` for a directory, name, tab and size for a
    /// file, name, tab and `link to …` for a symbolic link. Hidden and ignored entries too, but not `.git`.
    #[must_use]
    pub fn list_directory(&self, args: &ListDirectoryArgs, stop: &dyn Fn() -> bool) -> ToolReply {
        self.try_list(args, stop).unwrap_or_else(|refusal| refusal)
    }

    fn try_list(&self, args: &ListDirectoryArgs, stop: &dyn Fn() -> bool) -> Result<ToolReply, ToolReply> {
        let place = self.existing_dir(args.path.as_deref())?;
        let listed = self.dir().read_dir(place.path()).map_err(|e| unreadable(place.path(), &e))?;
        let (mut names, mut closed, mut unread) = (Vec::new(), 0, false);
        for entry in listed {
            check(stop)?;
            let entry = entry.map_err(|e| unreadable(place.path(), &e))?;
            if names.len() == LIST_ENTRIES {
                unread = true;
                break;
            }
            let name = entry.file_name();
            if is_git(&name) {
                continue;
            }
            // What a link shows is where it leads.
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            let path = place.relative().join(&name);
            if if is_link { self.is_link_closed(&path) } else { self.is_closed(&path) } {
                closed += 1;
            } else {
                names.push(name);
            }
        }
        names.sort();
        let (mut report, mut listed) = (Report::default(), 0);
        for name in &names {
            check(stop)?;
            if !report.line(&self.entry_line(&place.relative().join(name), Path::new(name))) {
                break;
            }
            listed += 1;
        }
        let (total, more) = (names.len(), if unread { "more than " } else { "" });
        let entries = count(total, "entry", "entries");
        if total == 0 && closed == 0 {
            report.note("the directory is empty");
        } else if listed < total || unread {
            report.note(&format!("{listed} of {more}{entries} shown; glob finds files by name"));
        }
        report.extend(left_out(closed));
        Ok(ToolReply::ok(report.finish()).shown_as(format!("{more}{entries} in {}", place.shown())))
    }

    fn entry_line(&self, path: &Path, name: &Path) -> String {
        let name = shown(name);
        // What vanished or cannot be looked at since it was listed still has a name.
        let Ok(metadata) = self.dir().symlink_metadata(path) else { return name };
        if metadata.is_dir() {
            format!("{name}/")
        } else if metadata.is_symlink() {
            let target = self.dir().read_link_contents(path).unwrap_or_default();
            let root = if target.has_root() { "/" } else { "" };
            format!("{name}\tlink to {root}{}", shown(target.strip_prefix("/").unwrap_or(&target)))
        } else if metadata.is_file() {
            format!("{name}\t{}", size(metadata.len()))
        } else {
            format!("{name}\tnot a regular file")
        }
    }
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
