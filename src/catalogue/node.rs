//! Definitions as nodes of graphs.

use std::sync::Arc;

use super::definition::Definition;
use super::grant::Grant;
use super::spawner::Spawner;
use crate::agent::planner::AgentKind;
use crate::tool::{SubAgentRun, Toolset};

impl Spawner {
    /// The agents of the files as agents that a node can be: for [`crate::agent::planner::GraphPlanner::with_agents_of`]. A node answers as
    /// any does, without `finish`; it has the tools, the model and the limits of its definition. What of them cannot be had is told in the
    /// log of the graph's run, as [`Spawner::start`] tells it. Definitions that none of `tools` fits are left out.
    #[must_use]
    pub fn node_agents(&self, tools: &Toolset) -> Vec<AgentKind> {
        let definitions = self.definitions().definitions;
        definitions.iter().filter_map(|definition| self.node_agent(definition, tools)).collect()
    }

    fn node_agent(&self, definition: &Arc<Definition>, tools: &Toolset) -> Option<AgentKind> {
        let grant = Grant::of(definition, &tools.inheritable()).ok()?;
        let (policy, grant) = (grant.policy(&definition.name), Arc::new(grant));
        let agent = AgentKind::new(&definition.name, &definition.description);
        let (spawner, of_node) = (self.clone(), Arc::clone(definition));
        let agent = agent.prepared(move |run, caller| {
            let (spawner, definition, grant) = (spawner.clone(), Arc::clone(&of_node), Arc::clone(&grant));
            Box::pin(async move {
                grant.tell_problems(&definition, caller).await;
                let model = spawner.model_or_tell(&definition, caller).await;
                SubAgentRun { model, ..run }
            })
        });
        let definition = Arc::clone(definition);
        Some(agent.brief(move |prompt| SubAgentRun {
            system_prompt: Some(Arc::clone(&definition.prompt)),
            output_schema: definition.output_schema.clone(),
            max_turns: definition.max_steps,
            limits: definition.limits,
            policy: policy.clone(),
            ..SubAgentRun::new(&definition.name, prompt)
        }))
    }
}
