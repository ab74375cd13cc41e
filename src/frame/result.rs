//! What a frame answers with, and how its agent is told.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::read::Rejection;
use crate::outcome::words;

/// What a frame answers with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrameResult {
    /// How it went.
    pub status: FrameStatus,
    /// What the sub-agent says of it. Of an answer that was rejected: the whole answer, as it came.
    pub summary: String,
    /// What it found: an object, or null. Integers have all their digits.
    #[serde(default)]
    pub findings: Value,
    /// Why the answer was rejected, if it was: then the status is [`FrameStatus::Failed`] whatever the answer said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejection: Option<Rejection>,
}

impl FrameResult {
    /// The findings as a type.
    ///
    /// # Errors
    ///
    /// What does not fit, and null findings too. Of a frame that was made for this type, what is not null fits.
    pub fn findings_as<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        T::deserialize(&self.findings)
    }

    /// The three keys, and `rejection` if there is one.
    pub(super) fn to_value(&self) -> Value {
        let mut value = json!({ "status": self.status, "summary": self.summary, "findings": self.findings });
        if let (Some(rejection), Some(object)) = (&self.rejection, value.as_object_mut()) {
            object.insert("rejection".to_owned(), json!(rejection));
        }
        value
    }
}

words! {
    /// How a frame's sub-agent did.
    FrameStatus {
        /// What was asked is done.
        Success = "success",
        /// Some of it is done.
        Partial = "partial",
        /// It could not be done, or the answer broke the contract.
        Failed = "failed",
    }
}

/// The contract as a JSON schema: what a frame's agent has to answer with.
#[must_use]
pub fn result_schema() -> Value {
    schema_with(&json!({
        "type": ["object", "null"],
        "description": "What you found, as an object; null or left out if there is nothing."
    }))
}

/// The contract with this schema of the findings.
pub(super) fn schema_with(findings: &Value) -> Value {
    json!({
        "type": "object",
        "properties": {
            "status": {
                "type": "string",
                "enum": ["success", "partial", "failed"],
                "description": "success: done. partial: some of it is done. failed: it could not be done."
            },
            "summary": { "type": "string", "minLength": 1, "description": "What you did and found, in a few sentences." },
            "findings": findings,
        },
        "required": ["status", "summary"],
        "additionalProperties": false,
    })
}

/// The contract as a system prompt. A frame adds it to that of its agent; it is here for agents that answer in this form elsewhere.
#[must_use]
pub fn result_system_prompt() -> String {
    prompt_for(&result_schema())
}

/// The prompt for one schema of the contract. The schema stands in no fence: models then answer in one.
pub(super) fn prompt_for(schema: &Value) -> String {
    format!(
        "Your last message is read by a program. It has to be one JSON object and nothing else: no text before or after it, no code fence, no keys beside those of the schema, with their names in lower case. `status` is success if you did what was asked, partial if you did some of it, failed if you could not; `summary` says in a few sentences what you did and found. The object satisfies this JSON schema:\n\n{schema:#}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b16_the_prompt_names_both_keys_and_all_statuses_outside_of_a_fence() {
        let prompt = result_system_prompt();
        for word in ["\"status\"", "\"summary\"", "success", "partial", "failed"] {
            assert!(prompt.contains(word), "{word} is not in {prompt}");
        }
        assert!(!prompt.contains("```"));
    }

    #[test]
    fn b17_the_schema_survives_a_round_trip_and_says_exactly_what_is_asked() {
        let schema: Value = serde_json::from_str(&result_schema().to_string()).unwrap();
        assert_eq!(schema, result_schema());
        assert_eq!(schema["properties"]["status"]["enum"], json!(["success", "partial", "failed"]));
        assert_eq!(schema["required"], json!(["status", "summary"]));
        assert_eq!(schema["additionalProperties"], json!(false));
    }

    #[test]
    fn all_three_keys_are_always_written() {
        let result = FrameResult {
            status: FrameStatus::Partial,
            summary: "half".into(),
            findings: Value::Null,
            rejection: None,
        };
        assert_eq!(result.to_value().to_string(), r#"{"status":"partial","summary":"half","findings":null}"#);
        assert_eq!(serde_json::from_value::<FrameResult>(result.to_value()).unwrap(), result);
    }
}
