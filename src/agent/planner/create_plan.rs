//! `create_plan`: tasks with their steps and what depends on what, planned by a sub-agent and not carried out.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::attempts::{Draft, Planning};
use super::check::{Violation, ViolationKind, is_id};
use super::draft::OfOneRun;
use super::order::{circle_text, order};
use super::plan_tool::{objective, planner_run, presented};
use crate::agent::subtask::text;
use crate::context::RunContext;
use crate::error::Result;
use crate::message::{Extra, MessageBody, TaskRef, TaskUpdate, cap_text};
use crate::stream::SubAgentStream;
use crate::tool::{
    Access, Delegated, Job, Producer, SubAgentRun, SubAgentTool, ToolContext, ToolReply, Toolset, tool_fn,
};

const PROMPT: &str = include_str!("prompts/task_planner.md");

/// The most tasks of a plan, and the most steps of a task.
const MOST: usize = 64;

/// A plan: tasks, each with its steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskPlan {
    /// What the plan is for, in a few words.
    pub title: String,
    /// What is to be done.
    pub tasks: Vec<PlannedTask>,
}

/// One task of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedTask {
    /// Its name in the plan: 1 to 64 of the characters a-z, A-Z, 0-9, _ and -.
    pub id: String,
    /// What it is, in a few words.
    pub title: String,
    /// The ids of the tasks that have to be done before.
    #[serde(default)]
    pub depends_on: Vec<String>,
    /// Its steps.
    pub steps: Vec<PlannedStep>,
}

/// One step of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedStep {
    /// Its name in the task.
    pub id: String,
    /// What is to be done, in full.
    pub instructions: String,
    /// The ids of the steps of the same task that have to be done before.
    #[serde(default)]
    pub depends_on: Vec<String>,
}

impl TaskPlan {
    /// Everything that is wrong with the plan: ids that are none or not unique, dependencies on what is not there, cycles. Empty if
    /// it can be carried out.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let tasks: Vec<Item<'_>> =
            self.tasks.iter().map(|task| (task.id.as_str(), &*task.depends_on)).collect();
        check("the plan", "task", &tasks, &mut found);
        for task in self.tasks.iter().take(MOST) {
            let steps: Vec<Item<'_>> =
                task.steps.iter().map(|step| (step.id.as_str(), &*step.depends_on)).collect();
            check(&format!("task {}", cap_text(&task.id, 64)), "step", &steps, &mut found);
            for step in task.steps.iter().filter(|step| step.instructions.trim().is_empty()) {
                let message = "it has no instructions; say what is to be done".to_owned();
                let at = format!("step {}", cap_text(&step.id, 64));
                found.push(Violation { kind: ViolationKind::MissingInput, at, message });
            }
        }
        found
    }
}

/// An id, and the ids that it depends on.
type Item<'a> = (&'a str, &'a [String]);

