//! A compound as a value: called from any run, with a state of the caller's.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::builder::CompoundBuilder;
use super::drive::Drive;
use super::error::{CompoundError, Stage};
use super::parts::Parts;
use super::result::CompoundResult;
use crate::context::{EnterError, RunSpec};
use crate::forward::forward_subagent_stream;
use crate::frame::error::FrameErrorKind;
use crate::frame::failure::{NotCompleted, StepFailure};
use crate::frame::parent::Parent;
use crate::frame::tool::NOUN;
use crate::outcome::SubAgentOutcome;
use crate::stream::SubAgentStream;

/// What a compound's run is in `run_started`.
const PRODUCER: &str = "compound";

/// A sub-agent bound to an executor, refined until an evaluator is content. Cheap to clone; it holds nothing of a call.
///
/// Its run is a child of the run that calls, and each pass of its agent a child of that. The compound's own run says when a pass
/// begins and how it ended (`task_update`, `step_result`).
///
/// # Ordering
///
/// The first pass becomes the state before it is judged. A further one becomes the state when it has been judged, and the result with
/// it: so the state is always that after the pass whose result it is. At the end that is the pass that counts. For this the state is
/// cloned a few times in each pass: what is large in it belongs behind an [`Arc`].
///
/// # Examples
///
/// ```
/// use anabranch::Agent;
/// use anabranch::frame::compound::{Compound, Evaluation};
/// use anabranch::model::OfflineModel;
///
/// let compound = Compound::<Vec<String>, String>::builder()
///     .agent(Agent::new(OfflineModel::new()).named("writer"))
///     .executor(|action| async move { Ok::<_, std::io::Error>(action.output.to_string()) })
///     .state_updater(|text, state| state.push(text.clone()))
///     .evaluator(|text| if text.len() < 80 { Evaluation::passed() } else { Evaluation::failed("too long") })
///     .max_refinements(2)
///     .build_refinement_prompt(|refinement| format!("{}\nIt was {}.", refinement.prompt, refinement.feedback))
///     .build()?;
/// assert_eq!(compound.name(), "writer");
/// # Ok::<(), anabranch::error::Error>(())
/// ```
pub struct Compound<S, R>(pub(super) Arc<Parts<S, R>>);

impl<S, R> Clone for Compound<S, R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// What a compound is called with: a text is one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CompoundCall {
    /// What is to be done: it is noted in the state, and refinements are built from it.
    pub prompt: Arc<str>,
    /// What the agent reads in the first pass instead of the prompt.
    pub note: Option<Arc<str>>,
    /// What the agent and the executor get along, the same in every pass.
    pub args: Arc<Map<String, Value>>,
}

impl<T: Into<Arc<str>>> From<T> for CompoundCall {
    fn from(prompt: T) -> Self {
        Self { prompt: prompt.into(), ..Self::default() }
    }
}

impl<S, R> Compound<S, R> {
    /// Begins to build one.
    #[must_use]
    pub fn builder() -> CompoundBuilder<S, R> {
        CompoundBuilder::default()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

impl<S, R> Compound<S, R>
where
    S: Clone + Send + Sync + 'static,
    R: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    /// Makes passes until one is good or there may be no more. `state` is changed with each pass that is completed, and never by one
    /// that fails.
    ///
    /// # Errors
    ///
    /// [`CompoundError`] where there is no result: the first pass failed, the run was cancelled or refused, or a rule aborted it. A
    /// refinement that fails otherwise leaves what there was before it, with [`super::ExitReason::RefinementFailedKeepOriginal`] and
    /// the error beside it.
    ///
    /// # Cancel safety
    ///
    /// Dropping it cancels the run; the state is that after the last pass that was completed.
    pub async fn run(
        &self,
        parent: &Parent,
        state: &mut S,
        call: impl Into<CompoundCall>,
    ) -> Result<CompoundResult<R>, CompoundError> {
        let call = call.into();
        let fail = |failure| CompoundError {
            name: Arc::clone(&self.0.name),
            pass: 0,
            stage: Stage::Start,
            failure,
            history: Vec::new(),
        };
        let mut spec = RunSpec::new(Arc::clone(&self.0.name), Arc::clone(&call.prompt))
            .produced_by(PRODUCER)
            .limited(self.0.limits);
        spec.noun = NOUN.into();
        let entered = match parent.enter(spec) {
            Ok(entered) => entered,
            Err(EnterError::Cancelled(cancelled)) => return Err(fail(StepFailure::Cancelled(cancelled.by))),
            Err(EnterError::Refused(refusal)) => {
                return Err(fail(StepFailure::Failed(Box::new(FrameErrorKind::Refused(refusal)))));
            }
        };
        let kept = Kept { state: Arc::new(Mutex::new(Some(state.clone()))), target: state };
        let slot = Arc::new(Mutex::new(None));
        let (parts, below) = (Arc::clone(&self.0), parent.below(entered.context()));
        let (state, filled) = (Arc::clone(&kept.state), Arc::clone(&slot));
        let stream = SubAgentStream::generate(|emit| async move {
            let drive = Drive { parts, parent: below, emit, state, call };
            let done = Box::pin(drive.run()).await;
            let outcome = match &done {
                Ok(result) => SubAgentOutcome::completed(result.to_value()),
                Err(error) => error.failure.outcome(error.to_string()),
            };
            *filled.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
            outcome
        });
        let outcome = forward_subagent_stream(stream, entered).await;
        drop(kept);
        let done = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (done, outcome) {
            (Some(Ok(result)), SubAgentOutcome::Completed { .. }) => Ok(result),
            (Some(Err(error)), _) => Err(error),
            (_, SubAgentOutcome::Cancelled { by, .. }) => Err(fail(StepFailure::Cancelled(by))),
            (_, outcome) => Err(fail(StepFailure::Failed(Box::new(NotCompleted { outcome })))),
        }
    }
}

/// The state while a run changes it. Dropped, it gives the caller what was completed, however the run ended.
struct Kept<'a, S> {
    state: Arc<Mutex<Option<S>>>,
    target: &'a mut S,
}

impl<S> Drop for Kept<'_, S> {
    fn drop(&mut self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(state) = state {
            *self.target = state;
        }
    }
}

impl<S, R> fmt::Debug for Compound<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compound").field("name", &self.0.name).finish_non_exhaustive()
    }
}
