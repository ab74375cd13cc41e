//! An agent with a scripted model on a root for tests: what the tests of the tool loop and of delegation share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anabranch::agent::{RunSearch, RunSubtask, ToolLoop};
use anabranch::budget::{RunLimits, TreeLimits};
use anabranch::bus::From;
use anabranch::context::{Reply, Root, RootBuilder};
use anabranch::message::{MessageBody, ProcessingMessage, RunFinished};
use anabranch::model::{ChatMessage, ChatModel, ChatRequest, ChatStream, Script, ScriptModel, ToolSpec};
use anabranch::outcome::CancelledBy;
use anabranch::testing::{TestRoot, timeline};
use anabranch::tool::{AgentRuntime, OnCancel, Policy, Tool, ToolContext, ToolReply, Toolset, chaos};
use anabranch::tree::RunTree;
use anabranch::{Agent, SubAgentOutcome};
use futures::StreamExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

/// The scripted model, with every request that it got. It refuses histories that a strict provider refuses.
#[derive(Debug)]
pub struct Recorder {
    script: ScriptModel,
    requests: Mutex<Vec<ChatRequest>>,
}

impl ChatModel for Recorder {
    fn name(&self) -> &str {
        self.script.name()
    }

    fn chat(&self, request: ChatRequest) -> ChatStream {
        self.requests.lock().unwrap().push(request.clone());
        self.script.chat(request)
    }
}

impl Recorder {
    pub fn new(agents: &Value) -> Arc<Self> {
        let text = json!({ "anabranch_script": 1, "agents": agents }).to_string();
        let script = ScriptModel::new(Script::parse(&text, "test.json").unwrap());
        Arc::new(Self { script, requests: Mutex::default() })
    }

    /// The requests, in order.
    pub fn requests(&self) -> Vec<ChatRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// The requests of the run with this title.
    pub fn of(&self, title: &str) -> Vec<ChatRequest> {
        self.requests().into_iter().filter(|request| *request.run.title == *title).collect()
    }

    /// The tools that the first request of the run with this title offered.
    pub fn offered(&self, title: &str) -> Vec<String> {
        self.of(title)[0].tools.iter().map(|tool| tool.name.clone()).collect()
    }
}

/// What the model reads as the results of its calls, in order.
pub fn results(request: &ChatRequest) -> Vec<&str> {
    request
        .messages
        .iter()
        .filter_map(|message| match message {
            ChatMessage::ToolResult { content, .. } => Some(content.as_str()),
            _ => None,
        })
        .collect()
}

/// The fault tools, `run_subtask` and `run_search`.
pub fn all_tools() -> Toolset {
    let tools = chaos::add_to(&Toolset::new()).unwrap();
    let tools = tools.with_sub_agent(RunSubtask::default()).unwrap();
    tools.with_sub_agent(RunSearch::default()).unwrap()
}

/// A turn of one call.
pub fn calls(name: &str, arguments: Value) -> Value {
    json!({ "tool_calls": [{ "name": name, "arguments": arguments }] })
}

/// A turn that delegates these subtasks, each titled and briefed with one word.
pub fn delegates(titles: &[&str]) -> Value {
    let call = |title: &&str| json!({ "name": "run_subtask", "arguments": { "description": title, "prompt": title } });
    json!({ "tool_calls": titles.iter().map(call).collect::<Vec<_>>() })
}

/// A tool that needs the grace period and takes no notice of the cancel.
struct Stubborn(ToolSpec);

pub fn stubborn() -> impl Tool {
    Stubborn(ToolSpec {
        name: "stubborn".into(),
        description: "Ends when it ends.".into(),
        parameters: json!({"type": "object"}),
    })
}

impl Tool for Stubborn {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn on_cancel(&self) -> OnCancel {
        OnCancel::Grace
    }

    fn call<'a>(&'a self, _: Map<String, Value>, _: ToolContext) -> BoxFuture<'a, ToolReply> {
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            ToolReply::ok("ended all the same")
        })
    }
}

/// What is played, and on what.
pub struct Stage {
    pub model: Arc<Recorder>,
    agent: Agent,
    builder: RootBuilder,
}

/// What came of it, verified.
pub struct Played {
    pub outcome: SubAgentOutcome,
    pub log: Vec<ProcessingMessage>,
    pub model: Arc<Recorder>,
}

impl Stage {
    /// A script's agents, with all tools.
    pub fn new(agents: Value) -> Self {
        let model = Recorder::new(&agents);
        let agent = Agent::with_producer(Arc::<Recorder>::clone(&model), Arc::new(ToolLoop::default()));
        Self { model, agent: agent.tools(all_tools()), builder: Root::builder() }
    }

    pub fn agent(mut self, change: impl FnOnce(Agent) -> Agent) -> Self {
        self.agent = change(self.agent);
        self
    }

