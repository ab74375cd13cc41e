//! Keys of shared results: a namespace, and a name in it.

use crate::outcome::words;

/// How long a name may be, in bytes: as long as the id of a node.
pub(super) const NAME_BYTES: usize = 64;

words! {
    /// Whose results these are, the first part of their keys. Exhaustive on purpose: each has its bounds, and one who writes it.
    Namespace {
        /// What steps came to: the nodes of graphs, and the agents of scripts. Written by what runs them.
        Step = "step",
        /// What subtasks came to, by the id of their run. Written by the tools that run them.
        Task = "task",
        /// What scripts were given. Written by what runs them.
        Input = "input",
        /// What models share, with `share_result`. They write nowhere else.
        Shared = "shared",
    }
}

impl Namespace {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Step, Self::Task, Self::Input, Self::Shared];

    /// The namespace that a key begins with, and the rest of it.
    #[must_use]
    pub fn split(key: &str) -> Option<(Self, &str)> {
        let (first, name) = key.split_once(':')?;
        let namespace = Self::ALL.into_iter().find(|namespace| namespace.as_str() == first)?;
        Some((namespace, name))
    }

    pub(super) fn at(self) -> usize {
        match self {
            Self::Step => 0,
            Self::Task => 1,
            Self::Input => 2,
            Self::Shared => 3,
        }
    }
}

/// Whether it is a name as it stands.
pub(super) fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES).contains(&name.len()) && name.chars().all(is_letter)
}

/// The name that comes closest: `-` for what a name has not, and no more of it than fits.
pub(super) fn name_of(text: &str) -> String {
    let letters = text.trim().chars().map(|letter| if is_letter(letter) { letter } else { '-' });
    let name: String = letters.take(NAME_BYTES).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

fn is_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.')
}
