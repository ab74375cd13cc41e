//! `run_subtask`: hands a self-contained piece of work to a child with the same tools.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::budget::RunLimits;
use crate::context::RunContext;
use crate::forward::forward_subagent_stream;
use crate::outcome::SubAgentOutcome;
use crate::tool::shared::{Author, Namespace, SharedResults};
use crate::tool::{Delegated, SubAgentRun, SubAgentTool, ToolContext, ToolReply, Toolset};

/// The tool `run_subtask`. The child has every tool of its parent, this one included, and answers in prose.
#[derive(Debug, Clone, Default)]
pub struct RunSubtask {
    max_turns: Option<u64>,
    limits: RunLimits,
}

impl RunSubtask {
    /// With this bound on the child's model turns. Default: the producer's.
    #[must_use]
    pub fn with_max_turns(max_turns: u64) -> Self {
        Self { max_turns: Some(max_turns), ..Self::default() }
    }

    /// With these limits for each child, narrowed by its parent's. Default: the parent's alone.
    #[must_use]
    pub fn limited(mut self, limits: RunLimits) -> Self {
        self.limits = limits;
        self
    }
}

/// The parameters of [`RunSubtask`], as a model may send them: what is missing has a code of its own.
#[derive(Debug, Deserialize)]
pub struct SubtaskParams {
    #[serde(default)]
    description: Value,
    #[serde(default)]
    prompt: Value,
}

impl JsonSchema for SubtaskParams {
    fn schema_name() -> Cow<'static, str> {
        "SubtaskParams".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "properties": {
                "description": { "type": "string", "description": "What the subtask is, in 3 to 7 words: shown to people." },
                "prompt": {
                    "type": "string",
                    "description": "The whole brief. The subtask sees nothing of this conversation: say what to do, where, and what to answer with.",
                },
            },
            "required": ["description", "prompt"],
            "additionalProperties": false,
        })
    }
}

impl SubAgentTool for RunSubtask {
    type Params = SubtaskParams;

    fn name(&self) -> &str {
        "run_subtask"
    }

    fn description(&self) -> &str {
        "Hands a self-contained piece of work to a sub-agent with the same tools and returns its answer. Several calls in one turn run at the same time. Use it for work that takes many steps of which only the answer matters here."
    }

    fn build_run(&self, params: SubtaskParams) -> Result<SubAgentRun, ToolReply> {
        let Some(prompt) = text(&params.prompt) else {
            let message = "`prompt` is missing: say what the subtask is to do, in full.";
            return Err(ToolReply::error("missing_prompt", message));
        };
        let description = text(&params.description);
        let mut run = SubAgentRun::new("subtask", prompt);
        if let Some(description) = description {
            run.title = description.into();
        }
        run.max_turns = self.max_turns;
        run.limits = self.limits;
        run.no_result_message = "The subtask ended without an answer.".into();
        run.error_extras = Map::from_iter([("description".to_owned(), json!(description))]);
        Ok(run)
    }

    fn checks_arguments(&self) -> bool {
        true
    }

    fn child_tools(&self, parent: &Toolset) -> Toolset {
        parent.clone()
    }

    fn offers_itself(&self) -> bool {
        true
    }

    async fn drive(&self, child: Delegated, _: &ToolContext) -> ToolReply {
        let (run, entered, stream) = child.into_parts();
        let (shared, author) = sharing(&entered.context());
        let outcome = forward_subagent_stream(stream, entered).await;
        share(&shared, &author, &outcome);
        run.settle(&outcome, &author.run_id.to_string())
    }

    fn status_text(&self, args: &Map<String, Value>) -> Option<String> {
        Some(match args.get("description").and_then(text) {
            Some(description) => format!("Running subtask: {description}"),
            None => "Running subtask".to_owned(),
        })
    }
}

/// Where a subtask that has begun will put what it came to, and in whose name.
pub(super) fn sharing(child: &RunContext) -> (SharedResults, Author) {
    (SharedResults::of(child.root()), Author::from(child))
}

/// Puts what a subtask came to among the tree's shared results, by the id of its run.
pub(super) fn share(shared: &SharedResults, author: &Author, outcome: &SubAgentOutcome) {
    let result = match (outcome.result(), outcome.error_text()) {
        (Some(result), _) => Ok(result.clone()),
        (None, error) => Err(error.unwrap_or_default()),
    };
    // Where there is no room it is left out, which a list of them says.
    let _ = shared.put(Namespace::Task, &author.run_id.to_string(), "", result, author);
}

/// A text that is not blank, trimmed.
pub(super) fn text(value: &Value) -> Option<&str> {
    value.as_str().map(str::trim).filter(|text| !text.is_empty())
}
