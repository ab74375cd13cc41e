//! How a run settles, and the one rule that turns a step result into a settlement.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a run settled. One-shot: the first outcome of a run is its only one.
///
/// Exhaustive on purpose: whoever decides on an outcome has to decide on all four. In particular a cancelled
/// run is neither a success nor an error.
#[derive(Debug, Clone, PartialEq)]
pub enum SubAgentOutcome {
    /// The run did what it was asked.
    Completed {
        /// A string in prose mode, the validated value with a schema, null if there was no value.
        result: Value,
        /// [`StopClass::Natural`], or [`StopClass::NoReturn`] for a run that settled without a value.
        stop_class: StopClass,
    },
    /// A limit or an operator ended the run; it did not fail.
    Stopped {
        /// Why.
        stop_class: StopClass,
        /// Which limit, if it was one.
        limit: Option<LimitKind>,
        /// One sentence for people.
        message: String,
        /// Text so far.
        partial: Option<Value>,
    },
    /// Somebody ended the run before it was done.
    Cancelled {
        /// Who.
        by: CancelledBy,
        /// Something in it did not end within the grace period and was abandoned.
        forced: bool,
        /// Text so far.
        partial: Option<Value>,
    },
    /// The run could not do what it was asked.
    Failed {
        /// What kind of failure.
        kind: FailureKind,
        /// One sentence for people.
        message: String,
        /// Text so far.
        partial: Option<Value>,
    },
}

impl SubAgentOutcome {
    /// Completed with a value.
    #[must_use]
    pub fn completed(result: impl Into<Value>) -> Self {
        let result = result.into();
        let stop_class = if result.is_null() { StopClass::NoReturn } else { StopClass::Natural };
        Self::Completed { result, stop_class }
    }

    /// Failed, with nothing to show.
    #[must_use]
    pub fn failed(kind: FailureKind, message: impl Into<String>) -> Self {
        Self::Failed { kind, message: message.into(), partial: None }
    }

    /// Stopped by a limit, with nothing to show.
    #[must_use]
    pub fn stopped_by(limit: LimitKind, message: impl Into<String>) -> Self {
        Self::Stopped {
            stop_class: limit.stop_class(),
            limit: Some(limit),
            message: message.into(),
            partial: None,
        }
    }

    /// Cancelled, with nothing to show.
    #[must_use]
    pub fn cancelled(by: CancelledBy) -> Self {
        Self::Cancelled { by, forced: false, partial: None }
    }

    /// True iff completed.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Completed { .. })
    }

    /// The value of a completed run.
    #[must_use]
    pub fn result(&self) -> Option<&Value> {
        match self {
            Self::Completed { result, .. } => Some(result),
            Self::Stopped { .. } | Self::Cancelled { .. } | Self::Failed { .. } => None,
        }
    }

    /// What existed when a run ended without completing.
    #[must_use]
    pub fn partial(&self) -> Option<&Value> {
        match self {
            Self::Completed { .. } => None,
            Self::Stopped { partial, .. }
            | Self::Cancelled { partial, .. }
            | Self::Failed { partial, .. } => partial.as_ref(),
        }
    }

    /// The same outcome; where it carries no partial result, it carries this one.
    #[must_use]
    pub fn with_partial(mut self, value: Option<Value>) -> Self {
        match &mut self {
            Self::Completed { .. } => {}
            Self::Stopped { partial, .. }
            | Self::Cancelled { partial, .. }
            | Self::Failed { partial, .. } => {
                if partial.is_none() {
                    *partial = value;
                }
            }
        }
        self
    }

    /// The machine-readable reason of the end.
    #[must_use]
    pub fn stop_class(&self) -> StopClass {
        match self {
            Self::Completed { stop_class, .. } | Self::Stopped { stop_class, .. } => *stop_class,
            Self::Cancelled { .. } => StopClass::Stopped,
            Self::Failed { .. } => StopClass::Error,
        }
    }

    /// Which of the four it is.
    #[must_use]
    pub fn kind(&self) -> OutcomeKind {
        match self {
            Self::Completed { .. } => OutcomeKind::Completed,
            Self::Stopped { .. } => OutcomeKind::Stopped,
            Self::Cancelled { .. } => OutcomeKind::Cancelled,
            Self::Failed { .. } => OutcomeKind::Failed,
        }
    }

    /// One sentence for people, if the run did not complete.
    #[must_use]
    pub fn error_text(&self) -> Option<String> {
        match self {
            Self::Completed { .. } => None,
            Self::Stopped { message, .. } | Self::Failed { message, .. } => Some(message.clone()),
            Self::Cancelled { by, forced, .. } => Some(format!(
                "cancelled by {by}{}",
                if *forced { " (forced: something in it did not end within the grace period)" } else { "" }
            )),
        }
    }
}

