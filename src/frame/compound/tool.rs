//! A compound as a tool of a model.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::error::CompoundError;
use super::run::{Compound, CompoundCall};
use crate::context::enter_subagent_depth;
use crate::frame::error::{FrameErrorKind, refusal_reply};
use crate::frame::failure::{NotCompleted, StepFailure, guarded};
use crate::frame::parent::Parent;
use crate::frame::tool::{NOUN, prompt_parameters, status_of};
use crate::model::ToolSpec;
use crate::tool::{Access, Risk, Tool, ToolContext, ToolReply};

impl<S, R> Compound<S, R>
where
    S: Clone + Send + Sync + 'static,
    R: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    /// The compound as a tool with its name: `{prompt}` in, [`super::CompoundResult::to_value`] out. Each call begins with a state of
    /// its own, made by `state`.
    ///
    /// Its risk is [high](super::CompoundBuilder::risk) unless it says otherwise: a person is asked before a call, or a rule allows it.
    ///
    /// What the model reads instead, where there is no result: `compound_failed` with the stage, the pass and the history, or
    /// `aborted` where a rule of the host ended it.
    #[must_use]
    pub fn as_tool<F: Fn() -> S + Send + Sync + 'static>(
        &self,
        description: &str,
        state: F,
    ) -> impl Tool + use<S, R, F> {
        let spec = ToolSpec {
            name: self.name().to_owned(),
            description: description.to_owned(),
            parameters: prompt_parameters(),
        };
        CompoundTool { compound: self.clone(), spec, state: Arc::new(state) }
    }
}

struct CompoundTool<S, R> {
    compound: Compound<S, R>,
    spec: ToolSpec,
    state: Arc<dyn Fn() -> S + Send + Sync>,
}

impl<S, R> CompoundTool<S, R>
where
    S: Clone + Send + Sync + 'static,
    R: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    async fn answer(&self, args: Map<String, Value>, cx: ToolContext) -> ToolReply {
        if let Err(refusal) = enter_subagent_depth(cx.run(), NOUN) {
            return refusal_reply(&refusal);
        }
        let prompt = args.get("prompt").and_then(Value::as_str).filter(|prompt| !prompt.trim().is_empty());
        let Some(prompt) = prompt else {
            let text =
                format!("{}: prompt is required: say what is to be done, in full.", self.compound.name());
            return ToolReply::error("missing_prompt", text);
        };
        let mut state = match guarded(|| Ok((self.state)())) {
            Ok(state) => state,
            Err(failure) => {
                let text = format!("{}: the state could not be made: {failure}.", self.compound.name());
                return ToolReply::error("compound_failed", text);
            }
        };
        match self.compound.run(&Parent::from(&cx), &mut state, CompoundCall::from(prompt)).await {
            Ok(result) => {
                let line = format!("{} after {} passes", result.exit_reason, result.iterations);
                ToolReply::ok(result.to_value()).shown_as(line)
            }
            Err(error) => reply(&error),
        }
    }
}

fn reply(error: &CompoundError) -> ToolReply {
    let code = match &error.failure {
        StepFailure::Aborted(_) => "aborted",
        StepFailure::Cancelled(_) => "cancelled",
        StepFailure::Failed(cause) => {
            if let Some(FrameErrorKind::Refused(refusal)) = cause.downcast_ref() {
                return refusal_reply(refusal);
            }
            "compound_failed"
        }
        StepFailure::Panicked(_) => "compound_failed",
    };
    let mut extras = Map::from_iter([
        ("stage".to_owned(), json!(error.stage)),
        ("pass".to_owned(), json!(error.pass)),
        ("history".to_owned(), json!(error.history)),
    ]);
    if let StepFailure::Failed(cause) = &error.failure
        && let Some(NotCompleted { outcome }) = cause.downcast_ref()
    {
        extras.insert("outcome".to_owned(), json!(outcome.kind()));
        extras.insert("stop_class".to_owned(), json!(outcome.stop_class()));
        if let Some(partial) = outcome.partial() {
            extras.insert("partial".to_owned(), partial.clone());
        }
    }
    ToolReply::error(code, format!("{error}.")).with(extras)
}

impl<S, R> Tool for CompoundTool<S, R>
where
    S: Clone + Send + Sync + 'static,
    R: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: Map<String, Value>, cx: ToolContext) -> BoxFuture<'a, ToolReply> {
        Box::pin(self.answer(args, cx))
    }

    fn access(&self) -> Access {
        Access::Spawn
    }

    fn risk(&self, _: &Map<String, Value>) -> Risk {
        self.compound.0.risk
    }

    /// As for a frame.
    fn checks_arguments(&self) -> bool {
        true
    }

    fn status_text(&self, args: &Map<String, Value>) -> Option<String> {
        Some(status_of(self.compound.name(), args))
    }
}
