//! Tools that misbehave in a known way, for whoever tests an agent, a policy or a UI.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::context::ToolContext;
use super::reply::ToolReply;
use super::runtime::Job;
use super::toolset::Toolset;
use super::traits::{Access, OnCancel, Tool};
use super::typed::{parameters_of, parse_arguments, tool_fn};
use crate::context::{EnterError, RunSpec};
use crate::error;
use crate::forward::forward_subagent_stream;
use crate::model::ToolSpec;
use crate::stream::SubAgentStream;

/// The longest that a fault tool sleeps or blocks: an hour.
const MAX_MS: u64 = 3_600_000;
/// The largest result that is made: 128 MiB, above every size that a cap was ever reported to fail at.
const MAX_BYTES: usize = 128 << 20;
/// The most children that are asked for at once.
const MAX_CHILDREN: usize = 10_000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Millis {
    /// Milliseconds, at most an hour.
    ms: u64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Message {
    /// What the error says.
    message: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Bytes {
    /// The size of the result, at most 128 MiB.
    bytes: usize,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Progress {
    /// How many messages.
    n: u32,
    /// Milliseconds before each.
    ms: u64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Children {
    /// How many, at most 10,000.
    count: usize,
    /// What each is to do.
    prompt: String,
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms.min(MAX_MS))
}

/// Adds all fault tools to a set.
///
/// # Errors
///
/// If the set has a tool of the same name.
pub fn add_to(tools: &Toolset) -> error::Result<Toolset> {
    tools
        .with(tool_fn("chaos_sleep", "Sleeps; a cancel ends it.", |args: Millis, _| async move {
            tokio::time::sleep(millis(args.ms)).await;
            ToolReply::ok(format!("slept {} ms", args.ms))
        }))?
        .with(tool_fn("chaos_hang", "Never ends by itself.", |_: Nothing, _| std::future::pending()))?
        .with(Busy { spec: spec::<Millis>("chaos_busy", "Blocks its thread and ignores a cancel.") })?
        .with(tool_fn("chaos_error", "Fails.", |args: Message, _| async move {
            ToolReply::error("chaos_error", args.message)
        }))?
        .with(tool_fn("chaos_panic", "Panics.", |_: Nothing, _| async { panic_on_purpose() }))?
        .with(tool_fn("chaos_big", "Answers with so many bytes.", |args: Bytes, _| async move {
            ToolReply::ok("x".repeat(args.bytes.min(MAX_BYTES)))
        }))?
        .with(tool_fn("chaos_progress", "Reports progress.", |args: Progress, cx: ToolContext| async move {
            for done in 1..=args.n {
                tokio::time::sleep(millis(args.ms)).await;
                cx.progress(format!("{done} of {}", args.n)).await;
            }
            ToolReply::ok(format!("reported {} times", args.n))
        }))?
        .with(SpawnMany {
            spec: spec::<Children>("chaos_spawn", "Asks for many foreground children at once."),
        })
}

fn spec<A: JsonSchema>(name: &str, description: &str) -> ToolSpec {
    ToolSpec { name: name.into(), description: description.into(), parameters: parameters_of::<A>() }
}

#[expect(clippy::panic, reason = "a tool that panics, so that others can be tested against it")]
fn panic_on_purpose() -> ToolReply {
    panic!("chaos_panic was called")
}

struct Busy {
    spec: ToolSpec,
}

impl Tool for Busy {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: Map<String, Value>, cx: ToolContext) -> BoxFuture<'a, ToolReply> {
        Box::pin(async move {
            let time = match parse_arguments::<Millis>(args) {
                Ok(args) => millis(args.ms),
                Err(reply) => return reply,
            };
            let (begun, begins) = tokio::sync::oneshot::channel();
            // A thread that is busy for real: it neither yields nor looks at the token.
            let busy = cx.run().blocking_for_long(move || {
                let _ = begun.send(());
                let start = Instant::now();
                while start.elapsed() < time {
                    std::hint::spin_loop();
                }
            });
            // Said once it has begun: whoever cancels before that never starts it.
            let announce = async {
                if begins.await.is_ok() {
                    cx.progress("busy").await;
                }
            };
            match tokio::join!(busy, announce).0 {
                Ok(()) => ToolReply::ok(format!("was busy for {} ms", time.as_millis())),
                Err(_) => ToolReply::error("cancelled", "The run was cancelled before the work began."),
            }
        })
    }

    fn on_cancel(&self) -> OnCancel {
        OnCancel::Grace
    }
}

struct SpawnMany {
    spec: ToolSpec,
}

impl Tool for SpawnMany {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn access(&self) -> Access {
        Access::Spawn
    }

    fn call<'a>(&'a self, args: Map<String, Value>, cx: ToolContext) -> BoxFuture<'a, ToolReply> {
        Box::pin(async move {
            let Children { count, prompt } = match parse_arguments(args) {
                Ok(args) => args,
                Err(reply) => return reply,
            };
            let children: FuturesOrdered<_> =
                (0..count.min(MAX_CHILDREN)).map(|number| spawn(number, &prompt, &cx)).collect();
            let results: Vec<Result<Value, Value>> = children.collect().await;
            match results.first() {
                // All were refused, and all for one reason.
                Some(Err(refusal)) if results.iter().all(Result::is_err) => {
                    ToolReply { is_error: true, ..ToolReply::ok(refusal.clone()) }
                }
                _ => {
                    let results: Vec<Value> =
                        results.into_iter().map(|(Ok(value) | Err(value))| value).collect();
                    ToolReply::ok(json!({ "children": results }))
                }
            }
        })
    }
}

/// One child to its end, or why there is none. It enters when it is its turn, like the calls of a model's turn.
async fn spawn(number: usize, prompt: &str, cx: &ToolContext) -> Result<Value, Value> {
    let runtime = Arc::clone(cx.runtime());
    let spec = RunSpec::new("chaos", prompt)
        .titled(format!("chaos {number}"))
        .called_by(Some(cx.call_id().clone()))
        .produced_by(runtime.producer.kind());
    let entered = cx.run().enter(spec).map_err(|error| match error {
        EnterError::Refused(refusal) => refusal.to_value(),
        EnterError::Cancelled(_) => json!({ "error": "cancelled" }),
    })?;
    let job = Job::new(prompt, cx.tools().clone(), Arc::clone(&runtime));
    let stream = SubAgentStream::build(|| {
        Ok::<_, std::convert::Infallible>(runtime.producer.produce(job, entered.context()))
    });
    let outcome = forward_subagent_stream(stream, entered).await;
    Ok(json!({ "outcome": outcome.kind(), "result": outcome.result(), "error": outcome.error_text() }))
}

#[cfg(test)]
#[path = "chaos_tests.rs"]
mod tests;
