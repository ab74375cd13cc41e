//! The port: one cold stream a call, deltas in order, exactly one end.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::image::Images;
use crate::id::{RunId, ToolCallId};
use crate::outcome::{StopReason, Usage, words};

/// A model that answers one conversation turn at a time.
///
/// Stateless: everything that an answer may depend on is in the request, so one model serves all runs of
/// all trees at once.
pub trait ChatModel: Send + Sync + 'static {
    /// Its name as a person would write it after `--model`.
    fn name(&self) -> &str;

    /// How long the provider asked everybody to wait; none if it may be asked now. Whoever asks it all the same is refused.
    ///
    /// A run waits for it visibly before it calls: such a wait is no failed attempt. A model that wraps another one passes it on.
    fn pause(&self) -> Option<Duration> {
        None
    }

    /// One turn. The stream is cold: nothing happens before its first poll.
    ///
    /// # Ordering
    ///
    /// Any number of deltas, then either exactly one [`ChatEvent::End`] or exactly one error; nothing after. A stream
    /// that just ends is a turn that was cut off ([`StopReason::Missing`]).
    ///
    /// # Cancel safety
    ///
    /// Dropping the stream ends the call, and its connection if there is one.
    fn chat(&self, request: ChatRequest) -> ChatStream;
}

/// The deltas of one turn.
pub type ChatStream = BoxStream<'static, Result<ChatEvent, ModelError>>;

/// What one turn is to answer.
#[derive(Debug, Clone)]
pub struct ChatRequest {
    /// Which run asks.
    pub run: Arc<RunLabel>,
    /// How many calls this run made before, failed ones included; 0 at first.
    pub call: u32,
    /// What stands before the conversation.
    pub system: Option<Arc<str>>,
    /// The conversation so far; shared, since every turn sends all of it again.
    pub messages: Arc<Vec<ChatMessage>>,
    /// The tools on offer, in order.
    pub tools: Arc<[Arc<ToolSpec>]>,
    /// Whether tools may or must be called.
    pub tool_choice: ToolChoice,
    /// JSON schema that the final answer has to satisfy.
    pub output_schema: Option<Arc<Value>>,
    /// At most so many output tokens; none leaves it to the provider.
    pub max_output_tokens: Option<u64>,
}

/// What a model may know of the run that asks. Scripts choose by it; providers may log it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLabel {
    /// The run.
    pub run_id: RunId,
    /// 0 at the root.
    pub depth: u32,
    /// The agent's name.
    pub agent: Arc<str>,
    /// The run's title.
    pub title: Arc<str>,
    /// The run's instructions.
    pub prompt: Arc<str>,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum ChatMessage {
    /// From the person, or from the run that delegates.
    User {
        /// What it says.
        text: String,
    },
    /// From the model.
    Assistant {
        /// What it says; may be empty when it calls tools.
        text: String,
        /// The calls that it makes, in order, with ids that are unique in the conversation.
        tool_calls: Vec<ToolRequest>,
    },
    /// The result of one call.
    ToolResult {
        /// Which call.
        id: ToolCallId,
        /// The tool's name.
        name: Arc<str>,
        /// What the model reads.
        content: String,
        /// What it sees beside.
        images: Images,
        /// Whether it is an error.
        is_error: bool,
    },
}

/// A call that a model made.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolRequest {
    /// Unique in its conversation.
    pub id: ToolCallId,
    /// The tool.
    pub name: Arc<str>,
    /// The arguments: always an object.
    pub arguments: Value,
}

/// A tool as a model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Unique in its toolset.
    pub name: String,
    /// For the model.
    pub description: String,
    /// JSON schema of the arguments: an object schema.
    pub parameters: Value,
}

/// Whether tools may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// As the model likes.
    #[default]
    Auto,
    /// At least one call.
    Required,
    /// No call.
    None,
}

/// One step of a turn.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ChatEvent {
    /// More of the answer.
    Text(Arc<str>),
    /// More of what the model thinks before it answers.
    Thinking(Arc<str>),
    /// A call begins. Repeated for one index, what is empty here keeps what was there.
    ToolCallStart {
        /// The call's place in the turn, as the provider counts.
        index: u32,
        /// The provider's label; may be empty.
        id: String,
        /// The tool's name; may be empty until the rest of it arrives.
        name: String,
    },
    /// More of a call's arguments, as raw JSON text.
    ToolCallArgs {
        /// Which call.
        index: u32,
        /// The next piece.
        delta: String,
    },
    /// The whole text of the turn, from a provider that sends one at the end. It replaces the deltas.
    Snapshot(String),
    /// Something that this version does not know, from a provider that knows more. It is passed on as it came, and is no part of the
    /// answer.
    Other {
        /// What the provider calls it.
        kind: Arc<str>,
        /// The whole event.
        event: Value,
    },
    /// What the turn used so far: cumulative, replaces earlier reports.
    Usage(Usage),
    /// The end of the turn.
    End {
        /// Why it ended.
        stop_reason: StopReason,
        /// What it used; none keeps what [`ChatEvent::Usage`] said.
        usage: Option<Usage>,
    },
}

/// A failed turn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// What kind of failure.
    pub kind: ModelErrorKind,
    /// The provider's words, for people.
    pub message: String,
    /// When the provider wants to be asked again.
    pub retry_after: Option<Duration>,
}

impl ModelError {
    /// A failure without a wish for a delay.
    #[must_use]
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None }
    }
}

words! {
    /// Kinds of a failed turn.
    ModelErrorKind {
        /// Too many requests.
        RateLimit = "rate_limit",
        /// The provider's fault.
        Server = "server",
        /// The key is missing or wrong.
        Auth = "auth",
        /// The conversation is too long.
        ContextLength = "context_length",
        /// The connection failed.
        Network = "network",
        /// No answer in time.
        Timeout = "timeout",
        /// The request is wrong, for instance a history with a call that has no result.
        BadRequest = "bad_request",
        /// The answer is not what the protocol says.
        Protocol = "protocol",
        /// A scripted model has nothing more to say.
        Exhausted = "exhausted",
    }
}

impl ModelErrorKind {
    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        match self {
            Self::RateLimit | Self::Server | Self::Network | Self::Timeout => true,
            Self::Auth | Self::ContextLength | Self::BadRequest | Self::Protocol | Self::Exhausted => false,
        }
    }
}
