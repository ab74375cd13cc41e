//! The open asks of one tree, and who watches for them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use super::question::{Answer, AnsweredBy, Decision, Reply};
use super::watch::OpenAsk;
use crate::error::{Error, ErrorKind, Result};

/// So many ids of answered asks are remembered, to tell whoever answers too late from whoever answers nothing.
const REMEMBERED: usize = 1024;

/// See the module. Its open asks are bounded by the calls that wait for them.
#[derive(Debug, Default)]
pub(in crate::context) struct Asks {
    /// Taken alone, for a look or a move; answers are sent while it is free.
    state: Mutex<State>,
    /// Rung when an ask comes or goes, and when the tree ends.
    pub(super) changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    watchers: usize,
    /// In the order in which they were asked.
    open: Vec<Entry>,
    asked: u64,
    answered: VecDeque<String>,
    ended: bool,
}

#[derive(Debug)]
struct Entry {
    ask: Arc<OpenAsk>,
    reply: oneshot::Sender<Answer>,
}

impl State {
    fn take(&mut self, request_id: &str) -> Option<Entry> {
        let place = self.open.iter().position(|entry| entry.ask.request_id == request_id)?;
        Some(self.remove(place))
    }

    fn remove(&mut self, place: usize) -> Entry {
        let entry = self.open.remove(place);
        if self.answered.len() >= REMEMBERED {
            self.answered.pop_front();
        }
        self.answered.push_back(entry.ask.request_id.clone());
        entry
    }
}

/// What a watcher finds.
pub(super) enum Found {
    Ask(Arc<OpenAsk>),
    Nothing,
    Ended,
}

impl Asks {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an ask in, unless nobody watches.
    pub(super) fn open(&self, make: impl FnOnce(u64) -> OpenAsk) -> Option<oneshot::Receiver<Answer>> {
        let mut state = self.lock();
        if state.watchers == 0 || state.ended {
            return None;
        }
        let (reply, answer) = oneshot::channel();
        let ask = Arc::new(make(state.asked));
        state.asked += 1;
        state.open.push(Entry { ask, reply });
        drop(state);
        self.changed.notify_waiters();
        Some(answer)
    }

    /// Takes an ask out that nobody answered. False if somebody did.
    pub(super) fn close(&self, request_id: &str) -> bool {
        let taken = self.lock().take(request_id);
        self.changed.notify_waiters();
        taken.is_some()
    }

    pub(super) fn answer(&self, request_id: &str, reply: Reply) -> Result<()> {
        let fail = |kind: ErrorKind| Err(Error::new(kind));
        let mut state = self.lock();
        let Some(place) = state.open.iter().position(|entry| entry.ask.request_id == request_id) else {
            let ask = request_id.to_owned();
            let was_answered = state.answered.iter().any(|answered| answered == request_id);
            return fail(if was_answered {
                ErrorKind::AskAnswered { ask }
            } else {
                ErrorKind::UnknownAsk { ask }
            });
        };
        let kind = state.open.get(place).map(|entry| entry.ask.question.kind);
        if let Some(reason) = kind.and_then(|kind| reply.misfit(kind)) {
            return fail(ErrorKind::AskReply { ask: request_id.to_owned(), reason: reason.to_owned() });
        }
        let Entry { ask, reply: sender } = state.remove(place);
        let decision = reply.decision;
        let mut answers = vec![(sender, Answer::by_user(reply))];
        // The same permission, for those who wait for it already.
        if matches!(decision, Decision::AllowForRun | Decision::AllowForRoot) {
            let covered = |other: &OpenAsk| decision == Decision::AllowForRoot || other.is_within(&ask);
            while let Some(place) =
                state.open.iter().position(|other| other.ask.is_about_the_same(&ask) && covered(&other.ask))
            {
                let by = AnsweredBy::Policy;
                let answer = Answer { decision: Decision::Allow, by, text: None, args: None };
                answers.push((state.remove(place).reply, answer));
            }
        }
        drop(state);
        // Whoever asked may have ended meanwhile.
        answers.into_iter().for_each(|(sender, answer)| _ = sender.send(answer));
        self.changed.notify_waiters();
        Ok(())
    }

    pub(super) fn is_watched(&self) -> bool {
        self.lock().watchers > 0
    }

    pub(super) fn attach(&self) {
        self.lock().watchers += 1;
    }

    /// The last one who goes leaves nobody: what is open is denied.
    pub(super) fn detach(&self) {
        let mut state = self.lock();
        state.watchers = state.watchers.saturating_sub(1);
        let mut orphans = Vec::new();
        while state.watchers == 0 && !state.open.is_empty() {
            orphans.push(state.remove(0));
        }
        drop(state);
        for orphan in orphans {
            let _ = orphan.reply.send(Answer::denied(AnsweredBy::Nobody));
        }
        self.changed.notify_waiters();
    }

    /// The first open ask that was not seen before `from`.
    pub(super) fn next(&self, from: u64) -> Found {
        let state = self.lock();
        match state.open.iter().find(|entry| entry.ask.number >= from) {
            Some(entry) => Found::Ask(Arc::clone(&entry.ask)),
            None if state.ended => Found::Ended,
            None => Found::Nothing,
        }
    }

    pub(super) fn is_open(&self, request_id: &str) -> bool {
        self.lock().open.iter().any(|entry| entry.ask.request_id == request_id)
    }

    /// The root run has ended.
    pub(in crate::context) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_waiters();
    }
}
