//! What it costs to act by writing code, against the bare engine and against calls of tools one by one.
//!
//! `cargo bench --bench codeact` prints the figures of BENCHMARKS.md: medians of rounds in which what is compared takes turns. Wall
//! time, since code runs on a thread of its own. `cargo bench --bench codeact -- bridged` runs only what has that word in its name.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench that cannot run says why and ends; its report goes to standard output"
)]

use std::sync::Arc;
use std::time::Instant;

use anabranch::agent::codeact::{ActionLimits, CodeAct};
use anabranch::agent::{RunSubtask, ToolLoop};
use anabranch::budget::{Limit, TreeLimits};
use anabranch::context::{Root, RunSpec};
use anabranch::model::{Script, ScriptModel};
use anabranch::tool::{Producer, ToolReply, Toolset, tool_fn};
use anabranch::{Agent, Chunk, SubAgentOutcome, SubAgentStream};
use rquickjs::prelude::{Async, Func};
use rquickjs::{AsyncContext, AsyncRuntime, CatchResultExt, Context, Promise, Runtime};
use serde_json::{Map, Value, json};

const ROUNDS: usize = 7;
const CALLS: u32 = 20_000;
const ACTIONS: usize = 200;
const CHILDREN: usize = 500;

/// Runs a workload once and says what one unit of it took, in microseconds.
type Work<'a> = Box<dyn Fn() -> f64 + 'a>;

