//! What is asked, and what is answered.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

/// A question to a person.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Permission or input.
    pub kind: AskKind,
    /// The question, in a sentence.
    pub title: String,
    /// The tool that wants permission.
    pub tool: Option<Arc<str>>,
    /// What it is to be called with.
    pub args: Option<Arc<Map<String, Value>>>,
    /// How risky that is, in a word.
    pub risk: Option<String>,
    /// How long an answer is waited for. Default [`Question::DEADLINE`].
    pub deadline: Duration,
    /// What a permission is for: one that is given for longer answers all open asks about the same.
    pub about: Option<Arc<str>>,
}

/// What kind of answer is wanted. Exhaustive on purpose: whoever shows asks has to know both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AskKind {
    /// Yes or no.
    Permission,
    /// Words.
    Input,
}

impl AskKind {
    /// The word for it on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Permission => "permission",
            Self::Input => "input",
        }
    }
}

impl Question {
    /// How long an answer is waited for if nothing else is said: long enough to come back from a conversation, and short enough that
    /// work which nobody attends ends within the hour.
    pub const DEADLINE: Duration = Duration::from_mins(10);

    /// Whether `tool` may be called with these arguments.
    #[must_use]
    pub fn permission(
        title: impl Into<String>,
        tool: impl Into<Arc<str>>,
        args: Arc<Map<String, Value>>,
    ) -> Self {
        Self { tool: Some(tool.into()), args: Some(args), ..Self::of(AskKind::Permission, title.into()) }
    }

    /// Something that only a person knows.
    #[must_use]
    pub fn input(title: impl Into<String>) -> Self {
        Self::of(AskKind::Input, title.into())
    }

    fn of(kind: AskKind, title: String) -> Self {
        Self { kind, title, tool: None, args: None, risk: None, deadline: Self::DEADLINE, about: None }
    }

    /// With this deadline.
    #[must_use]
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }
}

/// What a person says to an ask.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub(super) decision: Decision,
    pub(super) text: Option<String>,
    pub(super) args: Option<Map<String, Value>>,
}

impl Reply {
    fn of(decision: Decision) -> Self {
        Self { decision, text: None, args: None }
    }

    /// Yes, this once.
    #[must_use]
    pub fn allow() -> Self {
        Self::of(Decision::Allow)
    }

    /// Yes, and the same again in this run and those below it.
    #[must_use]
    pub fn allow_for_run() -> Self {
        Self::of(Decision::AllowForRun)
    }

    /// Yes, and the same again in the whole tree.
    #[must_use]
    pub fn allow_for_root() -> Self {
        Self::of(Decision::AllowForRoot)
    }

    /// No.
    #[must_use]
    pub fn deny() -> Self {
        Self::of(Decision::Deny)
    }

    /// The answer to an [`AskKind::Input`].
    #[must_use]
    pub fn answer(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::of(Decision::Answer) }
    }

    /// With words that the asking run reads too, such as why not.
    #[must_use]
    pub fn saying(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// Yes, but with these arguments instead.
    #[must_use]
    pub fn with_args(mut self, args: Map<String, Value>) -> Self {
        self.args = Some(args);
        self
    }

    /// What is wrong with it as a reply to a question of that kind.
    pub(super) fn misfit(&self, kind: AskKind) -> Option<&'static str> {
        match (kind, self.decision) {
            (AskKind::Permission, Decision::Answer) => Some("it asks for permission: allow or deny it"),
            (AskKind::Input, Decision::Allow | Decision::AllowForRun | Decision::AllowForRoot) => {
                Some("it asks for input: answer it with a text, or deny it")
            }
            (_, Decision::Deny) if self.args.is_some() => Some("a denied call has no arguments"),
            (AskKind::Input, _) if self.args.is_some() => Some("it is no call, so there are no arguments"),
            _ => None,
        }
    }
}

/// How an ask was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Yes, once.
    Allow,
    /// Yes, in this run and those below it.
    AllowForRun,
    /// Yes, in the whole tree.
    AllowForRoot,
    /// No.
    Deny,
    /// A text.
    Answer,
}

impl Decision {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Allow, Self::AllowForRun, Self::AllowForRoot, Self::Deny, Self::Answer];

    /// The word for it on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::AllowForRun => "allow_for_run",
            Self::AllowForRoot => "allow_for_root",
            Self::Deny => "deny",
            Self::Answer => "answer",
        }
    }
}

/// Who decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnsweredBy {
    /// A person.
    User,
    /// A permission that a person gave for longer.
    Policy,
    /// Nobody: the deadline passed.
    Timeout,
    /// Nobody: no one watches the tree, or the last one who did went away.
    Nobody,
    /// Nobody: the run that asked ended first.
    RunEnded,
}

impl AnsweredBy {
    /// The word for it on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Policy => "policy",
            Self::Timeout => "timeout",
            Self::Nobody => "nobody",
            Self::RunEnded => "run_ended",
        }
    }
}

/// The answer to an ask, as the run that asked gets it.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What was decided.
    pub decision: Decision,
    /// By whom.
    pub by: AnsweredBy,
    /// The words that came with it.
    pub text: Option<String>,
    /// The arguments that a permitted call is to have instead of its own.
    pub args: Option<Map<String, Value>>,
}

impl Answer {
    /// A no without a person.
    pub(super) fn denied(by: AnsweredBy) -> Self {
        Self { decision: Decision::Deny, by, text: None, args: None }
    }

    pub(super) fn by_user(reply: Reply) -> Self {
        let Reply { decision, text, args } = reply;
        Self { decision, by: AnsweredBy::User, text, args }
    }

    /// Whether the call may be made.
    #[must_use]
    pub fn permits(&self) -> bool {
        matches!(self.decision, Decision::Allow | Decision::AllowForRun | Decision::AllowForRoot)
    }
}
