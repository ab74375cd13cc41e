//! The host's side of a program: its asks become calls of its run's tools, its lines become log lines, and with its end
//! everything ends that it started.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use serde_json::{Map, Value};

use super::encode::{read_json, read_json_as};
use super::guest::MAX_PENDING;
use super::play::{Next, Play, Played};
use super::port::{Ask, Ended, GuestError, GuestErrorKind, GuestEvent, HostError, Session};
use super::running::Done;
use crate::message::{MessageBody, Severity, cap_text};
use crate::tool::{Announced, Caller, Fatal, MAX_NAME, NewCall, ToolReply, take_message};

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

/// So many events of the program are heard before somebody else has a turn: one that talks without a pause holds nobody up.
const EVENTS: u32 = 64;

/// A call that is to be said and then made.
struct Admitted {
    call: Announced,
    message: MessageBody,
    args: Result<Map<String, Value>, ToolReply>,
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
        let lockstep = self.caller.run().lockstep();
        let in_step = lockstep.is_some();
        let mut session = session;
        if let Some(lockstep) = lockstep {
            session.keep_step(lockstep);
        }
        let mut play = Play::begin(session, in_step);
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
        let has_failed = play.played.ended.result.is_err();
        if why.is_none() && !play.open.is_empty() {
            let (calls, which) = (play.open.len(), if has_failed { "under way" } else { "not awaited" });
            play.played.logs.push(format!("(calls that were {which}, and were ended: {calls})"));
        }
        for call in play.open.into_values() {
            let text = match why {
                None if has_failed => "the program failed before this call ended",
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
                if is_turn_of_others && let Poll::Ready(next) = play.poll_others(cx, late.as_mut(), true) {
                    return Poll::Ready(next);
                }
                if let Poll::Ready(event) = play.session.poll_event(cx) {
                    return Poll::Ready(Next::Event(event));
                }
                if cancelled.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Next::Cancelled);
                }
                play.poll_others(cx, late.as_mut(), false)
            });
            match next.await {
                Next::Event(Some(GuestEvent::Ask { id, ask })) => {
                    play.heard = play.heard.wrapping_add(1);
                    let begun = match ask {
                        Ask::Tool { name, args } => match self.admit(name, &args, play) {
                            Ok(Admitted { call, message, args }) => {
                                self.caller.emitter().send(message).await;
                                self.begin_call(id, call, args, play).await
                            }
                            Err(refusal) => Some(Done::refused(id, refusal)),
                        },
                        ask => self.begin(id, ask, hands, play).await,
                    };
                    if let Some(done) = begun {
                        // The program goes on while the result is said. What it asks for next is heard later.
                        if !done.is_fatal() {
                            play.reply_ahead(done.reply());
                        }
                        if let Some(message) = self.conclude(done, play) {
                            self.caller.emitter().send(message).await;
                            play.go_on_with_panic();
                        }
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

    /// The call that a program asks for, which is to be said before it begins.
    fn admit(&self, name: Arc<str>, args: &str, play: &mut Play<'_>) -> Result<Admitted, HostError> {
        if play.running.len() >= MAX_PENDING {
            return Err(too_many(&format!("tools.{name}")));
        }
        if play.played.calls >= self.max_calls {
            let text = format!(
                "tools.{name}: {} tools were called, and no more may be: do with what you have, or go on in another action",
                self.max_calls
            );
            return Err(HostError::new("max_tool_calls_reached", text));
        }
        play.played.calls += 1;
        let mut args = arguments(args);
        let message = args.as_mut().ok().and_then(take_message);
        let name = if name.len() > MAX_NAME { cap_text(&name, MAX_NAME).into() } else { name };
        let announced = Arc::new(args.as_ref().cloned().unwrap_or_default());
        let call = NewCall { id: None, name, args: announced, message, via: self.via };
        let (call, message) = self.caller.announcement(call);
        Ok(Admitted { call, message, args })
    }

    /// Begins a call that was said: what it came to, if that is known at once.
    async fn begin_call<'b>(
        &'b self,
        id: u32,
        call: Announced,
        args: Result<Map<String, Value>, ToolReply>,
        play: &mut Play<'b>,
    ) -> Option<Done> {
        let kept = call.clone();
        let made = self.caller.make(call, args).map(move |made| Done::Tool { id, made });
        let done = play.begin_work(made).await;
        if done.is_none() {
            play.open.insert(kept.index(), kept);
        }
        done
    }

    /// Begins something else that the program asks for.
    async fn begin<'b>(
        &'b self,
        id: u32,
        ask: Ask,
        hands: &'b dyn Hands,
        play: &mut Play<'b>,
    ) -> Option<Done> {
        match ask {
            // At once, so that an action which does not wait for the answer has finished all the same.
            ask @ Ask::Finish { .. } => Some(Done::Other { id, outcome: hands.answer(ask).await }),
            ask if play.running.len() >= MAX_PENDING => {
                Some(Done::refused(id, too_many(&cap_text(&format!("{ask:?}"), 100))))
            }
            Ask::Sleep { ms } => {
                let run = self.caller.run();
                let work = async move {
                    let _ = run.or_cancel(tokio::time::sleep(Duration::from_millis(ms))).await;
                    Done::Other { id, outcome: Ok(Value::Null) }
                };
                play.begin_work(work).await
            }
            ask => play.begin_work(async move { Done::Other { id, outcome: hands.answer(ask).await } }).await,
        }
    }

    /// Says the result of a call in the log.
    async fn finish(&self, done: Done, play: &mut Play<'_>) {
        if let Some(message) = self.conclude(done, play) {
            self.caller.emitter().send(message).await;
            play.go_on_with_panic();
        }
    }

    /// What is to be said of what was done.
    fn conclude(&self, done: Done, play: &mut Play<'_>) -> Option<MessageBody> {
        let Done::Tool { made, .. } = done else { return None };
        play.open.remove(&made.index());
        let name = Arc::clone(made.name());
        let (mut invoked, message) = self.caller.result(made);
        play.played.images.append(std::mem::take(&mut invoked.reply.images));
        match invoked.fatal {
            Some(Fatal::Panicked(text)) => {
                play.panicked = Some(format!("the tool {name} panicked: {text}"));
            }
            Some(Fatal::Aborted(reason)) => play.played.aborted = Some(reason),
            None => {}
        }
        if let Some(result) = invoked.reply.finishes_with.as_ref().filter(|_| !invoked.reply.is_error) {
            // The run of an action ends with it, whatever comes; what a script makes of it is told at its end.
            if self.via.is_some() {
                self.caller.run().accept_result(Some(Value::clone(result)));
            }
            play.played.finishes_with = invoked.reply.finishes_with;
        }
        Some(message)
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

fn too_many(what: &str) -> HostError {
    let text = format!("{MAX_PENDING} calls wait for their answers already, so not {what} too");
    HostError::new("too_many_calls", text)
}

/// The arguments of a bridged call: nothing and null are none.
fn arguments(text: &str) -> Result<Map<String, Value>, ToolReply> {
    if text.is_empty() {
        return Ok(Map::new());
    }
    if text.starts_with('{')
        && let Ok(args) = read_json_as(text)
    {
        return Ok(args);
    }
    let problem = match read_json(text) {
        Ok(Value::Null) => return Ok(Map::new()),
        Ok(_) => "no object".to_owned(),
        Err(error) => format!("not valid JSON ({error})"),
    };
    let text = format!("The arguments are {problem}: {}. Pass one object.", cap_text(text, 200));
    Err(ToolReply::error("invalid_tool_arguments", text))
}
