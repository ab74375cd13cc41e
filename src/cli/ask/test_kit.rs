//! Runs that ask, for the tests of this folder.

use std::sync::Arc;

use serde_json::Value;

use crate::context::{Answer, Question, Root, RunContext, RunSpec};
use crate::forward::RootRun;
use crate::outcome::SubAgentOutcome;
use crate::stream::SubAgentStream;

/// May `write_file` be called with these arguments, also for longer?
pub(super) fn permission(args: Value) -> Question {
    let Value::Object(args) = args else { panic!("not an object: {args}") };
    Question {
        about: Some("write_file".into()),
        risk: Some("medium".into()),
        ..Question::permission("Writing", "write_file", Arc::new(args))
    }
}

/// A run called `main` with one below it for each title, which asks its question and settles with what it heard. Their outcomes are
/// the root's, in order.
pub(super) fn asking(root: &Root, children: Vec<(&'static str, Question)>) -> RootRun {
    root.run(RunSpec::new("agent", "work").titled("main"), |cx| {
        SubAgentStream::generate(|_| async move {
            let children = children.into_iter().map(|(title, question)| {
                let spec = RunSpec::new("subtask", "work").titled(title);
                cx.delegate(spec, |cx| asks(cx, question))
            });
            let outcomes = futures::future::join_all(children).await;
            let texts = outcomes.into_iter().map(|outcome| outcome.result().cloned().unwrap_or_default());
            SubAgentOutcome::completed(Value::Array(texts.collect()))
        })
    })
}

fn asks(cx: RunContext, question: Question) -> SubAgentStream {
    SubAgentStream::generate(|emit| async move {
        let Ok(Answer { decision, by, text, args }) = cx.ask(&emit, question).await else {
            return SubAgentOutcome::completed("cancelled");
        };
        let more = args.map(|args| Value::Object(args).to_string()).or(text);
        let more = more.map(|more| format!(": {more}")).unwrap_or_default();
        SubAgentOutcome::completed(format!("{} by {}{more}", decision.as_str(), by.as_str()))
    })
}
