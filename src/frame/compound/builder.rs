//! Putting a compound together, and checking that nothing is missing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::course::{Convergence, Rules};
use super::parts::{
    Action, Evaluation, Evaluator, Executor, Executors, Judging, Parts, PromptBuilder, PromptNote,
    Refinement, Updater,
};
use super::run::Compound;
use crate::budget::RunLimits;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::asking::PassAgent;
use crate::frame::confidence::{Confidence, ConfidenceProtocol};
use crate::frame::failure::{BoxError, Returns};
use crate::tool::{Hooks, Risk};

/// Builds a [`Compound`] with a state of type `S` and results of type `R`.
pub struct CompoundBuilder<S, R> {
    pub(super) name: Option<String>,
    pub(super) agent: Option<Arc<dyn PassAgent>>,
    pub(super) executor: Option<Arc<Executor<S, R>>>,
    executors: Executors<S, R>,
    updater: Option<Arc<Updater<S, R>>>,
    prompt_note: Option<Arc<PromptNote<S>>>,
    pub(super) evaluator: Option<Arc<Evaluator<R>>>,
    pub(super) prompt_builder: Option<Arc<PromptBuilder<R>>>,
    pub(super) max_refinements: u32,
    hooks: Hooks,
    pub(super) protocol: Option<ConfidenceProtocol>,
    pub(super) judges_itself: bool,
    pub(super) confident_at: Option<f64>,
    pub(super) convergence: Option<Convergence>,
    pub(super) keeps_best: bool,
    pub(super) timeout: Option<Duration>,
    limits: RunLimits,
    risk: Risk,
}

impl<S, R> Default for CompoundBuilder<S, R> {
    fn default() -> Self {
        Self {
            name: None,
            agent: None,
            executor: None,
            executors: Vec::new(),
            updater: None,
            prompt_note: None,
            evaluator: None,
            prompt_builder: None,
            max_refinements: 0,
            hooks: Hooks::new(),
            protocol: None,
            judges_itself: false,
            confident_at: None,
            convergence: None,
            keeps_best: true,
            timeout: None,
            limits: RunLimits::default(),
            risk: Risk::High,
        }
    }
}

