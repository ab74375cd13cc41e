//! Whoever answers: a terminal, a web page, a test.

use std::fmt;
use std::sync::Arc;

use super::question::{Question, Reply};
use super::table::Found;
use crate::context::Root;
use crate::error::Result;
use crate::id::RunId;
use crate::message::Timestamp;

/// A question that waits for its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenAsk {
    /// Its key: what [`Root::answer`] takes.
    pub request_id: String,
    /// The question.
    pub question: Question,
    /// Who asks: the runs from the root down to the one that asks.
    pub path: Arc<[AskStep]>,
    /// Since when.
    pub asked: Timestamp,
    pub(super) number: u64,
}

/// One run on the way from the root to the run that asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskStep {
    /// The run.
    pub run_id: RunId,
    /// Its agent.
    pub agent: Arc<str>,
    /// Its title.
    pub title: Arc<str>,
}

impl OpenAsk {
    /// The run that asks.
    #[must_use]
    pub fn run_id(&self) -> Option<&RunId> {
        self.path.last().map(|step| &step.run_id)
    }

    /// Whether the run that asks is that of the other ask, or below it.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        other.run_id().is_some_and(|run| self.path.iter().any(|step| step.run_id == *run))
    }

    pub(super) fn is_about_the_same(&self, other: &Self) -> bool {
        self.question.about.is_some() && self.question.about == other.question.about
    }
}

/// The open asks of a tree, one by one. While one lives, somebody is there to answer; when the last one is dropped, what is open
/// is denied, and what comes later is denied at once.
///
/// # Examples
///
/// ```
/// use anabranch::context::{Reply, Root};
///
/// async fn permit_everything(root: &Root) -> anabranch::error::Result<()> {
///     let mut asks = root.asks();
///     while let Some(ask) = asks.next().await {
///         root.answer(&ask.request_id, Reply::allow())?;
///     }
///     Ok(())
/// }
/// ```
pub struct AskWatch {
    root: Root,
    /// The number of the next ask that was not given out.
    next: u64,
}

impl AskWatch {
    /// The next ask, in the order in which they were asked; those that were answered meanwhile are left out. None when the tree has
    /// ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping it loses nothing.
    pub async fn next(&mut self) -> Option<Arc<OpenAsk>> {
        let asks = self.root.ask_table();
        loop {
            let changed = asks.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // Before the look, so that what comes after it rings.
            changed.as_mut().enable();
            match asks.next(self.next) {
                Found::Ask(ask) => {
                    self.next = ask.number.saturating_add(1);
                    return Some(ask);
                }
                Found::Ended => return None,
                Found::Nothing => changed.await,
            }
        }
    }

    /// Waits until an ask is not open any more: somebody answered it, its deadline passed, or its run ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping it only ends the waiting.
    pub async fn closed(&self, ask: &OpenAsk) {
        let asks = self.root.ask_table();
        loop {
            let changed = asks.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if !asks.is_open(&ask.request_id) {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for AskWatch {
    fn drop(&mut self) {
        self.root.ask_table().detach();
    }
}

impl fmt::Debug for AskWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AskWatch").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Root {
    /// Watches for asks, from now on: those that are open now come first. See [`AskWatch`].
    #[must_use]
    pub fn asks(&self) -> AskWatch {
        self.ask_table().attach();
        AskWatch { root: self.clone(), next: 0 }
    }

    /// Answers an ask. The first answer counts.
    ///
    /// # Errors
    ///
    /// - [`crate::error::ErrorKind::UnknownAsk`] if this tree never asked it, or so long ago that it was forgotten
    /// - [`crate::error::ErrorKind::AskAnswered`] if it was answered, or is over
    /// - [`crate::error::ErrorKind::AskReply`] if the reply does not fit the question; it stays open
    pub fn answer(&self, request_id: &str, reply: Reply) -> Result<()> {
        self.ask_table().answer(request_id, reply)
    }

    /// Whether somebody is there to answer asks.
    #[must_use]
    pub fn is_watched_for_asks(&self) -> bool {
        self.ask_table().is_watched()
    }
}