/// Defines an enum whose variants have one spelling, on the wire and for people.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$doc])* #[serde(rename = $word)] $variant,)* }

        impl $name {
            /// The word for it on the wire.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use words;

words! {
    /// The four outcomes, without what they carry.
    OutcomeKind {
        /// See [`SubAgentOutcome::Completed`].
        Completed = "completed",
        /// See [`SubAgentOutcome::Stopped`].
        Stopped = "stopped",
        /// See [`SubAgentOutcome::Cancelled`].
        Cancelled = "cancelled",
        /// See [`SubAgentOutcome::Failed`].
        Failed = "failed",
    }
}

words! {
    /// Why a run ended, for machines.
    StopClass {
        /// It was done.
        Natural = "natural",
        /// It ended without a value.
        NoReturn = "no_return",
        /// Its turns or tool calls were used up.
        MaxSteps = "max_steps",
        /// Tokens or money were used up.
        Budget = "budget",
        /// Its wall or idle time was used up.
        Timeout = "timeout",
        /// The model's answer was cut off.
        Truncated = "truncated",
        /// It put itself off.
        Deferred = "deferred",
        /// It was told to stop.
        Stopped = "stopped",
        /// It failed.
        Error = "error",
    }
}

words! {
    /// The limits that stop a run.
    LimitKind {
        /// Model turns of the run.
        Turns = "turns",
        /// Tool calls of the run.
        ToolCalls = "tool_calls",
        /// Tokens, of the run or the tree.
        Tokens = "tokens",
        /// Money, of the run or the tree.
        Cost = "cost",
        /// Time since the run started.
        Wall = "wall",
        /// Time since the last message of the run or a descendant.
        Idle = "idle",
        /// Output tokens of one model turn.
        Output = "output",
    }
}

impl LimitKind {
    /// The stop class of a run that this limit stopped.
    #[must_use]
    pub fn stop_class(self) -> StopClass {
        match self {
            Self::Turns | Self::ToolCalls => StopClass::MaxSteps,
            Self::Tokens | Self::Cost => StopClass::Budget,
            Self::Wall | Self::Idle => StopClass::Timeout,
            Self::Output => StopClass::Truncated,
        }
    }
}

words! {
    /// Who cancelled a run.
    CancelledBy {
        /// The run itself.
        Itself = "self",
        /// The run that spawned it: it was cancelled, or it no longer waits.
        Parent = "parent",
        /// A person or the host program.
        User = "user",
        /// The wall time of an ancestor ran out.
        DeadlineOfParent = "deadline_of_parent",
        /// The process is ending.
        Shutdown = "shutdown",
    }
}

words! {
    /// Kinds of failure.
    FailureKind {
        /// The model provider failed.
        Provider = "provider",
        /// A tool failed in a way that the run could not survive.
        Tool = "tool",
        /// The model or a peer broke the protocol.
        Protocol = "protocol",
        /// The result does not validate against the schema that was asked for.
        Schema = "schema",
        /// The final answer was blank.
        Empty = "empty",
        /// Something panicked.
        Panic = "panic",
        /// The producer ended without an outcome.
        Vanished = "vanished",
        /// The run could not be built.
        Construction = "construction",
        /// The run was refused.
        Refused = "refused",
        /// An executor reported that its step failed.
        Step = "step",
        /// A rule of its host ended it: nobody is to work around that.
        Aborted = "aborted",
    }
}

words! {
    /// Why a model's turn ended.
    StopReason {
        /// The model was done.
        EndTurn = "end_turn",
        /// The model waits for the results of its calls.
        ToolCalls = "tool_calls",
        /// The output limit was reached.
        Length = "length",
        /// The provider withheld the rest.
        ContentFilter = "content_filter",
        /// The provider failed.
        Error = "error",
        /// The stream ended without a reason.
        Missing = "missing",
    }
}

/// Tokens, money and model calls, of a turn, a run or a subtree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens that the model read.
    pub input_tokens: u64,
    /// Tokens that the model wrote.
    pub output_tokens: u64,
    /// How many of the input tokens came from the provider's cache; none if it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// US dollars; none if the price is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Calls of a model.
    #[serde(default)]
    pub model_calls: u64,
}

impl Usage {
    /// The usage of one call that read and wrote so many tokens.
    #[must_use]
    pub fn of_call(input_tokens: u64, output_tokens: u64) -> Self {
        Self { input_tokens, output_tokens, model_calls: 1, ..Self::default() }
    }

    /// Input and output tokens together.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Adds `other`. What neither knows stays unknown; what one knows counts.
    pub fn add(&mut self, other: &Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.model_calls = self.model_calls.saturating_add(other.model_calls);
        self.cached_tokens = match (self.cached_tokens, other.cached_tokens) {
            (None, None) => None,
            (one, two) => Some(one.unwrap_or(0).saturating_add(two.unwrap_or(0))),
        };
        self.cost_usd = match (self.cost_usd, other.cost_usd) {
            (None, None) => None,
            (one, two) => Some(one.unwrap_or(0.0) + two.unwrap_or(0.0)),
        };
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.add(other);
        self
    }
}

/// What an executor reports for one step.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepReport<'a> {
    /// Its error, if it says one.
    pub error: Option<&'a str>,
    /// Its result, if it has one.
    pub result: Option<&'a Value>,
}

/// Decides whether a step result is a success, a failure, or not yet a result (`None`): the one place that does.
///
/// In this order: a non-empty error text is a failure; an absent or null result settles nothing; without a
/// schema an object with a string `error` is a failure (the originals' legacy shape); all else is a success.
/// With a schema, `error` is an ordinary key of the value that was asked for.
#[must_use]
pub fn settle_step_result(report: StepReport<'_>, has_schema: bool) -> Option<SubAgentOutcome> {
    if let Some(error) = report.error.filter(|error| !error.is_empty()) {
        return Some(SubAgentOutcome::failed(FailureKind::Step, error));
    }
    let result = report.result.filter(|result| !result.is_null())?;
    if !has_schema
        && let Some(Value::String(error)) = result.as_object().and_then(|object| object.get("error"))
    {
        return Some(SubAgentOutcome::Failed {
            kind: FailureKind::Step,
            message: error.clone(),
            partial: Some(result.clone()),
        });
    }
    Some(SubAgentOutcome::completed(result.clone()))
}

#[cfg(test)]
#[path = "outcome_tests.rs"]
mod tests;
