//! What tools may do, decided before a call begins.

use std::collections::BTreeSet;

use super::reply::ToolReply;
use super::toolset::Toolset;
use super::traits::{Access, Tool};
use crate::context::RunContext;

/// Allows and denies tools by name. Without a word on a tool, reading and spawning are allowed and writing is not.
///
/// A child has its parent's policy: it can only do what its parent could.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    allow: BTreeSet<String>,
    deny: BTreeSet<String>,
}

impl Policy {
    /// Allows these tools, also if they write.
    #[must_use]
    pub fn allow<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.allow.extend(names.into_iter().map(Into::into));
        self
    }

    /// Denies these tools; it wins over [`Policy::allow`].
    #[must_use]
    pub fn deny<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.deny.extend(names.into_iter().map(Into::into));
        self
    }

    /// Names that the policy speaks of: a host checks them for typing errors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.allow.iter().chain(&self.deny).map(String::as_str)
    }

    /// Whether a call of this tool may begin.
    ///
    /// # Errors
    ///
    /// The refusal that the model reads.
    pub fn check(&self, tool: &dyn Tool) -> Result<(), ToolReply> {
        let name = tool.spec().name.as_str();
        if self.deny.contains(name) {
            let text = format!("The tool {name} is denied here. Do without it.");
            return Err(ToolReply::error("tool_denied", text));
        }
        if tool.access() == Access::Write && !self.allow.contains(name) {
            let text = format!(
                "The tool {name} changes things and is not allowed here. Say what you would change instead."
            );
            let person = format!("{name} is not allowed; run with --allow {name} to allow it");
            return Err(ToolReply::error("tool_denied", text).shown_as(person));
        }
        Ok(())
    }
}

/// What a model is offered of a run's tools: what could only be refused is left out. Whoever calls it all the same gets the refusal.
pub(crate) fn offered(tools: &Toolset, run: &RunContext, policy: &Policy) -> Toolset {
    let may_nest = run.may_nest();
    tools.filter(|tool| (may_nest || tool.access() != Access::Spawn) && policy.check(tool).is_ok())
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
