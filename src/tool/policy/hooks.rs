//! Hooks around calls, and the rule that makes one decision of what several of them say.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::verdict::{After, Before, HookedCall};
use crate::stream::panic_text;
use crate::tool::reply::ToolReply;

/// What a hook says, or why it cannot. Any error will do.
pub type HookResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Looks at each call of a tree, and may change or stop it. Implement what you need: the default of each is to go on.
///
/// All three are asynchronous, and their decisions are types: a decision that is not awaited, or of the wrong kind, does not compile.
///
/// # Examples
///
/// ```
/// use anabranch::tool::{Before, Hook, HookResult, HookedCall, Hooks};
/// use futures::future::BoxFuture;
///
/// struct NoSecrets;
///
/// impl Hook for NoSecrets {
///     fn name(&self) -> &str {
///         "no_secrets"
///     }
///
///     fn before<'a>(&'a self, call: &'a HookedCall) -> BoxFuture<'a, HookResult<Before>> {
///         Box::pin(async move {
///             let names_one = call.args.values().any(|value| value.as_str().is_some_and(|text| text.contains(".env")));
///             Ok(if names_one { Before::Abort { reason: "secrets are not read".into() } } else { Before::Continue })
///         })
///     }
/// }
///
/// let hooks = Hooks::new().with(NoSecrets);
/// assert_eq!(hooks.len(), 1);
/// ```
pub trait Hook: Send + Sync + 'static {
    /// Its name in the log.
    fn name(&self) -> &str;

    /// Whether it guards something: then its failure aborts the run. The failure of a hook that only looks on is a line in the
    /// log. Default: it guards.
    fn is_gate(&self) -> bool {
        true
    }

    /// Decides before a call.
    fn before<'a>(&'a self, call: &'a HookedCall) -> BoxFuture<'a, HookResult<Before>> {
        let _ = call;
        Box::pin(std::future::ready(Ok(Before::Continue)))
    }

    /// Decides after a call that succeeded, and took so long. It sees the arguments that the call was made with: those of a person who
    /// changed them.
    fn after<'a>(
        &'a self,
        call: &'a HookedCall,
        reply: &'a ToolReply,
        took: Duration,
    ) -> BoxFuture<'a, HookResult<After>> {
        let _ = (call, reply, took);
        Box::pin(std::future::ready(Ok(After::Continue)))
    }

    /// Decides after a call that failed. It sees the arguments as [`Hook::after`] does.
    fn on_error<'a>(
        &'a self,
        call: &'a HookedCall,
        reply: &'a ToolReply,
    ) -> BoxFuture<'a, HookResult<After>> {
        let _ = (call, reply);
        Box::pin(std::future::ready(Ok(After::Continue)))
    }
}

/// Hooks in their order. Cheap to clone.
///
/// # Ordering
///
/// All are asked, in the order in which they were added. The first that does not say "continue" decides; what later ones say is
/// shadowed, and told. An abort wins over all, and ends the asking. Hooks after a redirect see the call as it is now; gates
/// before it are asked about that call too, but only an abort of theirs counts, so that no call escapes a gate by being replaced. The
/// same holds of a redirect after a call, and of arguments that a person changed: all gates are asked.
#[derive(Clone, Default)]
pub struct Hooks(Arc<[Arc<dyn Hook>]>);

/// What hooks decided together.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided<T> {
    /// The decision.
    pub verdict: T,
    /// The name of the hook that decided it; none if all said "continue".
    pub by: Option<String>,
    /// What is to stand in the log: decisions that were shadowed, hooks that failed.
    pub notes: Vec<String>,
}

impl<T> Decided<T> {
    fn new(verdict: T) -> Self {
        Self { verdict, by: None, notes: Vec::new() }
    }

    fn decide(&mut self, by: &dyn Hook, verdict: T) {
        self.verdict = verdict;
        self.by = Some(by.name().to_owned());
    }

    fn shadow(&mut self, by: &dyn Hook, what: &str) {
        let winner = self.by.as_deref().unwrap_or_default();
        self.notes.push(format!("{}: {what} has no effect, since {winner} decided first", by.name()));
    }
}

impl Hooks {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// These and one more, at the end.
    #[must_use]
    pub fn with(&self, hook: impl Hook) -> Self {
        self.with_shared(Arc::new(hook))
    }

    /// As [`Hooks::with`], for a hook that others hold too.
    #[must_use]
    pub fn with_shared(&self, hook: Arc<dyn Hook>) -> Self {
        Self(self.0.iter().cloned().chain([hook]).collect())
    }

