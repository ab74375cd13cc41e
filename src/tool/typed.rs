//! Tools from async functions: the schema comes from the argument's type.

use std::any::Any;
use std::marker::PhantomData;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::context::ToolContext;
use super::reply::ToolReply;
use super::schema::VIOLATION_BYTES;
use super::traits::Tool;
use crate::message::cap_text;
use crate::model::ToolSpec;

/// A read-only tool from an async function. Its argument's doc comments are what a model reads of the parameters.
///
/// # Examples
///
/// ```
/// use anabranch::tool::{ToolReply, Toolset, tool_fn};
///
/// /// How to greet.
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Greet {
///     /// Whom.
///     name: String,
/// }
///
/// let greet = tool_fn("greet", "Greets somebody.", |args: Greet, cx| async move {
///     cx.progress("thinking of a greeting").await;
///     ToolReply::ok(format!("Hello, {}!", args.name))
/// });
/// let tools = Toolset::new().with(greet)?;
/// # Ok::<(), anabranch::error::Error>(())
/// ```
pub fn tool_fn<A, F, Fut>(name: &str, description: &str, function: F) -> impl Tool + use<A, F, Fut>
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    F: Fn(A, ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ToolReply> + Send + 'static,
{
    let spec = ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters: parameters_of::<A>(),
    };
    TypedTool { spec, function, args: PhantomData::<fn(A)> }
}

struct TypedTool<A, F> {
    spec: ToolSpec,
    function: F,
    args: PhantomData<fn(A)>,
}

impl<A, F, Fut> Tool for TypedTool<A, F>
where
    A: DeserializeOwned + Send + 'static,
    F: Fn(A, ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ToolReply> + Send + 'static,
{
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: Map<String, Value>, cx: ToolContext) -> BoxFuture<'a, ToolReply> {
        match parse_arguments(args) {
            Ok(args) => Box::pin((self.function)(args, cx)),
            Err(reply) => Box::pin(std::future::ready(reply)),
        }
    }
}

/// The parameter schema of a type: always that of an object.
pub(super) fn parameters_of<A: JsonSchema>() -> Value {
    let mut schema = schema_of::<A>();
    if let Some(object) = schema.as_object_mut() {
        object.entry("type").or_insert(json!("object"));
        object.entry("properties").or_insert(json!({}));
    }
    schema
}

/// The schema of a type: without references, which not every provider resolves.
#[must_use]
pub fn schema_of<A: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<A>().to_value();
    if let Some(object) = schema.as_object_mut() {
        // Of the type's name and the dialect no model needs to know.
        object.remove("$schema");
        object.remove("title");
    }
    schema
}

/// Reads arguments into their type; what does not fit is told the way validation tells it.
pub(super) fn parse_arguments<A: DeserializeOwned + 'static>(
    args: Map<String, Value>,
) -> Result<A, ToolReply> {
    let mut args = Some(args);
    // A tool that takes them as they are gets them as they are.
    if let Some(same) = (&mut args as &mut dyn Any).downcast_mut::<Option<A>>()
        && let Some(args) = same.take()
    {
        return Ok(args);
    }
    serde_json::from_value(Value::Object(args.unwrap_or_default()))
        .map_err(|error| invalid_arguments(&[cap_text(&error.to_string(), VIOLATION_BYTES)]))
}

/// The reply to arguments that violate the schema.
pub(super) fn invalid_arguments(issues: &[String]) -> ToolReply {
    let message = format!(
        "The arguments do not fit the tool's schema: {}. Correct them and call again.",
        issues.join("; ")
    );
    let extras = Map::from_iter([("issues".to_owned(), json!(issues))]);
    ToolReply::error("invalid_tool_arguments", message).with(extras)
}

#[cfg(test)]
#[path = "typed_tests.rs"]
mod tests;
