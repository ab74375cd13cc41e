//! What a compound comes to.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::error::CompoundError;
use crate::frame::confidence::Confidence;
use crate::outcome::words;

/// What a compound comes to.
#[derive(Debug)]
pub struct CompoundResult<R> {
    /// The result: that of the pass that passed, else the best one where the evaluator scores, else the latest.
    pub result: R,
    /// What the agent answered in that pass: what the executor made the result of. Not part of [`CompoundResult::to_value`].
    pub output: Value,
    /// Which pass it is from, from 1. The state is that after this pass.
    pub pass: u32,
    /// How many passes were completed.
    pub iterations: u32,
    /// Whether the result is from a refinement.
    pub refined: bool,
    /// Why there was no further pass.
    pub exit_reason: ExitReason,
    /// The evaluator's score of that pass.
    pub score: Option<f64>,
    /// How sure the agent was in that pass.
    pub confidence: Option<Confidence>,
    /// What it was unsure of in that pass.
    pub uncertainty_targets: Vec<String>,
    /// Whether it said in that pass that the task is outside of what it can verify.
    pub capability_boundary: bool,
    /// What a refinement failed with, if one did.
    pub error: Option<CompoundError>,
    /// All passes, in order, one that failed included.
    pub history: Vec<PassRecord>,
}

words! {
    /// Why no further pass was made.
    ExitReason {
        /// The evaluator was content, or there is none.
        Passed = "passed",
        /// The agent was confident enough.
        Confident = "confident",
        /// The scores hardly changed any more.
        Converged = "converged",
        /// The time was over.
        Timeout = "timeout",
        /// The refinements were used up.
        MaxRefinements = "max_refinements",
        /// The iterations of a refinement loop were used up.
        MaxIterations = "max_iterations",
        /// A refinement failed; what there was before it is the result.
        RefinementFailedKeepOriginal = "refinement_failed_keep_original",
    }
}

/// One pass.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PassRecord {
    /// From 1.
    pub pass: u32,
    /// Whether the evaluator was content; none if it was not asked.
    pub passed: Option<bool>,
    /// Its score.
    pub score: Option<f64>,
    /// What it wanted to be better.
    pub feedback: String,
    /// How sure the agent was.
    pub confidence: Option<Confidence>,
    /// What the pass, or the way from it to the next, failed with.
    pub error: Option<String>,
}

impl<R: Serialize> CompoundResult<R> {
    /// As a model and the log read it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut value = json!({
            "result": self.result,
            "pass": self.pass,
            "iterations": self.iterations,
            "refined": self.refined,
            "exit_reason": self.exit_reason,
            "score": self.score,
            "confidence": self.confidence,
            "uncertainty_targets": self.uncertainty_targets,
            "capability_boundary": self.capability_boundary,
            "history": self.history,
        });
        if let (Some(error), Some(object)) = (&self.error, value.as_object_mut()) {
            object.insert("error".to_owned(), json!(error.to_string()));
        }
        value
    }
}
