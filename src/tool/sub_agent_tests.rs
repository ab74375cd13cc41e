use std::sync::Mutex;

use super::*;
use crate::budget::Limit;
use crate::context::RunContext;
use crate::message::MessageBody;
use crate::outcome::{CancelledBy, FailureKind, LimitKind};
use crate::tool::test_kit::{Bench, error_of};
use crate::tool::tool_fn;

#[derive(serde::Deserialize, JsonSchema)]
struct Params {
    #[schemars(length(min = 1))]
    topic: String,
}

/// A delegation whose child settles as told.
struct Asks {
    outcome: Option<SubAgentOutcome>,
    broken: &'static str,
    seen: Arc<Mutex<Vec<Job>>>,
}

fn asks(outcome: Option<SubAgentOutcome>) -> Asks {
    Asks { outcome, broken: "", seen: Arc::default() }
}

struct Settles(SubAgentOutcome, Arc<Mutex<Vec<Job>>>);

impl Producer for Settles {
    fn kind(&self) -> &str {
        "settles"
    }

    fn produce(&self, job: Job, _: RunContext) -> SubAgentStream {
        self.1.lock().unwrap().push(job);
        SubAgentStream::settled(self.0.clone())
    }
}

impl SubAgentTool for Asks {
    type Params = Params;

    fn name(&self) -> &str {
        "ask"
    }

    fn description(&self) -> &str {
        "Asks."
    }

    fn noun(&self) -> &str {
        "question"
    }

    fn build_run(&self, params: Params) -> std::result::Result<SubAgentRun, ToolReply> {
        assert!(self.broken != "run", "broken run");
        if params.topic == "nothing" {
            return Err(ToolReply::error("missing_topic", "say what"));
        }
        let mut run = SubAgentRun::new("asker", format!("about {}", params.topic));
        run.title = "a question".into();
        run.max_turns = Some(7);
        run.error_extras = Map::from_iter([("topic".to_owned(), json!(params.topic))]);
        Ok(run)
    }

    fn child_tools(&self, parent: &Toolset) -> Toolset {
        assert!(self.broken != "tools", "broken tools");
        parent.only(&["read"])
    }

    fn offers_itself(&self) -> bool {
        true
    }

    fn producer(&self) -> Option<Arc<dyn Producer>> {
        let settles = |outcome| Arc::new(Settles(outcome, Arc::clone(&self.seen))) as Arc<dyn Producer>;
        self.outcome.clone().map(settles)
    }
}

fn bench(tool: Asks) -> Bench {
    let nothing = |name| tool_fn(name, "Nothing.", |_: Map<String, Value>, _| async { ToolReply::ok("") });
    let tools = Toolset::new().with(nothing("read")).unwrap().with(nothing("write")).unwrap();
    Bench::new(tools.with_sub_agent(tool).unwrap())
}

async fn reply(outcome: SubAgentOutcome) -> ToolReply {
    bench(asks(Some(outcome))).call("ask", json!({"topic": "x"})).await.reply
}

