//! The gate that a call passes: the rules, and the person where they say so.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};

use super::rule::Rule;
use super::rules::{Effect, Ruling, Subject};
use crate::context::{Answer, AnsweredBy, Decision, Question, RunContext};
use crate::id::RunId;
use crate::tool::context::ToolContext;
use crate::tool::reply::ToolReply;
use crate::tool::traits::{Risk, Tool};

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
    fn covers(&self, about: &str, of: &RunContext) -> bool {
        let grants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        grants.iter().filter(|grant| &*grant.about == about).any(|grant| match &grant.run {
            None => true,
            Some(run) => of.record().lineage().any(|above| above.origin.run_id == *run),
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

/// What a person is to be asked about a call that was ruled so; none if it passes as it is.
pub(in crate::tool) fn question_about(
    ruling: &Ruling,
    tool: &dyn Tool,
    args: &Map<String, Value>,
    cx: &ToolContext,
) -> Option<Arc<str>> {
    if ruling.effect != Effect::Ask {
        return None;
    }
    let agents = cx.run().agents();
    let asking = cx.runtime().policy.asking(Subject { tool, args, agents: &agents });
    not_permitted(asking, &tool.spec().name, cx.run())
}

/// What a call of the tool `name` is asked for that nobody has permitted for longer.
pub(super) fn not_permitted(asking: Vec<Option<&Rule>>, name: &str, run: &RunContext) -> Option<Arc<str>> {
    let about = |rule: Option<&Rule>| -> Arc<str> {
        rule.map_or_else(|| name.into(), |rule| format!("{name} by {rule}").into())
    };
    let grants = run.root().extension::<Grants>();
    asking.into_iter().map(about).find(|about| !grants.covers(about, run))
}

fn of_rule(ruling: &Ruling) -> String {
    match &ruling.rule {
        Some(rule) if !rule.is_about_all_arguments() => format!(" with such arguments ({rule})"),
        _ => String::new(),
    }
}

/// Asks a person about a call: it passes, or is refused with what the model reads.
///
/// # Cancel safety
///
/// Dropping it takes the question back.
pub(in crate::tool) async fn ask(
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
    Err(denied(name, tool.risk(args), answer))
}

fn denied(name: &str, risk: Risk, answer: Answer) -> ToolReply {
    let said = answer.text.map(|text| format!(" They say: {text}")).unwrap_or_default();
    let text = match answer.by {
        AnsweredBy::User => format!(
            "A person was asked and did not permit this call of {name}.{said} Do not try it again; go on without it."
        ),
        AnsweredBy::Timeout => format!(
            "A call of {name} needs a person's permission, and nobody answered in time. Go on without it, and say what you would have done."
        ),
        AnsweredBy::Nobody | AnsweredBy::Policy | AnsweredBy::RunEnded => format!(
            "A call of {name}{} needs a person's permission here, and nobody is there to ask. Say what you would change instead.",
            // Where the call itself says its risk, that may have been the mistake.
            if risk == Risk::High { " with a high risk" } else { "" }
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
