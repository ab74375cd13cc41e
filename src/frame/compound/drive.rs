//! The waiting of a compound: one pass after the other.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::course::Course;
use super::error::{CompoundError, Stage};
use super::parts::{Action, Evaluation, Judging, Parts, Refinement};
use super::report::Report;
use super::result::{CompoundResult, ExitReason, PassRecord};
use super::run::CompoundCall;
use crate::frame::asking::Asking;
use crate::frame::confidence::{Confidence, Enriched, enrich};
use crate::frame::failure::{StepFailure, guarded, guarded_async, watched};
use crate::frame::hooking::Hooking;
use crate::frame::parent::Parent;
use crate::stream::Emitter;
use crate::tool::HookedCall;

/// One call of a compound.
pub(super) struct Drive<S, R> {
    pub(super) parts: Arc<Parts<S, R>>,
    /// Over the compound's own run.
    pub(super) parent: Parent,
    pub(super) emit: Emitter,
    /// As the last pass left it that was completed.
    pub(super) state: Arc<Mutex<Option<S>>>,
    pub(super) call: CompoundCall,
}

/// A pass that has a result.
struct Worked<S, R> {
    pass: u32,
    result: Arc<R>,
    value: Value,
    /// As it is with this result.
    state: S,
    enriched: Enriched,
    score: Option<f64>,
}

/// How far a call has come: outside of the passes, which a timeout drops.
struct Progress<S, R> {
    course: Course,
    /// The pass that counts.
    kept: Option<Worked<S, R>>,
    /// The result of the last pass that was completed.
    latest: Option<Arc<R>>,
    /// The pass under way.
    pass: u32,
    completed: u32,
}

type Failed = (Stage, StepFailure);

fn at(stage: Stage) -> impl FnOnce(StepFailure) -> Failed {
    move |failure| (stage, failure)
}

