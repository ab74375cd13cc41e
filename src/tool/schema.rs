//! JSON schemas, compiled once and asked often.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::message::nests_within;

/// How many violations are told: a model mends a few at a time, and a person reads no more.
const MAX_VIOLATIONS: usize = 8;

/// How much of a violation's text is kept, in bytes: some quote the whole value.
pub(super) const VIOLATION_BYTES: usize = 300;

/// How deep a schema may nest, in levels of JSON: compiling one takes up to 16 KiB of the stack a level.
const MAX_LEVELS: usize = 64;

/// A compiled JSON schema. Cheap to clone.
#[derive(Clone)]
pub struct Schema {
    value: Arc<Value>,
    validator: Arc<jsonschema::Validator>,
}

impl Schema {
    /// Compiles the schema of `of`. References to other documents are not followed, neither to the network nor to files.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Schema`] with the compiler's reason.
    pub fn compile(value: Arc<Value>, of: &str) -> Result<Self> {
        let fail = |reason: String| Error::new(ErrorKind::Schema { of: of.to_owned(), reason });
        if !value.is_object() && !value.is_boolean() {
            return Err(fail("a schema is an object or a boolean".to_owned()));
        }
        if !nests_within(&value, MAX_LEVELS) {
            let text =
                format!("it nests deeper than {MAX_LEVELS} levels: put its parts side by side under `$defs`");
            return Err(fail(text));
        }
        let validator = jsonschema::validator_for(&value).map_err(|error| fail(error.to_string()))?;
        Ok(Self { value, validator: Arc::new(validator) })
    }

    /// The schema as it was given.
    #[must_use]
    pub fn value(&self) -> &Arc<Value> {
        &self.value
    }

    /// What of a value violates it, each with its place; empty if nothing does.
    #[must_use]
    pub fn violations(&self, value: &Value) -> Vec<String> {
        // Nearly always, and much faster.
        if self.validator.is_valid(value) {
            return Vec::new();
        }
        let mut violations = Vec::new();
        let mut more = 0;
        for error in self.validator.iter_errors(value) {
            if violations.len() == MAX_VIOLATIONS {
                more += 1;
                continue;
            }
            let place = error.instance_path().to_string();
            let place = if place.is_empty() { "the value" } else { place.as_str() };
            violations
                .push(format!("{place}: {}", crate::message::cap_text(&error.to_string(), VIOLATION_BYTES)));
        }
        if more > 0 {
            violations.push(format!("and {more} more"));
        }
        violations
    }

    /// Where a value first violates it, as a JSON pointer, and how; none if it satisfies it.
    #[must_use]
    pub fn first_violation(&self, value: &Value) -> Option<(String, String)> {
        let error = self.validator.iter_errors(value).next()?;
        let reason = crate::message::cap_text(&error.to_string(), VIOLATION_BYTES);
        Some((error.instance_path().to_string(), reason))
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schema").field(&self.value).finish()
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
