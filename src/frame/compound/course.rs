//! Whether there is another pass, and which one counts. Decides, and never waits.

use super::result::{ExitReason, PassRecord};
use crate::error::{ErrorKind, Result};
use crate::frame::confidence::Confidence;

/// The end of passes whose scores hardly change any more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Convergence {
    window: usize,
    spread: f64,
}

impl Convergence {
    /// The spread that counts as hardly any, as in the original.
    pub const SPREAD: f64 = 0.01;

    /// After so many scored passes in a row whose highest and lowest score are no further apart than `spread`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Frame`] if the window is below 2 or the spread is negative or no number.
    pub fn new(window: usize, spread: f64) -> Result<Self> {
        let fail = |reason: String| Err(ErrorKind::Frame { name: "convergence".to_owned(), reason }.into());
        if window < 2 {
            return fail(format!("its window is {window}; it compares at least 2 scores"));
        }
        if !spread.is_finite() || spread < 0.0 {
            return fail(format!("its spread is {spread}; it is a number from 0"));
        }
        Ok(Self { window, spread })
    }

    fn is_reached(self, history: &[PassRecord]) -> bool {
        let Some(start) = history.len().checked_sub(self.window) else { return false };
        let scores: Option<Vec<f64>> = history.iter().skip(start).map(|record| record.score).collect();
        let Some(scores) = scores else { return false };
        let low = scores.iter().copied().reduce(f64::min);
        let high = scores.iter().copied().reduce(f64::max);
        low.zip(high).is_some_and(|(low, high)| high - low <= self.spread)
    }
}

/// When passes end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rules {
    pub(super) max_passes: u32,
    pub(super) confident_at: Option<Confidence>,
    pub(super) convergence: Option<Convergence>,
    pub(super) keeps_best: bool,
}

/// The passes so far.
#[derive(Debug)]
pub(super) struct Course {
    rules: Rules,
    history: Vec<PassRecord>,
    /// The score of the pass that counts.
    kept: Option<f64>,
}

/// What a pass means.
#[derive(Debug, PartialEq)]
pub(super) struct Noted {
    /// Whether it is the one that counts now.
    pub(super) counts: bool,
    /// Why no other follows; none if one does.
    pub(super) exit: Option<ExitReason>,
}

impl Course {
    pub(super) fn new(rules: Rules) -> Self {
        Self { rules, history: Vec::new(), kept: None }
    }

    pub(super) fn history(&self) -> &[PassRecord] {
        &self.history
    }

    pub(super) fn into_history(self) -> Vec<PassRecord> {
        self.history
    }

    /// A pass that was completed.
    pub(super) fn note(&mut self, record: PassRecord) -> Noted {
        let (passed, score, confidence) = (record.passed, record.score, record.confidence);
        let is_worse = score.zip(self.kept).is_some_and(|(score, kept)| score < kept);
        // One that passed counts whatever its score; of equal ones the latest counts.
        let counts = passed == Some(true) || !self.rules.keeps_best || !is_worse;
        if counts {
            self.kept = score;
        }
        self.history.push(record);
        let is_confident =
            self.rules.confident_at.zip(confidence).is_some_and(|(at, confidence)| confidence >= at);
        let exit = match passed {
            Some(true) | None => Some(ExitReason::Passed),
            Some(false) if is_confident => Some(ExitReason::Confident),
            Some(false) if self.rules.convergence.is_some_and(|rule| rule.is_reached(&self.history)) => {
                Some(ExitReason::Converged)
            }
            Some(false) => {
                let made = u32::try_from(self.history.len()).unwrap_or(u32::MAX);
                (made >= self.rules.max_passes).then_some(ExitReason::MaxRefinements)
            }
        };
        Noted { counts, exit }
    }

    /// A pass, or what follows it, failed.
    pub(super) fn note_failure(&mut self, pass: u32, error: String) {
        match self.history.last_mut() {
            Some(last) if last.pass == pass => last.error = Some(error),
            _ => self.history.push(PassRecord { pass, error: Some(error), ..PassRecord::default() }),
        }
    }
}

#[cfg(test)]
#[path = "course_tests.rs"]
mod tests;
