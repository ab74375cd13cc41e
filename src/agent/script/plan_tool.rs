//! `plan_orchestration_script`: a script for an objective, written by a sub-agent and run.

use std::borrow::Cow;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::plan::ScriptPlanner;
use super::producer::{ScriptLimits, ScriptRun};
use crate::agent::planner::{objective, planner_run};
use crate::agent::sandbox::Sandbox;
use crate::agent::subtask::text;
use crate::tool::{SubAgentRun, SubAgentTool, ToolReply, Toolset};

/// Agents that a script of this tool may start. From the original core.
const MAX_AGENT_CALLS: u32 = 20;

/// The tool `plan_orchestration_script`. Its result is `{script, executed, result?}`.
#[derive(Debug, Clone)]
pub struct PlanOrchestrationScript {
    run: ScriptRun,
}

impl PlanOrchestrationScript {
    /// With scripts that run as this one does, but for its code and its inputs.
    #[must_use]
    pub fn new(run: ScriptRun) -> Self {
        Self { run }
    }

    /// With its scripts in this sandbox. Default: in this process.
    #[must_use]
    pub fn in_sandbox(mut self, sandbox: Arc<dyn Sandbox>) -> Self {
        self.run = self.run.in_sandbox(sandbox);
        self
    }
}

impl Default for PlanOrchestrationScript {
    /// In this process, with at most 20 agents, and every other default of scripts.
    fn default() -> Self {
        let limits = ScriptLimits { max_agent_calls: MAX_AGENT_CALLS, ..ScriptLimits::default() };
        Self::new(ScriptRun::new("").with_limits(limits))
    }
}

/// The parameters of [`PlanOrchestrationScript`], as a model may send them: what is missing has a code of its own.
#[derive(Debug, Deserialize)]
pub struct PlanScriptParams {
    #[serde(default)]
    objective: Value,
    #[serde(default)]
    inputs: Value,
    #[serde(default)]
    output_schema: Value,
    #[serde(default)]
    execute: Value,
}

impl JsonSchema for PlanScriptParams {
    fn schema_name() -> Cow<'static, str> {
        "PlanScriptParams".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "properties": {
                "objective": { "type": "string", "description": "What the script is to achieve, in full: its author sees nothing of this conversation." },
                "inputs": { "type": "object", "description": "Values that the objective speaks of, by name." },
                "output_schema": { "type": "object", "description": "JSON schema of what the script has to return." },
                "execute": { "type": "boolean", "default": true, "description": "False writes the script and does not run it." },
            },
            "required": ["objective"],
            "additionalProperties": false,
        })
    }
}

impl SubAgentTool for PlanOrchestrationScript {
    type Params = PlanScriptParams;

    fn name(&self) -> &str {
        "plan_orchestration_script"
    }

    fn description(&self) -> &str {
        "Has a sub-agent write a script that starts agents, passes their answers on and puts a result together, and runs it. Use it for work of many similar pieces, or of stages."
    }

    fn noun(&self) -> &str {
        "script"
    }

    fn build_run(&self, params: PlanScriptParams) -> Result<SubAgentRun, ToolReply> {
        let PlanScriptParams { objective: given, inputs, output_schema, execute } = params;
        let objective = objective(&given)?;
        let invalid = |text: &str| Err(ToolReply::error("invalid_tool_arguments", text));
        let inputs = match inputs {
            Value::Null => json!({}),
            Value::Object(_) => inputs,
            _ => return invalid("`inputs` is no object: give the values by name."),
        };
        let executes = match execute {
            Value::Null => true,
            Value::Bool(executes) => executes,
            _ => return invalid("`execute` is neither true nor false."),
        };
        let mut run = planner_run(objective.to_owned(), objective);
        run.output_schema = match output_schema {
            Value::Null => None,
            Value::Object(_) => {
                let schema = Arc::new(output_schema);
                if let Err(error) = crate::tool::Schema::compile(Arc::clone(&schema), "the result") {
                    return invalid(&error.to_string());
                }
                Some(schema)
            }
            _ => return invalid("`output_schema` is no object: give a JSON schema."),
        };
        run.error_code = "script_failed".into();
        run.producer = Some(Arc::new(ScriptPlanner::new(self.run.clone(), inputs).executing(executes)));
        Ok(run)
    }

    fn checks_arguments(&self) -> bool {
        true
    }

    fn child_tools(&self, parent: &Toolset) -> Toolset {
        parent.clone()
    }

    fn status_text(&self, args: &Map<String, Value>) -> Option<String> {
        Some(match args.get("objective").and_then(text) {
            Some(objective) => format!("Orchestrating: {objective}"),
            None => "Orchestrating agents".to_owned(),
        })
    }
}
