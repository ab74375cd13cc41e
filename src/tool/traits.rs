//! What a tool is.

use futures::future::BoxFuture;
use serde_json::{Map, Value};

use super::caller::Caller;
use super::context::ToolContext;
use super::reply::ToolReply;
use crate::model::ToolSpec;

/// Something that a model may call. Write one with [`super::tool_fn`], or implement this where a tool has state.
///
/// # Panics
///
/// A tool that panics ends its call with an error result and its run as failed, and harms nothing else.
pub trait Tool: Send + Sync + 'static {
    /// Its name, description and parameter schema.
    fn spec(&self) -> &ToolSpec;

    /// Does the work. The arguments satisfy the schema, unless the tool [checks them itself](Tool::checks_arguments).
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when its run is cancelled: see [`Tool::on_cancel`].
    fn call<'a>(&'a self, args: Map<String, Value>, cx: ToolContext) -> BoxFuture<'a, ToolReply>;

    /// What it may do to the world; a policy goes by it. Default: only read.
    fn access(&self) -> Access {
        Access::Read
    }

    /// How much a call with these arguments may harm; a policy goes by it, and a person who is asked sees it. Default: what changes
    /// something is medium, the rest low.
    fn risk(&self, args: &Map<String, Value>) -> Risk {
        let _ = args;
        match self.access() {
            Access::Read | Access::Spawn => Risk::Low,
            Access::Write => Risk::Medium,
        }
    }

    /// The arguments as rules are also to read them: a tool that knows what its arguments lead to, such as a path through symbolic
    /// links, says it here, so that no other spelling gets around a rule. Default: they mean what they say.
    fn meaning(&self, args: &Map<String, Value>) -> Option<Map<String, Value>> {
        let _ = args;
        None
    }

    /// What happens to a running call when its run is cancelled. Default: its future is dropped.
    fn on_cancel(&self) -> OnCancel {
        OnCancel::Drop
    }

    /// Whether the tool checks its arguments itself, with codes of its own. Default: they are held against the schema first.
    fn checks_arguments(&self) -> bool {
        false
    }

    /// Whether it is of no use without a person who watches: then it is only offered where one does. Default no.
    fn needs_person(&self) -> bool {
        false
    }

    /// Whether there is nothing now that a call could be about: then it is not offered. Asked before each turn, so it has to be quick.
    /// Default no.
    fn is_idle(&self) -> bool {
        false
    }

    /// Whether a child of the run may have it. Default yes; a tool that has state of one run says no.
    fn is_inheritable(&self) -> bool {
        true
    }

    /// Whether it is how an agent gives its answer. Without it the agent could not end as it should, so a rule speaks of it only by its
    /// own name, and not by a pattern that fits every tool of an agent. Default no.
    fn is_answer(&self) -> bool {
        false
    }

    /// What a model is told of it besides its description, where that changes: asked before each turn of a run that is offered the
    /// tool, and put below the run's system prompt. An empty text says nothing. Default none.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when the run is cancelled.
    fn section<'a>(&'a self, caller: &'a Caller) -> Option<BoxFuture<'a, String>> {
        let _ = caller;
        None
    }

    /// What a person reads while it runs. Default: its arguments.
    fn status_text(&self, args: &Map<String, Value>) -> Option<String> {
        let _ = args;
        None
    }
}

/// What a tool may do to the world. Exhaustive on purpose: a policy has to decide on each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// It changes nothing outside the tree of runs.
    Read,
    /// It changes something outside the tree of runs.
    Write,
    /// It starts a run, whose own tools are checked one by one.
    Spawn,
}

/// How much a call may harm. Exhaustive on purpose: a policy has to decide on each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Risk {
    /// Nothing is changed, or only what a run made for itself.
    Low,
    /// Something is changed that a person may want to know of.
    Medium,
    /// Something is changed that cannot be undone easily.
    High,
}

impl Risk {
    /// The word for it on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// What happens to a running call when its run is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnCancel {
    /// Its future is dropped: at once, or, where runs that it started still end, when the run is.
    Drop,
    /// It may go on for the grace period, to end what must not be left half done; then it is dropped, and the run settles as
    /// `cancelled (forced)`.
    Grace,
}
