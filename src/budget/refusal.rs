//! The refusals of the choke point: values that a model reads.

use serde_json::{Value, json};

/// Why no further run may come into being.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// Which limit.
    pub kind: RefusalKind,
    /// How much there is already.
    pub have: f64,
    /// How much there may be.
    pub max: f64,
    /// What was asked for, in one word: `subtask`, `search`.
    pub noun: String,
}

/// The limits that refuse. Exhaustive on purpose: each has a code that models and programs read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// Too deep.
    Depth,
    /// Too many at once.
    Live,
    /// Too many in all.
    Total,
    /// Tokens or money are used up.
    Budget,
}

impl RefusalKind {
    /// The code on the wire.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Depth => "max_recursion_depth_reached",
            Self::Live => "max_live_runs_reached",
            Self::Total => "max_total_runs_reached",
            Self::Budget => "budget_exhausted",
        }
    }
}

impl Refusal {
    /// The standard object: the code, both numbers, and a sentence that says what to do instead.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let noun = &self.noun;
        let (have, max) = (number(self.have), number(self.max));
        let code = self.kind.code();
        match self.kind {
            RefusalKind::Depth => json!({
                "error": code, "depth": have, "max_depth": max,
                "message": format!("Cannot start another {noun}: runs may nest {max} deep and this one is at {have}. Do the work at this level."),
            }),
            RefusalKind::Live => json!({
                "error": code, "live_runs": have, "max_live_runs": max,
                "message": format!("Cannot start another {noun} now: {have} of {max} runs are at work. Try again when one has ended."),
            }),
            RefusalKind::Total => json!({
                "error": code, "total_runs": have, "max_total_runs": max,
                "message": format!("Cannot start another {noun}: this tree has had its {max} runs. Finish with what you have."),
            }),
            RefusalKind::Budget => json!({
                "error": code, "used": have, "budget": max,
                "message": format!("Cannot start another {noun}: the budget of this tree is used up ({have} of {max}). Finish with what you have."),
            }),
        }
    }
}

/// A count without a decimal point, money with one.
fn number(amount: f64) -> Value {
    // Counts of runs and tokens are far below 2^53, where the conversion is exact.
    if amount.fract() == 0.0 && (0.0..9e15).contains(&amount) { json!(amount as u64) } else { json!(amount) }
}
