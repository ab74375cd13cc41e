//! What tools may do, decided before a call begins.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::rule::{Fits, Rule};
use crate::tool::traits::{Access, Risk, Tool};

/// What is to happen with a call, in order of strictness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// It is made.
    Allow,
    /// A person is asked, and decides. Where nobody is there it is not made.
    Ask,
    /// It is not made.
    Deny,
}

/// Rules on calls: allow, ask or deny by tool, by argument and by agent.
///
/// A rule that denies wins over one that asks, and that over one that allows. Without a word on a call, reading and delegating
/// are allowed, and what changes something or says of itself that its risk is high is asked for.
///
/// What is denied to an agent, or asked for, is so in the runs below it too, whoever their agents are: it cannot have another do it. What an agent
/// is allowed, it alone is. That all tools are denied does not take from an agent the one by which it answers: see [`Rule`].
///
/// A child has its parent's policy, or one that is [narrowed](Policy::narrowed_by): it can only do what its parent could.
///
/// # Examples
///
/// ```
/// use anabranch::tool::{Effect, Policy};
///
/// let policy = Policy::default()
///     .allow(["edit_file"])
///     .with(Effect::Allow, "write_file(path=docs/**)".parse()?)
///     .with(Effect::Deny, "edit_file(path=docs/api/**)".parse()?);
/// # let _ = policy;
/// # Ok::<(), anabranch::error::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Each has to allow.
    layers: Arc<[Layer]>,
}

#[derive(Debug, Clone, PartialEq)]
struct Layer {
    rules: Vec<(Effect, Rule)>,
    /// Whether a call of which no rule speaks is asked for if it changes something.
    is_careful: bool,
    /// With one, what is not on it is denied.
    list: Option<Arc<List>>,
}

/// The tools that one agent may have.
#[derive(Debug, PartialEq)]
struct List {
    whose: Arc<str>,
    names: BTreeSet<String>,
}

/// What a policy says of one call.
#[derive(Debug, Clone, PartialEq)]
pub struct Ruling {
    /// What is to happen.
    pub effect: Effect,
    /// The rule that says so; none where no rule speaks of the call.
    pub rule: Option<Rule>,
    /// The agent whose list of tools leaves the call's out: see [`Policy::only`].
    pub off_list_of: Option<Arc<str>>,
}

/// A call that a policy is held against.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) tool: &'a dyn Tool,
    pub(crate) args: &'a Map<String, Value>,
    /// The agent of the run that calls, and those of the runs above it.
    pub(crate) agents: &'a [&'a str],
}

impl Default for Policy {
    fn default() -> Self {
        Self { layers: Arc::new([Layer::new(true)]) }
    }
}

impl Policy {
    /// Allows whatever no rule speaks of: the beginning of a policy that only narrows another.
    #[must_use]
    pub fn open() -> Self {
        Self { layers: Arc::new([Layer::new(false)]) }
    }

    /// Denies all but these tools, which are those of the agent `whose`, and allows what no rule speaks of, as
    /// [`Policy::open`] does. Tools that belong to one run (`Tool::is_inheritable`) are not held against the list: they come from
    /// what runs it, and what they call is.
    #[must_use]
    pub fn only<S: Into<String>>(whose: impl Into<Arc<str>>, tools: impl IntoIterator<Item = S>) -> Self {
        let names = tools.into_iter().map(Into::into).collect();
        let list = Some(Arc::new(List { whose: whose.into(), names }));
        Self { layers: Arc::new([Layer { list, ..Layer::new(false) }]) }
    }

    /// Allows all calls of these tools, also if they change something.
    #[must_use]
    pub fn allow<S: Into<String>>(self, tools: impl IntoIterator<Item = S>) -> Self {
        self.with_each(Effect::Allow, tools)
    }

    /// Asks a person before each call of these tools.
    #[must_use]
    pub fn ask<S: Into<String>>(self, tools: impl IntoIterator<Item = S>) -> Self {
        self.with_each(Effect::Ask, tools)
    }

    /// Denies these tools.
    #[must_use]
    pub fn deny<S: Into<String>>(self, tools: impl IntoIterator<Item = S>) -> Self {
        self.with_each(Effect::Deny, tools)
    }

    fn with_each<S: Into<String>>(self, effect: Effect, tools: impl IntoIterator<Item = S>) -> Self {
        tools.into_iter().fold(self, |policy, tool| policy.with(effect, Rule::tool(tool)))
    }

    /// With one more rule.
    #[must_use]
    pub fn with(self, effect: Effect, rule: Rule) -> Self {
        let mut layers = self.layers.to_vec();
        if let Some(last) = layers.last_mut() {
            last.rules.push((effect, rule));
        }
        Self { layers: layers.into() }
    }

    /// This and the other: what both allow is allowed, what one denies is denied, else it is asked for.
    #[must_use]
    pub fn narrowed_by(&self, other: &Self) -> Self {
        Self { layers: self.layers.iter().chain(&*other.layers).cloned().collect() }
    }

