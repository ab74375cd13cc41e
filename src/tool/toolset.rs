//! The tools of a run: ordered, with names that are unique, in views that only narrow.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::caller::Caller;
use super::reply::ToolReply;
use super::schema::Schema;
use super::traits::{Access, Tool};
use super::typed::invalid_arguments;
use crate::error::{Error, ErrorKind, Result};
use crate::model::ToolSpec;

/// The longest name that all providers take.
pub(crate) const MAX_NAME: usize = 64;

/// Whether all providers take it as the name of a tool.
pub(crate) fn is_tool_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// An ordered set of tools. Cheap to clone; views share the tools and their compiled schemas.
#[derive(Clone, Default)]
pub struct Toolset(Arc<[Arc<Entry>]>);

pub(super) struct Entry {
    pub(super) tool: Arc<dyn Tool>,
    pub(super) spec: Arc<ToolSpec>,
    pub(super) schema: Schema,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spec.name)
    }
}

impl Entry {
    /// The arguments, if they satisfy the tool's schema.
    pub(super) fn fitting(
        &self,
        args: Map<String, Value>,
    ) -> std::result::Result<Map<String, Value>, ToolReply> {
        let value = Value::Object(args);
        let issues = self.schema.violations(&value);
        match value {
            Value::Object(args) if issues.is_empty() => Ok(args),
            _ => Err(invalid_arguments(&issues)),
        }
    }
}

impl Toolset {
    /// No tools.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// These and one more, at the end.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Tool`] if its name is taken or is none that every provider takes, or its parameters are no object schema;
    /// [`ErrorKind::Schema`] if that does not compile.
    pub fn with(&self, tool: impl Tool) -> Result<Self> {
        self.with_shared(Arc::new(tool))
    }

    /// As [`Toolset::with`], for a tool that others hold too.
    ///
    /// # Errors
    ///
    /// As [`Toolset::with`].
    pub fn with_shared(&self, tool: Arc<dyn Tool>) -> Result<Self> {
        let entry = Arc::new(self.checked(tool)?);
        Ok(Self(self.0.iter().cloned().chain([entry]).collect()))
    }

    /// These and those, at the end: with their compiled schemas.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Tool`] if a name is in both.
    pub fn with_all(&self, others: &Self) -> Result<Self> {
        if let Some(name) = others.names().find(|name| self.get(name).is_some()) {
            let reason = "another tool of the set has this name".to_owned();
            return Err(ErrorKind::Tool { name: name.to_owned(), reason }.into());
        }
        Ok(Self(self.0.iter().chain(&*others.0).cloned().collect()))
    }

    fn checked(&self, tool: Arc<dyn Tool>) -> Result<Entry> {
        let spec = Arc::new(tool.spec().clone());
        let fail =
            |reason: &str| Error::new(ErrorKind::Tool { name: spec.name.clone(), reason: reason.to_owned() });
        if !is_tool_name(&spec.name) {
            return Err(fail("a name has 1 to 64 of the characters a-z, A-Z, 0-9, _ and -"));
        }
        if self.get(&spec.name).is_some() {
            return Err(fail("another tool of the set has this name"));
        }
        if spec.description.trim().is_empty() {
            return Err(fail("a tool needs a description: a model chooses by it"));
        }
        if spec.parameters.get("type").and_then(|kind| kind.as_str()) != Some("object") {
            return Err(fail("its parameters must be an object schema: {\"type\": \"object\", …}"));
        }
        if spec.parameters.pointer("/properties/_message").is_some() {
            return Err(fail("`_message` is taken: it is where a model may write a status text"));
        }
        let schema = Schema::compile(Arc::new(spec.parameters.clone()), &spec.name)?;
        Ok(Entry { tool, spec, schema })
    }

    /// The view of those that satisfy `keep`, in order.
    #[must_use]
    pub fn filter(&self, mut keep: impl FnMut(&dyn Tool) -> bool) -> Self {
        Self(self.0.iter().filter(|entry| keep(&*entry.tool)).cloned().collect())
    }

    /// The view of those with one of these names, in the set's order. Names that it lacks are left out.
    #[must_use]
    pub fn only(&self, names: &[&str]) -> Self {
        self.filter(|tool| names.contains(&tool.spec().name.as_str()))
    }

    /// The view without those names.
    #[must_use]
    pub fn without(&self, names: &[&str]) -> Self {
        self.filter(|tool| !names.contains(&tool.spec().name.as_str()))
    }

    /// The view without tools that start runs.
    #[must_use]
    pub fn without_spawning(&self) -> Self {
        self.filter(|tool| tool.access() != Access::Spawn)
    }

    /// The view without tools that are of no use now.
    pub(crate) fn without_idle(&self) -> Self {
        self.filter(|tool| !tool.is_idle())
    }

    /// The view of what a child may have: without tools that belong to one run.
    #[must_use]
    pub fn inheritable(&self) -> Self {
        if self.0.iter().all(|entry| entry.tool.is_inheritable()) {
            return self.clone();
        }
        self.filter(Tool::is_inheritable)
    }

    /// This set with `first` before all others, if it has no tool of that name.
    pub(super) fn with_first(&self, first: &Arc<Entry>) -> Self {
        if self.get(&first.spec.name).is_some() {
            return self.clone();
        }
        Self([Arc::clone(first)].into_iter().chain(self.0.iter().cloned()).collect())
    }

    /// This set with those of `others` before it whose names it lacks.
    #[must_use]
    pub fn with_missing(&self, others: &Self) -> Self {
        let missing = others.0.iter().filter(|other| self.get(&other.spec.name).is_none());
        Self(missing.chain(&*self.0).cloned().collect())
    }

    pub(super) fn entry(&self, name: &str) -> Option<&Arc<Entry>> {
        self.0.iter().find(|entry| entry.spec.name == name)
    }

    /// A tool by its name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.entry(name).map(|entry| &entry.tool)
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|entry| entry.spec.name.as_str())
    }

    /// What a model sees of them, in order.
    #[must_use]
    pub fn specs(&self) -> Arc<[Arc<ToolSpec>]> {
        self.0.iter().map(|entry| Arc::clone(&entry.spec)).collect()
    }

    /// What their sections say now, in order: see [`Tool::section`]. Empty if there is nothing to say.
    pub(crate) async fn sections(&self, caller: &Caller) -> String {
        let mut text = String::new();
        for section in self.0.iter().filter_map(|entry| entry.tool.section(caller)) {
            let section = section.await;
            let gap = if text.is_empty() || section.is_empty() { "" } else { "\n\n" };
            text.push_str(gap);
            text.push_str(&section);
        }
        text
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Toolset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

#[cfg(test)]
#[path = "toolset_tests.rs"]
mod tests;
