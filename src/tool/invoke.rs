//! One call of one tool: looked up, admitted, checked, run, and its result cut to size. No failure in it is an exception.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use serde_json::{Map, Value};

use super::context::ToolContext;
use super::reply::ToolReply;
use super::toolset::Entry;
use super::traits::OnCancel;
use crate::message::{cap_map, cap_text, cap_value};
use crate::stream::panic_text;

/// How much of a name that is none is quoted, in bytes.
const QUOTED_BYTES: usize = 100;

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
        None => Err(unknown(name, &cx)),
    };
    let (entry, args) = match admitted {
        Ok(admitted) => admitted,
        Err(reply) => return Invoked { reply: capped(reply, cap), panicked: None },
    };
    let run = cx.run().clone();
    let grace = (entry.tool.on_cancel() == OnCancel::Grace).then(|| run.hold_grace());
    // A tool that panicked is not called again in this run: the run fails.
    let call = AssertUnwindSafe(async move { entry.tool.call(args, cx).await }).catch_unwind();
    let mut call = std::pin::pin!(call);
    // The run as a whole may be given time because of another call; this one is not, unless runs below are still ending.
    let ended = match run.or_cancel(&mut call).await {
        Err(_) if grace.is_some() || run.record().live_foreground() > 0 => Ok(call.await),
        ended => ended,
    };
    drop(grace);
    match ended {
        Ok(Ok(reply)) => Invoked { reply: capped(reply, cap), panicked: None },
        Ok(Err(panic)) => {
            let text = panic_text(&*panic);
            let reply = ToolReply::error("tool_panicked", format!("The tool {name} panicked: {text}"));
            Invoked { reply: capped(reply, cap), panicked: Some(text) }
        }
        Err(_) => {
            let reply = ToolReply::error("cancelled", "the run was cancelled before this call ended");
            Invoked { reply, panicked: None }
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
    if entry.tool.checks_arguments() { Ok(args) } else { entry.fitting(args) }
}

fn unknown(name: &str, cx: &ToolContext) -> ToolReply {
    let offered = cx.offered();
    let names: Vec<&str> = offered.names().collect();
    let offered = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let name = cap_text(name, QUOTED_BYTES);
    ToolReply::error("unknown_tool", format!("There is no tool {name:?}. The tools are: {offered}."))
}

/// Cuts a result to the cap, at a marker that names both sizes. An object stays one where it can, so that an error keeps its code.
fn capped(mut reply: ToolReply, cap: usize) -> ToolReply {
    reply.for_model = match reply.for_model {
        Value::Object(map) => Value::Object(cap_map(map, cap)),
        other => cap_value(other, cap),
    };
    reply.for_person = reply.for_person.map(|text| cap_text(&text, cap));
    reply
}

#[cfg(test)]
#[path = "invoke_tests.rs"]
mod tests;
