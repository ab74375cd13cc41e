//! What an agent with every tool of the program reads before its task: all that it needs, once.

use anabranch::agent::codeact::CodeAct;
use anabranch::agent::planner::{CreatePlan, PlanWorkflowGraph};
use anabranch::agent::script::PlanOrchestrationScript;
use anabranch::agent::{Detached, RunSearch, RunSubtask};
use anabranch::catalogue::Delegate;
use anabranch::model::ChatRequest;
use anabranch::tool::workspace::Workspace;
use anabranch::tool::{AskUser, Toolset, shared};
use serde_json::json;

use crate::agents_kit::Agents;
use crate::stage::Stage;

/// The tools of the program, in a workspace with one agent.
fn all(agents: &Agents) -> anabranch::error::Result<Toolset> {
    let tools = Workspace::open(agents.path())?.add_to(&Toolset::new())?;
    let tools = tools.with_sub_agent(RunSubtask::default())?.with_sub_agent(RunSearch::default())?;
    let tools = Detached::new().add_to(&tools.with(AskUser::new())?)?;
    let tools = Delegate::new(agents.spawner()).add_to(&tools)?;
    let tools = tools.with_sub_agent(CreatePlan::new())?.with_sub_agent(PlanWorkflowGraph::default())?;
    shared::add_to(&tools.with_sub_agent(PlanOrchestrationScript::default())?)
}

async fn first_request() -> ChatRequest {
    let agents = Agents::new(&[("reviewer", "")]);
    let stage = Stage::new(json!([{ "turns": [{ "text": "done" }] }])).produced_by(CodeAct::default());
    // Where somebody watches for asks, all of them are offered.
    let played = stage.tools(all(&agents).unwrap()).attended(Vec::new()).await;
    played.model.requests().swap_remove(0)
}

/// Characters of what stands before the task: the system prompt, and each tool with its description and its schema. At about four
/// to a token.
#[tokio::test(start_paused = true)]
async fn what_stands_before_the_task_is_bounded() {
    let request = first_request().await;
    let system = request.system.as_deref().unwrap().chars().count();
    let tools = request.tools.iter().map(|tool| {
        let schema = tool.parameters.to_string();
        tool.name.len() + tool.description.chars().count() + schema.chars().count()
    });
    let tools: usize = tools.sum();
    assert_eq!(request.tools.len(), 15);
    assert!(system <= 3_100 && tools <= 9_400, "{system} and {tools}");
}

/// What a tool does stands in the description that comes with it, and not again in the catalogue for code, which has the signatures of
/// all that are offered, and the names of the others.
#[tokio::test(start_paused = true)]
async fn nothing_of_a_tool_is_told_twice() {
    let request = first_request().await;
    let system = request.system.as_deref().unwrap();
    for tool in request.tools.iter() {
        let first = tool.description.split_inclusive(". ").next().unwrap().trim();
        assert!(!system.contains(first), "{first}");
        let of_code = tool.name != "execute_code";
        assert_eq!(
            system.matches(&format!("tools.{}(", tool.name)).count(),
            usize::from(of_code),
            "{}",
            tool.name
        );
    }
    assert!(
        system.contains("tools.grep({pattern: string, path?: string, glob?: string, ignore_case?: boolean"),
        "{system}"
    );
    assert!(
        system.contains("code calls in the same way: ask_user, list_shared, read_shared, share_result."),
        "{system}"
    );
}
