//! What a run and a tree may use.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A bound. `At(0)` means none at all; no bound is a variant of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Limit<T> {
    /// No bound.
    #[default]
    Unlimited,
    /// At most this much.
    At(T),
}

impl<T: Copy + PartialOrd> Limit<T> {
    /// The bound, if there is one.
    #[must_use]
    pub fn bound(self) -> Option<T> {
        match self {
            Self::Unlimited => None,
            Self::At(bound) => Some(bound),
        }
    }

    /// Whether `amount` is within the bound.
    #[must_use]
    pub fn allows(self, amount: T) -> bool {
        self.bound().is_none_or(|bound| amount <= bound)
    }

    /// The tighter one of both.
    #[must_use]
    pub fn narrowed_by(self, other: Self) -> Self {
        match (self, other) {
            (Self::At(one), Self::At(two)) => Self::At(if two < one { two } else { one }),
            (Self::At(bound), Self::Unlimited) | (Self::Unlimited, Self::At(bound)) => Self::At(bound),
            (Self::Unlimited, Self::Unlimited) => Self::Unlimited,
        }
    }
}

impl<T> From<T> for Limit<T> {
    fn from(bound: T) -> Self {
        Self::At(bound)
    }
}

impl<T: FromStr> FromStr for Limit<T> {
    type Err = T::Err;

    /// A value, or the word `unlimited`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "unlimited" { Ok(Self::Unlimited) } else { text.parse().map(Self::At) }
    }
}

impl<T: fmt::Display> fmt::Display for Limit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::At(bound) => bound.fmt(f),
        }
    }
}

/// What one run may use. A child's are narrowed by its parent's; the default bounds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RunLimits {
    /// Model turns.
    pub turns: Limit<u64>,
    /// Tool calls.
    pub tool_calls: Limit<u64>,
    /// Input and output tokens together.
    pub tokens: Limit<u64>,
    /// US dollars.
    pub cost_usd: Limit<f64>,
    /// Time since the run started. Not inherited: when a run's time is over, its descendants are cancelled.
    pub wall: Limit<Duration>,
    /// Time since the last message of the run or of a descendant.
    pub idle: Limit<Duration>,
}

impl RunLimits {
    /// The tighter bound of both, kind by kind.
    #[must_use]
    pub fn narrowed_by(&self, other: &Self) -> Self {
        Self {
            turns: self.turns.narrowed_by(other.turns),
            tool_calls: self.tool_calls.narrowed_by(other.tool_calls),
            tokens: self.tokens.narrowed_by(other.tokens),
            cost_usd: self.cost_usd.narrowed_by(other.cost_usd),
            wall: self.wall.narrowed_by(other.wall),
            idle: self.idle.narrowed_by(other.idle),
        }
    }
}

/// What a tree may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TreeLimits {
    /// How deep runs may nest; the root is at 0. Default 3, as in the original core.
    pub depth: Limit<u32>,
    /// Runs that work at once; one that waits for its children does not count. Default unlimited.
    pub live: Limit<u32>,
    /// All runs, ever, the root included. Default 1,000: a tree that needs more is most often one that runs away.
    pub total: Limit<u64>,
    /// Input and output tokens together. Default unlimited.
    pub tokens: Limit<u64>,
    /// US dollars. Default unlimited.
    pub cost_usd: Limit<f64>,
    /// What happens to a run that is one too many at once.
    pub when_full: WhenFull,
}

/// What happens to a run for which there is no place among the live ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// It is refused.
    Refuse,
    /// It waits, visibly, so long; then it is refused.
    Wait(Duration),
}

impl Default for TreeLimits {
    fn default() -> Self {
        Self {
            depth: Limit::At(3),
            live: Limit::Unlimited,
            total: Limit::At(1000),
            tokens: Limit::Unlimited,
            cost_usd: Limit::Unlimited,
            // Ten minutes: the longest that the original core lets one action take.
            when_full: WhenFull::Wait(Duration::from_mins(10)),
        }
    }
}
