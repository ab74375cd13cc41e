//! What to say about a path where nothing is.

use std::path::{Path, PathBuf};

use super::report::shown;
use super::root::{Place, Workspace, is_git};
use crate::tool::ToolReply;

/// From 0 to 1: how similar a name has to be. 0.7 takes one wrong letter in a name of four.
const SIMILAR: f64 = 0.7;

/// Names that are suggested at most.
const SUGGESTIONS: usize = 3;

/// Names that are compared at most: a directory of a million files must not make a typing error slow.
const COMPARED: usize = 10_000;

/// The error `not_found`, with names that may have been meant.
pub(super) fn not_found(workspace: &Workspace, place: &Place, given: &str) -> ToolReply {
    let mut text = format!("{:?} does not exist", given);
    let found = similar(workspace, place.relative());
    if let Some((dir, names)) = found {
        let parent = place.relative().parent().unwrap_or(Path::new(""));
        if names.is_empty()
            && dir != parent
            && !dir.as_os_str().is_empty()
            && !workspace.is_closed_or_below(&dir)
        {
            text.push_str(&format!("; {} does", shown(&dir)));
        } else if !names.is_empty() {
            text.push_str(&format!("; did you mean {}?", names.join(" or ")));
        }
    }
    ToolReply::error("not_found", text)
}

/// The nearest directory that exists, and the names in it that are similar to what was looked for there.
fn similar(workspace: &Workspace, missing: &Path) -> Option<(PathBuf, Vec<String>)> {
    // A path that begins with the name of the workspace itself, as seen from its parent.
    if let Some(rest) = workspace.root().file_name().and_then(|name| missing.strip_prefix(name).ok())
        && !rest.as_os_str().is_empty()
        && !workspace.is_closed_or_below(rest)
        && workspace.dir().symlink_metadata(rest).is_ok()
    {
        return Some((PathBuf::new(), vec![shown(rest)]));
    }
    for ancestor in missing.ancestors().skip(1) {
        let at = if ancestor.as_os_str().is_empty() { Path::new(".") } else { ancestor };
        let Ok(entries) = workspace.dir().read_dir(at) else { continue };
        let wanted = missing.strip_prefix(ancestor).ok()?.components().next()?;
        let wanted = wanted.as_os_str().to_string_lossy().to_lowercase();
        let mut scored: Vec<(f64, PathBuf)> = entries
            .take(COMPARED)
            .flatten()
            .map(|entry| entry.file_name())
            .filter(|name| !is_git(name))
            .map(|name| (likeness(&wanted, &name.to_string_lossy().to_lowercase()), ancestor.join(name)))
            .filter(|(score, path)| *score >= SIMILAR && !workspace.is_link_closed(path))
            .collect();
        // By name among equals: a directory is not listed in any order.
        scored.sort_by(|one, two| two.0.total_cmp(&one.0).then_with(|| one.1.cmp(&two.1)));
        let names = scored.iter().take(SUGGESTIONS).map(|(_, path)| shown(path)).collect();
        return Some((ancestor.to_owned(), names));
    }
    None
}

/// How similar two names are, from 0 to 1. One name with another extension counts as similar.
fn likeness(wanted: &str, name: &str) -> f64 {
    let stem = |name: &str| Path::new(name).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let whole = strsim::normalized_damerau_levenshtein(wanted, name);
    if stem(wanted) == stem(name) { whole.max(SIMILAR) } else { whole }
}
