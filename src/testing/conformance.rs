//! The battery that any producer has to pass.

use std::fmt;
use std::future::poll_fn;
use std::sync::OnceLock;
use std::task::Poll;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;

use super::probe::{Ended, Probe};
use super::timeline::timeline;
use crate::budget::{Limit, TreeLimits};
use crate::bus::{From, Retain};
use crate::context::{RunContext, RunSpec};
use crate::forward::forward_subagent_stream;
use crate::message::{MessageBody, ProcessingMessage};
use crate::outcome::{CancelledBy, OutcomeKind, SubAgentOutcome};
use crate::stream::SubAgentStream;
use crate::tree::RunTree;

/// Runs the whole battery on a producer with the defaults of [`Conformance`].
///
/// The factory makes one sub-agent for each context it is given; it is called many times. Run it on a tokio runtime, and with
/// paused time unless the producer is quick.
///
/// # Cancel safety
///
/// Dropping it ends the battery, with every tree that it began.
///
/// # Examples
///
/// ```
/// use anabranch::testing::check_sub_agent;
/// use anabranch::{Chunk, SubAgentOutcome, SubAgentStream};
///
/// # tokio_test::block_on(async {
/// let report = check_sub_agent(|_cx| {
///     SubAgentStream::generate(|emit| async move {
///         emit.send(Chunk::text("hello")).await;
///         SubAgentOutcome::completed("done")
///     })
/// })
/// .await;
/// assert!(report.is_ok(), "{report}");
/// # });
/// ```
pub async fn check_sub_agent(factory: impl Fn(RunContext) -> SubAgentStream) -> ConformanceReport {
    Conformance::default().check(factory).await
}

/// How the battery is run.
#[derive(Debug, Clone, Copy)]
pub struct Conformance {
    /// Whether two runs with one seed say the same. Default true; false for a producer on several threads or with chance in it.
    pub deterministic: bool,
    /// At how many places at most a run is cancelled, and at how many it is dropped. Default 32, evenly spread.
    pub places: usize,
    /// How long one run may take. Default 60 s; with paused time it costs nothing.
    pub patience: Duration,
}

impl Default for Conformance {
    fn default() -> Self {
        Self { deterministic: true, places: 32, patience: Duration::from_mins(1) }
    }
}

/// What the battery found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConformanceReport {
    /// How many runs were looked at.
    pub runs: usize,
    /// What is wrong: what was done, and what came of it.
    pub violations: Vec<String>,
}

impl ConformanceReport {
    /// True if nothing is wrong.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.violations.is_empty()
    }
}

impl fmt::Display for ConformanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} violations in {} runs", self.violations.len(), self.runs)?;
        self.violations.iter().try_for_each(|violation| writeln!(f, "- {violation}"))
    }
}

impl Conformance {
    /// Runs the battery.
    ///
    /// # Cancel safety
    ///
    /// As [`check_sub_agent`].
    pub async fn check(self, factory: impl Fn(RunContext) -> SubAgentStream) -> ConformanceReport {
        let mut battery = Battery { options: self, factory, report: ConformanceReport::default() };
        let Some(base) = battery.baseline().await else { return battery.report };
        battery.watched(&base).await;
        battery.cancelled(&base).await;
        battery.cancelled_by_a_subscriber(&base).await;
        battery.dropped(&base).await;
        battery.twice(&base).await;
        battery.report
    }
}

/// What a run without any disturbance did.
struct Baseline {
    log: Vec<ProcessingMessage>,
    kind: OutcomeKind,
    polls: usize,
}

struct Battery<F> {
    options: Conformance,
    factory: F,
    report: ConformanceReport,
}

impl<F: Fn(RunContext) -> SubAgentStream> Battery<F> {
    fn note(&mut self, what: &str, probe: &Probe, outcome: &Ended) {
        self.report.runs += 1;
        let wrong = probe.wrong(outcome);
        self.report.violations.extend(wrong.into_iter().map(|wrong| format!("{what}: {wrong}")));
    }

    fn blame(&mut self, what: &str, wrong: impl fmt::Display) {
        self.report.violations.push(format!("{what}: {wrong}"));
    }