    /// The rules: a host checks them for tools that it does not have.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.layers.iter().flat_map(|layer| &layer.rules).map(|(_, rule)| rule)
    }

    /// What is to happen with a call of a run of `agent` that has no run above it.
    #[must_use]
    pub fn rule_on(&self, tool: &dyn Tool, args: &Map<String, Value>, agent: &str) -> Ruling {
        self.ruling(Subject { tool, args, agents: &[agent] })
    }

    pub(crate) fn ruling(&self, call: Subject<'_>) -> Ruling {
        self.ruling_as_meant(call, self.meaning(call).as_ref())
    }

    /// As [`Policy::ruling`], for arguments that mean what they say: their tool is not asked.
    pub(super) fn ruling_as_said(&self, call: Subject<'_>) -> Ruling {
        self.ruling_as_meant(call, None)
    }

    fn ruling_as_meant(&self, call: Subject<'_>, meaning: Option<&Map<String, Value>>) -> Ruling {
        let strictest = |one: Ruling, other: Ruling| if other.effect > one.effect { other } else { one };
        let rulings = self.layers.iter().map(|layer| layer.ruling(call, meaning));
        rulings.reduce(strictest).unwrap_or(Ruling { effect: Effect::Deny, rule: None, off_list_of: None })
    }

    /// The rules for whose sake a call is asked for: who permits what one of them asks for has not permitted what another does. None is
    /// among them where it is asked for without a rule.
    pub(crate) fn asking(&self, call: Subject<'_>) -> Vec<Option<&Rule>> {
        let meaning = self.meaning(call);
        self.layers.iter().flat_map(|layer| layer.asking(call, meaning.as_ref())).collect()
    }

    /// As [`Policy::asking`], for arguments that mean what they say.
    pub(super) fn asking_as_said(&self, call: Subject<'_>) -> Vec<Option<&Rule>> {
        self.layers.iter().flat_map(|layer| layer.asking(call, None)).collect()
    }

    /// What the call leads to, if a rule looks at that.
    fn meaning(&self, call: Subject<'_>) -> Option<Map<String, Value>> {
        let name = call.tool.spec().name.as_str();
        let looks = self.rules().any(|rule| !rule.is_about_all_arguments() && rule.speaks_of(name));
        if looks { call.tool.meaning(call.args) } else { None }
    }

    /// The least that can be said of calls whose arguments are not known yet.
    pub(crate) fn at_best(&self, tool: &dyn Tool, agents: &[&str]) -> Effect {
        let layers = self.layers.iter().map(|layer| layer.at_best(tool, agents));
        layers.max().unwrap_or(Effect::Deny)
    }
}

impl Layer {
    fn new(is_careful: bool) -> Self {
        Self { rules: Vec::new(), is_careful, list: None }
    }

    /// The agent whose list leaves the tool out.
    fn off_list_of(&self, tool: &dyn Tool) -> Option<&Arc<str>> {
        let list = self.list.as_ref().filter(|list| !list.names.contains(&tool.spec().name))?;
        tool.is_inheritable().then_some(&list.whose)
    }

    fn ruling(&self, call: Subject<'_>, meaning: Option<&Map<String, Value>>) -> Ruling {
        if let Some(whose) = self.off_list_of(call.tool) {
            return Ruling { effect: Effect::Deny, rule: None, off_list_of: Some(Arc::clone(whose)) };
        }
        let speaking = self.speaking(call, meaning);
        match speaking.max_by_key(|(effect, _)| *effect) {
            Some((effect, rule)) => Ruling { effect: *effect, rule: Some(rule.clone()), off_list_of: None },
            None => Ruling {
                effect: self.default(call.tool.access(), call.tool.risk(call.args)),
                rule: None,
                off_list_of: None,
            },
        }
    }

    fn speaking(
        &self,
        call: Subject<'_>,
        meaning: Option<&Map<String, Value>>,
    ) -> impl Iterator<Item = &(Effect, Rule)> {
        self.rules.iter().filter(move |(effect, rule)| {
            concerns(*effect, rule, call.agents, call.tool)
                && match rule.fits(call.args, meaning) {
                    Fits::Surely => true,
                    Fits::Perhaps => *effect > Effect::Allow,
                    Fits::No => false,
                }
        })
    }

    fn asking(&self, call: Subject<'_>, meaning: Option<&Map<String, Value>>) -> Vec<Option<&Rule>> {
        let speaking: Vec<_> = self.speaking(call, meaning).collect();
        if speaking.is_empty() {
            let asks = self.default(call.tool.access(), call.tool.risk(call.args)) == Effect::Ask;
            return if asks { vec![None] } else { Vec::new() };
        }
        let asking = speaking.into_iter().filter(|(effect, _)| *effect == Effect::Ask);
        asking.map(|(_, rule)| Some(rule)).collect()
    }

    fn at_best(&self, tool: &dyn Tool, agents: &[&str]) -> Effect {
        if self.off_list_of(tool).is_some() {
            return Effect::Deny;
        }
        let speaking = || self.rules.iter().filter(|(effect, rule)| concerns(*effect, rule, agents, tool));
        let whole = speaking().filter(|(_, rule)| rule.is_about_all_arguments());
        let for_all = whole.map(|(effect, _)| *effect).max();
        // What holds of all calls cannot become better by what holds of some.
        if let Some(effect) = for_all.filter(|effect| *effect > Effect::Allow) {
            return effect;
        }
        let may_be_allowed = for_all.is_some() || speaking().any(|(effect, _)| *effect == Effect::Allow);
        if may_be_allowed { Effect::Allow } else { self.default(tool.access(), Risk::Low) }
    }

    fn default(&self, access: Access, risk: Risk) -> Effect {
        match (self.is_careful, access, risk) {
            (false, ..) | (true, Access::Read | Access::Spawn, Risk::Low | Risk::Medium) => Effect::Allow,
            (true, Access::Write, _) | (true, Access::Read | Access::Spawn, Risk::High) => Effect::Ask,
        }
    }
}

/// Whether a rule is about calls of a tool by the first of these agents, above which the others are.
fn concerns(effect: Effect, rule: &Rule, agents: &[&str], tool: &dyn Tool) -> bool {
    let reach = if effect == Effect::Allow { 1 } else { agents.len() };
    rule.concerns(tool) && agents.iter().take(reach).any(|agent| rule.speaks_for(agent))
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
