//! What a call may show of what it comes upon: its arguments name one place, and it goes through many.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::gate::not_permitted;
use super::rule::Rule;
use super::rules::{Effect, Subject};
use crate::context::RunContext;
use crate::tool::runtime::AgentRuntime;
use crate::tool::traits::Tool;

/// The rules on one argument of a call, held against what else that argument could have named: see [`crate::tool::ToolContext::reach`].
/// Cheap to ask, from any thread.
#[derive(Clone)]
pub struct Reach {
    tool: Arc<dyn Tool>,
    args: Map<String, Value>,
    key: &'static str,
    run: RunContext,
    runtime: Arc<AgentRuntime>,
    /// For whose sake the call itself was asked for; a person has permitted it. None is an ask without a rule.
    asked: Vec<Option<Rule>>,
}

impl Reach {
    /// None if no rule on calls of this tool looks at the argument.
    pub(in crate::tool) fn of(
        tool: &Arc<dyn Tool>,
        args: &Map<String, Value>,
        key: &'static str,
        run: &RunContext,
        runtime: &Arc<AgentRuntime>,
    ) -> Option<Self> {
        let policy = &runtime.policy;
        if !policy.rules().any(|rule| rule.looks_at(key) && rule.speaks_of(&tool.spec().name)) {
            return None;
        }
        let call = Subject { tool: &**tool, args, agents: &run.agents() };
        let asked = policy.asking(call).into_iter().map(|rule| rule.cloned()).collect();
        let (tool, args, run, runtime) = (Arc::clone(tool), args.clone(), run.clone(), Arc::clone(runtime));
        Some(Self { tool, args, key, run, runtime, asked })
    }

    /// Whether the call could have been made with this value of the argument, which means what it says, without another question to a
    /// person than the call's own.
    #[must_use]
    pub fn covers(&self, value: impl Into<String>) -> bool {
        let mut args = self.args.clone();
        args.insert(self.key.to_owned(), Value::String(value.into()));
        let agents = self.run.agents();
        let call = Subject { tool: &*self.tool, args: &args, agents: &agents };
        let policy = &self.runtime.policy;
        match policy.ruling_as_said(call).effect {
            Effect::Allow => true,
            Effect::Deny => false,
            Effect::Ask => {
                let mut asking = policy.asking_as_said(call);
                asking.retain(|rule| !self.asked.iter().any(|asked| asked.as_ref() == *rule));
                not_permitted(asking, &self.tool.spec().name, &self.run).is_none()
            }
        }
    }
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reach")
            .field("tool", &self.tool.spec().name)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}
