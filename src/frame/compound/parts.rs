//! What an author gives a compound, and what each of it sees.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Map, Value};

use super::course::Rules;
use super::result::PassRecord;
use crate::budget::RunLimits;
use crate::frame::asking::PassAgent;
use crate::frame::confidence::ConfidenceProtocol;
use crate::frame::failure::BoxError;
use crate::frame::parent::Parent;
use crate::tool::{Hooks, Risk};

/// What an executor is to do.
#[derive(Debug, Clone)]
pub struct Action<S> {
    /// What the agent answered, without what a confidence protocol adds.
    pub output: Value,
    /// The prompt of this pass.
    pub prompt: Arc<str>,
    /// The state before this pass, and the prompt where the compound notes prompts in it.
    pub state: Arc<S>,
    /// What the caller gave along.
    pub args: Arc<Map<String, Value>>,
    /// From 1.
    pub pass: u32,
    /// The compound's run: to begin further runs below it, or to wait for its cancel.
    pub parent: Parent,
}

/// What an evaluator judges.
#[derive(Debug, Clone)]
pub struct Judging<R> {
    /// The result of the pass.
    pub result: Arc<R>,
    /// From 1.
    pub pass: u32,
    /// The compound's run: an evaluator may ask an agent or a frame.
    pub parent: Parent,
}

/// What an evaluator says of a result.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Evaluation {
    /// Whether it is good enough: then no further pass is made.
    pub passed: bool,
    /// What is to be better: it reaches the prompt builder.
    pub feedback: String,
    /// How good it is, if that can be said: then the best result is kept, else the latest.
    pub score: Option<f64>,
}

impl Evaluation {
    /// Good enough.
    #[must_use]
    pub fn passed() -> Self {
        Self { passed: true, ..Self::default() }
    }

    /// Not good enough, and why.
    #[must_use]
    pub fn failed(feedback: impl Into<String>) -> Self {
        Self { feedback: feedback.into(), ..Self::default() }
    }

    /// With this score; more is better.
    #[must_use]
    pub fn scored(mut self, score: f64) -> Self {
        self.score = Some(score);
        self
    }
}

/// What the prompt of the next pass is built from.
#[derive(Debug)]
pub struct Refinement<'a, R> {
    /// The latest result.
    pub result: &'a R,
    /// The original prompt.
    pub prompt: &'a str,
    /// What the evaluator wants to be better.
    pub feedback: &'a str,
    /// Its score, if it gave one.
    pub score: Option<f64>,
    /// The passes so far.
    pub history: &'a [PassRecord],
}

pub(super) type Executor<S, R> = dyn Fn(Action<S>) -> BoxFuture<'static, Result<R, BoxError>> + Send + Sync;
/// Executors that a hook may redirect to, by name.
pub(super) type Executors<S, R> = Vec<(Arc<str>, Arc<Executor<S, R>>)>;
pub(super) type Updater<S, R> = dyn Fn(&R, &mut S) -> Result<(), BoxError> + Send + Sync;
pub(super) type Evaluator<R> =
    dyn Fn(Judging<R>) -> BoxFuture<'static, Result<Evaluation, BoxError>> + Send + Sync;
pub(super) type PromptBuilder<R> = dyn Fn(&Refinement<'_, R>) -> Result<String, BoxError> + Send + Sync;
pub(super) type PromptNote<S> = dyn Fn(&mut S, &str) + Send + Sync;

/// A compound, checked.
pub(super) struct Parts<S, R> {
    pub(super) name: Arc<str>,
    pub(super) agent: Arc<dyn PassAgent>,
    pub(super) executor: Arc<Executor<S, R>>,
    /// Others that a hook may redirect to.
    pub(super) executors: Executors<S, R>,
    pub(super) updater: Option<Arc<Updater<S, R>>>,
    pub(super) prompt_note: Option<Arc<PromptNote<S>>>,
    pub(super) evaluator: Option<Arc<Evaluator<R>>>,
    pub(super) prompt_builder: Option<Arc<PromptBuilder<R>>>,
    pub(super) hooks: Hooks,
    pub(super) protocol: Option<ConfidenceProtocol>,
    /// Whether the confidence is the score, where there is no evaluator.
    pub(super) judges_itself: bool,
    pub(super) rules: Rules,
    pub(super) timeout: Option<Duration>,
    pub(super) limits: RunLimits,
    /// Of a call as a tool.
    pub(super) risk: Risk,
}
