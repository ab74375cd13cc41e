//! Hooks around what is no tool call: an executor, an operation that is tried again.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::failure::StepFailure;
use crate::context::RunContext;
use crate::message::{MessageBody, Severity};
use crate::stream::Emitter;
use crate::tool::{After, Before, Decided, HookedCall, Hooks, Redirect, ToolReply};

/// Under which name the decisions of hooks stand in the log.
const LABEL: &str = "hooks";

/// Hooks of one run.
pub(super) struct Hooking<'a> {
    pub(super) hooks: Hooks,
    pub(super) cx: &'a RunContext,
    pub(super) emit: &'a Emitter,
}

impl Hooking<'_> {
    /// Acts if the hooks let it, on what they make of the call, and shows them what came of it. A redirect afterwards makes it act
    /// once more, and that result is final. Cancels and aborts pass by the hooks.
    pub(super) async fn around<R, Fut>(
        &self,
        name: &Arc<str>,
        args: Map<String, Value>,
        act: impl Fn(HookedCall) -> Fut,
    ) -> Result<R, StepFailure>
    where
        R: Serialize + DeserializeOwned,
        Fut: Future<Output = Result<R, StepFailure>>,
    {
        let mut call = HookedCall { tool: Arc::clone(name), args: Arc::new(args), run: self.cx.clone() };
        if self.hooks.is_empty() {
            return act(call).await;
        }
        let Decided { verdict, by, notes } = self.hooks.before(&call).await;
        let by = by.unwrap_or_default();
        self.tell(notes).await;
        let mut may_redirect = !matches!(verdict, Before::Skip { .. });
        let (mut done, mut took) = match verdict {
            Before::Skip { reason, stub } => {
                self.say(format!("{by} skipped {name}: {reason}")).await;
                let fits = serde_json::from_value(stub);
                let stub = fits.map_err(|error| {
                    StepFailure::Failed(format!("the stub of {by} is no result of {name}: {error}").into())
                })?;
                (Ok(stub), Duration::ZERO)
            }
            Before::Abort { reason } => return Err(self.aborted(&by, &reason).await),
            Before::Redirect(redirect) => {
                call = self.redirected(&by, &redirect, &call).await;
                self.timed(&act, &call).await
            }
            Before::Continue => self.timed(&act, &call).await,
        };
        loop {
            let (result, redirect) = self.look_back(&call, done, took).await?;
            match redirect {
                Some((by, redirect)) if may_redirect => {
                    may_redirect = false;
                    call = self.redirected(&by, &redirect, &call).await;
                    self.pass_gates(&call).await?;
                    (done, took) = self.timed(&act, &call).await;
                }
                Some((by, _)) => {
                    self.say(format!("{by}: its redirect has no effect, since the result is final")).await;
                    return result;
                }
                None => return result,
            }
        }
    }

    /// Lets the gates see a call that takes the place of one that they have seen.
    async fn pass_gates(&self, call: &HookedCall) -> Result<(), StepFailure> {
        let Decided { verdict, by, notes } = self.hooks.before_instead(call).await;
        self.tell(notes).await;
        match verdict {
            Before::Abort { reason } => Err(self.aborted(&by.unwrap_or_default(), &reason).await),
            Before::Continue | Before::Skip { .. } | Before::Redirect(_) => Ok(()),
        }
    }

    async fn timed<R, Fut>(
        &self,
        act: &impl Fn(HookedCall) -> Fut,
        call: &HookedCall,
    ) -> (Result<R, StepFailure>, Duration)
    where
        Fut: Future<Output = Result<R, StepFailure>>,
    {
        let clock = self.cx.root().clock();
        let since = clock.now();
        let done = act(call.clone()).await;
        (done, clock.now().since(since))
    }

    /// Asks about a result: it, and the redirect that was asked for. The error is a decision that ends everything.
    async fn look_back<R: Serialize>(
        &self,
        call: &HookedCall,
        done: Result<R, StepFailure>,
        took: Duration,
    ) -> Result<(Result<R, StepFailure>, Option<(String, Redirect)>), StepFailure> {
        let Decided { verdict, by, notes } = match &done {
            Err(failure) if failure.must_end() => return Ok((done, None)),
            Err(failure) => {
                let reply = ToolReply::error("failed", format!("{failure}."));
                self.hooks.on_error(call, &reply).await
            }
            Ok(result) => {
                let value = serde_json::to_value(result).unwrap_or_default();
                self.hooks.after(call, &ToolReply::ok(value), took).await
            }
        };
        let by = by.unwrap_or_default();
        self.tell(notes).await;
        match verdict {
            After::Continue => Ok((done, None)),
            After::Redirect(redirect) => Ok((done, Some((by, redirect)))),
            After::Abort { reason } => Err(self.aborted(&by, &reason).await),
        }
    }

    async fn redirected(&self, by: &str, redirect: &Redirect, call: &HookedCall) -> HookedCall {
        let call = redirect.apply(call);
        let why =
            if redirect.reason().is_empty() { String::new() } else { format!(": {}", redirect.reason()) };
        self.say(format!("{by} redirected to {} {}{why}", call.tool, Value::Object(Map::clone(&call.args))))
            .await;
        call
    }

    async fn aborted(&self, by: &str, reason: &str) -> StepFailure {
        self.say(format!("{by} aborted the run")).await;
        StepFailure::Aborted(format!("{by}: {reason}"))
    }

    async fn tell(&self, notes: Vec<String>) {
        for note in notes {
            self.emit.send(MessageBody::log(LABEL, Severity::Warning, note)).await;
        }
    }

    async fn say(&self, text: String) {
        self.emit.send(MessageBody::log(LABEL, Severity::Info, text)).await;
    }
}
