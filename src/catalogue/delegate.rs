//! `delegate`: has an agent of the catalogue do a task, by its name.

use std::time::Duration;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::notices::tell_listing;
use super::section::section;
use super::spawner::{Request, Spawner};
use crate::error::Result;
use crate::message::cap_text;
use crate::model::ToolSpec;
use crate::tool::{Access, Caller, Tool, ToolContext, ToolReply, Toolset};

/// The longest time that a call may give, in seconds: a year.
const MAX_SECONDS: f64 = 365.0 * 24.0 * 3600.0;

/// The tool `delegate {agent, task, timeout_seconds?}`.
///
/// It answers with a [`Record`](super::Record); what cannot begin is an error, with the codes of [`Spawner::start`] and
/// `invalid_timeout`. Several calls of one turn work at the same time. A run that has it is told before each of its turns which
/// agents there are: a file that comes is there at once. While there is none, the tool is not offered.
///
/// # Examples
///
/// ```
/// use anabranch::catalogue::{Catalogue, Delegate, Spawner};
/// use anabranch::tool::Toolset;
///
/// let tools = Delegate::new(Spawner::new(Catalogue::new(["agents"]))).add_to(&Toolset::new())?;
/// assert_eq!(tools.names().collect::<Vec<_>>(), ["delegate"]);
/// # Ok::<(), anabranch::error::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Delegate {
    spawner: Spawner,
    spec: ToolSpec,
}

#[derive(Debug, Deserialize)]
struct Args {
    #[serde(default)]
    agent: String,
    #[serde(default)]
    task: String,
    timeout_seconds: Option<f64>,
}

impl Delegate {
    /// The name of the tool.
    pub const NAME: &str = "delegate";

    /// The tool of this spawner.
    #[must_use]
    pub fn new(spawner: Spawner) -> Self {
        let description = "Hands a self-contained task to an agent that is defined by name, and returns how it ended and its summary: nothing else of its work comes back. Several calls in one turn run at the same time. The status is completed or blocked as the agent says, stopped if it only answered, or failed, timed_out, cancelled.";
        let parameters = json!({
            "type": "object",
            "properties": {
                "agent": { "type": "string", "description": "The name of the agent." },
                "task": {
                    "type": "string",
                    "description": "The whole task. The agent sees nothing of this conversation: say what to do, where, and what to report.",
                },
                "timeout_seconds": {
                    "type": "number", "minimum": 0,
                    "description": "How long it may take, in seconds. Left out, or 0: as its definition says.",
                },
            },
            "required": ["agent", "task"],
            "additionalProperties": false,
        });
        let spec = ToolSpec { name: Self::NAME.to_owned(), description: description.to_owned(), parameters };
        Self { spawner, spec }
    }

    /// The tools and this one, at the end.
    ///
    /// # Errors
    ///
    /// As [`Toolset::with`].
    pub fn add_to(self, tools: &Toolset) -> Result<Toolset> {
        tools.with(self)
    }

    async fn delegate(&self, args: Map<String, Value>, cx: ToolContext) -> ToolReply {
        let args: Args = match serde_json::from_value(Value::Object(args)) {
            Ok(args) => args,
            Err(error) => return ToolReply::error("invalid_tool_arguments", format!("{error}.")),
        };
        let timeout = match timeout(args.timeout_seconds) {
            Ok(timeout) => timeout,
            Err(refusal) => return refusal,
        };
        let request = Request { agent: args.agent, task: args.task, timeout };
        match self.spawner.start_for(request, cx.caller(), Some(cx.call_id().clone())).await {
            Ok(started) => started.settle().await.to_reply(),
            Err(refusal) => refusal,
        }
    }
}

/// What a call says of the time; 0 leaves it to the definition, as silence does.
fn timeout(seconds: Option<f64>) -> std::result::Result<Option<Duration>, ToolReply> {
    match seconds {
        None | Some(0.0) => Ok(None),
        Some(seconds) if seconds > 0.0 => Ok(Some(Duration::from_secs_f64(seconds.min(MAX_SECONDS)))),
        Some(seconds) => {
            let text = format!("`timeout_seconds` is {seconds}. Give a number above 0, or leave it out.");
            Err(ToolReply::error("invalid_timeout", text))
        }
    }
}

impl Tool for Delegate {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: Map<String, Value>, cx: ToolContext) -> BoxFuture<'a, ToolReply> {
        Box::pin(self.delegate(args, cx))
    }

    fn access(&self) -> Access {
        Access::Spawn
    }

    /// Where no agent is defined there is none to delegate to.
    fn is_idle(&self) -> bool {
        self.spawner.definitions().definitions.is_empty()
    }

    /// With codes that say what is missing.
    fn checks_arguments(&self) -> bool {
        true
    }

    fn section<'a>(&'a self, caller: &'a Caller) -> Option<BoxFuture<'a, String>> {
        Some(Box::pin(async move {
            let listing = self.spawner.definitions();
            tell_listing(&listing, caller).await;
            section(&listing)
        }))
    }

    fn status_text(&self, args: &Map<String, Value>) -> Option<String> {
        let agent =
            args.get("agent").and_then(Value::as_str).map(str::trim).filter(|agent| !agent.is_empty());
        Some(match agent {
            Some(agent) => format!("Delegating to {}", cap_text(agent, 100)),
            None => "Delegating".to_owned(),
        })
    }
}