    /// These and those of `others` that are not among them, at the end.
    #[must_use]
    pub fn with_all(&self, others: &Self) -> Self {
        let is_new = |hook: &&Arc<dyn Hook>| !self.0.iter().any(|own| Arc::ptr_eq(own, hook));
        Self(self.0.iter().chain(others.0.iter().filter(is_new)).cloned().collect())
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What they decide before a call; the call that a redirect makes is [`super::Redirect::apply`] of this one.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the hook that is being asked.
    pub async fn before(&self, call: &HookedCall) -> Decided<Before> {
        let mut decided = Decided::new(Before::Continue);
        let mut current = call.clone();
        for (place, hook) in self.0.iter().enumerate() {
            let verdict = heard(&**hook, async { hook.before(&current).await }, &mut decided).await;
            match verdict {
                Ok(Before::Continue) => {}
                Ok(abort @ Before::Abort { .. }) => {
                    decided.decide(&**hook, abort);
                    return decided;
                }
                Ok(_) if decided.by.is_some() => decided.shadow(&**hook, "its decision"),
                Ok(verdict) => {
                    if let Before::Redirect(redirect) = &verdict {
                        current = redirect.apply(&current);
                    }
                    let is_redirect = matches!(verdict, Before::Redirect(_));
                    decided.decide(&**hook, verdict);
                    if is_redirect
                        && let Some((gate, abort)) = self.gates_again(place, &current, &mut decided).await
                    {
                        decided.decide(&*gate, abort);
                        return decided;
                    }
                }
                Err(reason) => {
                    decided.decide(&**hook, Before::Abort { reason });
                    return decided;
                }
            }
        }
        decided
    }

    /// What the gates decide of a call that takes the place of one that they have seen: nothing, or an abort.
    ///
    /// # Cancel safety
    ///
    /// As [`Hooks::before`].
    pub async fn before_instead(&self, call: &HookedCall) -> Decided<Before> {
        let mut decided = Decided::new(Before::Continue);
        if let Some((gate, abort)) = self.gates_again(self.0.len(), call, &mut decided).await {
            decided.decide(&*gate, abort);
        }
        decided
    }

    /// The gates before the one that redirected, about the call that they have not seen.
    async fn gates_again(
        &self,
        place: usize,
        call: &HookedCall,
        decided: &mut Decided<Before>,
    ) -> Option<(Arc<dyn Hook>, Before)> {
        for gate in self.0.iter().take(place).filter(|hook| hook.is_gate()) {
            match heard(&**gate, async { gate.before(call).await }, decided).await {
                Ok(abort @ Before::Abort { .. }) => return Some((Arc::clone(gate), abort)),
                Ok(_) => {}
                Err(reason) => return Some((Arc::clone(gate), Before::Abort { reason })),
            }
        }
        None
    }

    /// What they decide after a call that succeeded.
    ///
    /// # Cancel safety
    ///
    /// As [`Hooks::before`].
    pub async fn after(&self, call: &HookedCall, reply: &ToolReply, took: Duration) -> Decided<After> {
        self.afterwards(|hook| hook.after(call, reply, took)).await
    }

    /// What they decide after a call that failed.
    ///
    /// # Cancel safety
    ///
    /// As [`Hooks::before`].
    pub async fn on_error(&self, call: &HookedCall, reply: &ToolReply) -> Decided<After> {
        self.afterwards(|hook| hook.on_error(call, reply)).await
    }

    async fn afterwards<'a>(
        &'a self,
        ask: impl Fn(&'a Arc<dyn Hook>) -> BoxFuture<'a, HookResult<After>>,
    ) -> Decided<After> {
        let mut decided = Decided::new(After::Continue);
        for hook in &*self.0 {
            match heard(&**hook, async { ask(hook).await }, &mut decided).await {
                Ok(After::Continue) => {}
                Ok(abort @ After::Abort { .. }) => {
                    decided.decide(&**hook, abort);
                    return decided;
                }
                Ok(After::Redirect(_)) if decided.by.is_some() => decided.shadow(&**hook, "its redirect"),
                Ok(redirect @ After::Redirect(_)) => decided.decide(&**hook, redirect),
                Err(reason) => {
                    decided.decide(&**hook, After::Abort { reason });
                    return decided;
                }
            }
        }
        decided
    }
}

/// What a hook said. A gate that failed is the reason of an abort; another one's failure is noted, and means "continue".
async fn heard<T: Default, D>(
    hook: &dyn Hook,
    asked: impl Future<Output = HookResult<T>>,
    decided: &mut Decided<D>,
) -> Result<T, String> {
    let failure = match AssertUnwindSafe(asked).catch_unwind().await {
        Ok(Ok(verdict)) => return Ok(verdict),
        Ok(Err(error)) => format!("it failed: {error}"),
        Err(panic) => format!("it panicked: {}", panic_text(&*panic)),
    };
    if hook.is_gate() {
        return Err(failure);
    }
    decided.notes.push(format!("{}: {failure}", hook.name()));
    Ok(T::default())
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|hook| hook.name())).finish()
    }
}

#[cfg(test)]
#[path = "hooks_tests.rs"]
mod tests;
