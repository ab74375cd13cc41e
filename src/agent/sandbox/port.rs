//! What crosses between a program and its host.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::program::Program;
use crate::context::Lockstep;
use crate::message::Severity;

/// A place where programs run.
pub trait Sandbox: Send + Sync + fmt::Debug + 'static {
    /// Begins a program. It runs whether or not its session is polled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the session ends the program: at once, or, inside one native call that heeds nobody, when that call returns.
    /// Who has to know when it has ended uses [`Session::poll_closed`].
    fn start(&self, program: Program) -> Box<dyn Session>;
}

/// One program that runs.
pub trait Session: Send {
    /// The next thing that the program says; none after [`GuestEvent::Ended`].
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<GuestEvent>>;

    /// Answers an ask. Of one that was answered or never made, nothing happens.
    fn reply(&mut self, reply: HostReply);

    /// Answers several asks: so that the program goes on with all of them at once, where a sandbox can do that. Default: one after the
    /// other.
    fn reply_all(&mut self, replies: Vec<HostReply>) {
        for reply in replies {
            self.reply(reply);
        }
    }

    /// Takes out of the list answers that came while the program may still be asking: it goes on with them when it has nothing else to
    /// do and all that it has asked for was heard, which is `heard` asks so far. So it does not depend on who is quicker with which
    /// answers a program goes on. Default: leaves them all, for [`Session::reply_all`] after the program said that it waits.
    fn reply_ahead(&mut self, replies: &mut Vec<HostReply>, heard: u32) {
        let _ = (replies, heard);
    }

    /// In a tree with a seed: what the program does is to be waited for where the session is polled, so that what a poll comes to does
    /// not depend on who is quicker. Called before the first poll. Default: nothing, and such a program's place in the order of the
    /// log is that of time.
    fn keep_step(&mut self, lockstep: Lockstep) {
        let _ = lockstep;
    }

    /// Ends the program and waits until nothing of it is left.
    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// What a program says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestEvent {
    /// It asks for something and goes on; [`HostReply`] answers.
    Ask {
        /// Unique in the session.
        id: u32,
        /// What.
        ask: Ask,
    },
    /// A line for the record.
    Log {
        /// How much it matters.
        severity: Severity,
        /// The line.
        text: String,
    },
    /// It has done what it could, and waits.
    Waiting {
        /// How many answers it has taken so far.
        answered: u64,
    },
    /// It has ended.
    Ended(Ended),
}

/// What a program may ask for. What it passes is JSON text that nobody has checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// `tools.<name>(args)`
    Tool {
        /// The tool.
        name: Arc<str>,
        /// JSON; empty if nothing was passed.
        args: String,
    },
    /// `search_tools(query, limit?)`
    SearchTools {
        /// JSON.
        query: String,
        /// JSON; empty if nothing was passed.
        limit: String,
    },
    /// `finish(value)`
    Finish {
        /// JSON; empty if nothing was passed, or nothing that JSON has.
        value: String,
    },
    /// `sleep(ms)`
    Sleep {
        /// Milliseconds.
        ms: u64,
    },
    /// `agent(prompt, options?)`
    Agent {
        /// The prompt; not blank.
        prompt: String,
        /// JSON; empty if nothing was passed.
        options: String,
    },
    /// `budget.usage()`
    Usage,
}

impl Ask {
    /// How much it passes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Tool { name, args } => name.len() + args.len(),
            Self::SearchTools { query, limit } => query.len() + limit.len(),
            Self::Finish { value } => value.len(),
            Self::Agent { prompt, options } => prompt.len() + options.len(),
            Self::Sleep { .. } | Self::Usage => 0,
        }
    }
}

/// The answer to one ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReply {
    /// Which ask.
    pub id: u32,
    /// JSON text, or what the guest's exception says.
    pub outcome: Result<String, HostError>,
}

/// What a failed ask throws in the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostError {
    /// `.message`
    pub message: String,
    /// `.code`
    pub code: Option<String>,
    /// `.data`, as JSON text: the whole value of a tool's failure.
    pub data: Option<String>,
}

impl HostError {
    /// With a code and no data.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { message: message.into(), code: Some(code.to_owned()), data: None }
    }

    /// Of a tool's failure, `{"error": code, "message": …}`, by whoever it is that failed. No code is lost.
    #[must_use]
    pub fn of_value(who: &str, value: &Value) -> Self {
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let message =
            text("message").or_else(|| text("error")).map_or_else(|| value.to_string(), str::to_owned);
        Self {
            message: format!("{who}: {message}"),
            code: text("error").map(str::to_owned),
            data: Some(value.to_string()),
        }
    }
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// What it returned, as JSON text (`null` if nothing); or why it did not.
    pub result: Result<String, GuestError>,
    /// Lines that it logged beyond its bounds.
    pub lines_left_out: u64,
}

/// Why a program did not return.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestError {
    /// What kind.
    pub kind: GuestErrorKind,
    /// For people and models: what was wrong.
    pub message: String,
    /// Where, in the program's own lines; empty if nothing is known.
    pub stack: String,
}

impl GuestError {
    /// Without a place.
    #[must_use]
    pub fn new(kind: GuestErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), stack: String::new() }
    }
}

/// Kinds of an end without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestErrorKind {
    /// It threw.
    Threw,
    /// It does not compile, or takes a name that is taken.
    Syntax,
    /// It ran for as long as it may.
    TimedOut,
    /// It waits for what nothing will settle.
    Stuck,
    /// It was ended from outside.
    Cancelled,
    /// It used up its memory.
    Memory,
    /// The sandbox itself failed.
    Crashed,
}
