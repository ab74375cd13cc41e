//! A call with hooks around it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::context::ToolContext;
use super::invoke::{Invoked, Once, once};
use super::policy::{After, Before, Decided, HookedCall, Redirect};
use super::reply::ToolReply;
use crate::message::{MessageBody, Severity};

/// Under which name the decisions of hooks stand in the log.
const LABEL: &str = "hooks";

/// Makes the call that the hooks let be made, and lets them see what came of it. What a redirect names is held against the policy
/// like any call; the second result of a redirect afterwards is final.
pub(super) async fn hooked(name: &str, args: Map<String, Value>, cx: ToolContext) -> Invoked {
    let hooks = cx.runtime().hooks.clone();
    let mut call = HookedCall { tool: name.into(), args: Arc::new(args), run: cx.run().clone() };
    let Decided { verdict, by, notes } = hooks.before(&call).await;
    let by = by.unwrap_or_default();
    tell(&cx, notes).await;
    match verdict {
        Before::Continue => {}
        Before::Redirect(redirect) => {
            call = redirect.apply(&call);
            tell_redirect(&cx, &by, &redirect, &call).await;
        }
        Before::Skip { reason, stub } => {
            say(&cx, format!("{by} skipped the call: {reason}")).await;
            let reply = ToolReply::ok(stub).shown_as(format!("skipped: {reason}"));
            return look_back(call, Invoked::of(reply), Duration::ZERO, cx, false).await;
        }
        Before::Abort { reason } => return aborted(&cx, &by, reason).await,
    }
    let (invoked, took) = make(&mut call, &cx).await;
    look_back(call, invoked, took, cx, true).await
}

/// Makes the call, which is then the one that was made: with the arguments that a person gave it, if one did.
async fn make(call: &mut HookedCall, cx: &ToolContext) -> (Invoked, Duration) {
    let clock = cx.run().root().clock();
    let since = clock.now();
    let Once { invoked, edited } = once(Arc::clone(&call.tool), Ok(Map::clone(&call.args)), cx.clone()).await;
    if let Some(args) = edited {
        call.args = args;
    }
    (invoked, clock.now().since(since))
}

/// Asks the hooks about a result, and once more if they had the call made again.
async fn look_back(
    mut call: HookedCall,
    mut invoked: Invoked,
    mut took: Duration,
    cx: ToolContext,
    mut may_redirect: bool,
) -> Invoked {
    let hooks = cx.runtime().hooks.clone();
    loop {
        // The run ends anyway.
        if invoked.fatal.is_some() || cx.run().token().is_cancelled() {
            return invoked;
        }
        let Decided { verdict, by, notes } = if invoked.reply.is_error {
            hooks.on_error(&call, &invoked.reply).await
        } else {
            hooks.after(&call, &invoked.reply, took).await
        };
        let by = by.unwrap_or_default();
        tell(&cx, notes).await;
        match verdict {
            After::Continue => return invoked,
            After::Abort { reason } => return aborted(&cx, &by, reason).await,
            After::Redirect(_) if !may_redirect => {
                say(&cx, format!("{by}: its redirect has no effect, since the result is final")).await;
                return invoked;
            }
            After::Redirect(redirect) => {
                call = redirect.apply(&call);
                tell_redirect(&cx, &by, &redirect, &call).await;
                may_redirect = false;
                if let Err(abort) = pass_gates(&call, &cx).await {
                    return Invoked::of(abort);
                }
                (invoked, took) = make(&mut call, &cx).await;
            }
        }
    }
}

/// Lets the gates see a call that takes the place of one that they have seen.
///
/// # Errors
///
/// The reply that aborts the run.
pub(super) async fn pass_gates(call: &HookedCall, cx: &ToolContext) -> Result<(), ToolReply> {
    let hooks = cx.runtime().hooks.clone();
    let Decided { verdict, by, notes } = hooks.before_instead(call).await;
    tell(cx, notes).await;
    match verdict {
        Before::Abort { reason } => Err(abort(cx, &by.unwrap_or_default(), &reason).await),
        Before::Continue | Before::Skip { .. } | Before::Redirect(_) => Ok(()),
    }
}

async fn aborted(cx: &ToolContext, by: &str, reason: String) -> Invoked {
    Invoked::of(abort(cx, by, &reason).await)
}

async fn abort(cx: &ToolContext, by: &str, reason: &str) -> ToolReply {
    say(cx, format!("{by} aborted the run")).await;
    ToolReply::aborting(format!("{by}: {reason}"))
}

async fn tell_redirect(cx: &ToolContext, by: &str, redirect: &Redirect, call: &HookedCall) {
    let (tool, args) = (&call.tool, Value::Object(Map::clone(&call.args)));
    let why = if redirect.reason().is_empty() { String::new() } else { format!(": {}", redirect.reason()) };
    say(cx, format!("{by} redirected the call to {tool} {args}{why}")).await;
}

async fn tell(cx: &ToolContext, notes: Vec<String>) {
    for note in notes {
        cx.caller().emitter().send(MessageBody::log(LABEL, Severity::Warning, note)).await;
    }
}

async fn say(cx: &ToolContext, text: String) {
    cx.caller().emitter().send(MessageBody::log(LABEL, Severity::Info, text)).await;
}
