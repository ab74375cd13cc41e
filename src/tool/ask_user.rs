//! A tool with which an agent asks the person who watches.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use futures::future::BoxFuture;

use super::context::ToolContext;
use super::reply::ToolReply;
use super::traits::Tool;
use super::typed::{parameters_of, parse_arguments};
use crate::context::{AnsweredBy, Decision, Question};
use crate::message::cap_text;
use crate::model::ToolSpec;

/// How much of a question is asked, in bytes: what fits on a screen.
const QUESTION_BYTES: usize = 2000;

/// Asks the person who watches the tree, and replies with their words. It is only offered where one is there.
///
/// | code | when |
/// |---|---|
/// | `no_answer` | the person declined, nobody answered in time, or nobody is there; `by` says which |
#[derive(Debug)]
pub struct AskUser {
    spec: ToolSpec,
}

#[derive(Deserialize, JsonSchema)]
struct Params {
    /// The question, with all that the person has to know to answer it.
    question: String,
}

impl AskUser {
    /// The tool's name.
    pub const NAME: &'static str = "ask_user";

    /// The tool.
    #[must_use]
    pub fn new() -> Self {
        let description = "Asks the person who gave the task, and waits for their words. Ask only what nothing else can tell you, \
                           and everything in one question.";
        Self {
            spec: ToolSpec {
                name: Self::NAME.to_owned(),
                description: description.to_owned(),
                parameters: parameters_of::<Params>(),
            },
        }
    }

    async fn ask(&self, args: Map<String, Value>, cx: ToolContext) -> ToolReply {
        let question = match parse_arguments::<Params>(args) {
            Ok(Params { question }) if question.trim().is_empty() => {
                return ToolReply::error(
                    "invalid_tool_arguments",
                    "`question` is empty: say what you want to know.",
                );
            }
            Ok(Params { question }) => cap_text(question.trim(), QUESTION_BYTES),
            Err(reply) => return reply,
        };
        let question = Question::input(question).within(cx.runtime().ask_deadline);
        let Ok(answer) = cx.run().ask(cx.caller().emitter(), question).await else {
            return ToolReply::error("cancelled", "The run was cancelled.");
        };
        if answer.decision == Decision::Answer {
            return ToolReply::ok(answer.text.unwrap_or_default());
        }
        let why = match answer.by {
            AnsweredBy::User => "The person does not want to answer this.",
            AnsweredBy::Timeout => "Nobody answered in time.",
            AnsweredBy::Policy | AnsweredBy::Nobody | AnsweredBy::RunEnded => "Nobody is there to ask.",
        };
        let said = answer.text.map(|text| format!(" They say: {text}")).unwrap_or_default();
        let text = format!("{why}{said} Go on with what is most likely, and say what you assumed.");
        ToolReply::error("no_answer", text)
            .with(Map::from_iter([("by".to_owned(), json!(answer.by.as_str()))]))
    }
}

impl Default for AskUser {
    fn default() -> Self {
        Self::new()
    }
}

impl Tool for AskUser {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: Map<String, Value>, cx: ToolContext) -> BoxFuture<'a, ToolReply> {
        Box::pin(self.ask(args, cx))
    }

    fn needs_person(&self) -> bool {
        true
    }

    fn status_text(&self, _: &Map<String, Value>) -> Option<String> {
        Some("Asking".to_owned())
    }
}
