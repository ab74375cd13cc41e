//! The host's side of a program: its asks become calls of its run's tools, its lines become log lines, and with its end
//! everything ends that it started.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use serde_json::{Map, Value};

use super::encode::read_json;
use super::port::{Ask, Ended, GuestError, GuestErrorKind, GuestEvent, HostError, HostReply, Session};
use crate::message::{MessageBody, Severity, cap_text};
use crate::tool::{Announced, Caller, MAX_NAME, Made, NewCall, ToolReply};

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
    /// How long it may run.
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
}

/// A call that is under way.
type Call<'a> = BoxFuture<'a, Done>;

enum Done {
    Tool { id: u32, made: Made },
    Other { id: u32, outcome: Result<Value, HostError> },
}

enum Next {
    Event(Option<GuestEvent>),
    Done(Done),
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
    pub(crate) async fn play(&self, mut session: Box<dyn Session>, hands: &dyn Hands) -> Played {
        let token = self.caller.run().token().clone();
        let mut cancelled = std::pin::pin!(token.wait());
        let mut late = std::pin::pin!(tokio::time::sleep(self.wall));
        let mut running = FuturesUnordered::<Call<'_>>::new();
        let mut open: HashMap<u32, Announced> = HashMap::new();
        let mut played = Played {
            ended: Ended { result: Ok("null".into()), lines_left_out: 0 },
            logs: Vec::new(),
            calls: 0,
            finishes_with: None,
        };
        let why = loop {
            let next = tokio::select! {
                biased;
                () = &mut cancelled => Next::Cancelled,
                // Before anything that is under way goes on, so that all that was asked for at once runs at once.
                event = poll_fn(|cx| session.poll_event(cx)) => Next::Event(event),
                Some(done) = running.next() => Next::Done(done),
                () = &mut late => Next::Late,
            };
            match next {
                Next::Event(Some(GuestEvent::Ask { id, ask })) => {
                    match self.begin(id, ask, hands, &mut played, &mut open).await {
                        Ok(call) => running.push(call),
                        Err(refusal) => session.reply(HostReply { id, outcome: Err(refusal) }),
                    }
                }
                Next::Event(Some(GuestEvent::Log { severity, text })) => {
                    self.log(severity, text, &mut played).await;
                }
                Next::Event(Some(GuestEvent::Ended(ended))) => {
                    played.ended = ended;
                    break None;
                }
                Next::Event(None) => break Some(GuestErrorKind::Crashed),
                Next::Done(done) => self.finish(done, &mut *session, &mut played, &mut open).await,
                Next::Late => break Some(GuestErrorKind::TimedOut),
                Next::Cancelled => break Some(GuestErrorKind::Cancelled),
            }
        };
        if why == Some(GuestErrorKind::Cancelled) {
            // What is under way sees the same token and ends by itself, with whatever grace it has.
            while running.next().await.is_some() {}
        }
        drop(running);
        if let Some(kind) = why {
            played.ended = self.close(&mut *session, kind, &mut played).await;
        }
        let mut left: Vec<_> = open.into_iter().collect();
        left.sort_unstable_by_key(|(id, _)| *id);
        for (_, call) in left {
            let text = "the program ended before this call did; await what you call";
            self.caller.answer(call.unmade(ToolReply::error("cancelled", text))).await;
        }
        played
    }

    async fn begin<'b>(
        &'b self,
        id: u32,
        ask: Ask,
        hands: &'b dyn Hands,
        played: &mut Played,
        open: &mut HashMap<u32, Announced>,
    ) -> Result<Call<'b>, HostError> {
        let (name, args) = match ask {
            Ask::Tool { name, args } => (name, args),
            Ask::Sleep { ms } => {
                let run = self.caller.run();
                return Ok(Box::pin(async move {
                    let _ = run.or_cancel(tokio::time::sleep(Duration::from_millis(ms))).await;
                    Done::Other { id, outcome: Ok(Value::Null) }
                }));
            }
            ask => return Ok(Box::pin(async move { Done::Other { id, outcome: hands.answer(ask).await } })),
        };
        if played.calls >= self.max_calls {
            let text = format!(
                "tools.{name}: {} tools were called, and no more may be: do with what you have, or go on in another action",
                self.max_calls
            );
            return Err(HostError::new("max_tool_calls_reached", text));
        }
        played.calls += 1;
        let usable = arguments(&args);
        let announced = usable.as_ref().cloned().unwrap_or_default();
        let call = NewCall {
            id: None,
            name: cap_text(&name, MAX_NAME).into(),
            args: Arc::new(announced),
            message: None,
            via: self.via,
        };
        let call = self.caller.announce(call).await;
        open.insert(id, call.clone());
        let caller = self.caller;
        Ok(Box::pin(async move { Done::Tool { id, made: caller.make(call, usable).await } }))
    }

    async fn finish(
        &self,
        done: Done,
        session: &mut dyn Session,
        played: &mut Played,
        open: &mut HashMap<u32, Announced>,
    ) {
        let (id, outcome) = match done {
            Done::Other { id, outcome } => (id, outcome),
            Done::Tool { id, made } => {
                open.remove(&id);
                let name = Arc::clone(made.name());
                let invoked = self.caller.answer(made).await;
                if let Some(panic) = invoked.panicked {
                    std::panic::resume_unwind(Box::new(format!("the tool {name} panicked: {panic}")));
                }
                if invoked.reply.finishes_with.is_some() {
                    played.finishes_with = invoked.reply.finishes_with;
                }
                let value = invoked.reply.for_model;
                (id, if invoked.reply.is_error { Err(thrown(&name, &value)) } else { Ok(value) })
            }
        };
        session.reply(HostReply { id, outcome: outcome.map(|value| value.to_string()) });
    }

    async fn log(&self, severity: Severity, text: String, played: &mut Played) {
        self.caller.emitter().send(MessageBody::log(self.label, severity, text.clone())).await;
        played.logs.push(text);
    }

    /// Ends the program from outside. What it says meanwhile is heard.
    async fn close(&self, session: &mut dyn Session, kind: GuestErrorKind, played: &mut Played) -> Ended {
        let closed = tokio::time::timeout(CLOSING, poll_fn(|cx| session.poll_closed(cx))).await;
        let (mut lines_left_out, mut stack) = (0, String::new());
        while let Some(Some(event)) = futures::FutureExt::now_or_never(poll_fn(|cx| session.poll_event(cx))) {
            match event {
                GuestEvent::Log { severity, text } => self.log(severity, text, played).await,
                GuestEvent::Ended(ended) => {
                    lines_left_out = ended.lines_left_out;
                    stack = ended.result.err().map(|error| error.stack).unwrap_or_default();
                }
                GuestEvent::Ask { .. } => {}
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

/// A tool's failure as the program catches it. No code is lost.
fn thrown(name: &str, value: &Value) -> HostError {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let message = text("message").or_else(|| text("error")).map_or_else(|| value.to_string(), str::to_owned);
    HostError {
        message: format!("tools.{name}: {message}"),
        code: text("error").map(str::to_owned),
        data: Some(value.to_string()),
    }
}
