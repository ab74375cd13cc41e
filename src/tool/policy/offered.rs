//! Which tools a model is offered.

use super::rules::{Effect, Policy};
use crate::context::RunContext;
use crate::tool::toolset::Toolset;
use crate::tool::traits::Access;

/// What a model is offered of a run's tools: what could only be refused, and what is of no use now, is left out. Whoever calls it all
/// the same gets the refusal.
pub(crate) fn offered(tools: &Toolset, run: &RunContext, policy: &Policy) -> Toolset {
    admitted(tools, run, policy).without_idle()
}

/// As [`offered`], with what may be of use later.
pub(crate) fn admitted(tools: &Toolset, run: &RunContext, policy: &Policy) -> Toolset {
    let may_nest = run.may_nest();
    let agents = run.agents();
    let is_watched = run.root().is_watched_for_asks();
    tools.filter(|tool| {
        (may_nest || tool.access() != Access::Spawn)
            && (is_watched || !tool.needs_person())
            && match policy.at_best(tool, &agents) {
                Effect::Allow => true,
                Effect::Ask => is_watched,
                Effect::Deny => false,
            }
    })
}
