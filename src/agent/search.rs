//! `run_search`: has a question about the workspace answered by a child that can only read.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::subtask::text;
use crate::budget::RunLimits;
use crate::tool::{Access, SubAgentRun, SubAgentTool, ToolReply, Toolset};

/// The tools that a search may have, if its parent has them: they read, and none of them starts a run.
pub const SEARCH_TOOLS: [&str; 8] = [
    "read_file",
    "glob",
    "grep",
    "list_directory",
    "memory_read",
    "thread_memory_list",
    "asset_search",
    "asset_list",
];

/// Turns of a search, as in the original core; a thorough one has twice as many.
const BASE_TURNS: u64 = 20;

/// The tool `run_search`.
#[derive(Debug, Clone)]
pub struct RunSearch {
    base_turns: u64,
    limits: RunLimits,
}

impl RunSearch {
    /// With this bound on the child's model turns; a thorough search has twice as many. Default 20.
    #[must_use]
    pub fn with_base_turns(base_turns: u64) -> Self {
        Self { base_turns, limits: RunLimits::default() }
    }

    /// With these limits for each child, narrowed by its parent's. Default: the parent's alone.
    #[must_use]
    pub fn limited(mut self, limits: RunLimits) -> Self {
        self.limits = limits;
        self
    }
}

impl Default for RunSearch {
    fn default() -> Self {
        Self::with_base_turns(BASE_TURNS)
    }
}

/// How thorough a search is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Breadth {
    /// The likely places.
    #[default]
    Medium,
    /// All places.
    VeryThorough,
}

/// The parameters of [`RunSearch`], as a model may send them: what is missing has a code of its own.
#[derive(Debug, Deserialize)]
pub struct SearchParams {
    #[serde(default)]
    query: Value,
    #[serde(default)]
    breadth: Value,
}

impl JsonSchema for SearchParams {
    fn schema_name() -> Cow<'static, str> {
        "SearchParams".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "properties": {
                "query": { "type": "string", "description": "What to find, in full sentences or keywords." },
                "breadth": {
                    "type": "string", "enum": ["medium", "very thorough"], "default": "medium",
                    "description": "`medium` looks in the likely places, `very thorough` in all.",
                },
            },
            "required": ["query"],
            "additionalProperties": false,
        })
    }
}

impl Breadth {
    fn of(value: &Value) -> Self {
        if value.as_str() == Some("very thorough") { Self::VeryThorough } else { Self::Medium }
    }

    fn brief(self) -> &'static str {
        match self {
            Self::Medium => {
                "Do a targeted search: think of the names and places that are most likely, look there, follow what you find, and stop as soon as the question is answered."
            }
            Self::VeryThorough => {
                "Do a systematic sweep: go through every place where an answer may be, under every name that it may have, and only stop when further looking finds nothing new."
            }
        }
    }
}

impl SubAgentTool for RunSearch {
    type Params = SearchParams;

    fn name(&self) -> &str {
        "run_search"
    }

    fn description(&self) -> &str {
        "Has a read-only sub-agent search the workspace and report what it found, with the places. Several calls in one turn run at the same time. Use it for open questions; a known file is read directly."
    }

    fn noun(&self) -> &str {
        "search"
    }

    fn build_run(&self, params: SearchParams) -> Result<SubAgentRun, ToolReply> {
        let Some(query) = params.query.as_str().filter(|query| !query.trim().is_empty()) else {
            return Err(ToolReply::error("missing_query", "`query` is missing: say what to find."));
        };
        let breadth = Breadth::of(&params.breadth);
        let instructions = format!(
            "Find the answer to this query in the workspace. You can only read.\n\n<query>\n{query}\n</query>\n\n{}\n\nAnswer with what you found and where: each statement with the file and line that shows it. Say what you looked for and did not find.",
            breadth.brief(),
        );
        let mut run = SubAgentRun::new("search", instructions);
        run.max_turns = Some(match breadth {
            Breadth::Medium => self.base_turns,
            Breadth::VeryThorough => self.base_turns.saturating_mul(2),
        });
        run.limits = self.limits;
        run.no_result_message = "The search ended without an answer.".into();
        run.error_extras = Map::from_iter([("query".to_owned(), json!(query))]);
        Ok(run)
    }

    fn checks_arguments(&self) -> bool {
        true
    }

    fn child_tools(&self, parent: &Toolset) -> Toolset {
        // By what they do, too: a tool of the same name that writes or delegates is another tool.
        parent.only(&SEARCH_TOOLS).filter(|tool| tool.access() == Access::Read)
    }

    fn status_text(&self, args: &Map<String, Value>) -> Option<String> {
        Some(match args.get("query").and_then(text) {
            Some(query) => format!("Searching: {query}"),
            None => "Searching workspace".to_owned(),
        })
    }
}
