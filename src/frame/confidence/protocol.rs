//! How the certainty of an answer is found out.

use std::sync::Arc;

use crate::error::{ErrorKind, Result};

/// A way to find out how sure an agent is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfidenceProtocol {
    /// The answer says it itself, in keys of its object. Costs nothing.
    Structured(StructuredFields),
    /// The agent's model is asked to rate the answer: one more run.
    SelfRating,
    /// The agent answers several times at once; how far the answers agree is the figure. Made by [`ConfidenceProtocol::ensemble`].
    Ensemble(Samples),
}

/// How many answers an ensemble compares: at least 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Samples(u32);

impl Samples {
    /// The number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

/// The keys of an answer that say how sure it is. What begins with `/` is a JSON pointer, such as `/findings/self_confidence` for the
/// answers of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StructuredFields {
    /// A number from 0 to 1. Default `self_confidence`.
    pub confidence: Arc<str>,
    /// A list of texts. Default `uncertain_about`.
    pub uncertainty_targets: Arc<str>,
    /// True or false. Default `outside_my_capability`.
    pub capability_boundary: Arc<str>,
}

impl Default for StructuredFields {
    fn default() -> Self {
        Self {
            confidence: "self_confidence".into(),
            uncertainty_targets: "uncertain_about".into(),
            capability_boundary: "outside_my_capability".into(),
        }
    }
}

impl ConfidenceProtocol {
    /// How many answers an ensemble has unless it is told otherwise.
    pub const SAMPLES: u32 = 3;

    /// The answer says it itself, under the default keys.
    #[must_use]
    pub fn structured() -> Self {
        Self::Structured(StructuredFields::default())
    }

    /// `k` answers are compared. The first one is the answer, whatever the others say.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Frame`] if there would be nothing to compare: `k` is below 2.
    pub fn ensemble(k: u32) -> Result<Self> {
        if k < 2 {
            let reason = format!("it has k = {k}; it compares at least 2 answers");
            return Err(ErrorKind::Frame { name: "ensemble".to_owned(), reason }.into());
        }
        Ok(Self::Ensemble(Samples(k)))
    }

    /// Its name in results and in the log.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Structured(_) => "structured",
            Self::SelfRating => "self_rating",
            Self::Ensemble(_) => "ensemble",
        }
    }
}