    /// Runs to the end, twice: nobody disturbs it.
    async fn baseline(&mut self) -> Option<Baseline> {
        let mut first: Option<Baseline> = None;
        for what in ["undisturbed", "undisturbed again"] {
            let probe = Probe::new(limits(3), Retain::default());
            let mut run = probe.run(&self.factory);
            let mut polls = 0;
            let ended = poll_fn(|cx| {
                polls += 1;
                run.as_mut().poll(cx)
            });
            let Ok(outcome) = tokio::time::timeout(self.options.patience, ended).await else {
                let patience = self.options.patience;
                self.blame(what, format_args!("no end within {patience:?}"));
                return None;
            };
            let kind = outcome.kind();
            self.note(what, &probe, &Ended::With(outcome));
            let log = probe.log();
            match &first {
                None => first = Some(Baseline { log, kind, polls }),
                Some(base) if self.options.deterministic && timeline(&base.log) != timeline(&log) => {
                    let texts = (timeline(&base.log), timeline(&log));
                    self.blame(what, format_args!("not what it did before:\n{}\nbut\n{}", texts.0, texts.1));
                }
                Some(_) => {}
            }
        }
        first
    }

    /// Subscribers of all kinds change nothing, and each of them ends with the same tree.
    async fn watched(&mut self, base: &Baseline) {
        let what = "watched by a sleeper, a slow one and two late ones";
        let probe = Probe::new(limits(3), Retain { messages: 16, ..Retain::default() });
        let root = probe.root();
        let sleeper = root.subscribe(From::Start);
        let mut slow = root.subscribe(From::Start);
        let mut slow_tree = RunTree::new();
        let mut run = probe.run(&self.factory);
        let ended = poll_fn(|cx| {
            // One message a poll: it falls off the window.
            if let Some(delivery) = slow.try_next() {
                slow_tree.apply(&delivery);
            }
            run.as_mut().poll(cx)
        });
        let Ok(outcome) = tokio::time::timeout(self.options.patience, ended).await else {
            return self.blame(what, "no end");
        };
        self.note(what, &probe, &Ended::With(outcome));
        let whole = root.snapshot();
        let readers = [
            ("slow", slow, slow_tree),
            ("sleeping", sleeper, RunTree::new()),
            ("late", root.subscribe(From::Start), RunTree::new()),
            ("late from now on", root.subscribe(From::Now), RunTree::new()),
        ];
        for (who, mut subscription, mut tree) in readers {
            while let Some(delivery) = subscription.next().await {
                tree.apply(&delivery);
            }
            if tree != whole {
                self.blame(what, format_args!("I16: the {who} subscriber ended with another tree"));
            }
        }
        if self.options.deterministic && timeline(&probe.log()) != timeline(&base.log) {
            self.blame(what, "I15: not what it does unwatched");
        }
    }

    /// Cancelled inside the append of the k-th message: as early as can be.
    async fn cancelled(&mut self, base: &Baseline) {
        for place in places(base.log.len(), self.options.places) {
            let what = format!("cancelled at message {place}");
            let probe = Probe::new(limits(3), Retain::default());
            probe.cancel_at(place);
            let run = probe.run(&self.factory);
            let Ok(outcome) = tokio::time::timeout(self.options.patience, run).await else {
                self.blame(&what, "no end");
                continue;
            };
            self.after_cancel(&what, &probe, &outcome, place, base);
            self.note(&what, &probe, &Ended::With(outcome));
        }
    }

    fn after_cancel(
        &mut self,
        what: &str,
        probe: &Probe,
        outcome: &SubAgentOutcome,
        place: usize,
        base: &Baseline,
    ) {
        let log = probe.log();
        match outcome {
            SubAgentOutcome::Cancelled { by: CancelledBy::User, .. } => {}
            // The outcome may have been decided before the message: then only what closes the run follows.
            other if other.kind() == base.kind && log.iter().skip(place).all(closes) => {}
            other => self.blame(what, format_args!("I3: the outcome is {other:?}")),
        }
        let starts = |body: &MessageBody| {
            matches!(body, MessageBody::ToolCallUpdate(_) | MessageBody::TurnFinished(_))
        };
        let later = log.iter().skip(place).filter(|message| starts(message.body())).count();
        if later > 0 {
            self.blame(what, format_args!("I12: {later} calls or turns after the cancel"));
        }
    }

