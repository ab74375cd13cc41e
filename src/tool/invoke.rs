//! One call of one tool: looked up, admitted, checked, run, and its result cut to size. No failure in it is an exception.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use serde_json::{Map, Value};

use super::context::ToolContext;
use super::reply::ToolReply;
use super::toolset::{Entry, Toolset};
use super::traits::OnCancel;
use super::typed::invalid_arguments;
use crate::message::{cap_text, cap_value};
use crate::stream::panic_text;

/// What a call came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Invoked {
    /// The result.
    pub reply: ToolReply,
    /// What the tool's panic said, if it panicked: then the run is to fail.
    pub panicked: Option<String>,
}

/// Calls the tool `name` of the context's toolset.
///
/// # Cancel safety
///
/// Dropping it ends the call as [`super::OnCancel::Drop`] says.
pub async fn invoke(name: &str, args: Result<Map<String, Value>, ToolReply>, cx: ToolContext) -> Invoked {
    let tools = cx.tools().clone();
    let cap = cx.runtime().result_bytes;
    let admitted = match tools.entry(name) {
        Some(entry) => admit(entry, args, &cx).map(|args| (entry, args)),
        None => Err(unknown(name, &tools)),
    };
    let (entry, args) = match admitted {
        Ok(admitted) => admitted,
        Err(reply) => return Invoked { reply, panicked: None },
    };
    let grace = (entry.tool.on_cancel() == OnCancel::Grace).then(|| cx.run().hold_grace());
    // A tool that panicked is not called again in this run: the run fails.
    let call = AssertUnwindSafe(async move { entry.tool.call(args, cx).await }).catch_unwind().await;
    drop(grace);
    match call {
        Ok(reply) => Invoked { reply: capped(reply, cap), panicked: None },
        Err(panic) => {
            let text = panic_text(&*panic);
            let reply = ToolReply::error("tool_panicked", format!("The tool {name} panicked: {text}"));
            Invoked { reply, panicked: Some(text) }
        }
    }
}

fn admit(
    entry: &Arc<Entry>,
    args: Result<Map<String, Value>, ToolReply>,
    cx: &ToolContext,
) -> Result<Map<String, Value>, ToolReply> {
    cx.runtime().policy.check(&*entry.tool)?;
    let args = args?;
    if entry.tool.checks_arguments() {
        return Ok(args);
    }
    let value = Value::Object(args);
    let issues = entry.schema.violations(&value);
    match value {
        Value::Object(args) if issues.is_empty() => Ok(args),
        _ => Err(invalid_arguments(&issues)),
    }
}

fn unknown(name: &str, tools: &Toolset) -> ToolReply {
    let names: Vec<&str> = tools.names().collect();
    let offered = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    ToolReply::error("unknown_tool", format!("There is no tool {name:?}. The tools are: {offered}."))
}

/// Cuts a result to the cap, at a marker that names both sizes.
fn capped(mut reply: ToolReply, cap: usize) -> ToolReply {
    reply.for_model = cap_value(reply.for_model, cap);
    reply.for_person = reply.for_person.map(|text| cap_text(&text, cap));
    reply
}
