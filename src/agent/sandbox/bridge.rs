//! The host's side of a program: its asks become calls of its run's tools, its lines become log lines, and with its end
//! everything ends that it started.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use serde_json::{Map, Value};
use tokio::time::{Instant, Sleep};

use super::encode::read_json;
use super::guest::MAX_PENDING;
use super::port::{Ask, Ended, GuestError, GuestErrorKind, GuestEvent, HostError, HostReply, Session};
use super::running::{Done, Running};
use crate::message::{MessageBody, Severity, cap_text};
use crate::tool::{Announced, Caller, Fatal, MAX_NAME, NewCall, ToolReply};

/// How long a program that is told to end may take, before it is left to itself: half of the second that a program may take
/// longer than its time.
const CLOSING: Duration = Duration::from_millis(500);

/// What a program's run lends it.
pub(crate) struct Bridge<'a> {
    /// Its tools.
    pub(crate) caller: &'a Caller,
    /// The call that runs the program, if one does.
    pub(crate) via: Option<u32>,
    /// Under which name its lines are logged.
    pub(crate) label: &'a str,
    /// How many tools it may call.
    pub(crate) max_calls: u32,
    /// How long it may run; waiting for a person does not count.
    pub(crate) wall: Duration,
}

/// What a program may ask for besides tools and sleep.
pub(crate) trait Hands: Sync {
    /// Answers an ask.
    fn answer(&self, ask: Ask) -> BoxFuture<'_, Result<Value, HostError>>;
}

/// What came of a program.
#[derive(Debug)]
pub(crate) struct Played {
    /// How it ended.
    pub(crate) ended: Ended,
    /// What it logged.
    pub(crate) logs: Vec<String>,
    /// The tools that it called.
    pub(crate) calls: u32,
    /// With one, a tool that it called ends the run.
    pub(crate) finishes_with: Option<Box<Value>>,
    /// Why the run is to end as failed, if a rule of the host wants it.
    pub(crate) aborted: Option<String>,
}

/// How long what a program started waits for the program to be done with the last answers. While it does, one thing happens after
/// the other, so that the order in the log is the program's own; a program that computes for longer holds nobody up.
const PATIENCE: Duration = Duration::from_millis(10);

/// How long it is waited for in all, where one answer follows the other and the program is never done with them: one whose calls are
/// refused as fast as it makes them would have everything else wait for ever.
const LONGEST_PATIENCE: Duration = Duration::from_millis(100);

/// So many events of the program are heard before somebody else has a turn: one that talks without a pause holds nobody up.
const EVENTS: u32 = 64;

/// The waiting for a program to be done with the last answers. Its timer is only set where it is waited for: most programs are
/// done sooner than a timer is set.
struct Patience {
    since: Instant,
    until: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Patience {
    fn begin() -> Self {
        let since = Instant::now();
        let until = since + PATIENCE;
        Self { since, until, timer: Box::pin(tokio::time::sleep_until(until)) }
    }

    /// An answer goes to a program that was done with those before, or that still has some.
    fn renew(&mut self, was_idle: bool) {
        let now = Instant::now();
        if was_idle {
            self.since = now;
        }
        self.until = (now + PATIENCE).min(self.since + LONGEST_PATIENCE);
    }

    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.deadline() != self.until {
            self.timer.as_mut().reset(self.until);
        }
        self.timer.as_mut().poll(cx)
    }
}

/// What is under way for a program.
struct Play<'a> {
    session: Box<dyn Session>,
    running: Running<'a>,
    /// Calls that are in the log and have no result, by their keys: those that the program gives its asks are not to be trusted.
    open: BTreeMap<u32, Announced>,
    /// How many asks were heard, and how many of them the session knows of.
    heard: u32,
    told: u32,
    /// Answers that are to go ahead, where the session cannot take them before the program waits.
    ahead: Vec<HostReply>,
    sent: u64,
    /// The program has taken all answers, and waits.
    is_idle: bool,
    /// What is under way waits for the program to be done with its answers.
    is_patient: bool,
    /// How long the last answer is waited for.
    patience: Patience,
    played: Played,
}