fn check(whole: &str, noun: &str, items: &[Item<'_>], found: &mut Vec<Violation>) {
    let mut blame = |kind, at: String, message: String| found.push(Violation { kind, at, message });
    if items.is_empty() {
        return blame(ViolationKind::Empty, whole.to_owned(), format!("it has no {noun}; add at least one"));
    }
    if items.len() > MOST {
        let text = format!("{} {noun}s are too many; make do with {MOST}", items.len());
        return blame(ViolationKind::TooLarge, whole.to_owned(), text);
    }
    let mut seen = HashSet::new();
    let mut pairs = Vec::new();
    for (at, (id, depends_on)) in items.iter().enumerate() {
        let place = format!("{noun} {}", cap_text(id, 64));
        if !is_id(id) {
            blame(
                ViolationKind::Id,
                place.clone(),
                "that is no id; use 1 to 64 of a-z, A-Z, 0-9, _ and -".into(),
            );
        } else if !seen.insert(id) {
            blame(
                ViolationKind::Duplicate,
                place.clone(),
                format!("another {noun} has this id; give each its own"),
            );
        }
        for needed in *depends_on {
            match items.iter().position(|(id, _)| id == needed) {
                Some(before) => pairs.push((before, at)),
                None => {
                    let text =
                        format!("it depends on {:?}, which is no {noun} of {whole}", cap_text(needed, 64));
                    blame(ViolationKind::DanglingEdge, place.clone(), text);
                }
            }
        }
    }
    let id = |at: usize| items.get(at).map_or("?", |(id, _)| *id);
    for cycle in order(items.len(), &pairs).cycles {
        let place = format!("{noun} {}", cycle.first().map_or("?", |at| id(*at)));
        let text = format!("{} wait for one another; break this", circle_text(&cycle, id));
        blame(ViolationKind::Cycle, place, text);
    }
}

/// A producer that lets a model plan tasks, and settles with `{title, tasks}`. It may look at the workspace with tools that read, and
/// changes nothing; bounds and attempts are those of [`super::GraphPlanner`].
///
/// # Cancel safety
///
/// Dropping its stream ends it; nothing is left behind.
#[derive(Debug, Clone, Copy, Default)]
pub struct TaskPlanner {
    _private: (),
}

impl TaskPlanner {
    /// What `run_started` calls it.
    pub const KIND: &'static str = "task_planner";

    /// The planner. All of them are equal.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Producer for TaskPlanner {
    fn kind(&self) -> &str {
        Self::KIND
    }

    fn produce(&self, job: Job, cx: RunContext) -> SubAgentStream {
        let belt = job.tools.inheritable().filter(|tool| tool.access() == Access::Read);
        let draft = PlanDraft(Arc::new(Inner {
            objective: Arc::clone(&job.instructions),
            belt: belt.without(&[FINISHER]),
            finished: Mutex::default(),
        }));
        SubAgentStream::generate(|emit| async move {
            let planning = Planning { who: Self::KIND, system_prompt: PROMPT, job, cx, emit };
            planning.run(draft).await
        })
    }
}

const FINISHER: &str = "finish_plan";

#[derive(Clone)]
struct PlanDraft(Arc<Inner>);

struct Inner {
    objective: Arc<str>,
    belt: Toolset,
    /// Held for one step, never across an await.
    finished: Mutex<Option<TaskPlan>>,
}

impl PlanDraft {
    fn lock(&self) -> MutexGuard<'_, Option<TaskPlan>> {
        self.0.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, plan: TaskPlan) -> ToolReply {
        let found = plan.violations();
        if !found.is_empty() {
            let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
            let extras = Map::from_iter([("violations".to_owned(), json!(found))]);
            return ToolReply::error("invalid_plan", format!("The plan is not sound: {}.", texts.join("; ")))
                .with(extras);
        }
        // Strings and lists alone: serialising them does not fail.
        let value = serde_json::to_value(&plan).unwrap_or_default();
        *self.lock() = Some(plan);
        ToolReply::finishing(value)
    }
}

impl Draft for PlanDraft {
    fn tools(&self) -> Result<Toolset> {
        let draft = self.clone();
        let finish = tool_fn(
            FINISHER,
            "Hands in the plan. A sound one ends your work; otherwise you read what is wrong, mend it, and call again.",
            move |plan: TaskPlan, _| {
                let reply = draft.finish(plan);
                async move { reply }
            },
        );
        self.0.belt.with(OfOneRun { tool: finish, is_answer: true })
    }

    fn brief(&self, failed: Option<&str>) -> String {
        let mut text =
            format!("Plan the tasks of this objective.\n\n<objective>\n{}\n</objective>\n", self.0.objective);
        if let Some(failed) = failed {
            text.push_str(&format!("\nAn earlier attempt failed: {failed}.\n"));
        }
        text
    }

    fn finished(&self) -> Option<Value> {
        self.lock().as_ref().and_then(|plan| serde_json::to_value(plan).ok())
    }

