//! One call of one tool: looked up, admitted, checked, run, and its result cut to size. No failure in it is an exception.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Either};
use serde_json::{Map, Value};

use super::context::ToolContext;
use super::hooked::{hooked, pass_gates};
use super::policy::{HookedCall, Passed, ask, question_about, ruled};
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

/// Calls the tool `name` of the context's toolset, as the hooks, the policy and whoever is asked let it. Nothing happens before the
/// first poll. Small, since it is moved about: what is seldom and large is in a box.
///
/// # Cancel safety
///
/// Dropping it ends the call as [`super::OnCancel::Drop`] says.
pub fn invoke(
    name: Arc<str>,
    args: Result<Map<String, Value>, ToolReply>,
    cx: ToolContext,
) -> impl Future<Output = Invoked> + Send + 'static {
    let cap = cx.runtime().result_bytes;
    let invoking = match args {
        Ok(args) if !cx.runtime().hooks.is_empty() => {
            Either::Left(async move { hooked(&name, args, cx).await }.boxed())
        }
        args => Either::Right(once(name, args, cx).map(|once| once.invoked)),
    };
    invoking.map(move |invoked| Invoked { reply: capped(invoked.reply, cap), ..invoked })
}

/// A call that was made, or refused.
pub(super) struct Once {
    pub(super) invoked: Invoked,
    /// The arguments that a person gave it in the place of its own; none if it was made with those.
    pub(super) edited: Option<Arc<Map<String, Value>>>,
}

impl From<Invoked> for Once {
    fn from(invoked: Invoked) -> Self {
        Self { invoked, edited: None }
    }
}

/// The call itself, without hooks.
pub(super) async fn once(
    name: Arc<str>,
    args: Result<Map<String, Value>, ToolReply>,
    cx: ToolContext,
) -> Once {
    let Some(entry) = cx.tools().entry(&name).cloned() else {
        return Invoked::of(unknown(&name, &cx)).into();
    };
    let mut edited = None;
    let args = match admit(&entry, args, &cx) {
        Ok(Admitted { args, about: None }) => args,
        Ok(Admitted { args, about: Some(about) }) => match asked(&entry, args, about, &cx, &mut edited).await
        {
            Ok(args) => args,
            Err(reply) => return Once { invoked: Invoked::of(reply), edited },
        },
        Err(reply) => return Invoked::of(reply).into(),
    };
    let run = cx.run().clone();
    let cx = cx.calling(&entry);
    let grace = (entry.tool.on_cancel() == OnCancel::Grace).then(|| run.hold_grace());
    // A tool that panicked is not called again in this run: the run fails.
    let ended = match catch_unwind(AssertUnwindSafe(|| entry.tool.call(args, cx))) {
        Err(panic) => Ok(Err(panic)),
        Ok(call) => {
            let mut call = AssertUnwindSafe(call).catch_unwind();
            // The run as a whole may be given time because of another call; this one is not, unless runs below are still ending.
            match run.or_cancel(&mut call).await {
                Err(_) if grace.is_some() || run.record().live_foreground() > 0 => Ok(call.await),
                ended => ended,
            }
        }
    };
    drop(grace);
    let invoked = match ended {
        Ok(Ok(reply)) => Invoked::of(reply),
        Ok(Err(panic)) => {
            let text = panic_text(&*panic);
            let reply = ToolReply::error("tool_panicked", format!("The tool {name} panicked: {text}"));
            Invoked { reply, fatal: Some(Fatal::Panicked(text)) }
        }
        Err(_) => Invoked::of(ToolReply::error("cancelled", "the run was cancelled before this call ended")),
    };
    Once { invoked, edited }
}

/// A call that may be made.
struct Admitted {
    args: Map<String, Value>,
    /// What a person is to be asked about it before, if it is.
    about: Option<Arc<str>>,
}

/// What is forbidden is refused before its arguments are looked at; nobody is asked about a call that cannot be made.
fn admit(
    entry: &Entry,
    args: Result<Map<String, Value>, ToolReply>,
    cx: &ToolContext,
) -> Result<Admitted, ToolReply> {
    let tool = &*entry.tool;
    let ruling = ruled(tool, args.as_ref().unwrap_or(&Map::new()), cx)?;
    let args = fitting(entry, args?)?;
    let about = question_about(&ruling, tool, &args, cx);
    Ok(Admitted { args, about })
}

/// Asks a person: the arguments that the call is made with; `edited` holds them if the person gave them.
fn asked<'a>(
    entry: &'a Entry,
    args: Map<String, Value>,
    about: Arc<str>,
    cx: &'a ToolContext,
    edited: &'a mut Option<Arc<Map<String, Value>>>,
) -> BoxFuture<'a, Result<Map<String, Value>, ToolReply>> {
    let tool = &*entry.tool;
    async move {
        match ask(tool, &args, about, cx).await? {
            Passed::AsIs => Ok(args),
            Passed::With(args) => {
                // Also if they are refused: that is what the refusal is about.
                let shared = edited.insert(Arc::new(args.clone()));
                ruled(tool, &args, cx)?;
                let args = fitting(entry, args)?;
                if !cx.runtime().hooks.is_empty() {
                    let tool = tool.spec().name.as_str().into();
                    let call = HookedCall { tool, args: Arc::clone(shared), run: cx.run().clone() };
                    pass_gates(&call, cx).await?;
                }
                Ok(args)
            }
        }
    }
    .boxed()
}

fn fitting(entry: &Entry, args: Map<String, Value>) -> Result<Map<String, Value>, ToolReply> {
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
    reply.for_person = reply.for_person.map(|text| cap_text(&text, cap).into());
    reply
}

#[cfg(test)]
#[path = "invoke_tests.rs"]
mod tests;
