//! The bodies: one struct a kind, with the keys of the wire format.

use std::sync::Arc;

use serde::Deserialize;
use serde::ser::SerializeMap;
use serde_json::{Map, Value};

use super::parts::{Chunk, Extra, FinalCounters, OtherBody, Scope, Severity, StepRef, TaskRef, Todo};
use super::size::Weigh;
use crate::id::ToolCallId;
use crate::outcome::{
    CancelledBy, FailureKind, LimitKind, OutcomeKind, StopClass, StopReason, SubAgentOutcome, Usage,
};

/// Defines the body structs and [`MessageBody`] from one table, so that a kind's name, keys, reader and writer
/// cannot drift apart. Keys before the bar are always written; keys behind it only when there is something to say.
macro_rules! bodies {
    ($(
        $(#[$meta:meta])*
        $name:ident $kind:literal {
            $($(#[$doc:meta])* $key:ident: $type:ty,)*
            | $($(#[$opt_doc:meta])* $opt_key:ident: $opt_type:ty,)*
        }
    )*) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone, PartialEq, Deserialize)]
            pub struct $name {
                $($(#[$doc])* pub $key: $type,)*
                $($(#[$opt_doc])* #[serde(default)] pub $opt_key: Option<$opt_type>,)*
                /// Keys that this version does not know.
                #[serde(skip)]
                pub extra: Extra,
            }

            impl $name {
                pub(super) const KEYS: &'static [&'static str] = &[$(stringify!($key),)* $(stringify!($opt_key),)*];

                fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
                    $(map.serialize_entry(stringify!($key), &self.$key)?;)*
                    $(if let Some(value) = &self.$opt_key {
                        map.serialize_entry(stringify!($opt_key), value)?;
                    })*
                    write_extra(&self.extra, map)
                }

                fn weight(&self) -> [usize; 1 + Self::KEYS.len()] {
                    [$(self.$key.weight(),)* $(self.$opt_key.weight(),)* self.extra.weight()]
                }

                fn nests_within(&self, levels: usize) -> bool {
                    true $(&& self.$key.nests_within(levels))* $(&& self.$opt_key.nests_within(levels))*
                }

                fn cut(&mut self, max: usize) {
                    $(self.$key.cut(max);)*
                    $(self.$opt_key.cut(max);)*
                    self.extra.cut(max);
                }
            }

            impl From<$name> for MessageBody {
                fn from(body: $name) -> Self {
                    Self::$name(Arc::new(body))
                }
            }
        )*

        /// What a message says. Not exhaustive: kinds are added; unknown ones are kept as [`OtherBody`].
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub enum MessageBody {
            /// A piece of text.
            Chunk(Chunk),
            $(#[doc = concat!("`", $kind, "`: see [`", stringify!($name), "`].")] $name(Arc<$name>),)*
            /// A kind that this version does not know.
            Other(Arc<OtherBody>),
        }

        impl MessageBody {
            /// The kind's name on the wire.
            #[must_use]
            pub fn kind(&self) -> &str {
                match self {
                    Self::Chunk(_) => "chunk",
                    $(Self::$name(_) => $kind,)*
                    Self::Other(body) => &body.kind,
                }
            }

            pub(super) fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
                match self {
                    Self::Chunk(chunk) => write_chunk(chunk, map),
                    $(Self::$name(body) => body.write(map),)*
                    Self::Other(body) => write_extra(&body.fields, map),
                }
            }

            /// What its parts weigh, in bytes.
            pub(super) fn weigh<T>(&self, sum: impl FnOnce(&[usize]) -> T) -> T {
                match self {
                    Self::Chunk(chunk) => sum(&[chunk.content.len(), chunk.meta.as_ref().map_or(0, |meta| meta.weight())]),
                    $(Self::$name(body) => sum(&body.weight()),)*
                    Self::Other(body) => sum(&[body.kind.len(), body.fields.weight()]),
                }
            }

            /// Whether its values are at most so many levels deep.
            pub(super) fn nests_within(&self, levels: usize) -> bool {
                match self {
                    $(Self::$name(body) => body.nests_within(levels),)*
                    Self::Chunk(_) | Self::Other(_) => true,
                }
            }

            /// The same kind, no part of it larger than `max` bytes and a marker.
            pub(super) fn cut(self, max: usize) -> Self {
                match self {
                    Self::Chunk(mut chunk) => {
                        chunk.content.cut(max);
                        if let Some(meta) = &mut chunk.meta {
                            Arc::make_mut(meta).cut(max);
                        }
                        Self::Chunk(chunk)
                    }
                    $(Self::$name(body) => {
                        let mut body = Arc::unwrap_or_clone(body);
                        body.cut(max);
                        Self::from(body)
                    })*
                    // Its keys are not ours to cut: half a body of an unknown kind may mean something else.
                    Self::Other(_) => self,
                }
            }

            /// Reads a known kind from its fields; none if the kind is not known.
            pub(super) fn read(kind: &str, fields: &super::wire::Fields<'_>) -> Option<Result<Self, String>> {
                match kind {
                    "chunk" => Some(super::wire::read_chunk(fields).map(Self::Chunk)),
                    $($kind => Some(fields.read::<$name>($name::KEYS).map(|(mut body, extra)| {
                        body.extra = extra;
                        Self::from(body)
                    })),)*
                    _ => None,
                }
            }
        }
    };
}

bodies! {
    /// The first message of a run.
    RunStarted "run_started" {
        /// The agent's name.
        agent: Arc<str>,
        /// A few words for a person.
        title: Arc<str>,
        /// The run's instructions, capped.
        task: Arc<str>,
        /// Whether it ends with its parent's turn or with the root.
        scope: Scope,
        /// What kind of producer runs it: `tool_loop`, `codeact`, or an author's own word.
        producer: Arc<str>,
        |
        /// The model it uses.
        model: Arc<str>,
        /// From 1, if it is a repeated attempt.
        attempt: u32,
        /// The branch of an ensemble.
        branch: String,
        /// The time that it was given when it was spawned, in milliseconds.
        timeout_ms: u64,
    }

    /// The last message of a run.
    RunFinished "run_finished" {
        /// True iff completed.
        ok: bool,
        /// Which of the four outcomes.
        outcome: OutcomeKind,
        |
        /// Completed: the value, null included.
        #[serde(deserialize_with = "present")]
        result: Value,
        /// Otherwise: one sentence for people.
        error: String,
        /// Why it ended.
        stop_class: StopClass,
        /// Which limit stopped it.
        limit: LimitKind,
        /// Who cancelled it.
        by: CancelledBy,
        /// Whether something in it was abandoned after the grace period.
        forced: bool,
        /// What kind of failure.
        failure: FailureKind,
        /// What existed when it did not complete.
        partial: Value,
        /// What this run used.
        usage: Usage,
        /// What this run and its descendants used.
        subtree_usage: Usage,
        /// Model turns.
        turns: u64,
        /// Tool calls.
        tool_calls: u64,
        /// From the first message to this one.
        duration_ms: u64,
        /// How many messages were discarded because they came too late.
        late: u64,
    }

    /// A task or a step of it moves on (the originals' event).
    TaskUpdate "task_update" {
        /// `step_started`, `step_completed`, `step_failed`, or another of the originals' names.
        event: String,
        /// The task.
        task: TaskRef,
        |
        /// The step.
        step: StepRef,
        /// The original's label of the step that says it.
        node_id: String,
    }

    /// What an executor reports for one step.
    StepResult "step_result" {
        /// The step.
        step: StepRef,
        /// Any value; null says nothing.
        #[serde(default)]
        result: Value,
        |
        /// Why it failed.
        error: String,
        /// Whether it is also the result of the whole task.
        is_task_result: bool,
    }

    /// A tool call starts, or says how it goes on. The key of a call is its `call_index`.
    ToolCallUpdate "tool_call_update" {
        /// The provider's label.
        tool_call_id: ToolCallId,
        /// From 0 within the run.
        call_index: u32,
        /// The tool.
        name: Arc<str>,
        /// The arguments.
        args: Arc<Map<String, Value>>,
        |
        /// Status text for a person.
        message: String,
        /// The `call_index` of the `execute_code` call that bridged this one.
        via: u32,
    }

    /// The one result of a tool call.
    ToolResultUpdate "tool_result_update" {
        /// The provider's label.
        tool_call_id: ToolCallId,
        /// Which call.
        call_index: u32,
        /// The tool.
        name: Arc<str>,
        /// Whether it failed.
        is_error: bool,
        /// The result; what is not an object is wrapped as `{"result": …}`.
        result: Arc<Map<String, Value>>,
        /// From the call's start.
        duration_ms: u64,
        |
        /// What a person sees instead of the result.
        message: String,
    }

    /// One model turn of a run is over; the run may go on.
    TurnFinished "turn_finished" {
        /// From 1.
        turn: u64,
        /// Why it ended.
        stop_reason: StopReason,
        /// What it used.
        usage: Usage,
        |
    }

    /// A planner moves on.
    PlanningUpdate "planning_update" {
        /// `initialization`, `generation`, `validation`, `complete`, or a planner's own word.
        phase: String,
        /// `started`, `running`, `failed`, `success`, or a planner's own word.
        status: String,
        |
        /// Details.
        content: String,
        /// The original's label of the planner.
        node_id: String,
    }

    /// A line for the record.
    LogUpdate "log_update" {
        /// The line.
        content: String,
        /// How much it matters.
        severity: Severity,
        /// Who says it: a label.
        node_id: String,
        /// Who says it: a name.
        node_name: String,
        |
    }

    /// The run's to-do list, whole.
    TodoUpdate "todo_update" {
        /// The lines, in order.
        todos: Vec<Todo>,
        |
    }

    /// A failed attempt is repeated.
    Retrying "retrying" {
        /// The attempt that comes, from 2.
        attempt: u32,
        /// How long it waits.
        delay_ms: u64,
        /// Why.
        reason: String,
        |
    }

    /// The run waits for its turn.
    Queued "queued" {
        /// For what: `permit`, or an author's own word.
        waiting_for: String,
        |
    }

    /// The run asks whoever watches the root.
    Ask "ask" {
        /// The key of the answer.
        request_id: String,
        /// `permission` or `input`.
        kind: String,
        /// The question.
        title: String,
        /// How long it waits for an answer.
        deadline_ms: u64,
        |
        /// The tool that wants permission.
        tool: String,
        /// Its arguments.
        args: Value,
        /// How risky.
        risk: String,
    }

    /// The answer to an ask.
    AskAnswered "ask_answered" {
        /// Which ask.
        request_id: String,
        /// `allow`, `allow_for_run`, `allow_for_root`, `deny` or `answer`.
        decision: String,
        /// `user`, `policy`, `timeout`, `nobody` or `run_ended`.
        by: String,
        |
        /// The answer's text.
        text: String,
        /// The arguments that a permitted call has instead of its own.
        args: Value,
    }

    /// Something that a background run reports.
    Alert "alert" {
        /// Who reports.
        from: String,
        /// `alert`, `completed`, `failed`, `stopped`, `deferred` or `dropped`.
        kind: String,
        /// What it says.
        text: String,
        |
    }

    /// Something that a person should see and that ends no run.
    ErrorNotice "error" {
        /// What it is.
        message: String,
        |
        /// How much it matters.
        severity: String,
    }
}

impl From<Chunk> for MessageBody {
    fn from(chunk: Chunk) -> Self {
        Self::Chunk(chunk)
    }
}

impl MessageBody {
    /// A line for the record, by `who`.
    #[must_use]
    pub fn log(who: &str, severity: Severity, content: impl Into<String>) -> Self {
        let (node_id, node_name) = (who.to_owned(), who.to_owned());
        LogUpdate { content: content.into(), severity, node_id, node_name, extra: Extra::default() }.into()
    }
}

impl RunFinished {
    pub(crate) fn new(outcome: SubAgentOutcome, counters: FinalCounters) -> Self {
        let (kind, stop_class, error) = (outcome.kind(), outcome.stop_class(), outcome.error_text());
        let mut body = Self {
            ok: outcome.is_ok(),
            outcome: kind,
            result: None,
            error,
            stop_class: Some(stop_class),
            limit: None,
            by: None,
            forced: None,
            failure: None,
            partial: None,
            usage: Some(counters.usage),
            subtree_usage: Some(counters.subtree_usage),
            turns: Some(counters.turns),
            tool_calls: Some(counters.tool_calls),
            duration_ms: Some(counters.duration_ms),
            late: (counters.late > 0).then_some(counters.late),
            extra: Extra::default(),
        };
        match outcome {
            SubAgentOutcome::Completed { result, .. } => body.result = Some(result),
            SubAgentOutcome::Stopped { limit, partial, .. } => (body.limit, body.partial) = (limit, partial),
            SubAgentOutcome::Cancelled { by, forced, partial } => {
                (body.by, body.forced, body.partial) = (Some(by), forced.then_some(true), partial);
            }
            SubAgentOutcome::Failed { kind, partial, .. } => {
                (body.failure, body.partial) = (Some(kind), partial)
            }
        }
        body
    }

    /// The outcome that it reports. What a foreign writer left out gets the value that claims least.
    #[must_use]
    pub fn to_outcome(&self) -> SubAgentOutcome {
        let message = || self.error.clone().unwrap_or_default();
        let partial = self.partial.clone();
        match self.outcome {
            OutcomeKind::Completed => SubAgentOutcome::Completed {
                result: self.result.clone().unwrap_or_default(),
                stop_class: self.stop_class.unwrap_or(StopClass::NoReturn),
            },
            OutcomeKind::Stopped => SubAgentOutcome::Stopped {
                stop_class: self.stop_class.unwrap_or(StopClass::Stopped),
                limit: self.limit,
                message: message(),
                partial,
            },
            OutcomeKind::Cancelled => SubAgentOutcome::Cancelled {
                by: self.by.unwrap_or(CancelledBy::Parent),
                forced: self.forced.unwrap_or(false),
                partial,
            },
            OutcomeKind::Failed => SubAgentOutcome::Failed {
                kind: self.failure.unwrap_or(FailureKind::Protocol),
                message: message(),
                partial,
            },
        }
    }
}

/// Reads an optional key so that null is a value and only absence is nothing.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

fn write_extra<M: SerializeMap>(extra: &Extra, map: &mut M) -> Result<(), M::Error> {
    extra.iter().try_for_each(|(key, value)| map.serialize_entry(key, value))
}

fn write_chunk<M: SerializeMap>(chunk: &Chunk, map: &mut M) -> Result<(), M::Error> {
    map.serialize_entry("content", &chunk.content)?;
    map.serialize_entry("done", &chunk.done)?;
    if chunk.thinking {
        map.serialize_entry("thinking", &true)?;
    }
    if let Some(meta) = &chunk.meta {
        if let Some(content_type) = &meta.content_type {
            map.serialize_entry("content_type", content_type)?;
        }
        if let Some(node_id) = &meta.node_id {
            map.serialize_entry("node_id", node_id)?;
        }
        write_extra(&meta.extra, map)?;
    }
    Ok(())
}