    fn so_far(&self) -> Option<Value> {
        None
    }

    fn finisher(&self) -> &'static str {
        FINISHER
    }

    fn size(&self, plan: &Value) -> String {
        let counts = Counts::of(plan);
        format!("{} tasks, {} steps", counts.tasks, counts.steps)
    }

    fn announce(&self, _: &Value) -> Vec<MessageBody> {
        let plan = self.lock();
        let tasks = plan.iter().flat_map(|plan| &plan.tasks);
        let update = |task: &PlannedTask| TaskUpdate {
            event: "task_created".to_owned(),
            task: TaskRef {
                id: Some(task.id.clone()),
                title: Some(task.title.clone()),
                other: Map::from_iter([("depends_on".to_owned(), json!(task.depends_on))]),
            },
            step: None,
            node_id: None,
            extra: Extra::default(),
        };
        tasks.map(|task| update(task).into()).collect()
    }
}

struct Counts {
    tasks: usize,
    steps: usize,
    parallelizable: usize,
}

impl Counts {
    fn of(plan: &Value) -> Self {
        let list =
            |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let tasks = list(plan, "tasks");
        Self {
            tasks: tasks.len(),
            steps: tasks.iter().map(|task| list(task, "steps").len()).sum(),
            parallelizable: tasks.iter().filter(|task| list(task, "depends_on").is_empty()).count(),
        }
    }
}

/// The tool `create_plan`. Its result is `{title, tasks, task_count, step_count, parallelizable, executed: false}`: nothing is carried out.
#[derive(Debug, Clone, Copy, Default)]
pub struct CreatePlan {
    planner: TaskPlanner,
}

impl CreatePlan {
    /// The tool. All of them are equal.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

/// The parameters of [`CreatePlan`], as a model may send them: what is missing has a code of its own.
#[derive(Debug, Deserialize)]
pub struct CreatePlanParams {
    #[serde(default)]
    objective: Value,
}

impl JsonSchema for CreatePlanParams {
    fn schema_name() -> Cow<'static, str> {
        "CreatePlanParams".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "properties": {
                "objective": { "type": "string", "description": "What is to be achieved, in full: the planner sees nothing of this conversation." },
            },
            "required": ["objective"],
            "additionalProperties": false,
        })
    }
}

impl SubAgentTool for CreatePlan {
    type Params = CreatePlanParams;

    fn name(&self) -> &str {
        "create_plan"
    }

    fn description(&self) -> &str {
        "Has a sub-agent plan the tasks of an objective, with their steps and what depends on what. It looks around and changes nothing; carrying the plan out is up to you."
    }

    fn noun(&self) -> &str {
        "planner"
    }

    fn build_run(&self, params: CreatePlanParams) -> std::result::Result<SubAgentRun, ToolReply> {
        let objective = objective(&params.objective)?;
        Ok(planner_run(objective.to_owned(), objective))
    }

    fn checks_arguments(&self) -> bool {
        true
    }

    fn child_tools(&self, parent: &Toolset) -> Toolset {
        parent.clone()
    }

    fn producer(&self) -> Option<Arc<dyn Producer>> {
        Some(Arc::new(self.planner))
    }

    async fn drive(&self, child: Delegated, _: &ToolContext) -> ToolReply {
        presented(child.settle().await, |mut plan| {
            let counts = Counts::of(&plan);
            if let Some(plan) = plan.as_object_mut() {
                plan.insert("task_count".to_owned(), json!(counts.tasks));
                plan.insert("step_count".to_owned(), json!(counts.steps));
                plan.insert("parallelizable".to_owned(), json!(counts.parallelizable));
                plan.insert("executed".to_owned(), json!(false));
            }
            plan
        })
    }

    fn status_text(&self, args: &Map<String, Value>) -> Option<String> {
        Some(match args.get("objective").and_then(text) {
            Some(objective) => format!("Planning: {objective}"),
            None => "Planning tasks".to_owned(),
        })
    }
}
