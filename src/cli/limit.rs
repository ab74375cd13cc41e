//! A bound, or none.

use std::fmt;

/// A bound. `At(0)` means none at all; no bound is a variant of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit<T> {
    /// No bound.
    Unlimited,
    /// At most this much.
    At(T),
}

impl<T: fmt::Display> fmt::Display for Limit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::At(bound) => bound.fmt(f),
        }
    }
}