    /// Cancelled by somebody who reads the log, and who then waits for the end.
    async fn cancelled_by_a_subscriber(&mut self, base: &Baseline) {
        for place in places(base.log.len(), self.options.places.min(8)) {
            let what = format!("cancelled by a subscriber at message {place}");
            let probe = Probe::new(limits(3), Retain::default());
            let root = probe.root().clone();
            let mut events = root.subscribe(From::Start);
            let watcher = async {
                for _ in 0..place {
                    events.next().await?;
                }
                root.cancel_all(CancelledBy::User).await;
                (root.live_runs() > 0).then(|| root.live_runs())
            };
            let run = probe.run(&self.factory);
            let both = futures::future::join(run, watcher);
            let Ok((outcome, live)) = tokio::time::timeout(self.options.patience, both).await else {
                self.blame(&what, "no end");
                continue;
            };
            if let Some(live) = live {
                self.blame(&what, format_args!("I12: {live} runs were live when the cancel had ended"));
            }
            self.note(&what, &probe, &Ended::With(outcome));
        }
    }

    /// Dropped after the k-th poll.
    async fn dropped(&mut self, base: &Baseline) {
        for place in places(base.polls, self.options.places) {
            let what = format!("dropped after poll {place}");
            let probe = Probe::new(limits(3), Retain::default());
            let mut run = probe.run(&self.factory);
            let mut left = place;
            let polled = poll_fn(|cx| {
                left -= 1;
                match run.as_mut().poll(cx) {
                    Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
                    Poll::Pending if left == 0 => Poll::Ready(None),
                    Poll::Pending => Poll::Pending,
                }
            });
            let Ok(outcome) = tokio::time::timeout(self.options.patience, polled).await else {
                self.blame(&what, "no end");
                continue;
            };
            drop(run);
            // What other tasks drove for the run has its terminal now; the tasks themselves may need a moment to see it.
            tokio::task::yield_now().await;
            self.note(&what, &probe, &outcome.map_or(Ended::Dropped, Ended::With));
        }
    }

    /// Two at once under one parent.
    async fn twice(&mut self, base: &Baseline) {
        let what = "two at once in one tree";
        let probe = Probe::new(limits(4), Retain::default());
        let refused: OnceLock<String> = OnceLock::new();
        let parent = |cx: RunContext| {
            let children: Vec<_> = ["one", "two"]
                .into_iter()
                .filter_map(|title| match cx.enter(RunSpec::new("child", "check").titled(title)) {
                    Ok(entered) => Some(forward_subagent_stream((self.factory)(entered.context()), entered)),
                    Err(error) => {
                        let _ = refused.set(format!("{error:?}"));
                        None
                    }
                })
                .collect();
            SubAgentStream::generate(|_| async move {
                join_all(children).await;
                SubAgentOutcome::completed("both")
            })
        };
        let run = probe.run(parent);
        let ended = tokio::time::timeout(self.options.patience, run).await;
        if let Some(refused) = refused.get() {
            self.blame(what, refused);
        }
        let Ok(outcome) = ended else { return self.blame(what, "no end") };
        self.note(what, &probe, &Ended::With(outcome));
        if !self.options.deterministic {
            return;
        }
        let log = probe.log();
        let tree = RunTree::of(&log);
        let Some(root) = tree.root() else { return };
        for child in tree.children(root) {
            let below: Vec<_> = tree.subtree(child).map(|node| &node.origin.run_id).collect();
            let own = log.iter().filter(|message| {
                message.nesting().is_some_and(|nesting| below.contains(&&nesting.origin.run_id))
            });
            let text = timeline(own);
            if sorted(&text) != sorted(&timeline(&base.log)) {
                self.blame(
                    what,
                    format_args!("run {:?} did something else than alone:\n{text}", child.title()),
                );
            }
        }
    }
}

/// The lines without their order: children of one run may interleave in another way where they share a parent's turn.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Whether a message only closes what is open.
fn closes(message: &ProcessingMessage) -> bool {
    match message.body() {
        MessageBody::RunFinished(_) => true,
        MessageBody::ToolResultUpdate(result) => result.is_error,
        MessageBody::Chunk(chunk) => chunk.done,
        _ => false,
    }
}

/// At most `max` of the numbers from 1 to `last`, evenly spread, both ends included.
fn places(last: usize, max: usize) -> Vec<usize> {
    let count = last.min(max.max(1));
    let mut places: Vec<usize> = (1..=count).map(|nth| (nth * last).div_ceil(count.max(1))).collect();
    if let Some(first) = places.first_mut() {
        *first = 1;
    }
    places
}

/// Enough permits that two at once work at the same time, few enough that a forgotten one shows.
fn limits(depth: u32) -> TreeLimits {
    TreeLimits { depth: Limit::At(depth), live: Limit::At(64), ..TreeLimits::default() }
}
