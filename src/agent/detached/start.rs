//! `start_subtask`: begins a background run and returns at once.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::runtime::Handle;

use super::registry::{Asker, Full, Registry};
use super::subtask::Subtask;
use crate::agent::RunSubtask;
use crate::agent::subtask::{SubtaskParams, share, sharing, text};
use crate::context::Told;
use crate::forward::forward_subagent_stream;
use crate::message::Scope;
use crate::tool::{Delegated, SubAgentRun, SubAgentTool, ToolContext, ToolReply, Toolset};

/// The tool `start_subtask`.
#[derive(Debug)]
pub(super) struct StartSubtask {
    subtask: RunSubtask,
    max: usize,
    /// What a child has besides its parent's tools and this one.
    companions: Toolset,
}

impl StartSubtask {
    pub(super) fn new(subtask: RunSubtask, max: usize, companions: Toolset) -> Self {
        Self { subtask, max, companions }
    }

    fn start(&self, child: Delegated, cx: &ToolContext) -> ToolReply {
        let Ok(runtime) = Handle::try_current() else { return unavailable() };
        let registry = Registry::of(cx.run());
        let place = match registry.reserve(self.max) {
            Ok(place) => place,
            Err(full) => return refused(full),
        };
        let (run, entered, stream) = child.into_parts();
        let (child, asker) = (entered.context(), Asker::of(cx.run()));
        let subtask = Subtask::new(child.run_id().clone(), Arc::clone(&run.title), asker.into_lineage());
        let subtask = Arc::new(subtask);
        let (shared, author) = sharing(&child);
        let (settling, title) = (Arc::clone(&subtask), Arc::clone(&run.title));
        // By whoever ends the run: its task, its drop, or a cancel that does not wait for it any longer. So no end leaves a
        // subtask that seems to be running.
        child.record().lock().told = Some(Told(Box::new(move |outcome| {
            share(&shared, &author, outcome);
            settling.settle(&run, outcome);
            registry.ring();
        })));
        // Before the task has its turn, so that the run begins before this call has its result.
        let Ok(forward) = forward_subagent_stream(stream, entered).begun() else {
            return ToolReply::error("cancelled", "The run was cancelled.");
        };
        // After the spawn, so that there is no entry without a task; what ended meanwhile is entered as such.
        let task = runtime.spawn(forward).abort_handle();
        let receipt = ToolReply::ok(json!({
            "subtask_id": subtask.id(),
            "description": &*title,
            "status": "running",
            "message": "It works in the background while you go on. Get its result with wait_subtasks: it ends with the whole run at the latest, and a result that nobody waits for is lost.",
        }));
        place.fill(subtask, task);
        receipt.shown_as(format!("{title} works in the background"))
    }
}

impl SubAgentTool for StartSubtask {
    type Params = SubtaskParams;

    fn name(&self) -> &str {
        "start_subtask"
    }

    fn description(&self) -> &str {
        "Starts a self-contained piece of work in a sub-agent with the same tools and returns at once with its subtask_id, while it goes on in the background. Fetch its result later with wait_subtasks. It ends with the whole run at the latest; its result is lost if you never wait for it. Use run_subtask instead if you need the answer before you can go on."
    }

    fn build_run(&self, params: SubtaskParams) -> Result<SubAgentRun, ToolReply> {
        self.subtask.build_run(params)
    }

    fn checks_arguments(&self) -> bool {
        true
    }

    fn child_tools(&self, parent: &Toolset) -> Toolset {
        parent.with_missing(&self.companions)
    }

    fn offers_itself(&self) -> bool {
        true
    }

    fn scope(&self) -> Scope {
        Scope::Background
    }

    fn drive(&self, child: Delegated, cx: &ToolContext) -> impl Future<Output = ToolReply> + Send {
        std::future::ready(self.start(child, cx))
    }

    fn status_text(&self, args: &Map<String, Value>) -> Option<String> {
        Some(match args.get("description").and_then(text) {
            Some(description) => format!("Starting subtask: {description}"),
            None => "Starting subtask".to_owned(),
        })
    }
}

/// Nothing can go on beside the caller.
pub(super) fn unavailable() -> ToolReply {
    let text = "Background subtasks are not available here. Use run_subtask, which waits for its answer.";
    ToolReply::error("background_unavailable", text)
}

fn refused(full: Full) -> ToolReply {
    let Full { have, max } = full;
    let text = format!(
        "Cannot start another background subtask: this tree has had {have} of {max}. Wait for those that work, use run_subtask, or finish with what you have."
    );
    let numbers = [("background_subtasks", json!(have)), ("max_background_subtasks", json!(max))];
    let numbers = numbers.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    ToolReply::error("max_background_subtasks_reached", text).with(numbers)
}