fn executing<S, R, E, Fut>(executor: impl Fn(Action<S>) -> Fut + Send + Sync + 'static) -> Arc<Executor<S, R>>
where
    E: Into<BoxError>,
    Fut: Future<Output = std::result::Result<R, E>> + Send + 'static,
{
    Arc::new(move |action| {
        let acting = executor(action);
        Box::pin(async move { acting.await.map_err(Into::into) })
    })
}

impl<S: 'static, R: 'static> CompoundBuilder<S, R> {
    /// What answers in each pass: an agent, a frame, or an author's own. Required.
    #[must_use]
    pub fn agent(mut self, agent: impl PassAgent) -> Self {
        self.agent = Some(Arc::new(agent));
        self
    }

    /// What acts on an answer. Required. An error that is an [`crate::frame::Abort`] ends everything.
    #[must_use]
    pub fn executor<E, Fut>(mut self, executor: impl Fn(Action<S>) -> Fut + Send + Sync + 'static) -> Self
    where
        E: Into<BoxError>,
        Fut: Future<Output = std::result::Result<R, E>> + Send + 'static,
    {
        self.executor = Some(executing(executor));
        self
    }

    /// Another executor, under a name to which a hook may redirect.
    #[must_use]
    pub fn other_executor<E, Fut>(
        mut self,
        name: &str,
        executor: impl Fn(Action<S>) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        E: Into<BoxError>,
        Fut: Future<Output = std::result::Result<R, E>> + Send + 'static,
    {
        self.executors.push((name.into(), executing(executor)));
        self
    }

    /// Writes a result into the state: into a copy, which becomes the state when this has succeeded. Default: the state stays.
    #[must_use]
    pub fn state_updater<O: Returns<()>>(
        mut self,
        update: impl Fn(&R, &mut S) -> O + Send + Sync + 'static,
    ) -> Self {
        self.updater = Some(Arc::new(move |result, state| update(result, state).into_result()));
        self
    }

    /// Notes the prompt of each pass in the state, before the agent answers: for states that hold a conversation. What a pass that
    /// fails has noted is gone with it. Default: prompts are not noted.
    #[must_use]
    pub fn noting_prompts(mut self, note: impl Fn(&mut S, &str) + Send + Sync + 'static) -> Self {
        self.prompt_note = Some(Arc::new(note));
        self
    }

    /// Judges each result. Required if there may be refinements.
    #[must_use]
    pub fn evaluator<O: Returns<Evaluation>>(
        mut self,
        evaluate: impl Fn(&R) -> O + Send + Sync + 'static,
    ) -> Self {
        self.evaluator = Some(Arc::new(move |judging: Judging<R>| {
            let said = evaluate(&judging.result).into_result();
            Box::pin(std::future::ready(said))
        }));
        self
    }

    /// As [`CompoundBuilder::evaluator`], for one that waits: it may ask an agent.
    #[must_use]
    pub fn async_evaluator<E, Fut>(
        mut self,
        evaluate: impl Fn(Judging<R>) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        E: Into<BoxError>,
        Fut: Future<Output = std::result::Result<Evaluation, E>> + Send + 'static,
    {
        self.evaluator = Some(Arc::new(move |judging| {
            let judged = evaluate(judging);
            Box::pin(async move { judged.await.map_err(Into::into) })
        }));
        self
    }

    /// How many passes may follow the first. Default 0.
    #[must_use]
    pub fn max_refinements(mut self, refinements: u32) -> Self {
        self.max_refinements = refinements;
        self
    }

    /// Builds the prompt of the next pass. Required if there may be refinements.
    #[must_use]
    pub fn build_refinement_prompt<O: Returns<String>>(
        mut self,
        build: impl Fn(&Refinement<'_, R>) -> O + Send + Sync + 'static,
    ) -> Self {
        self.prompt_builder = Some(Arc::new(move |refinement| build(refinement).into_result()));
        self
    }

    /// Its name. Default: the agent's.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Hooks around the executor, after those of the runtime in which the compound runs. They see a call of the compound's name with
    /// `agent_output` and `prompt`; a redirect changes what is executed. Default none.
    #[must_use]
    pub fn hooks(mut self, hooks: Hooks) -> Self {
        self.hooks = hooks;
        self
    }

    /// Finds out in each pass how sure the agent is. Default: not known.
    #[must_use]
    pub fn confidence(mut self, protocol: ConfidenceProtocol) -> Self {
        self.protocol = Some(protocol);
        self
    }

    /// Limits of the compound's run; those of the run that calls narrow them. Default: those alone.
    #[must_use]
    pub fn limited(mut self, limits: RunLimits) -> Self {
        self.limits = limits;
        self
    }

    /// How much a call of it as a tool may harm. Default high, since its executor acts on the world: a policy then asks a person,
    /// unless a rule allows the tool.
    #[must_use]
    pub fn risk(mut self, risk: Risk) -> Self {
        self.risk = risk;
        self
    }

    fn failing(&self, reason: impl Into<String>) -> Error {
        let name = self.name.clone().filter(|name| !name.is_empty());
        let name = name.or_else(|| self.agent.as_ref().map(|agent| agent.name().to_owned()));
        ErrorKind::Frame { name: name.unwrap_or_else(|| "compound".to_owned()), reason: reason.into() }.into()
    }

    /// The compound.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Frame`] that names everything that is missing.
    pub fn build(self) -> Result<Compound<S, R>> {
        let refines = self.max_refinements > 0;
        let is_judged = self.evaluator.is_some() || self.judges_itself;
        let missing: Vec<&str> = [
            ("agent", self.agent.is_none()),
            ("executor", self.executor.is_none()),
            ("evaluator", refines && !is_judged),
            ("build_refinement_prompt", refines && self.prompt_builder.is_none()),
        ]
        .into_iter()
        .filter_map(|(part, is_missing)| is_missing.then_some(part))
        .collect();
        let (Some(agent), Some(executor), true) = (&self.agent, &self.executor, missing.is_empty()) else {
            let why = if refines {
                format!(" with max_refinements = {}", self.max_refinements)
            } else {
                String::new()
            };
            return Err(self.failing(format!("it needs {}{why}", missing.join(" and "))));
        };
        let confident_at = match self.confident_at {
            None => None,
            Some(at) => Some(Confidence::new(at).ok_or_else(|| {
                self.failing(format!("its confidence threshold is {at}; it is a number from 0 to 1"))
            })?),
        };
        if confident_at.is_some() && self.protocol.is_none() {
            return Err(
                self.failing("it has a confidence threshold and no protocol to find the confidence out")
            );
        }
        if self.judges_itself && confident_at.is_none() {
            return Err(
                self.failing("it judges itself and has no confidence threshold at which it is content")
            );
        }
        let name = match self.name.as_deref() {
            None | Some("") => agent.name().into(),
            Some(name) => name.into(),
        };
        let rules = Rules {
            max_passes: self.max_refinements.saturating_add(1),
            confident_at,
            convergence: self.convergence,
            keeps_best: self.keeps_best,
        };
        Ok(Compound(Arc::new(Parts {
            name,
            agent: Arc::clone(agent),
            executor: Arc::clone(executor),
            executors: self.executors,
            updater: self.updater,
            prompt_note: self.prompt_note,
            evaluator: self.evaluator,
            prompt_builder: self.prompt_builder,
            hooks: self.hooks,
            protocol: self.protocol,
            judges_itself: self.judges_itself,
            rules,
            timeout: self.timeout,
            limits: self.limits,
            risk: self.risk,
        })))
    }
}

impl<S, R> fmt::Debug for CompoundBuilder<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompoundBuilder")
            .field("name", &self.name)
            .field("max_refinements", &self.max_refinements)
            .finish_non_exhaustive()
    }
}
