//! The calls that are under way for a program.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt};
use serde_json::Value;
use tokio_util::sync::ReusableBoxFuture;

use super::port::{HostError, HostReply};
use crate::tool::Made;

/// A call that is under way.
type Call<'a> = ReusableBoxFuture<'a, Done>;

/// What a call came to.
pub(super) enum Done {
    Tool { id: u32, made: Made },
    Other { id: u32, outcome: Result<Value, HostError> },
}

impl Done {
    pub(super) fn refused(id: u32, refusal: HostError) -> Self {
        Self::Other { id, outcome: Err(refusal) }
    }

    /// What the program hears of it.
    pub(super) fn reply(&self) -> HostReply {
        let (id, outcome) = match self {
            Self::Other { id, outcome } => {
                (*id, outcome.as_ref().map(Value::to_string).map_err(Clone::clone))
            }
            Self::Tool { id, made } => {
                let reply = &made.invoked.reply;
                let outcome = if reply.is_error {
                    Err(HostError::of_value(&format!("tools.{}", made.name()), &reply.for_model))
                } else {
                    Ok(reply.for_model.to_string())
                };
                (*id, outcome)
            }
        };
        HostReply { id, outcome }
    }

    /// Whether the run ends with it.
    pub(super) fn is_fatal(&self) -> bool {
        matches!(self, Self::Tool { made, .. } if made.invoked.fatal.is_some())
    }
}

/// The calls that are under way. One alone is polled by the bridge itself: in a set it would have a waker of its own, and what it
/// says would go the way of messages from other tasks.
#[derive(Default)]
pub(super) struct Running<'a> {
    alone: Option<Call<'a>>,
    /// The room of one that has ended, for the next.
    spare: Option<Call<'a>>,
    others: FuturesUnordered<Call<'a>>,
}

impl<'a> Running<'a> {
    /// Begins a call: with what it came to, if that is known at once; else it is one of those under way.
    pub(super) fn begin(
        &mut self,
        work: impl Future<Output = Done> + Send + 'a,
        cx: &mut Context<'_>,
    ) -> Option<Done> {
        let mut call = match self.spare.take() {
            None => Call::new(work),
            Some(mut call) => {
                call.set(work);
                call
            }
        };
        if let Poll::Ready(done) = call.poll(cx) {
            self.spare = Some(call);
            return Some(done);
        }
        if self.is_empty() {
            self.alone = Some(call);
        } else {
            self.others.extend(self.alone.take());
            self.others.push(call);
        }
        None
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.alone.is_some()) + self.others.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.alone.is_none() && self.others.is_empty()
    }

    pub(super) fn clear(&mut self) {
        (self.alone, self.spare) = (None, None);
        self.others.clear();
    }
}

impl Stream for Running<'_> {
    type Item = Done;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Done>> {
        let Some(call) = &mut self.alone else { return self.others.poll_next_unpin(cx) };
        let done = ready!(call.poll(cx));
        self.spare = self.alone.take();
        Poll::Ready(Some(done))
    }
}