enum Next {
    Event(Option<GuestEvent>),
    Done(Done),
    Impatient,
    Late,
    Cancelled,
}

impl Bridge<'_> {
    /// Plays a program to its end. Calls are announced in the order in which they are made, each before its tool starts, and run
    /// at the same time.
    ///
    /// # Panics
    ///
    /// Goes on with the panic of a tool, which is its run's failure.
    ///
    /// # Cancel safety
    ///
    /// Dropping it ends the program and all that it started.
    pub(crate) async fn play(&self, session: Box<dyn Session>, hands: &dyn Hands) -> Played {
        let mut play = Play {
            session,
            running: Running::default(),
            open: BTreeMap::new(),
            heard: 0,
            told: 0,
            ahead: Vec::new(),
            sent: 0,
            is_idle: false,
            is_patient: true,
            patience: Patience::begin(),
            played: Played {
                ended: Ended { result: Ok("null".into()), lines_left_out: 0 },
                logs: Vec::new(),
                calls: 0,
                finishes_with: None,
                aborted: None,
            },
        };
        let why = self.play_on(&mut play, hands).await;
        if why == Some(GuestErrorKind::Cancelled) && play.played.aborted.is_none() {
            // What is under way sees the same token and ends by itself, with whatever grace it has. What it came to is told.
            while let Some(done) = play.running.next().await {
                self.finish(done, &mut play).await;
            }
        }
        play.running.clear();
        if let Some(kind) = why {
            play.played.ended = self.close(&mut play, kind).await;
        }
        if why.is_none() && !play.open.is_empty() {
            let calls = play.open.len();
            play.played.logs.push(format!("(calls that were not awaited, and were ended: {calls})"));
        }
        for call in play.open.into_values() {
            let text = match why {
                None => "the program ended before this call did; await what you call",
                Some(GuestErrorKind::TimedOut) => "the program's time was over before this call ended",
                Some(_) => "the program was ended before this call did",
            };
            self.caller.answer(call.unmade(ToolReply::error("cancelled", text))).await;
        }
        play.played
    }

    /// Until the program has ended, or the reason why it is to.
    async fn play_on<'b>(&'b self, play: &mut Play<'b>, hands: &'b dyn Hands) -> Option<GuestErrorKind> {
        let token = self.caller.run().token();
        let mut cancelled = std::pin::pin!(token.wait());
        let mut late = std::pin::pin!(self.caller.run().time_of_work(self.wall));
        let mut turn = 0_u32;
        loop {
            // If the program is quick, nothing below is ever pending.
            tokio::task::coop::consume_budget().await;
            turn = turn.wrapping_add(1);
            let is_turn_of_others = turn.is_multiple_of(EVENTS);
            let next = poll_fn(|cx| {
                if token.epoch() > 0 && token.is_cancelled() {
                    return Poll::Ready(Next::Cancelled);
                }
                if is_turn_of_others && let Poll::Ready(next) = play.poll_others(cx, late.as_mut()) {
                    return Poll::Ready(next);
                }
                if let Poll::Ready(event) = play.session.poll_event(cx) {
                    return Poll::Ready(Next::Event(event));
                }
                if cancelled.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Next::Cancelled);
                }
                play.poll_others(cx, late.as_mut())
            });
            match next.await {
                Next::Event(Some(GuestEvent::Ask { id, ask })) => {
                    play.heard = play.heard.wrapping_add(1);
                    match self.begin(id, ask, hands, play).await {
                        Ok(None) => {}
                        Ok(Some(done)) if done.is_fatal() => self.finish(done, play).await,
                        // The program goes on while the result is said. What it asks for next is heard later.
                        Ok(Some(done)) => {
                            play.reply_ahead(done.reply());
                            self.finish(done, play).await;
                        }
                        Err(refusal) => play.reply_ahead(HostReply { id, outcome: Err(refusal) }),
                    }
                }
                Next::Event(Some(GuestEvent::Log { severity, text })) => self.log(severity, text, play).await,
                Next::Event(Some(GuestEvent::Waiting { answered })) => {
                    if play.hear_of_waiting(answered) {
                        self.answer_all(None, play).await;
                    }
                }
                Next::Event(Some(GuestEvent::Ended(ended))) => {
                    play.played.ended = ended;
                    return None;
                }
                Next::Event(None) => return Some(GuestErrorKind::Crashed),
                // Nothing else is under way: the program goes on while the result is said.
                Next::Done(done) if play.is_quiet() && !done.is_fatal() => {
                    play.reply(vec![done.reply()]);
                    self.finish(done, play).await;
                }
                Next::Done(done) => self.answer_all(Some(done), play).await,
                Next::Impatient => play.is_patient = false,
                Next::Late => return Some(GuestErrorKind::TimedOut),
                Next::Cancelled => return Some(GuestErrorKind::Cancelled),
            }
            if play.played.aborted.is_some() {
                return Some(GuestErrorKind::Cancelled);
            }
        }
    }

    /// Answers what was done, and all else that is done by now, so that the program hears it at once.
    async fn answer_all(&self, done: Option<Done>, play: &mut Play<'_>) {
        let mut replies = std::mem::take(&mut play.ahead);
        let mut done = done;
        loop {
            if let Some(done) = done {
                replies.push(done.reply());
                self.finish(done, play).await;
            }
            let Some(Some(next)) = play.running.next().now_or_never() else { break };
            done = Some(next);
        }
        if play.played.aborted.is_none() {
            play.reply(replies);
        }
    }

    /// Begins what the program asks for: what it came to, if that is known at once.
    async fn begin<'b>(
        &'b self,
        id: u32,
        ask: Ask,
        hands: &'b dyn Hands,
        play: &mut Play<'b>,
    ) -> Result<Option<Done>, HostError> {
        let (name, args) = match ask {
            Ask::Tool { name, args } => (name, args),
            Ask::Sleep { ms } if play.running.len() < MAX_PENDING => {
                let run = self.caller.run();
                let work = async move {
                    let _ = run.or_cancel(tokio::time::sleep(Duration::from_millis(ms))).await;
                    Done::Other { id, outcome: Ok(Value::Null) }
                };
                return Ok(play.begin(work).await);
            }
            // At once, so that an action which does not wait for the answer has finished all the same.
            ask @ Ask::Finish { .. } => {
                let outcome = hands.answer(ask).await;
                return Ok(Some(Done::Other { id, outcome }));
            }
            ask if play.running.len() >= MAX_PENDING => {
                let text = format!("{MAX_PENDING} calls wait for their answers already, so not {ask:?} too");
                return Err(HostError::new("too_many_calls", cap_text(&text, 200)));
            }
            ask => {
                let work = async move { Done::Other { id, outcome: hands.answer(ask).await } };
                return Ok(play.begin(work).await);
            }
        };
        if play.played.calls >= self.max_calls {
            let text = format!(
                "tools.{name}: {} tools were called, and no more may be: do with what you have, or go on in another action",
                self.max_calls
            );
            return Err(HostError::new("max_tool_calls_reached", text));
        }
        play.played.calls += 1;
        let usable = arguments(&args);
        let announced = usable.as_ref().cloned().unwrap_or_default();
        let call = NewCall {
            id: None,
            name: if name.len() > MAX_NAME { cap_text(&name, MAX_NAME).into() } else { name },
            args: Arc::new(announced),
            message: None,
            via: self.via,
        };
        let call = self.caller.announce(call).await;
        let caller = self.caller;
        let made = caller.make(call.clone(), usable);
        let done = play.begin(made.map(move |made| Done::Tool { id, made })).await;
        if done.is_none() {
            play.open.insert(call.index(), call);
        }
        Ok(done)
    }

    /// Says the result of a call in the log.
    async fn finish(&self, done: Done, play: &mut Play<'_>) {
        let Done::Tool { made, .. } = done else { return };
        play.open.remove(&made.index());
        let name = Arc::clone(made.name());
        let invoked = self.caller.answer(made).await;
        match invoked.fatal {
            Some(Fatal::Panicked(text)) => {
                std::panic::resume_unwind(Box::new(format!("the tool {name} panicked: {text}")));
            }
            Some(Fatal::Aborted(reason)) => play.played.aborted = Some(reason),
            None => {}
        }
        if invoked.reply.finishes_with.is_some() {
            play.played.finishes_with = invoked.reply.finishes_with;
        }
    }

    async fn log(&self, severity: Severity, text: String, play: &mut Play<'_>) {
        self.caller.emitter().send(MessageBody::log(self.label, severity, text.clone())).await;
        play.played.logs.push(text);
    }

    /// Ends the program from outside. What it says meanwhile is heard.
    async fn close(&self, play: &mut Play<'_>, kind: GuestErrorKind) -> Ended {
        let closed = tokio::time::timeout(CLOSING, poll_fn(|cx| play.session.poll_closed(cx))).await;
        let (mut lines_left_out, mut stack) = (0, String::new());
        while let Some(Some(event)) = poll_fn(|cx| play.session.poll_event(cx)).now_or_never() {
            match event {
                GuestEvent::Log { severity, text } => self.log(severity, text, play).await,
                GuestEvent::Ended(ended) => {
                    lines_left_out = ended.lines_left_out;
                    stack = ended.result.err().map(|error| error.stack).unwrap_or_default();
                }
                GuestEvent::Ask { .. } | GuestEvent::Waiting { .. } => {}
            }
        }
        let mut message = match kind {
            GuestErrorKind::TimedOut => {
                format!("the program ran for its {} and was ended", humantime::format_duration(self.wall))
            }
            GuestErrorKind::Crashed => "the sandbox ended without a word".to_owned(),
            _ => "the run was cancelled".to_owned(),
        };
        if closed.is_err() {
            message.push_str("; one of its native calls heeds nobody, and was left to itself");
        }
        Ended { result: Err(GuestError { kind, message, stack }), lines_left_out }
    }
}

