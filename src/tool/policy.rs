//! What tools may do, decided before a call begins.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::reply::ToolReply;
use super::toolset::Toolset;
use super::traits::{Access, Tool};
use crate::context::RunContext;

/// Allows and denies tools by name. Without a word on a tool, reading and spawning are allowed and writing is not.
///
/// A child has its parent's policy, or one that [narrows](Policy::narrowed_to) it: it can only do what its parent could.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    allow: BTreeSet<String>,
    deny: BTreeSet<String>,
    /// Lists that a tool has to be on, each of them.
    lists: Vec<Arc<List>>,
}

/// The tools that one agent may have.
#[derive(Debug, PartialEq, Eq)]
struct List {
    whose: String,
    names: BTreeSet<String>,
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

    /// Allows no other tools than these, to `whose` run and to all below it: it only narrows. Whether a tool that writes is
    /// allowed at all, the rest of the policy says. Tools that belong to one run (`Tool::is_inheritable`) are not held against it:
    /// they come from what runs it, and what they call is checked.
    #[must_use]
    pub fn narrowed_to<S: Into<String>>(
        mut self,
        whose: impl Into<String>,
        names: impl IntoIterator<Item = S>,
    ) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        self.lists.push(Arc::new(List { whose: whose.into(), names }));
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
        let leaves_it_out = |list: &&Arc<List>| !list.names.contains(name);
        if let Some(list) = self.lists.iter().find(leaves_it_out).filter(|_| tool.is_inheritable()) {
            return Err(list.refuse(name));
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

impl List {
    /// What the model reads, and what an audit of the log goes by.
    fn refuse(&self, name: &str) -> ToolReply {
        let Self { whose, names } = self;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let reason = format!("not on the list of tools of the agent {whose}");
        let text = format!(
            "The tool {name} is not available to this run: it is {reason}. Do without it; on the list are: {}.",
            names.join(", ")
        );
        let audit = [("decision", json!("deny")), ("reason", json!(reason))];
        let audit: Map<String, Value> =
            audit.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        ToolReply::error("tool_denied", text).with(audit)
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
