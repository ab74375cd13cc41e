//! The whole way with a real model: `tests/real-model/serve.sh` serves a small one, and `ANABRANCH_REAL_MODEL_URL` says where,
//! such as `http://127.0.0.1:8080/v1`. Where it is not set, each test says so and passes.
//!
//! What such a model says is anybody's guess: these tests look at shapes, counts and logs alone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch::agent::ToolLoop;
use anabranch::message::{MessageBody, ProcessingMessage};
use anabranch::model::{
    ChatEvent, ChatMessage, ChatModel, ChatRequest, ChatStream, ProviderModel, Script, ScriptModel,
    ToolChoice, ToolSpec,
};
use anabranch::outcome::CancelledBy;
use anabranch::testing::TestRoot;
use anabranch::tool::{ToolReply, Toolset, tool_fn};
use anabranch::{Agent, RunTree, SubAgentOutcome};
use futures::StreamExt;
use serde_json::{Map, Value, json};

use crate::provider::mock::{ask, request};
use crate::stage::{all_tools, delegates};

/// The model, if one is served.
fn model(test: &str) -> Option<ProviderModel> {
    let Ok(url) = std::env::var("ANABRANCH_REAL_MODEL_URL") else {
        println!("skipped: {test} needs a real model, and ANABRANCH_REAL_MODEL_URL is not set");
        return None;
    };
    let builder = ProviderModel::builder("openai:local".parse().unwrap()).base_url(url);
    Some(builder.build_with(|_| None).unwrap())
}

/// Whether the served model calls tools: the smallest ones pass over them.
fn has_tools() -> bool {
    std::env::var("ANABRANCH_REAL_MODEL_TOOLS").is_ok_and(|tools| tools == "1")
}

fn question(text: &str, max_output_tokens: u64) -> ChatRequest {
    let messages = vec![ChatMessage::User { text: text.to_owned() }];
    ChatRequest { max_output_tokens: Some(max_output_tokens), ..request(messages) }
}

fn chunks(log: &[ProcessingMessage]) -> usize {
    log.iter().filter(|message| matches!(message.body(), MessageBody::Chunk(_))).count()
}

#[tokio::test]
async fn an_answer_is_streamed_and_counted() {
    let Some(model) = model("streaming") else { return };
    let mut events = model.chat(question("Name three fruits.", 30));
    let mut texts = 0;
    let mut end = None;
    while let Some(event) = events.next().await {
        match event.unwrap() {
            ChatEvent::Text(_) => texts += 1,
            ChatEvent::End { stop_reason, usage } => end = Some((stop_reason, usage.unwrap())),
            _ => {}
        }
    }
    let (stop_reason, usage) = end.expect("an end");
    assert!(["end_turn", "length"].contains(&stop_reason.as_str()), "{stop_reason}");
    assert!(texts > 1 && usage.input_tokens > 0 && usage.output_tokens > 0, "{texts} {usage:?}");
    assert_eq!(usage.cost_usd, None);
}

#[tokio::test]
async fn a_call_has_a_name_on_offer_and_arguments_that_are_an_object() {
    let Some(model) = model("a tool call") else { return };
    if !has_tools() {
        return println!("skipped: the model that is served calls no tools");
    }
    let parameters =
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let tool = ToolSpec {
        name: "get_weather".to_owned(),
        description: "The weather in a city".to_owned(),
        parameters,
    };
    let asked = question("What is the weather in Paris? Use the tool.", 60);
    let told = ask(
        &model,
        ChatRequest { tools: [Arc::new(tool)].into(), tool_choice: ToolChoice::Required, ..asked },
    )
    .await;
    assert_eq!(told.end, "tool_calls", "{}", told.line());
    for (id, name, arguments) in &told.calls {
        assert!(!id.is_empty() && name == "get_weather", "{}", told.line());
        assert!(serde_json::from_str::<Value>(arguments).unwrap().is_object(), "{arguments}");
    }
}

#[tokio::test]
async fn a_structured_result_satisfies_its_schema() {
    let Some(model) = model("a structured result") else { return };
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["fruit", "ripe"],
        "properties": {"fruit": {"enum": ["apple", "banana"]}, "ripe": {"type": "boolean"}},
    });
    let test = TestRoot::new();
    let agent = Agent::with_producer(Arc::new(model), Arc::new(ToolLoop::default())).output_schema(schema);
    let outcome =
        agent.run(test.root(), "Which fruit is yellow, and is it ripe? Answer in JSON.").settle().await;
    let result = outcome.result().unwrap_or_else(|| panic!("{outcome:?}"));
    assert!(
        ["apple", "banana"].contains(&result["fruit"].as_str().unwrap()) && result["ripe"].is_boolean(),
        "{result}"
    );
    test.finish();
}

