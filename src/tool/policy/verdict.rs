//! What a hook sees, and what it may decide.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::context::RunContext;

/// A call as a hook sees it: as the hooks before it left it.
#[derive(Debug, Clone)]
pub struct HookedCall {
    /// The tool that is to be called.
    pub tool: Arc<str>,
    /// Its arguments.
    pub args: Arc<Map<String, Value>>,
    /// The run that calls.
    pub run: RunContext,
}

/// What a hook decides before a call. A hook that only looks on says [`Before::Continue`].
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Before {
    /// The call goes on.
    #[default]
    Continue,
    /// The call is not made, and this is its result.
    Skip {
        /// Why, for the log.
        reason: String,
        /// The result: a text, or any value.
        stub: Value,
    },
    /// Something else is called instead. The rules are held against that.
    Redirect(Redirect),
    /// The run of the call ends as failed.
    Abort {
        /// Why.
        reason: String,
    },
}

/// What a hook decides after a call. That a call which was made is skipped cannot be said.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum After {
    /// The result stands.
    #[default]
    Continue,
    /// Something is called once more, and its result takes the place of the first.
    Redirect(Redirect),
    /// The run of the call ends as failed, although the call was made.
    Abort {
        /// Why.
        reason: String,
    },
}

/// Another call in the place of one. Made by [`Redirect::args`] or [`Redirect::tool`], so that it always changes something.
#[derive(Debug, Clone, PartialEq)]
pub struct Redirect {
    args: Option<Map<String, Value>>,
    tool: Option<Arc<str>>,
    reason: String,
}

impl Redirect {
    /// The same tool with other arguments: all of them, not only those that differ.
    #[must_use]
    pub fn args(args: Map<String, Value>) -> Self {
        Self { args: Some(args), tool: None, reason: String::new() }
    }

    /// Another tool of the run, with the same arguments.
    #[must_use]
    pub fn tool(name: impl Into<Arc<str>>) -> Self {
        Self { args: None, tool: Some(name.into()), reason: String::new() }
    }

    /// With these arguments too.
    #[must_use]
    pub fn with_args(mut self, args: Map<String, Value>) -> Self {
        self.args = Some(args);
        self
    }

    /// Why, for the log. Default: nothing.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// The arguments, if they change.
    #[must_use]
    pub fn new_args(&self) -> Option<&Map<String, Value>> {
        self.args.as_ref()
    }

    /// The tool, if it changes.
    #[must_use]
    pub fn new_tool(&self) -> Option<&Arc<str>> {
        self.tool.as_ref()
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The call that it makes of another.
    #[must_use]
    pub fn apply(&self, call: &HookedCall) -> HookedCall {
        HookedCall {
            tool: self.tool.clone().unwrap_or_else(|| Arc::clone(&call.tool)),
            args: self.args.clone().map_or_else(|| Arc::clone(&call.args), Arc::new),
            run: call.run.clone(),
        }
    }
}
