//! What a tool is.

use futures::future::BoxFuture;
use serde_json::{Map, Value};

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

    /// What happens to a running call when its run is cancelled. Default: its future is dropped.
    fn on_cancel(&self) -> OnCancel {
        OnCancel::Drop
    }

    /// Whether the tool checks its arguments itself, with codes of its own. Default: they are held against the schema first.
    fn checks_arguments(&self) -> bool {
        false
    }

    /// Whether a child of the run may have it. Default yes; a tool that has state of one run says no.
    fn is_inheritable(&self) -> bool {
        true
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

/// What happens to a running call when its run is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnCancel {
    /// Its future is dropped: at once, or, where runs that it started still end, when the run is.
    Drop,
    /// It may go on for the grace period, to end what must not be left half done; then it is dropped, and the run settles as
    /// `cancelled (forced)`.
    Grace,
}
