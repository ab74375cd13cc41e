//! Random trees of producers under random cancels and random readers: I1 to I12, I15, I16 and I20 hold for each of them.

use std::sync::Arc;
use std::time::Duration;

use anabranch::budget::{Limit, TreeLimits};
use anabranch::bus::{From, Retain, Subscription};
use anabranch::context::{BackgroundPolicy, Root, RunContext, RunSpec};
use anabranch::message::Scope;
use anabranch::outcome::{CancelledBy, FailureKind};
use anabranch::testing::TestRoot;
use anabranch::tree::{Delivery, RunTree};
use anabranch::{Chunk, SubAgentOutcome, SubAgentStream};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use proptest::prelude::*;

use crate::kit::{call, does, forward, result, turn};

/// What one producer does, step by step.
#[derive(Debug, Clone)]
enum Step {
    Emit(u8),
    Call {
        answered: bool,
    },
    Turn(u8),
    Wait(u8),
    /// A child of this scope; a foreground one is awaited at the end, or at once.
    Spawn {
        background: bool,
        at_once: bool,
        plan: Vec<Step>,
    },
    /// A foreground child on a task of its own.
    Detach(Vec<Step>),
    /// Waits for a child so long, then drops it.
    Impatient(u8, Vec<Step>),
    Blocking,
    Grace(u8),
    Fail,
    Panic,
    CancelSelf,
    Hang,
}

fn plan() -> impl Strategy<Value = Vec<Step>> {
    let leaf = prop_oneof![
        6 => (1..6u8).prop_map(Step::Emit),
        3 => any::<bool>().prop_map(|answered| Step::Call { answered }),
        3 => any::<u8>().prop_map(Step::Turn),
        4 => (0..20u8).prop_map(Step::Wait),
        1 => Just(Step::Blocking),
        1 => (0..40u8).prop_map(Step::Grace),
        1 => Just(Step::Fail),
        1 => Just(Step::Panic),
        1 => Just(Step::CancelSelf),
        1 => Just(Step::Hang),
    ];
    let step = leaf.prop_recursive(3, 24, 4, |step| {
        let plan = || prop::collection::vec(step.clone(), 0..4);
        prop_oneof![
            4 => (any::<bool>(), any::<bool>(), plan())
                .prop_map(|(background, at_once, plan)| Step::Spawn { background, at_once, plan }),
            1 => plan().prop_map(Step::Detach),
            1 => (0..20u8, plan()).prop_map(|(time, plan)| Step::Impatient(time, plan)),
        ]
    });
    prop::collection::vec(step, 1..6)
}

/// Somebody from outside.
#[derive(Debug, Clone)]
enum Outsider {
    /// Cancels the n-th run that is live then.
    Cancel(u8, CancelledBy),
    CancelAll,
    /// Reads all.
    Read(Join),
    /// Reads so many messages, then holds the subscription.
    StopsReading(Join, u8),
    /// Reads so many messages, then leaves.
    Leaves(Join, u8),
}

#[derive(Debug, Clone)]
enum Join {
    Start,
    Now,
    Half,
}

fn outsider() -> impl Strategy<Value = (u8, Outsider)> {
    let join = || prop_oneof![Just(Join::Start), Just(Join::Now), Just(Join::Half)];
    let by = prop_oneof![Just(CancelledBy::User), Just(CancelledBy::Shutdown), Just(CancelledBy::Parent)];
    let kind = prop_oneof![
        3 => (any::<u8>(), by).prop_map(|(run, by)| Outsider::Cancel(run, by)),
        1 => Just(Outsider::CancelAll),
        3 => join().prop_map(Outsider::Read),
        1 => (join(), 0..8u8).prop_map(|(join, read)| Outsider::StopsReading(join, read)),
        1 => (join(), 0..8u8).prop_map(|(join, read)| Outsider::Leaves(join, read)),
    ];
    (0..60u8, kind)
}

#[derive(Debug, Clone)]
struct Case {
    plan: Vec<Step>,
    outsiders: Vec<(u8, Outsider)>,
    window: usize,
    live: Option<u32>,
    joins: bool,
    /// After how many milliseconds the host drops the tree, if it does.
    dropped: Option<u8>,
}