#[tokio::test]
async fn a_cancel_in_the_middle_of_an_answer_stops_the_server() {
    let Some(model) = model("cancel") else { return };
    let test = TestRoot::new();
    let agent = Agent::with_producer(Arc::new(model), Arc::new(ToolLoop::default()));
    let mut run = agent.run(test.root(), "Count from 1 to 500, each number on its own line.");
    let mut seen = 0;
    while let Some(delivery) = run.next().await {
        seen += usize::from(
            delivery.message().is_some_and(|message| matches!(message.body(), MessageBody::Chunk(_))),
        );
        if seen == 3 {
            break;
        }
    }
    let before = Instant::now();
    let (_, outcome) = tokio::join!(test.root().cancel_all(CancelledBy::User), run.settle());
    assert!(matches!(outcome, SubAgentOutcome::Cancelled { .. }), "{outcome:?}");
    assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
    assert!(outcome.partial().is_some() && chunks(&test.finish()) >= 3);
}

/// A root that delegates to two children, which are the real model.
struct Mixed {
    parent: ScriptModel,
    child: ProviderModel,
}

impl ChatModel for Mixed {
    fn name(&self) -> &str {
        self.child.name()
    }

    fn chat(&self, mut request: ChatRequest) -> ChatStream {
        if request.run.depth == 0 {
            return self.parent.chat(request);
        }
        request.max_output_tokens = Some(30);
        request.tools = [].into();
        self.child.chat(request)
    }
}

#[tokio::test]
async fn two_children_work_at_the_same_time() {
    let Some(child) = model("two children") else { return };
    let turns =
        json!([{"turns": [delegates(&["Name three fruits.", "Name three colours."]), {"text": "both"}]}]);
    let script = json!({"anabranch_script": 1, "agents": turns}).to_string();
    let parent = ScriptModel::new(Script::parse(&script, "test.json").unwrap());
    let test = TestRoot::new();
    let agent = Agent::with_producer(Arc::new(Mixed { parent, child }), Arc::new(ToolLoop::default()));
    let outcome = agent.tools(all_tools()).run(test.root(), "work").settle().await;
    assert_eq!(outcome.result(), Some(&json!("both")));
    let log = test.finish();
    assert_eq!(RunTree::of(&log).nodes().count(), 3);
    // The second begins to speak before the first has ended.
    let first_end =
        log.iter().position(|message| matches!(message.body(), MessageBody::RunFinished(_))).unwrap();
    let speakers: std::collections::HashSet<_> = log[..first_end]
        .iter()
        .filter(|message| matches!(message.body(), MessageBody::Chunk(_)))
        .map(|message| message.nesting().map(|nesting| nesting.origin.run_id.clone()))
        .collect();
    assert_eq!(speakers.len(), 2, "{}", anabranch::testing::timeline(&log));
}

/// The real model, made to call a tool in its first turn, and to answer in its second.
struct Caller(ProviderModel);

impl ChatModel for Caller {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn chat(&self, mut request: ChatRequest) -> ChatStream {
        request.max_output_tokens = Some(60);
        match request.call {
            0 => request.tool_choice = ToolChoice::Required,
            // A small model that is offered a tool calls it for ever.
            _ => request.tools = [].into(),
        }
        self.0.chat(request)
    }
}

#[tokio::test]
async fn a_run_calls_a_tool_and_answers_with_its_result() {
    let Some(model) = model("a run with a tool") else { return };
    if !has_tools() {
        return println!("skipped: the model that is served calls no tools");
    }
    let weather =
        tool_fn("get_weather", "The weather in a city.", |args: Map<String, Value>, _| async move {
            ToolReply::ok(json!({"place": args, "weather": "sunny, 21 degrees"}))
        });
    let test = TestRoot::new();
    let agent = Agent::with_producer(Arc::new(Caller(model)), Arc::new(ToolLoop::default()));
    let agent = agent.tools(Toolset::new().with(weather).unwrap());
    let outcome = agent.run(test.root(), "What is the weather in Paris? Use the tool.").settle().await;
    assert!(outcome.result().is_some() || outcome.partial().is_some(), "{outcome:?}");
    let log = test.finish();
    let mut results = log.iter().filter_map(|message| match message.body() {
        MessageBody::ToolResultUpdate(result) => Some(result),
        _ => None,
    });
    assert!(results.next().is_some_and(|result| !result.is_error), "{}", anabranch::testing::timeline(&log));
}