    /// With this producer for all runs, instead of the tool loop.
    #[cfg(feature = "codeact")]
    pub fn produced_by(mut self, producer: impl anabranch::tool::Producer) -> Self {
        let agent = Agent::with_producer(Arc::<Recorder>::clone(&self.model), Arc::new(producer));
        self.agent = agent.tools(all_tools());
        self
    }

    pub fn tools(self, tools: Toolset) -> Self {
        self.agent(|agent| agent.tools(tools))
    }

    pub fn policy(self, policy: Policy) -> Self {
        self.agent(|agent| agent.policy(policy))
    }

    pub fn root(mut self, change: impl FnOnce(RootBuilder) -> RootBuilder) -> Self {
        self.builder = change(self.builder);
        self
    }

    pub fn tree_limits(self, limits: TreeLimits) -> Self {
        self.root(|builder| builder.tree_limits(limits))
    }

    pub fn run_limits(self, limits: RunLimits) -> Self {
        self.root(|builder| builder.run_limits(limits))
    }

    /// Plays it to its end.
    pub async fn play(self) -> Played {
        self.play_with(|_, _| false).await
    }

    /// Plays it to its end, and cancels the tree as its user after the first message of which `cancels` is true.
    pub async fn cancel_when(self, cancels: impl Fn(&MessageBody) -> bool) -> Played {
        self.play_with(|root, message| {
            let hit = cancels(message.body());
            if hit {
                drop(root.cancel_all(CancelledBy::User));
            }
            hit
        })
        .await
    }

    /// Plays it to its end, beside somebody who is there from the start.
    pub async fn play_beside<F: Future<Output = ()>>(self, beside: impl FnOnce(Root) -> F) -> Played {
        let test = TestRoot::of(self.builder);
        let beside = beside(test.root().clone());
        let run = self.agent.run(test.root(), "work");
        let (outcome, ()) = tokio::join!(run.settle(), beside);
        Played { outcome, log: test.finish(), model: self.model }
    }

    /// Plays it to its end, while a person gives one reply after the other to what is asked.
    pub async fn attended(self, replies: Vec<Reply>) -> Played {
        self.play_beside(|root| {
            let mut asks = root.asks();
            async move {
                let mut replies = replies.into_iter();
                while let Some(ask) = asks.next().await {
                    let reply = replies.next().unwrap_or_else(|| panic!("nothing to say to {ask:?}"));
                    root.answer(&ask.request_id, reply).unwrap();
                }
                assert_eq!(replies.next(), None, "never asked");
            }
        })
        .await
    }

    /// Plays it to its end; `watch` sees each message until it returns true.
    pub async fn play_with(self, watch: impl Fn(&Root, &ProcessingMessage) -> bool) -> Played {
        let test = TestRoot::of(self.builder);
        let run = self.agent.run(test.root(), "work");
        let mut events = test.root().subscribe(From::Start);
        let watcher = async {
            while let Some(delivery) = events.next().await {
                if delivery.message().is_some_and(|message| watch(test.root(), message)) {
                    break;
                }
            }
        };
        let (outcome, ()) = tokio::join!(run.settle(), watcher);
        Played { outcome, log: test.finish(), model: self.model }
    }
}

impl Played {
    pub fn timeline(&self) -> String {
        timeline(&self.log)
    }

    /// Compares the timeline, given line by line; of a line that ends with `…` only what is before that.
    #[track_caller]
    pub fn is(&self, lines: &[&str]) {
        let timeline = self.timeline();
        let found: Vec<&str> = timeline.lines().collect();
        let same = |(found, line): (&&str, &&str)| match line.strip_suffix('…') {
            Some(start) => found.starts_with(start),
            None => found == line,
        };
        let is_same = found.len() == lines.len() && found.iter().zip(lines).all(same);
        assert!(is_same, "\n{timeline}\nis not\n{}", lines.join("\n"));
    }

    /// The line of the timeline that ends the run with this name.
    pub fn end_of(&self, name: &str) -> String {
        let ends = ["done", "stopped", "cancelled", "failed"];
        let lines = self.timeline();
        let line = lines.lines().find_map(|line| {
            let rest = line.strip_prefix(name)?.strip_prefix(' ')?;
            ends.iter().any(|end| rest.starts_with(end)).then_some(rest)
        });
        line.unwrap_or_else(|| panic!("{name} has no end in\n{lines}")).to_owned()
    }

    /// What the root's terminal says.
    pub fn end(&self) -> &RunFinished {
        match self.log.last().map(ProcessingMessage::body) {
            Some(MessageBody::RunFinished(end)) => end,
            other => panic!("not a terminal: {other:?}"),
        }
    }

    pub fn tree(&self) -> RunTree {
        RunTree::of(&self.log)
    }
}

/// A runtime of the tool loop on this model, for what is built by hand.
pub fn runtime(model: &Arc<Recorder>) -> Arc<AgentRuntime> {
    Arc::new(AgentRuntime::new(Arc::<Recorder>::clone(model), Arc::new(ToolLoop::default())))
}