fn main() {
    let word = std::env::args().skip(1).find(|arg| arg != "--bench").unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let figures: Vec<(&str, Work<'_>)> = vec![
        ("bare engine: async host call, awaited one by one", Box::new(|| runtime.block_on(bare_calls()))),
        ("the pipe: two messages", Box::new(|| runtime.block_on(two_messages()))),
        ("bridged tool call, awaited one by one", Box::new(|| runtime.block_on(bridged_calls(false)))),
        ("bridged tool call, 50 at a time", Box::new(|| runtime.block_on(bridged_calls(true)))),
        ("bare engine: create, evaluate 1 + 1, drop", Box::new(bare_engine)),
        (
            "action that returns 1 + 1, with its model turn and its observation",
            Box::new(|| runtime.block_on(actions())),
        ),
        ("child from one action under Promise.all", Box::new(|| runtime.block_on(children(true)))),
        ("child from parallel tool calls", Box::new(|| runtime.block_on(children(false)))),
    ];
    let mut rounds: Vec<Vec<f64>> = vec![Vec::new(); figures.len()];
    for round in 0..=ROUNDS {
        for ((name, work), values) in figures.iter().zip(&mut rounds) {
            let value = if name.contains(&word) { work() } else { f64::NAN };
            // The first round warms up.
            if round > 0 {
                values.push(value);
            }
        }
    }
    for ((name, _), values) in figures.iter().zip(&rounds) {
        println!("{name:70} {:.2} µs", median(values.clone()));
    }
    let of = |at: usize| rounds[at].clone();
    let ratio = |above: Vec<f64>, below: Vec<f64>| {
        median(above.iter().zip(&below).map(|(above, below)| above / below).collect())
    };
    let allowed: Vec<f64> = of(0).iter().zip(of(1)).map(|(call, pipe)| 3.0 * call + pipe).collect();
    println!(
        "{:70} {:.2}",
        "bridged call / (3 x bare call + two messages), one by one",
        ratio(of(2), allowed.clone())
    );
    println!(
        "{:70} {:.2}",
        "bridged call / (3 x bare call + two messages), 50 at a time",
        ratio(of(3), allowed)
    );
    println!("{:70} {:.2}", "action / bare engine", ratio(of(5), of(4)));
    println!("{:70} {:.2}", "children from code / from tool calls", ratio(of(6), of(7)));
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The clock starts when the allocator has tidied up what the round before gave back: a log of many thousand messages, each of several
/// small parts, which it puts together when it is next asked for a larger one.
fn begin() -> Instant {
    drop(std::hint::black_box(vec![0_u8; 64 << 10]));
    Instant::now()
}

fn micros_since(start: Instant, count: usize) -> f64 {
    start.elapsed().as_secs_f64() * 1e6 / count as f64
}

async fn bare_calls() -> f64 {
    let runtime = AsyncRuntime::new().unwrap();
    let context = AsyncContext::full(&runtime).await.unwrap();
    let code = format!("(async () => {{ for (let i = 0; i < {CALLS}; i++) await host({{ n: i }}) }})()");
    let start = begin();
    context
        .async_with(async |ctx| {
            ctx.globals().set("host", Func::from(Async(|_: rquickjs::Object<'_>| async { 1 }))).unwrap();
            let promise: Promise<'_> = ctx.eval(code).catch(&ctx).map_err(|error| error.to_string()).unwrap();
            promise.into_future::<()>().await.catch(&ctx).map_err(|error| error.to_string()).unwrap();
        })
        .await;
    micros_since(start, CALLS as usize)
}

async fn two_messages() -> f64 {
    let start = begin();
    Root::new()
        .run(RunSpec::new("two", "messages"), |_| {
            SubAgentStream::generate(|emit| async move {
                for _ in 0..CALLS {
                    emit.send(Chunk::text("one")).await;
                    emit.send(Chunk::text("two")).await;
                }
                SubAgentOutcome::completed(1)
            })
        })
        .settle()
        .await;
    micros_since(start, CALLS as usize)
}

fn tools() -> Toolset {
    let instant = tool_fn("instant", "Does nothing.", |_: Map<String, Value>, _| async { ToolReply::ok(1) });
    Toolset::new().with(instant).unwrap().with_sub_agent(RunSubtask::default()).unwrap()
}

async fn play(agents: Value, producer: impl Producer) -> f64 {
    let text = json!({ "anabranch_script": 1, "agents": agents }).to_string();
    let model = ScriptModel::new(Script::parse(&text, "bench").unwrap());
    let limits = TreeLimits { total: Limit::Unlimited, ..TreeLimits::default() };
    let root = Root::builder().tree_limits(limits).build();
    let agent = Agent::with_producer(Arc::new(model), Arc::new(producer)).tools(tools()).max_turns(100_000);
    let start = begin();
    let outcome = agent.run(&root, "work").settle().await;
    let time = start.elapsed().as_secs_f64() * 1e6;
    assert!(outcome.is_ok(), "{outcome:?}");
    time
}

fn codeact() -> CodeAct {
    CodeAct::default().with_limits(ActionLimits { max_calls: u32::MAX, ..ActionLimits::default() })
}

async fn bridged_calls(at_once: bool) -> f64 {
    let code = if at_once {
        format!(
            "for (let i = 0; i < {CALLS} / 50; i++) await Promise.all(Array.from({{ length: 50 }}, (_, n) => tools.instant({{ n }})))"
        )
    } else {
        format!("for (let i = 0; i < {CALLS}; i++) await tools.instant({{ n: i }})")
    };
    play(json!([{ "turns": [{ "code": code }, { "text": "done" }] }]), codeact()).await / f64::from(CALLS)
}

fn bare_engine() -> f64 {
    let start = begin();
    for _ in 0..ACTIONS {
        let runtime = Runtime::new().unwrap();
        runtime.set_memory_limit(64 << 20);
        let context = Context::full(&runtime).unwrap();
        let value: i32 = context.with(|ctx| ctx.eval("1+1").unwrap());
        assert_eq!(value, 2);
    }
    micros_since(start, ACTIONS)
}

async fn actions() -> f64 {
    let mut turns = vec![json!({ "code": "return 1 + 1" }); ACTIONS];
    turns.push(json!({ "text": "done" }));
    play(json!([{ "turns": turns }]), codeact()).await / ACTIONS as f64
}

async fn children(from_code: bool) -> f64 {
    let turn = if from_code {
        let code = format!(
            "await Promise.all(Array.from({{ length: {CHILDREN} }}, (_, n) => tools.run_subtask({{ description: 'c', prompt: 'c' }})))"
        );
        json!({ "code": code })
    } else {
        let call = json!({ "name": "run_subtask", "arguments": { "description": "c", "prompt": "c" } });
        json!({ "tool_calls": vec![call; CHILDREN] })
    };
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [turn, { "text": "done" }] },
        { "turns": [{ "generate": { "chunks": 20, "text": "word " } }] },
    ]);
    let time = if from_code { play(agents, codeact()).await } else { play(agents, Mixed).await };
    time / CHILDREN as f64
}

/// The children are the same in both cases: only who calls them differs.
struct Mixed;

impl Producer for Mixed {
    fn kind(&self) -> &str {
        "codeact"
    }

    fn produce(&self, job: anabranch::tool::Job, cx: anabranch::RunContext) -> SubAgentStream {
        if cx.depth() == 0 { ToolLoop::default().produce(job, cx) } else { codeact().produce(job, cx) }
    }
}
