//! Agents that are written down as Rust: each run of a tree does what one function says for its title, with its tools.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use anabranch::agent::{Detached, RunSubtask};
use anabranch::context::{RootBuilder, RunContext};
use anabranch::message::ProcessingMessage;
use anabranch::model::OfflineModel;
use anabranch::testing::{TestRoot, timeline};
use anabranch::tool::{Caller, Job, NewCall, Producer, Toolset};
use anabranch::{Agent, SubAgentOutcome, SubAgentStream};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

/// One run at work.
#[derive(Clone)]
pub struct Act {
    pub cx: RunContext,
    pub caller: Caller,
    ids: Ids,
}

type Ids = Arc<Mutex<HashMap<String, String>>>;

impl Act {
    /// Calls a tool; what its model would read.
    pub async fn call(&self, name: &str, args: Value) -> Value {
        let args = args.as_object().unwrap().clone();
        let new =
            NewCall { id: None, name: name.into(), args: Arc::new(args.clone()), message: None, via: None };
        let announced = self.caller.announce(new).await;
        let made = self.caller.make(announced, Ok(args)).await;
        self.caller.answer(made).await.reply.for_model
    }

    /// Starts the subtask of that title; what came of it.
    pub async fn start(&self, title: &str) -> Value {
        let receipt = self.call("start_subtask", json!({ "description": title, "prompt": title })).await;
        if let Some(id) = receipt["subtask_id"].as_str() {
            self.ids.lock().unwrap().insert(title.to_owned(), id.to_owned());
        }
        receipt
    }

    pub async fn starts(&self, titles: &[&str]) {
        for title in titles {
            assert_eq!(self.start(title).await["status"], json!("running"));
        }
    }

    /// The id of the subtask that was started under that title; of one that was not, none that exists.
    pub fn id(&self, title: &str) -> String {
        self.ids.lock().unwrap().get(title).map_or_else(|| format!("no {title} yet"), Clone::clone)
    }

    /// Waits for the subtasks with these titles; for all if there is none.
    pub async fn wait(&self, titles: &[&str]) -> Value {
        let ids: Vec<String> = titles.iter().map(|title| self.id(title)).collect();
        self.call("wait_subtasks", json!({ "ids": ids })).await
    }

    /// Looks, and does not wait.
    pub async fn look(&self) -> Value {
        self.call("wait_subtasks", json!({ "timeout_ms": 0 })).await
    }

    /// Runs the subtask of that title in the foreground.
    pub async fn run(&self, title: &str) -> Value {
        self.call("run_subtask", json!({ "description": title, "prompt": title })).await
    }

    pub async fn sleep(&self, ms: u64) {
        tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
    }
}

/// What the run says as its result.
pub fn said(text: impl Into<Value>) -> SubAgentOutcome {
    SubAgentOutcome::completed(text)
}

/// The titles of the rows with their status, and what there is of each beside that.
pub fn rows(reply: &Value) -> Vec<String> {
    let known = ["subtask_id", "depth", "description", "status"];
    let row = |row: &Value| {
        let row = row.as_object().unwrap();
        let more = row.iter().filter(|(key, _)| !known.contains(&key.as_str()));
        let more: Vec<String> = more.map(|(key, value)| format!(" {key}={value}")).collect();
        let name = row.get("description").unwrap_or(&row["subtask_id"]).as_str().unwrap();
        format!("{name} {}{}", row["status"].as_str().unwrap(), more.concat())
    };
    reply["subtasks"].as_array().unwrap_or_else(|| panic!("no rows: {reply}")).iter().map(row).collect()
}

/// The producer that does what a function says.
struct Acts<F>(F, Ids);

impl<F, Fut> Producer for Acts<F>
where
    F: Fn(String, Act) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = SubAgentOutcome> + Send + 'static,
{
    fn kind(&self) -> &str {
        "acts"
    }

    fn produce(&self, job: Job, cx: RunContext) -> SubAgentStream {
        let (acts, ids) = (self.0.clone(), Arc::clone(&self.1));
        SubAgentStream::generate(move |emit| -> BoxFuture<'static, SubAgentOutcome> {
            let caller = Caller::new(cx.clone(), emit, job.tools, job.runtime);
            acts(cx.title().to_string(), Act { cx, caller, ids }).boxed()
        })
    }
}

/// `run_subtask` and the pair.
pub fn detached() -> Toolset {
    Detached::new().add_to(&Toolset::new().with_sub_agent(RunSubtask::default()).unwrap()).unwrap()
}

/// An agent whose runs do what `acts` says for their titles; the root's is `root`.
pub fn agent<F, Fut>(acts: F) -> Agent
where
    F: Fn(String, Act) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = SubAgentOutcome> + Send + 'static,
{
    let producer = Arc::new(Acts(acts, Ids::default()));
    Agent::with_producer(Arc::new(OfflineModel::new()), producer).tools(detached())
}

/// What came of a play.
pub struct Acted {
    pub outcome: SubAgentOutcome,
    pub log: Vec<ProcessingMessage>,
}

impl Acted {
    pub fn timeline(&self) -> String {
        timeline(&self.log)
    }

    /// The result that the root settled with.
    pub fn result(&self) -> &Value {
        self.outcome.result().unwrap_or_else(|| panic!("{:?} in\n{}", self.outcome, self.timeline()))
    }
}

/// Plays it to its end, verifies its log, and sees to it that no task is left.
pub async fn play<F, Fut>(builder: RootBuilder, acts: F) -> Acted
where
    F: Fn(String, Act) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = SubAgentOutcome> + Send + 'static,
{
    let test = TestRoot::of(builder);
    let outcome = agent(acts).run(test.root(), "root").settle().await;
    let acted = Acted { outcome, log: test.finish() };
    no_task_is_left().await;
    acted
}

/// Whatever was to end has ended after the scheduler's next look around.
pub async fn no_task_is_left() {
    tokio::task::yield_now().await;
    assert_eq!(tasks(), 0, "tasks are left");
}

/// How many tasks there are.
pub fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}
