//! Which of the tools that it lists an agent has.

use std::sync::Arc;

use super::definition::Definition;
use super::finish::Finish;
use super::front::nearest;
use super::notices::tell;
use crate::agent::EXECUTE_CODE;
use crate::message::cap_text;
use crate::tool::{Caller, Policy, Toolset};

/// Names of tools in files that were written for other programs, and ours that stand for them.
pub const COUNTERPARTS: [(&str, &str); 9] = [
    ("Read", "read_file"),
    ("Grep", "grep"),
    ("Glob", "glob"),
    ("LS", "list_directory"),
    ("Write", "write_file"),
    ("Edit", "edit_file"),
    ("MultiEdit", "edit_file"),
    ("Task", "delegate"),
    ("Agent", "delegate"),
];

/// The longest name that is quoted, in bytes.
const QUOTED_BYTES: usize = 100;

/// What the lists of a definition come to among some tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grant {
    /// The tools that it may have, in its order; none is all of them.
    pub tools: Option<Vec<String>>,
    /// The tools that it may not have.
    pub denied: Vec<String>,
    /// What grants or denies nothing, each as a sentence with the nearest names.
    pub problems: Vec<String>,
}

impl Grant {
    /// Of a definition, among these tools.
    ///
    /// # Errors
    ///
    /// A sentence, if it lists tools and none of them is there: it would be an agent with nothing to work with.
    pub fn of(definition: &Definition, tools: &Toolset) -> Result<Self, String> {
        let mut grant = Self::default();
        grant.denied = grant.disallowed(&definition.disallowed_tools, tools);
        // A pattern of what is denied cannot be looked at, so all of it is.
        let patterns =
            definition.disallowed_tools.iter().filter_map(|name| bare(name).filter(|_| name.contains('(')));
        let whole = patterns.filter_map(|name| counterpart(name, tools)).map(str::to_owned);
        grant.denied.extend(whole.collect::<Vec<_>>());
        if definition.tools.is_empty() || definition.tools.iter().any(|name| name == "*") {
            return Ok(grant);
        }
        let known = grant.known(&definition.tools, tools);
        // With `finish` alone it can only report, and that is what it is for.
        if known.is_empty() && !definition.tools.iter().any(|name| name == Finish::NAME) {
            let listed: Vec<&str> = definition.tools.iter().map(String::as_str).collect();
            return Err(format!(
                "none of the tools of the agent {} is there ({}); the tools are {}",
                definition.name,
                cap_text(&listed.join(", "), 500),
                listed_names(tools)
            ));
        }
        grant.tools = Some(known);
        Ok(grant)
    }

    /// Tells, in the log of the run that calls, what grants or denies nothing.
    pub(super) async fn tell_problems(&self, definition: &Definition, caller: &Caller) {
        for problem in &self.problems {
            tell(format!("{}: {problem}", definition.path.display()), caller).await;
        }
    }

    /// What it takes away from what the parent of a run may do; none is nothing.
    pub(super) fn policy(&self, agent: &Arc<str>) -> Option<Policy> {
        if self.tools.is_none() && self.denied.is_empty() {
            return None;
        }
        let policy =
            self.tools.as_ref().map_or_else(Policy::open, |names| Policy::only(Arc::clone(agent), names));
        Some(policy.deny(&self.denied))
    }

    /// What is not to be had. That includes the tool of a producer that lets its agents write code, which is not among the others.
    fn disallowed(&mut self, names: &[String], tools: &Toolset) -> Vec<String> {
        if names.iter().any(|name| name == "*") {
            return tools.names().chain([EXECUTE_CODE]).map(str::to_owned).collect();
        }
        let (own, names): (Vec<String>, Vec<String>) =
            names.iter().cloned().partition(|name| [EXECUTE_CODE, Finish::NAME].contains(&name.as_str()));
        let mut denied = self.known(&names, tools);
        if own.iter().any(|name| name == Finish::NAME) {
            let text = "the tool finish cannot be disallowed: with it a run says how it ended; leave it out";
            self.problems.push(text.to_owned());
        }
        denied.extend(own.into_iter().find(|name| name == EXECUTE_CODE));
        denied
    }

    fn known(&mut self, names: &[String], tools: &Toolset) -> Vec<String> {
        let mut known: Vec<String> = Vec::new();
        // `finish` needs no list: each run has it.
        for name in names.iter().filter(|name| *name != "*" && *name != Finish::NAME) {
            if name.contains('(') {
                self.problems.push(format!(
                    "the tool {:?} is listed with a pattern, which means nothing here; list the tool alone",
                    cap_text(name, QUOTED_BYTES)
                ));
                continue;
            }
            match counterpart(name, tools) {
                Some(name) if !known.iter().any(|other| other == name) => known.push(name.to_owned()),
                Some(_) => {}
                None => self.problems.push(format!(
                    "there is no tool {:?} here{}",
                    cap_text(name, QUOTED_BYTES),
                    nearest(name, tools.names())
                        .map(|near| format!("; did you mean {near}?"))
                        .unwrap_or_else(|| "; leave it out".to_owned())
                )),
            }
        }
        known
    }
}

/// The name before a pattern.
fn bare(name: &str) -> Option<&str> {
    name.split('(').next().map(str::trim)
}

/// The tool of this name, here or in other programs' files.
fn counterpart<'t>(name: &str, tools: &'t Toolset) -> Option<&'t str> {
    let ours = COUNTERPARTS.iter().find(|(theirs, _)| *theirs == name).map_or(name, |(_, ours)| ours);
    tools.names().find(|own| *own == name).or_else(|| tools.names().find(|own| *own == ours))
}

fn listed_names(tools: &Toolset) -> String {
    let names: Vec<&str> = tools.names().collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
#[path = "grant_tests.rs"]
mod tests;
