//! Frames whose findings are of a type.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::result::{FrameResult, FrameStatus, schema_with};
use super::tool::Frame;
use crate::agent::Agent;
use crate::error::Result;
use crate::tool::schema_of;

/// A frame whose findings are a `T`: its agent is told the schema of the type, and an answer whose findings are none is rejected. A
/// success has findings; a partial or failed one may have none.
///
/// # Errors
///
/// [`crate::error::ErrorKind::Schema`] if the schema of the type does not compile.
///
/// # Examples
///
/// ```
/// use anabranch::Agent;
/// use anabranch::frame::as_tool_typed;
/// use anabranch::model::OfflineModel;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Review {
///     /// Each defect in one sentence.
///     defects: Vec<String>,
/// }
///
/// let build = || Ok::<_, std::io::Error>(Agent::new(OfflineModel::new()));
/// let frame = as_tool_typed::<Review, _>(build, "review", "Has a change reviewed.")?;
/// assert!(frame.schema()["properties"]["findings"]["anyOf"][0]["properties"]["defects"].is_object());
/// # Ok::<(), anabranch::error::Error>(())
/// ```
pub fn as_tool_typed<T, E>(
    factory: impl Fn() -> std::result::Result<Agent, E> + Send + Sync + 'static,
    name: &str,
    description: &str,
) -> Result<Frame>
where
    T: JsonSchema + DeserializeOwned,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    Frame::new(factory, name, description, result_schema_of::<T>(), Some(fits::<T>))
}

/// The contract with findings of this type.
#[must_use]
pub fn result_schema_of<T: JsonSchema>() -> Value {
    schema_with(&json!({ "anyOf": [schema_of::<T>(), { "type": "null" }] }))
}

/// What a schema does not say of a type: whether a value of it can be made.
fn fits<T: DeserializeOwned>(result: &FrameResult) -> std::result::Result<(), String> {
    match (&result.findings, result.status) {
        (Value::Null, FrameStatus::Success) => Err("a success has findings".to_owned()),
        (Value::Null, FrameStatus::Partial | FrameStatus::Failed) => Ok(()),
        (findings, _) => T::deserialize(findings).map(drop).map_err(|error| error.to_string()),
    }
}