#[tokio::test(start_paused = true)]
async fn a_completed_child_is_its_value() {
    for value in
        [json!("text"), json!(""), json!({"error": "a legal value"}), json!(0), json!(false), json!([])]
    {
        assert_eq!(reply(SubAgentOutcome::completed(value.clone())).await, ToolReply::ok(value));
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_without_a_value_has_a_code_of_its_own() {
    let reply = reply(SubAgentOutcome::completed(Value::Null)).await;
    assert_eq!(error_of(&reply), ("asker_no_result", "The sub-agent ended without a result."));
    assert_eq!(reply.for_model["topic"], json!("x"));
    assert!(reply.for_model["run_id"].is_string() && reply.for_model.get("outcome").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_child_that_did_not_complete_is_an_error_with_its_reason_and_what_there_was() {
    let partial = Some(json!("half"));
    for (outcome, word, class, message) in [
        (SubAgentOutcome::failed(FailureKind::Provider, "it broke"), "failed", "error", "it broke"),
        (SubAgentOutcome::stopped_by(LimitKind::Turns, "too many"), "stopped", "max_steps", "too many"),
        (SubAgentOutcome::cancelled(CancelledBy::User), "cancelled", "stopped", "cancelled by user"),
    ] {
        let reply = reply(outcome.with_partial(partial.clone())).await;
        assert_eq!(error_of(&reply), ("asker_failed", message));
        assert_eq!(reply.for_person.as_deref(), Some(message));
        let keys = ["topic", "outcome", "stop_class", "partial"].map(|key| reply.for_model[key].clone());
        assert_eq!(keys, [json!("x"), json!(word), json!(class), json!("half")]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_child_gets_its_brief_its_tools_and_its_place() {
    let tool = asks(Some(SubAgentOutcome::completed("ok")));
    let seen = Arc::clone(&tool.seen);
    let (_, log) = bench(tool).call_with("ask", Ok(Map::from_iter([("topic".into(), json!("x"))]))).await;
    let jobs = seen.lock().unwrap();
    assert_eq!((&*jobs[0].instructions, jobs[0].max_turns), ("about x", Some(7)));
    // It offers itself, so it stands first.
    assert_eq!(jobs[0].tools.names().collect::<Vec<_>>(), ["ask", "read"]);
    let (nesting, started) = log
        .iter()
        .filter_map(|message| match message.body() {
            MessageBody::RunStarted(body) => Some((message.nesting().unwrap(), body)),
            _ => None,
        })
        .nth(1)
        .unwrap();
    assert_eq!((&*started.agent, &*started.title, &*started.task), ("asker", "a question", "about x"));
    assert_eq!((&*started.producer, started.model.as_deref()), ("settles", Some("none")));
    assert_eq!(nesting.origin.parent_tool_call_id.as_ref().unwrap().as_str(), "call_0");
    assert_eq!(nesting.origin.subtask_depth, 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_producer_of_its_own_it_runs_the_host_s() {
    let reply = bench(asks(None)).call("ask", json!({"topic": "x"})).await.reply;
    assert_eq!(reply, ToolReply::ok("about x: ask read"));
}

#[tokio::test(start_paused = true)]
async fn the_gate_comes_before_the_parameters() {
    let mut bench = bench(asks(None));
    bench.limits.depth = Limit::At(0);
    for args in [json!({"topic": "x"}), json!({}), json!({"topic": "nothing"})] {
        let reply = bench.call("ask", args).await.reply;
        let (code, message) = error_of(&reply);
        assert_eq!(code, "max_recursion_depth_reached");
        assert!(message.contains("another question"));
        assert_eq!((&reply.for_model["depth"], &reply.for_model["max_depth"]), (&json!(0), &json!(0)));
    }
}

#[tokio::test(start_paused = true)]
async fn the_total_and_the_budget_refuse_with_their_numbers() {
    let mut bench = bench(asks(None));
    bench.limits.total = Limit::At(1);
    let reply = bench.call("ask", json!({"topic": "x"})).await.reply;
    assert_eq!(error_of(&reply).0, "max_total_runs_reached");
    assert_eq!(reply.for_model["max_total_runs"], json!(1));
}

#[tokio::test(start_paused = true)]
async fn parameters_are_held_against_the_schema_and_refusals_are_the_authors() {
    let bench = bench(asks(None));
    for args in [json!({}), json!({"topic": 3}), json!({"topic": ""})] {
        let reply = bench.call("ask", args).await.reply;
        assert_eq!(error_of(&reply).0, "invalid_tool_arguments");
        assert_eq!(reply.for_model["issues"].as_array().unwrap().len(), 1);
    }
    let reply = bench.call("ask", json!({"topic": "nothing"})).await.reply;
    assert_eq!(error_of(&reply), ("missing_topic", "say what"));
}

#[tokio::test(start_paused = true)]
async fn ax13_a_child_that_cannot_be_built_is_a_failed_child() {
    let tool = Asks { broken: "tools", ..asks(None) };
    let reply = bench(tool).call("ask", json!({"topic": "x"})).await.reply;
    let (code, message) = error_of(&reply);
    assert_eq!((code, message), ("asker_failed", "building the sub-agent panicked: broken tools"));
    // Before the child exists, a panic is the tool's.
    let tool = Asks { broken: "run", ..asks(None) };
    let invoked = bench(tool).call("ask", json!({"topic": "x"})).await;
    assert_eq!(invoked.fatal, Some(crate::tool::Fatal::Panicked("broken run".into())));
}
