//! Why a compound has no result, or not the one that was wanted.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::result::PassRecord;
use crate::frame::failure::StepFailure;
use crate::outcome::words;

/// What failed, where, and what there was before it.
#[derive(Debug)]
pub struct CompoundError {
    /// The compound's name.
    pub name: Arc<str>,
    /// Which pass, from 1; 0 if none began.
    pub pass: u32,
    /// Which step of it.
    pub stage: Stage,
    /// How it failed.
    pub failure: StepFailure,
    /// The passes so far, this one included.
    pub history: Vec<PassRecord>,
}

impl fmt::Display for CompoundError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: the {} of pass {} failed: {}", self.name, self.stage, self.pass, self.failure)
    }
}

impl Error for CompoundError {
    /// The cause of the failure: the failure itself is part of the text.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.failure.source()
    }
}

words! {
    /// The steps of a pass.
    Stage {
        /// The run of the compound begins.
        Start = "start",
        /// The agent answers.
        Agent = "agent",
        /// The executor acts on the answer.
        Executor = "executor",
        /// The result goes into the state.
        StateUpdater = "state updater",
        /// The result is judged.
        Evaluator = "evaluator",
        /// The prompt of the next pass is built.
        PromptBuilder = "prompt builder",
    }
}