impl<S, R> Drive<S, R>
where
    S: Clone + Send + Sync + 'static,
    R: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    pub(super) async fn run(self) -> Result<CompoundResult<R>, CompoundError> {
        let course = Course::new(self.parts.rules);
        let mut progress = Progress { course, kept: None, latest: None, pass: 0, completed: 0 };
        let making = Box::pin(self.passes(&mut progress));
        let ended = match self.parts.timeout {
            None => making.await,
            Some(timeout) => match self.in_time(timeout, making).await {
                Some(ended) => ended,
                None => {
                    let text = "the time was over before it had ended";
                    progress.course.note_failure(progress.pass, text.to_owned());
                    self.report().failed(progress.pass, text).await;
                    Ok(ExitReason::Timeout)
                }
            },
        };
        self.finish(progress, ended)
    }

    /// What comes of `work` in this time, in which waiting for a person does not count.
    async fn in_time<T>(&self, timeout: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.parent.run().time_of_work(timeout) => None,
        }
    }

    fn finish(
        &self,
        progress: Progress<S, R>,
        ended: Result<ExitReason, Failed>,
    ) -> Result<CompoundResult<R>, CompoundError> {
        let Progress { course, kept, pass: at, completed, .. } = progress;
        let history = course.into_history();
        let error = |(stage, failure)| CompoundError {
            name: Arc::clone(&self.parts.name),
            pass: at,
            stage,
            failure,
            history: history.clone(),
        };
        let Some(Worked { pass, result, state, enriched, score, .. }) = kept else {
            let text = "the time was over before there was a result";
            let timed_out = (Stage::Agent, StepFailure::Failed(text.into()));
            return Err(error(ended.err().unwrap_or(timed_out)));
        };
        let (exit_reason, error) = match ended {
            Ok(exit) => (exit, None),
            Err(failed) if failed.1.must_end() => return Err(error(failed)),
            Err(failed) => (ExitReason::RefinementFailedKeepOriginal, Some(error(failed))),
        };
        // The pass that counts need not be the last one.
        self.commit(&state);
        Ok(CompoundResult {
            result: Arc::unwrap_or_clone(result),
            output: enriched.output,
            pass,
            iterations: completed,
            refined: pass > 1,
            exit_reason,
            score,
            confidence: enriched.confidence,
            uncertainty_targets: enriched.uncertainty_targets,
            capability_boundary: enriched.capability_boundary,
            error,
            history,
        })
    }

    /// Makes passes until there is a reason to make no more, or one fails.
    async fn passes(&self, progress: &mut Progress<S, R>) -> Result<ExitReason, Failed> {
        let call = &self.call;
        let mut prompt = call.note.clone().unwrap_or_else(|| Arc::clone(&call.prompt));
        loop {
            progress.pass += 1;
            let pass = progress.pass;
            self.report().begins(pass, &prompt).await;
            let made = match self.pass(&prompt, progress).await {
                Ok(None) => self.next_prompt(progress).map_err(at(Stage::PromptBuilder)),
                Ok(Some(exit)) => return Ok(exit),
                Err(failed) => Err(failed),
            };
            match made {
                Ok(next) => prompt = next.into(),
                Err((stage, failure)) => {
                    let text = format!("the {stage} failed: {failure}");
                    progress.course.note_failure(pass, text.clone());
                    match stage {
                        // The pass itself has ended well.
                        Stage::PromptBuilder => self.report().warns(text).await,
                        _ => self.report().failed(pass, &text).await,
                    }
                    return Err((stage, failure));
                }
            }
        }
    }

    /// One pass, and why it is the last; none if another is to follow.
    async fn pass(
        &self,
        prompt: &Arc<str>,
        progress: &mut Progress<S, R>,
    ) -> Result<Option<ExitReason>, Failed> {
        let pass = progress.pass;
        let worked = self.work(pass, prompt).await?;
        let (result, value) = (Arc::clone(&worked.result), worked.value.clone());
        let confidence = worked.enriched.confidence;
        let mut fresh = Some(worked);
        if pass == 1 {
            // What was done in the world has happened, whatever is thought of it.
            fresh.iter().for_each(|worked| self.commit(&worked.state));
            progress.kept = fresh.take();
            progress.completed = 1;
        }
        let evaluation =
            self.judge(pass, Arc::clone(&result), confidence).await.map_err(at(Stage::Evaluator))?;
        fresh.iter().for_each(|worked| self.commit(&worked.state));
        progress.completed = pass;
        progress.latest = Some(Arc::clone(&result));
        let record = PassRecord {
            pass,
            passed: evaluation.as_ref().map(|evaluation| evaluation.passed),
            score: evaluation.as_ref().and_then(|evaluation| evaluation.score),
            feedback: evaluation.map(|evaluation| evaluation.feedback).unwrap_or_default(),
            confidence,
            error: None,
        };
        let noted = progress.course.note(record.clone());
        if noted.counts && fresh.is_some() {
            progress.kept = fresh;
        }
        if let Some(kept) = progress.kept.as_mut().filter(|kept| kept.pass == pass) {
            kept.score = record.score;
        }
        self.report().completed(&record, value).await;
        Ok(noted.exit)
    }

    /// Agent, executor and state updater. Nothing of it is seen outside before it is committed.
    async fn work(&self, pass: u32, prompt: &Arc<str>) -> Result<Worked<S, R>, Failed> {
        let (parts, cx) = (&self.parts, self.parent.run());
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(mut working) = state else {
            return Err((Stage::Start, StepFailure::Failed("the caller has taken the state back".into())));
        };
        if let Some(note) = &parts.prompt_note {
            let noted = guarded(|| {
                note(&mut working, prompt);
                Ok(())
            });
            noted.map_err(at(Stage::StateUpdater))?;
        }
        let asking = Asking {
            prompt: Arc::clone(prompt),
            args: Arc::clone(&self.call.args),
            title: Some(format!("pass {pass}")),
            pass: Some(pass),
            branch: None,
        };
        let asked = enrich(&*parts.agent, &asking, &self.parent, parts.protocol.as_ref());
        let enriched = watched(cx, asked).await.map_err(at(Stage::Agent))?;
        let state = Arc::new(working);
        let result = self.act(pass, prompt, &enriched.output, &state).await.map_err(at(Stage::Executor))?;
        let value = serde_json::to_value(&result);
        let value = value.map_err(|error| (Stage::Executor, StepFailure::Failed(error.into())))?;
        let mut state = Arc::unwrap_or_clone(state);
        if let Some(update) = &parts.updater {
            guarded(|| update(&result, &mut state)).map_err(at(Stage::StateUpdater))?;
        }
        Ok(Worked { pass, result: Arc::new(result), value, state, enriched, score: None })
    }

    async fn act(
        &self,
        pass: u32,
        prompt: &Arc<str>,
        output: &Value,
        state: &Arc<S>,
    ) -> Result<R, StepFailure> {
        let (parts, cx) = (&self.parts, self.parent.run());
        let hooks = self.parent.hooks().with_all(&parts.hooks);
        let hooking = Hooking { hooks, cx, emit: &self.emit };
        let args = Map::from_iter([
            ("agent_output".to_owned(), output.clone()),
            ("prompt".to_owned(), json!(&**prompt)),
        ]);
        let act = |call: HookedCall| async move {
            let other = parts.executors.iter().find(|(name, _)| *name == call.tool);
            let executor = match other {
                Some((_, other)) => other,
                None if call.tool == parts.name => &parts.executor,
                None => return Err(self.no_executor(&call.tool)),
            };
            let Some(output) = call.args.get("agent_output").cloned() else {
                return Err(StepFailure::Failed("a hook took `agent_output` out of the call".into()));
            };
            let prompt =
                call.args.get("prompt").and_then(Value::as_str).map_or_else(|| Arc::clone(prompt), Arc::from);
            let args = Arc::clone(&self.call.args);
            let action =
                Action { output, prompt, state: Arc::clone(state), args, pass, parent: self.parent.clone() };
            // Called in the future: a panic of the call itself is caught too.
            guarded_async(cx, async { executor(action).await }).await
        };
        hooking.around(&parts.name, args, act).await
    }

    fn no_executor(&self, name: &str) -> StepFailure {
        let others = self.parts.executors.iter().map(|(name, _)| &**name);
        let names: Vec<&str> = [&*self.parts.name].into_iter().chain(others).collect();
        let text = format!("a hook redirected to {name}; the executors are: {}", names.join(", "));
        StepFailure::Failed(text.into())
    }

    async fn judge(
        &self,
        pass: u32,
        result: Arc<R>,
        confidence: Option<Confidence>,
    ) -> Result<Option<Evaluation>, StepFailure> {
        let cx = self.parent.run();
        let Some(evaluator) = &self.parts.evaluator else {
            let itself = || Evaluation { score: confidence.map(Confidence::get), ..Evaluation::default() };
            return Ok(self.parts.judges_itself.then(itself));
        };
        let judging = Judging { result, pass, parent: self.parent.clone() };
        let evaluation = guarded_async(cx, async { evaluator(judging).await }).await?;
        match evaluation.score {
            Some(score) if !score.is_finite() => {
                Err(StepFailure::Failed(format!("its score is {score}, which cannot be compared").into()))
            }
            _ => Ok(Some(evaluation)),
        }
    }

    fn next_prompt(&self, progress: &Progress<S, R>) -> Result<String, StepFailure> {
        let Some(build) = &self.parts.prompt_builder else {
            return Ok(self.call.prompt.to_string());
        };
        let Some(last) = progress.latest.as_ref() else { return Ok(self.call.prompt.to_string()) };
        let history = progress.course.history();
        let record = history.last();
        let refinement = Refinement {
            result: &**last,
            prompt: &self.call.prompt,
            feedback: record.map(|record| record.feedback.as_str()).unwrap_or_default(),
            score: record.and_then(|record| record.score),
            history,
        };
        guarded(|| build(&refinement))
    }

    /// What was done is the state from now on.
    fn commit(&self, state: &S) {
        let state = state.clone();
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
    }

    fn report(&self) -> Report<'_> {
        Report { emit: &self.emit, name: &self.parts.name }
    }
}
