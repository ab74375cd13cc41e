//! One gate for all runs that ask the same provider: when it says "too many requests", everybody waits.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use tokio::time::Instant;

use super::chat::{ChatEvent, ChatModel, ChatRequest, ChatStream, ModelError, ModelErrorKind};

/// How long the gate stays shut when a provider does not say for how long.
const DEFAULT_PAUSE: Duration = Duration::from_secs(1);

/// The longest that it stays shut, whatever a provider asks for: as long as a run waits before a repetition.
const MAX_PAUSE: Duration = Duration::from_mins(2);

/// A gate that is open, or shut until a point in time. Clones are the same gate: models that share a limit share one.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    open_at: Arc<Mutex<Option<Instant>>>,
}

impl Gate {
    /// How long it is still shut; none if it is open.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let mut open_at = self.open_at.lock().unwrap_or_else(PoisonError::into_inner);
        let remaining = open_at.map(|open_at| open_at.saturating_duration_since(Instant::now()));
        if remaining.is_some_and(|remaining| remaining.is_zero()) {
            *open_at = None;
            return None;
        }
        remaining
    }

    /// Shuts it for at least this long, at most two minutes. It never opens earlier than it would have.
    pub fn shut(&self, pause: Duration) {
        let until = Instant::now() + pause.min(MAX_PAUSE);
        let mut open_at = self.open_at.lock().unwrap_or_else(PoisonError::into_inner);
        *open_at = Some(open_at.map_or(until, |before| before.max(until)));
    }
}

/// The gates of providers, by name: all models of one provider share one. Clones are the same gates.
#[derive(Debug, Clone, Default)]
pub struct Gates {
    /// Locked for a look.
    gates: Arc<Mutex<HashMap<String, Gate>>>,
}

impl Gates {
    /// The gate of this provider.
    #[must_use]
    pub fn of(&self, provider: &str) -> Gate {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.entry(provider.to_owned()).or_default().clone()
    }
}

/// A model behind a [`Gate`]: the first "too many requests" shuts it for all runs that ask this model.
///
/// While it is shut, [`ChatModel::pause`] says for how long; a call that is made all the same fails at once with
/// [`ModelErrorKind::RateLimit`], without a request. A provider that does not say how long to wait is given a second.
#[derive(Clone)]
pub struct Gated {
    model: Arc<dyn ChatModel>,
    gate: Gate,
}

impl Gated {
    /// This model behind a gate of its own.
    #[must_use]
    pub fn new(model: impl ChatModel) -> Self {
        Self { model: Arc::new(model), gate: Gate::default() }
    }

    /// Behind this gate, which other models may share.
    #[must_use]
    pub fn gate(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }
}

impl fmt::Debug for Gated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gated").field("model", &self.model.name()).field("gate", &self.gate).finish()
    }
}

impl ChatModel for Gated {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn pause(&self) -> Option<Duration> {
        [self.gate.remaining(), self.model.pause()].into_iter().flatten().max()
    }

    fn chat(&self, request: ChatRequest) -> ChatStream {
        Box::pin(Watched { inner: self.model.chat(request), gate: self.gate.clone(), is_cold: true })
    }
}

/// The stream of one turn, watched for the error that shuts the gate.
struct Watched {
    inner: ChatStream,
    gate: Gate,
    /// Not polled yet: nothing was sent.
    is_cold: bool,
}

impl Stream for Watched {
    type Item = Result<ChatEvent, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if std::mem::take(&mut this.is_cold)
            && let Some(remaining) = this.gate.remaining()
        {
            this.inner = Box::pin(futures::stream::empty());
            let mut error = ModelError::new(ModelErrorKind::RateLimit, "the provider asked all runs to wait");
            error.retry_after = Some(remaining);
            return Poll::Ready(Some(Err(error)));
        }
        let mut item = this.inner.as_mut().poll_next(cx);
        if let Poll::Ready(Some(Err(error))) = &mut item
            && error.kind == ModelErrorKind::RateLimit
        {
            // The run that was refused waits as long as the others, and no shorter.
            let pause = *error.retry_after.get_or_insert(DEFAULT_PAUSE);
            this.gate.shut(pause);
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_gate_opens_at_the_latest_time_that_was_asked_for() {
        let gate = Gate::default();
        assert_eq!(gate.remaining(), None);
        gate.shut(Duration::from_secs(2));
        gate.clone().shut(Duration::from_secs(1));
        assert_eq!(gate.remaining(), Some(Duration::from_secs(2)));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(gate.remaining(), None);
        gate.shut(Duration::from_hours(9));
        assert_eq!(gate.remaining(), Some(MAX_PAUSE));
    }
}
