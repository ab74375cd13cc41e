//! An answer with what is known of its certainty.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A figure from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Confidence(f64);

impl Confidence {
    /// The figure, if it is from 0 to 1.
    #[must_use]
    pub fn new(figure: f64) -> Option<Self> {
        (0.0..=1.0).contains(&figure).then_some(Self(figure))
    }

    /// What a model wrote as one: a number, taken for 0 or 1 if it lies outside. Anything else is none.
    #[must_use]
    pub fn read(value: &Value) -> Option<Self> {
        value.as_f64().filter(|figure| !figure.is_nan()).map(|figure| Self(figure.clamp(0.0, 1.0)))
    }

    /// The figure.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Confidence {
    type Error = String;

    fn try_from(figure: f64) -> Result<Self, String> {
        Self::new(figure).ok_or_else(|| format!("a confidence is from 0 to 1, not {figure}"))
    }
}

impl From<Confidence> for f64 {
    fn from(confidence: Confidence) -> Self {
        confidence.0
    }
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An answer, and how sure its agent is of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enriched {
    /// The answer, as it is without a protocol.
    pub output: Value,
    /// None is not known, not unsure.
    #[serde(default)]
    pub confidence: Option<Confidence>,
    /// What the agent is unsure of.
    #[serde(default)]
    pub uncertainty_targets: Vec<String>,
    /// Whether the task is outside of what the agent can verify: something else than a low confidence.
    #[serde(default)]
    pub capability_boundary: bool,
    /// Which protocol found it out; none if none was used.
    #[serde(default)]
    pub protocol_name: Option<String>,
    /// What else a protocol says: `protocol_error`, `sample_count`, `k`.
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

impl Enriched {
    /// An answer of which nothing more is known.
    #[must_use]
    pub fn new(output: Value) -> Self {
        Self {
            output,
            confidence: None,
            uncertainty_targets: Vec::new(),
            capability_boundary: false,
            protocol_name: None,
            metadata: Map::new(),
        }
    }
}

/// The texts of a list; anything else is no list.
pub(super) fn texts(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a109_the_record() {
        let read = |value: Value| serde_json::from_value::<Enriched>(value);
        assert_eq!(read(json!({"output": 1})).unwrap(), Enriched::new(json!(1)));
        let full = json!({
            "output": {"a": 1}, "confidence": 0.5, "uncertainty_targets": ["a"], "capability_boundary": true,
            "protocol_name": "structured", "metadata": {"k": 3},
        });
        assert_eq!(serde_json::to_value(read(full.clone()).unwrap()).unwrap(), full);
        for figure in [-0.1, 1.1] {
            let error = read(json!({"output": 1, "confidence": figure})).unwrap_err().to_string();
            assert!(error.contains("from 0 to 1"), "{error}");
        }
        for figure in [0.0, 1.0] {
            assert_eq!(
                read(json!({"output": 1, "confidence": figure})).unwrap().confidence.unwrap().get(),
                figure
            );
        }
        assert!(read(json!({"confidence": 0.5})).is_err());
    }

    #[test]
    fn a110_what_a_model_wrote_as_a_figure() {
        let read = |value: Value| Confidence::read(&value).map(Confidence::get);
        assert_eq!(read(Value::Null), None);
        assert_eq!(read(json!(0.25)), Some(0.25));
        assert_eq!(read(json!(-3)), Some(0.0));
        assert_eq!(read(json!(1.5)), Some(1.0));
        assert_eq!(read(json!("high")), None);
        assert_eq!(read(json!(1)), Some(1.0));
    }
}
