//! What is under way for a program, and which of it has its turn.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::StreamExt;
use serde_json::Value;

use super::patience::Patience;
use super::port::{Ended, GuestEvent, HostReply, Session};
use super::running::{Done, Running};
use crate::model::Images;
use crate::tool::Announced;

/// What came of a program.
#[derive(Debug)]
pub(crate) struct Played {
    /// How it ended.
    pub(crate) ended: Ended,
    /// What it logged.
    pub(crate) logs: Vec<String>,
    /// The tools that it called.
    pub(crate) calls: u32,
    /// What its tools returned that a model is to see.
    pub(crate) images: Images,
    /// With one, a tool that it called ends the run.
    pub(crate) finishes_with: Option<Box<Value>>,
    /// Why the run is to end as failed, if a rule of the host wants it.
    pub(crate) aborted: Option<String>,
}

/// What is under way for a program.
pub(super) struct Play<'a> {
    pub(super) session: Box<dyn Session>,
    pub(super) running: Running<'a>,
    /// Calls that are in the log and have no result, by their keys: those that the program gives its asks are not to be trusted.
    pub(super) open: BTreeMap<u32, Announced>,
    /// How many asks were heard, and how many of them the session knows of.
    pub(super) heard: u32,
    told: u32,
    /// Answers that are to go ahead, where the session cannot take them before the program waits.
    pub(super) ahead: Vec<HostReply>,
    sent: u64,
    /// The program has taken all answers, and waits.
    is_idle: bool,
    /// What is under way waits for the program to be done with its answers.
    pub(super) is_patient: bool,
    /// How long the last answer is waited for.
    patience: Patience,
    /// What a tool's panic said, until its result is in the log.
    pub(super) panicked: Option<String>,
    pub(super) played: Played,
}

/// What comes next.
pub(super) enum Next {
    Event(Option<GuestEvent>),
    Done(Done),
    Impatient,
    Late,
    Cancelled,
}

impl<'a> Play<'a> {
    pub(super) fn begin(session: Box<dyn Session>, in_step: bool) -> Self {
        Self {
            session,
            running: Running::default(),
            open: BTreeMap::new(),
            heard: 0,
            told: 0,
            ahead: Vec::new(),
            sent: 0,
            is_idle: false,
            is_patient: true,
            patience: Patience::begin(in_step),
            panicked: None,
            played: Played {
                ended: Ended { result: Ok("null".into()), lines_left_out: 0 },
                logs: Vec::new(),
                calls: 0,
                images: Images::default(),
                finishes_with: None,
                aborted: None,
            },
        }
    }

    pub(super) fn go_on_with_panic(&mut self) {
        if let Some(text) = self.panicked.take() {
            std::panic::resume_unwind(Box::new(text));
        }
    }

    /// Begins work for the program: what it came to, if that is known at once.
    pub(super) async fn begin_work(&mut self, work: impl Future<Output = Done> + Send + 'a) -> Option<Done> {
        let mut work = Some(work);
        poll_fn(|cx| Poll::Ready(work.take().and_then(|work| self.running.begin(work, cx)))).await
    }

    /// What happens besides what the program says. What is under way has its turn where the program waits, or was waited for long
    /// enough.
    pub(super) fn poll_others(
        &mut self,
        cx: &mut Context<'_>,
        late: Pin<&mut impl Future<Output = ()>>,
        is_mere_turn: bool,
    ) -> Poll<Next> {
        let is_waited_for = !self.is_idle && self.is_patient;
        if !is_waited_for && let Poll::Ready(Some(done)) = self.running.poll_next_unpin(cx) {
            return Poll::Ready(Next::Done(done));
        }
        if late.poll(cx).is_ready() {
            return Poll::Ready(Next::Late);
        }
        if !is_waited_for {
            return Poll::Pending;
        }
        self.patience.poll_over(cx, is_mere_turn).map(|()| Next::Impatient)
    }

    /// Nothing is under way, and nothing waits for its answer.
    pub(super) fn is_quiet(&self) -> bool {
        self.running.is_empty() && self.ahead.is_empty()
    }

    /// Answers what was done at once. Where nothing else is under way, the program need not be waited for: it goes on when all is heard
    /// that it asks for until it waits.
    pub(super) fn reply_ahead(&mut self, reply: HostReply) {
        self.ahead.push(reply);
        if self.running.is_empty() {
            self.pass_ahead();
        }
    }

    fn pass_ahead(&mut self) {
        let before = self.ahead.len();
        self.session.reply_ahead(&mut self.ahead, self.heard);
        self.told = self.heard;
        self.count(before - self.ahead.len());
    }

    /// Whether the program waits for answers that are there.
    pub(super) fn hear_of_waiting(&mut self, answered: u64) -> bool {
        if answered != self.sent {
            // It may wait only for this: then it goes on with the answers that it has.
            if self.told != self.heard {
                self.pass_ahead();
            }
            return false;
        }
        // Not before it is done with all answers: else what is under way would never have its turn.
        self.is_patient = true;
        self.is_idle = self.ahead.is_empty();
        !self.is_idle
    }

    pub(super) fn reply(&mut self, replies: Vec<HostReply>) {
        self.count(replies.len());
        self.session.reply_all(replies);
    }

    fn count(&mut self, replies: usize) {
        if replies > 0 {
            self.sent += replies as u64;
            self.patience.renew(self.is_idle);
            self.is_idle = false;
        }
    }
}