impl<'a> Play<'a> {
    /// Begins work for the program: what it came to, if that is known at once.
    async fn begin(&mut self, work: impl Future<Output = Done> + Send + 'a) -> Option<Done> {
        let mut work = Some(work);
        poll_fn(|cx| Poll::Ready(work.take().and_then(|work| self.running.begin(work, cx)))).await
    }

    /// What happens besides what the program says. What is under way has its turn where the program waits, or was waited for long
    /// enough.
    fn poll_others(&mut self, cx: &mut Context<'_>, late: Pin<&mut impl Future<Output = ()>>) -> Poll<Next> {
        let is_waited_for = !self.is_idle && self.is_patient;
        if !is_waited_for && let Poll::Ready(Some(done)) = self.running.poll_next_unpin(cx) {
            return Poll::Ready(Next::Done(done));
        }
        if late.poll(cx).is_ready() {
            return Poll::Ready(Next::Late);
        }
        if is_waited_for { self.patience.poll_over(cx).map(|()| Next::Impatient) } else { Poll::Pending }
    }

    /// Nothing is under way, and nothing waits for its answer.
    fn is_quiet(&self) -> bool {
        self.running.is_empty() && self.ahead.is_empty()
    }

    /// Answers what was done at once. Where nothing else is under way, the program need not be waited for: it goes on when all is heard
    /// that it asks for until it waits.
    fn reply_ahead(&mut self, reply: HostReply) {
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
    fn hear_of_waiting(&mut self, answered: u64) -> bool {
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

    fn reply(&mut self, replies: Vec<HostReply>) {
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

/// The arguments of a bridged call: nothing and null are none.
fn arguments(text: &str) -> Result<Map<String, Value>, ToolReply> {
    if text.is_empty() {
        return Ok(Map::new());
    }
    let problem = match read_json(text) {
        Ok(Value::Object(args)) => return Ok(args),
        Ok(Value::Null) => return Ok(Map::new()),
        Ok(_) => "no object".to_owned(),
        Err(error) => format!("not valid JSON ({error})"),
    };
    let text = format!("The arguments are {problem}: {}. Pass one object.", cap_text(text, 200));
    Err(ToolReply::error("invalid_tool_arguments", text))
}
