//! The host's side of a program: its asks become calls of its run's tools, its lines become log lines, and with its end
//! everything ends that it started.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, Stream, StreamExt};
use serde_json::{Map, Value};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::ReusableBoxFuture;

use super::encode::read_json;
use super::guest::MAX_PENDING;
use super::port::{Ask, Ended, GuestError, GuestErrorKind, GuestEvent, HostError, HostReply, Session};
use crate::message::{MessageBody, Severity, cap_text};
use crate::tool::{Announced, Caller, Fatal, MAX_NAME, Made, NewCall, ToolReply};

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

/// A call that is under way.
type Call<'a> = ReusableBoxFuture<'a, Done>;

enum Done {
    Tool { id: u32, made: Made },
    Other { id: u32, outcome: Result<Value, HostError> },
}

impl Done {
    /// What the program hears of it.
    fn reply(&self) -> HostReply {
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
    fn is_fatal(&self) -> bool {
        matches!(self, Self::Tool { made, .. } if made.invoked.fatal.is_some())
    }
}

/// The calls that are under way. One alone is polled by the bridge itself: in a set it would have a waker of its own, and what it
/// says would go the way of messages from other tasks.
#[derive(Default)]
struct Running<'a> {
    alone: Option<Call<'a>>,
    /// The room of one that has ended, for the next: it has two kilobytes, more than the allocator keeps at hand.
    spare: Option<Call<'a>>,
    others: FuturesUnordered<Call<'a>>,
}

impl<'a> Running<'a> {
    /// A call that may be pushed.
    fn with_room(&mut self, work: impl Future<Output = Done> + Send + 'a) -> Call<'a> {
        let Some(mut call) = self.spare.take() else { return Call::new(work) };
        call.set(work);
        call
    }

    fn push(&mut self, call: Call<'a>) {
        if self.is_empty() {
            self.alone = Some(call);
        } else {
            self.others.extend(self.alone.take());
            self.others.push(call);
        }
    }

    fn len(&self) -> usize {
        usize::from(self.alone.is_some()) + self.others.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn clear(&mut self) {
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
    sent: u64,
    /// The program has taken all answers, and waits.
    is_idle: bool,
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
            sent: 0,
            is_idle: false,
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
        let mut cancelled = std::pin::pin!(self.caller.run().token().wait());
        let mut late = std::pin::pin!(self.caller.run().time_of_work(self.wall));
        let mut is_patient = true;
        let mut turn = 0_u32;
        loop {
            // If the program is quick, nothing below is ever pending.
            tokio::task::coop::consume_budget().await;
            turn = turn.wrapping_add(1);
            let Play { session, running, patience, is_idle, .. } = &mut *play;
            let is_idle = *is_idle;
            let others = tokio::select! {
                biased;
                () = std::future::ready(()), if !turn.is_multiple_of(EVENTS) => None,
                Some(done) = running.next(), if is_idle || !is_patient => Some(Next::Done(done)),
                () = &mut late => Some(Next::Late),
                () = poll_fn(|cx| patience.poll_over(cx)), if !is_idle && is_patient => Some(Next::Impatient),
                () = std::future::ready(()) => None,
            };
            let next = if let Some(next) = others {
                next
            } else {
                tokio::select! {
                    biased;
                    () = &mut cancelled => Next::Cancelled,
                    event = poll_fn(|cx| session.poll_event(cx)) => Next::Event(event),
                    Some(done) = running.next(), if is_idle || !is_patient => Next::Done(done),
                    () = &mut late => Next::Late,
                    () = poll_fn(|cx| patience.poll_over(cx)), if !is_idle && is_patient => Next::Impatient,
                }
            };
            match next {
                Next::Event(Some(GuestEvent::Ask { id, ask })) => {
                    match self.begin(id, ask, hands, play).await {
                        Ok(call) => play.running.push(call),
                        Err(refusal) => play.reply(vec![HostReply { id, outcome: Err(refusal) }]),
                    }
                }
                Next::Event(Some(GuestEvent::Log { severity, text })) => self.log(severity, text, play).await,
                Next::Event(Some(GuestEvent::Waiting { answered })) => {
                    play.is_idle = answered == play.sent;
                    // Not before it is done with all answers: else what is under way would never have its turn.
                    is_patient |= play.is_idle;
                }
                Next::Event(Some(GuestEvent::Ended(ended))) => {
                    play.played.ended = ended;
                    return None;
                }
                Next::Event(None) => return Some(GuestErrorKind::Crashed),
                // Nothing else is under way: the program goes on while the result is said. What it asks for next is heard later.
                Next::Done(done) if play.running.is_empty() && !done.is_fatal() => {
                    play.reply(vec![done.reply()]);
                    self.finish(done, play).await;
                }
                Next::Done(done) => {
                    let mut replies = vec![done.reply()];
                    self.finish(done, play).await;
                    // All that is done by now, so that the program hears it at once.
                    while let Some(Some(done)) = play.running.next().now_or_never() {
                        replies.push(done.reply());
                        self.finish(done, play).await;
                    }
                    if play.played.aborted.is_some() {
                        return Some(GuestErrorKind::Cancelled);
                    }
                    play.reply(replies);
                }
                Next::Impatient => is_patient = false,
                Next::Late => return Some(GuestErrorKind::TimedOut),
                Next::Cancelled => return Some(GuestErrorKind::Cancelled),
            }
        }
    }

    async fn begin<'b>(
        &'b self,
        id: u32,
        ask: Ask,
        hands: &'b dyn Hands,
        play: &mut Play<'b>,
    ) -> Result<Call<'b>, HostError> {
        let (name, args) = match ask {
            Ask::Tool { name, args } => (name, args),
            Ask::Sleep { ms } if play.running.len() < MAX_PENDING => {
                let run = self.caller.run();
                return Ok(Call::new(async move {
                    let _ = run.or_cancel(tokio::time::sleep(Duration::from_millis(ms))).await;
                    Done::Other { id, outcome: Ok(Value::Null) }
                }));
            }
            // At once, so that an action which does not wait for the answer has finished all the same.
            ask @ Ask::Finish { .. } => {
                let outcome = hands.answer(ask).await;
                return Ok(Call::new(std::future::ready(Done::Other { id, outcome })));
            }
            ask if play.running.len() >= MAX_PENDING => {
                let text = format!("{MAX_PENDING} calls wait for their answers already, so not {ask:?} too");
                return Err(HostError::new("too_many_calls", cap_text(&text, 200)));
            }
            ask => return Ok(Call::new(async move { Done::Other { id, outcome: hands.answer(ask).await } })),
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
        play.open.insert(call.index(), call.clone());
        let caller = self.caller;
        let work = async move { Done::Tool { id, made: caller.make(call, usable).await } };
        Ok(play.running.with_room(work))
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

impl Play<'_> {
    fn reply(&mut self, replies: Vec<HostReply>) {
        self.sent += replies.len() as u64;
        self.patience.renew(self.is_idle);
        self.is_idle = false;
        self.session.reply_all(replies);
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
