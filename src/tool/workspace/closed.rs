//! Places that are not to be shown by what comes upon them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::Workspace;
use super::report::count;

/// Which places of a workspace are closed; none where nothing was said.
#[derive(Clone, Default)]
pub(super) struct Closed(Option<Arc<IsClosed>>);

/// Of a path relative to the workspace.
type IsClosed = dyn Fn(&Path) -> bool + Send + Sync;

impl Workspace {
    /// The same workspace, of which `list_directory`, `glob`, `grep` and suggestions show nothing where `is_closed` is true; a walk does not
    /// go into it either. How many places were left out is said. It is asked of files and directories, by paths relative to the
    /// workspace and without links, and not about what an argument `path` names: that is for whoever admits the call.
    #[must_use]
    pub fn closed_where(&self, is_closed: impl Fn(&Path) -> bool + Send + Sync + 'static) -> Self {
        self.with_closed(Closed(Some(Arc::new(is_closed))))
    }

    /// Whether a place, relative to the workspace, is not to be shown.
    pub(super) fn is_closed(&self, place: &Path) -> bool {
        self.closed().0.as_ref().is_some_and(|is_closed| is_closed(place))
    }

    /// As [`Workspace::is_closed`], of a place to which the path `from` leads, too.
    pub(super) fn is_link_closed(&self, from: &Path) -> bool {
        self.closed().0.is_some()
            && (self.is_closed(from)
                || from
                    .to_str()
                    .and_then(|from| self.resolve(from).ok())
                    .is_some_and(|place| self.is_closed_or_below(place.relative())))
    }

    /// Whether a place or one above it is not to be shown.
    pub(super) fn is_closed_or_below(&self, place: &Path) -> bool {
        place.ancestors().any(|place| !place.as_os_str().is_empty() && self.is_closed(place))
    }
}

/// The note on what was left out; none if nothing was.
pub(super) fn left_out(places: usize) -> Option<String> {
    let those = if places == 1 { "it" } else { "them" };
    (places > 0)
        .then(|| format!("{} left out, since a rule forbids {those}", count(places, "place", "places")))
}

impl fmt::Debug for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Closed(..)" } else { "Closed" })
    }
}

#[cfg(test)]
#[path = "closed_tests.rs"]
mod tests;
