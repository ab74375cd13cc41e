//! The gate that a call passes: the rules, and the person where they say so.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};

use super::rule::Rule;
use super::rules::{Effect, Ruling, Subject};
use crate::context::{Answer, AnsweredBy, Decision, Question};
use crate::id::RunId;
use crate::tool::context::ToolContext;
use crate::tool::reply::ToolReply;
use crate::tool::traits::Tool;

/// What the gate says of a call.
pub(in crate::tool) enum Passed {
    /// It may be made as it is.
    AsIs,
    /// It may be made, with these arguments.
    With(Map<String, Value>),
}

/// Permissions that persons gave for longer than one call. Taken alone, for a look or a move.
#[derive(Debug, Default)]
struct Grants(Mutex<Vec<Grant>>);

#[derive(Debug)]
struct Grant {
    about: Arc<str>,
    /// In which run, and below it; none is the whole tree.
    run: Option<RunId>,
}

impl Grants {
    fn covers(&self, about: &str, cx: &ToolContext) -> bool {
        let grants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        grants.iter().filter(|grant| &*grant.about == about).any(|grant| match &grant.run {
            None => true,
            Some(run) => cx.run().record().lineage().any(|above| above.origin.run_id == *run),
        })
    }

    fn give(&self, about: Arc<str>, run: Option<RunId>) {
        let mut grants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !grants.iter().any(|grant| grant.about == about && grant.run == run) {
            grants.push(Grant { about, run });
        }
    }
}

/// What is to happen with a call; what no person could permit is refused.
pub(in crate::tool) fn ruled(
    tool: &dyn Tool,
    args: &Map<String, Value>,
    cx: &ToolContext,
) -> Result<Ruling, ToolReply> {
    let ruling = cx.runtime().policy.ruling(Subject { tool, args, agents: &cx.run().agents() });
    if ruling.effect == Effect::Deny { Err(denied_by(&ruling, tool)) } else { Ok(ruling) }
}

fn denied_by(ruling: &Ruling, tool: &dyn Tool) -> ToolReply {
    let name = &tool.spec().name;
    if let Some(whose) = &ruling.off_list_of {
        let reason = format!("not on the list of tools of the agent {whose}");
        let text = format!("The tool {name} is not available to this run: it is {reason}. Do without it.");
        return refusal(text, AnsweredBy::Policy)
            .with(Map::from_iter([("reason".to_owned(), json!(reason))]));
    }
    let text = format!("The tool {name} is denied here{}. Do without it.", of_rule(ruling));
    refusal(text, AnsweredBy::Policy)
}

/// Lets a call pass as it was ruled, or refuses it with what the model reads. May wait for a person.
///
/// # Cancel safety
///
/// Dropping it takes the question back.
pub(in crate::tool) async fn pass(
    ruling: Ruling,
    tool: &dyn Tool,
    args: &Map<String, Value>,
    cx: &ToolContext,
) -> Result<Passed, ToolReply> {
    match ruling.effect {
        Effect::Allow => Ok(Passed::AsIs),
        Effect::Deny => Err(denied_by(&ruling, tool)),
        Effect::Ask => {
            let agents = cx.run().agents();
            let call = Subject { tool, args, agents: &agents };
            let Some(about) = not_permitted(call, cx) else { return Ok(Passed::AsIs) };
            // Boxed, since it is seldom and large.
            Box::pin(ask(tool, args, about, cx)).await
        }
    }
}

/// What a call is asked for that nobody has permitted for longer.
fn not_permitted(call: Subject<'_>, cx: &ToolContext) -> Option<Arc<str>> {
    let name = call.tool.spec().name.as_str();
    let about = |rule: Option<&Rule>| -> Arc<str> {
        rule.map_or_else(|| name.into(), |rule| format!("{name} by {rule}").into())
    };
    let grants = cx.run().root().extension::<Grants>();
    let mut asking = cx.runtime().policy.asking(call).into_iter().map(about);
    asking.find(|about| !grants.covers(about, cx))
}

fn of_rule(ruling: &Ruling) -> String {
    match &ruling.rule {
        Some(rule) if !rule.is_about_all_arguments() => format!(" with such arguments ({rule})"),
        _ => String::new(),
    }
}

async fn ask(
    tool: &dyn Tool,
    args: &Map<String, Value>,
    about: Arc<str>,
    cx: &ToolContext,
) -> Result<Passed, ToolReply> {
    let name = tool.spec().name.as_str();
    let wish = tool.status_text(args).unwrap_or_else(|| format!("Call {name}"));
    let question = Question {
        risk: Some(tool.risk(args).as_str().to_owned()),
        about: Some(Arc::clone(&about)),
        deadline: cx.runtime().ask_deadline,
        ..Question::permission(wish, name, Arc::new(args.clone()))
    };
    let Ok(answer) = cx.run().ask(cx.caller().emitter(), question).await else {
        return Err(ToolReply::error("cancelled", "the run was cancelled before this call began"));
    };
    let grants = cx.run().root().extension::<Grants>();
    match answer.decision {
        Decision::AllowForRun => grants.give(about, Some(cx.run().run_id().clone())),
        Decision::AllowForRoot => grants.give(about, None),
        Decision::Allow | Decision::Deny | Decision::Answer => {}
    }
    if answer.permits() {
        return Ok(answer.args.map_or(Passed::AsIs, Passed::With));
    }
    Err(denied(name, answer))
}

fn denied(name: &str, answer: Answer) -> ToolReply {
    let said = answer.text.map(|text| format!(" They say: {text}")).unwrap_or_default();
    let text = match answer.by {
        AnsweredBy::User => format!(
            "A person was asked and did not permit this call of {name}.{said} Do not try it again; go on without it."
        ),
        AnsweredBy::Timeout => format!(
            "A call of {name} needs a person's permission, and nobody answered in time. Go on without it, and say what you would have done."
        ),
        AnsweredBy::Nobody | AnsweredBy::Policy | AnsweredBy::RunEnded => format!(
            "A call of {name} needs a person's permission here, and nobody is there to ask. Say what you would change instead."
        ),
    };
    let reply = refusal(text, answer.by);
    match answer.by {
        AnsweredBy::Nobody => reply.shown_as(format!(
            "{name} needs permission, and nobody was there to ask; --allow {name} gives it"
        )),
        AnsweredBy::User | AnsweredBy::Policy | AnsweredBy::Timeout | AnsweredBy::RunEnded => reply,
    }
}

/// The refusal, with what an audit needs.
fn refusal(text: String, by: AnsweredBy) -> ToolReply {
    let audit = [("decision".to_owned(), json!("deny")), ("by".to_owned(), json!(by.as_str()))];
    ToolReply::error("tool_denied", text).with(Map::from_iter(audit))
}