fn case() -> impl Strategy<Value = Case> {
    let outsiders = prop::collection::vec(outsider(), 0..6);
    let window = prop_oneof![Just(4usize), Just(32), Just(65_536)];
    let live = prop_oneof![2 => Just(None), 1 => (1..4u32).prop_map(Some)];
    let dropped = prop_oneof![4 => Just(None), 1 => (0..60u8).prop_map(Some)];
    (plan(), outsiders, window, live, any::<bool>(), dropped).prop_map(
        |(plan, outsiders, window, live, joins, dropped)| Case {
            plan,
            outsiders,
            window,
            live,
            joins,
            dropped,
        },
    )
}

fn millis(time: u8) -> Duration {
    Duration::from_millis(time.into())
}

fn producer(cx: RunContext, plan: Arc<[Step]>) -> SubAgentStream {
    does(|emit| async move {
        let mut children = FuturesUnordered::new();
        let mut turns = 0;
        let spawn = |plan: &[Step], background: bool| {
            let scope = if background { Scope::Background } else { Scope::Foreground };
            let entered = cx.enter(RunSpec::new("random", "x").scoped(scope)).ok()?;
            let plan = plan.into();
            Some(forward(entered, move |cx| producer(cx, plan)))
        };
        for step in plan.iter() {
            match step {
                Step::Emit(count) => {
                    for _ in 0..*count {
                        emit.send(Chunk::text("x")).await;
                    }
                }
                Step::Call { answered } => {
                    let index = cx.mint_call_index();
                    emit.send(call(index, "call_0", "tool")).await;
                    if *answered {
                        emit.send(result(index, "call_0", "tool")).await;
                    }
                }
                Step::Turn(tokens) => {
                    turns += 1;
                    emit.send(turn(turns, (*tokens).into(), 1)).await;
                }
                Step::Wait(time) => tokio::time::sleep(millis(*time)).await,
                Step::Spawn { background, at_once, plan } => {
                    let Some(child) = spawn(plan, *background) else { continue };
                    match (background, at_once) {
                        (true, _) => drop(tokio::spawn(child)),
                        (false, true) => drop(Box::pin(child).await),
                        (false, false) => children.push(Box::pin(child)),
                    }
                }
                Step::Detach(plan) => drop(spawn(plan, false).map(tokio::spawn)),
                Step::Impatient(time, plan) => {
                    if let Some(child) = spawn(plan, false) {
                        let _ = tokio::time::timeout(millis(*time), Box::pin(child)).await;
                    }
                }
                Step::Blocking => drop(cx.blocking(|| 1).await),
                Step::Grace(time) => {
                    let _hold = cx.hold_grace();
                    tokio::time::sleep(millis(*time)).await;
                }
                Step::Fail => return SubAgentOutcome::failed(FailureKind::Tool, "as planned"),
                Step::Panic => panic!("as planned"),
                Step::CancelSelf => drop(cx.cancel(CancelledBy::Itself)),
                Step::Hang => std::future::pending().await,
            }
        }
        while children.next().await.is_some() {}
        SubAgentOutcome::completed("done")
    })
}

/// A reader's subscription, and whether the tree it makes is to be whole.
fn join(root: &Root, join: &Join) -> (Subscription, bool, u64) {
    let next = root.bus().next_seq();
    match join {
        Join::Start => (root.subscribe(From::Start), true, 0),
        Join::Now => (root.subscribe(From::Now), true, 0),
        Join::Half => (root.subscribe(From::Seq(next / 2)), false, next / 2),
    }
}

/// Reads to the end: no position missing, none twice, and the tree that the log makes.
async fn read((mut events, is_whole, mut next): (Subscription, bool, u64), root: Root) {
    let mut tree = RunTree::new();
    while let Some(delivery) = events.next().await {
        let (first, last) = match &delivery {
            Delivery::Message(message) => message.nesting().map(|n| (n.seq, n.seq)).unwrap(),
            Delivery::Gap(gap) => (gap.from_seq, gap.to_seq),
        };
        assert_eq!(first, next, "I16");
        next = last + 1;
        tree.apply(&delivery);
    }
    assert_eq!(next, root.bus().next_seq(), "I16");
    assert!(!is_whole || tree == root.snapshot(), "I10: a reader ended with another tree");
}

