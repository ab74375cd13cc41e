//! Small producers and messages that the tests share.

use std::sync::Arc;

use anabranch::budget::{Limit, TreeLimits};
use anabranch::context::{Entered, Root, RootBuilder, RunContext, RunSpec};
use anabranch::forward::{Forward, forward_subagent_stream};
use anabranch::id::{RunId, ToolCallId};
use anabranch::message::{
    Extra, MessageBody, ProcessingMessage, RunFinished, ToolCallUpdate, ToolResultUpdate, TurnFinished,
};
use anabranch::outcome::{StopReason, Usage};
use anabranch::stream::Emitter;
use anabranch::testing::TestRoot;
use anabranch::{Chunk, SubAgentOutcome, SubAgentStream};
use serde_json::{Map, Value, json};

/// A root run's spec, called `root`.
pub(crate) fn spec() -> RunSpec {
    RunSpec::new("root", "work")
}

/// A builder with these limits of the tree.
pub(crate) fn limited(limits: TreeLimits) -> RootBuilder {
    Root::builder().tree_limits(limits)
}

/// The default limits without a bound on depth and total.
pub(crate) fn wide() -> TreeLimits {
    TreeLimits { depth: Limit::Unlimited, total: Limit::Unlimited, ..TreeLimits::default() }
}

/// A producer that says these texts and is done.
pub(crate) fn says<const N: usize>(texts: [&'static str; N]) -> SubAgentStream {
    SubAgentStream::generate(move |emit| async move {
        for text in texts {
            emit.send(Chunk::text(text)).await;
        }
        SubAgentOutcome::completed("said")
    })
}

/// A producer that says one text and never ends.
pub(crate) fn hangs() -> SubAgentStream {
    SubAgentStream::generate(|emit| async move {
        emit.send(Chunk::text("hanging")).await;
        std::future::pending::<SubAgentOutcome>().await
    })
}

/// A producer that settles with what a future gives, having said nothing.
pub(crate) fn does<Fut>(work: impl FnOnce(Emitter) -> Fut) -> SubAgentStream
where
    Fut: Future<Output = SubAgentOutcome> + Send + 'static,
{
    SubAgentStream::generate(work)
}

/// A child of `cx` that has begun its way into the tree, titled.
pub(crate) fn enter(cx: &RunContext, title: &str) -> Entered {
    cx.enter(RunSpec::new("child", "work").titled(title)).unwrap()
}

/// A foreground child.
pub(crate) fn child(
    cx: &RunContext,
    title: &str,
    producer: impl FnOnce(RunContext) -> SubAgentStream,
) -> Forward {
    forward(enter(cx, title), producer)
}

/// The pipe of an entered run.
pub(crate) fn forward(entered: Entered, producer: impl FnOnce(RunContext) -> SubAgentStream) -> Forward {
    let stream = producer(entered.context());
    forward_subagent_stream(stream, entered)
}

/// A call starts.
pub(crate) fn call(index: u32, id: &str, name: &str) -> ProcessingMessage {
    ToolCallUpdate {
        tool_call_id: ToolCallId::from(id),
        call_index: index,
        name: name.into(),
        args: Arc::default(),
        message: None,
        via: None,
        extra: Extra::default(),
    }
    .into()
}

/// A call has its result.
pub(crate) fn result(index: u32, id: &str, name: &str) -> ProcessingMessage {
    ToolResultUpdate {
        tool_call_id: ToolCallId::from(id),
        call_index: index,
        name: name.into(),
        is_error: false,
        result: Arc::new(Map::from_iter([("result".to_owned(), json!("ok"))])),
        duration_ms: 0,
        message: None,
        extra: Extra::default(),
    }
    .into()
}

/// A turn is over and used so many tokens.
pub(crate) fn turn(turn: u64, input: u64, output: u64) -> ProcessingMessage {
    let usage = Usage::of_call(input, output);
    TurnFinished { turn, stop_reason: StopReason::EndTurn, usage, extra: Extra::default() }.into()
}

/// A body by its JSON: for what the library has no constructor for.
pub(crate) fn body(json: Value) -> ProcessingMessage {
    ProcessingMessage::from_json(&json.to_string()).unwrap()
}

/// The terminals of a log with the titles of their runs, in order.
pub(crate) fn ends(log: &[ProcessingMessage]) -> Vec<(String, RunFinished)> {
    let tree = anabranch::tree::RunTree::of(log);
    log.iter()
        .filter_map(|message| match message.body() {
            MessageBody::RunFinished(finished) => {
                let node = tree.node(&message.nesting()?.origin.run_id)?;
                Some((node.title().to_owned(), (**finished).clone()))
            }
            _ => None,
        })
        .collect()
}

/// A chain of runs, each below the one before: `root/a/b/c`, with `below` at its end.
pub(crate) fn chain(
    cx: RunContext,
    titles: &'static [&'static str],
    below: fn(RunContext) -> SubAgentStream,
) -> SubAgentStream {
    match titles.split_first() {
        None => below(cx),
        Some((title, rest)) => does(|_| async move { child(&cx, title, |cx| chain(cx, rest, below)).await }),
    }
}

/// The id of the run of that title.
pub(crate) fn id_of(root: &Root, title: &str) -> RunId {
    let tree = root.snapshot();
    tree.nodes().find(|node| node.title() == title).unwrap().origin.run_id.clone()
}

/// What a run's own code comes to, with the log of its tree, which holds.
pub(crate) async fn inside<T, Fut>(
    work: impl FnOnce(RunContext, Emitter) -> Fut,
) -> (T, Vec<ProcessingMessage>)
where
    T: Send + 'static,
    Fut: Future<Output = T> + Send + 'static,
{
    inside_of(Root::builder(), work).await
}

/// As `inside`, on a root of one's own.
pub(crate) async fn inside_of<T, Fut>(
    builder: RootBuilder,
    work: impl FnOnce(RunContext, Emitter) -> Fut,
) -> (T, Vec<ProcessingMessage>)
where
    T: Send + 'static,
    Fut: Future<Output = T> + Send + 'static,
{
    let test = TestRoot::of(builder);
    let slot = Arc::new(std::sync::Mutex::new(None));
    let filled = Arc::clone(&slot);
    let run = test.root().run(RunSpec::new("host", "work"), |cx| {
        SubAgentStream::generate(|emit| {
            let work = work(cx, emit);
            async move {
                let done = work.await;
                *filled.lock().unwrap() = Some(done);
                SubAgentOutcome::completed("done")
            }
        })
    });
    run.settle().await;
    let log = test.finish();
    let done = slot.lock().unwrap().take().expect("the run to have come to its end");
    (done, log)
}
