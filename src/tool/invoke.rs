//! One call of one tool: looked up, admitted, checked, run, and its result cut to size. No failure in it is an exception.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use serde_json::{Map, Value};

use super::context::ToolContext;
use super::hooked::{hooked, pass_gates};
use super::policy::{HookedCall, Passed, pass, ruled};
use super::reply::ToolReply;
use super::toolset::Entry;
use super::traits::OnCancel;
use crate::message::{cap_map, cap_text, cap_value};
use crate::outcome::{FailureKind, SubAgentOutcome};
use crate::stream::panic_text;

/// How much of a name that is none is quoted, in bytes.
const QUOTED_BYTES: usize = 100;

/// What a call came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Invoked {
    /// The result.
    pub reply: ToolReply,
    /// Why the run of the call has to end with it, if it has to.
    pub fatal: Option<Fatal>,
}

/// What ends a run together with a call of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fatal {
    /// The tool panicked, with this text.
    Panicked(String),
    /// A hook or a tool aborted the run, for this reason.
    Aborted(String),
}

impl Fatal {
    /// How the run ends whose call of `tool` this was.
    #[must_use]
    pub fn outcome(&self, tool: &str) -> SubAgentOutcome {
        match self {
            Self::Panicked(text) => {
                SubAgentOutcome::failed(FailureKind::Panic, format!("the tool {tool} panicked: {text}"))
            }
            Self::Aborted(reason) => SubAgentOutcome::failed(
                FailureKind::Aborted,
                format!("aborted at a call of {tool}: {reason}"),
            ),
        }
    }
}

impl Invoked {
    pub(super) fn of(mut reply: ToolReply) -> Self {
        let fatal = reply.aborts_with.take().map(|reason| Fatal::Aborted(*reason));
        Self { reply, fatal }
    }
}

/// Calls the tool `name` of the context's toolset, as the hooks, the policy and whoever is asked let it.
///
/// # Cancel safety
///
/// Dropping it ends the call as [`super::OnCancel::Drop`] says.
pub async fn invoke(name: &str, args: Result<Map<String, Value>, ToolReply>, cx: ToolContext) -> Invoked {
    let cap = cx.runtime().result_bytes;
    let invoked = match args {
        // Boxed, since it is seldom and would make every call twice as large.
        Ok(args) if !cx.runtime().hooks.is_empty() => Box::pin(hooked(name, args, cx)).await,
        args => once(name, args, cx).await,
    };
    Invoked { reply: capped(invoked.reply, cap), ..invoked }
}

/// The call itself, without hooks.
pub(super) async fn once(
    name: &str,
    args: Result<Map<String, Value>, ToolReply>,
    cx: ToolContext,
) -> Invoked {
    let tools = cx.tools().clone();
    let Some(entry) = tools.entry(name) else { return Invoked::of(unknown(name, &cx)) };
    let args = match admit(entry, args, &cx).await {
        Ok(args) => args,
        Err(reply) => return Invoked::of(reply),
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
        Ok(Ok(reply)) => Invoked::of(reply),
        Ok(Err(panic)) => {
            let text = panic_text(&*panic);
            let reply = ToolReply::error("tool_panicked", format!("The tool {name} panicked: {text}"));
            Invoked { reply, fatal: Some(Fatal::Panicked(text)) }
        }
        Err(_) => Invoked::of(ToolReply::error("cancelled", "the run was cancelled before this call ended")),
    }
}

/// The arguments that the call is made with. What is forbidden is refused before its arguments are looked at; nobody is asked about
/// a call that cannot be made.
async fn admit(
    entry: &Arc<Entry>,
    args: Result<Map<String, Value>, ToolReply>,
    cx: &ToolContext,
) -> Result<Map<String, Value>, ToolReply> {
    let tool = &*entry.tool;
    let ruling = ruled(tool, args.as_ref().unwrap_or(&Map::new()), cx)?;
    let fitting = |args| if tool.checks_arguments() { Ok(args) } else { entry.fitting(args) };
    let args = fitting(args?)?;
    match pass(ruling, tool, &args, cx).await? {
        Passed::AsIs => Ok(args),
        Passed::With(args) => {
            ruled(tool, &args, cx)?;
            let args = fitting(args)?;
            if !cx.runtime().hooks.is_empty() {
                let tool = tool.spec().name.as_str().into();
                let call = HookedCall { tool, args: Arc::new(args.clone()), run: cx.run().clone() };
                // Boxed, since it is seldom.
                Box::pin(pass_gates(&call, cx)).await?;
            }
            Ok(args)
        }
    }
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