async fn act(outsider: Outsider, root: Root) -> Option<Subscription> {
    match outsider {
        Outsider::Cancel(nth, by) => {
            let tree = root.snapshot();
            let live: Vec<_> = tree.nodes().filter(|node| !node.status.is_settled()).collect();
            if let Some(node) = live.get(usize::from(nth) % live.len().max(1)) {
                let top = node.origin.run_id.clone();
                if let Ok(ended) = root.cancel(&top, by) {
                    ended.await;
                    let after = root.snapshot();
                    let node = after.node(&top).unwrap();
                    assert!(after.subtree(node).all(|node| node.status.is_settled()), "I12");
                }
            }
            None
        }
        Outsider::CancelAll => {
            root.cancel_all(CancelledBy::User).await;
            assert_eq!(root.live_runs(), 0, "I12");
            None
        }
        Outsider::Read(at) => {
            let joined = join(&root, &at);
            read(joined, root).await;
            None
        }
        Outsider::StopsReading(at, count) => {
            let (events, ..) = join(&root, &at);
            Some(some(events, count).await)
        }
        Outsider::Leaves(at, count) => {
            let (events, ..) = join(&root, &at);
            drop(some(events, count).await);
            None
        }
    }
}

async fn some(mut events: Subscription, count: u8) -> Subscription {
    for _ in 0..count {
        if events.next().await.is_none() {
            break;
        }
    }
    events
}

async fn play(case: Case) {
    let limits = TreeLimits {
        live: case.live.map_or(Limit::Unlimited, Limit::At),
        depth: Limit::At(5),
        ..TreeLimits::default()
    };
    let policy = if case.joins { BackgroundPolicy::Join } else { BackgroundPolicy::Cancel };
    let builder = Root::builder()
        .tree_limits(limits)
        .background(policy)
        .grace(Duration::from_millis(50))
        .retain(Retain { messages: case.window, ..Retain::default() });
    let test = TestRoot::of(builder);
    let root = test.root().clone();
    let plan: Arc<[Step]> = case.plan.into();
    let run = root.run(RunSpec::new("random", "x").titled("root"), move |cx| producer(cx, plan)).settle();
    let outsiders: Vec<_> = case
        .outsiders
        .into_iter()
        .map(|(time, outsider)| {
            let root = root.clone();
            tokio::spawn(async move {
                tokio::time::sleep(millis(time)).await;
                act(outsider, root).await
            })
        })
        .collect();
    // What hangs is cancelled in the end.
    let patience = case.dropped.map_or(Duration::from_secs(2), millis);
    let mut run = Box::pin(run);
    if tokio::time::timeout(patience, run.as_mut()).await.is_err() && case.dropped.is_none() {
        let ended = root.cancel_all(CancelledBy::User);
        tokio::join!(run.as_mut(), ended);
    }
    drop(run);
    // Tasks that drove runs of the tree need a moment to see that these are over, and to let go of what they queue for.
    tokio::time::sleep(Duration::from_millis(50)).await;
    if root.bus().is_ended() {
        for outsider in outsiders {
            let held = tokio::time::timeout(Duration::from_secs(30), outsider).await;
            drop(held.expect("nobody waits for a tree that has ended").unwrap());
        }
    }
    test.finish();
}

fn runtime(mut builder: tokio::runtime::Builder) -> tokio::runtime::Runtime {
    builder.enable_all().build().unwrap()
}

/// So many cases, or what `PROPTEST_CASES` says.
fn cases(count: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(count);
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn random_trees_hold_on_one_thread_with_paused_time(case in case()) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.start_paused(true);
        runtime(builder).block_on(play(case));
    }
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn random_trees_hold_on_several_threads(case in case()) {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(3);
        runtime(builder).block_on(play(case));
    }
}
