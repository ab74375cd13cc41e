//! The run's side of an ask.

use std::sync::Arc;

use serde_json::Value;

use super::question::{Answer, AnsweredBy, Question};
use super::watch::{AskStep, OpenAsk};
use crate::cancel::Cancelled;
use crate::context::RunContext;
use crate::context::pause::Paused;
use crate::message::{Ask, AskAnswered, Extra};
use crate::stream::Emitter;

impl RunContext {
    /// Asks whoever watches the tree, and waits for the answer: live in the log, with the path of this run. Where nobody watches,
    /// the answer is an immediate no.
    ///
    /// Meanwhile the run holds no permit, and the time is not charged to its limits or those of the runs above it.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the run is cancelled first.
    ///
    /// # Cancel safety
    ///
    /// Dropping it takes the ask back; the end of the run says so in the log.
    pub async fn ask(&self, emit: &Emitter, question: Question) -> Result<Answer, Cancelled> {
        let request_id = self.root().mint().to_string();
        let asked = self.root().clock().now();
        let asks = self.root().ask_table();
        let mut open = asks.open(|number| OpenAsk {
            request_id: request_id.clone(),
            question: question.clone(),
            path: self.ask_path(),
            asked,
            number,
        });
        let guard = TakenBack { run: self, request_id: &request_id };
        emit.send(said(&request_id, &question)).await;
        let answer = match &mut open {
            None => Answer::denied(AnsweredBy::Nobody),
            Some(reply) => {
                let waiting = async {
                    let _paused = Paused::begin(self.record());
                    self.or_cancel(tokio::time::timeout(question.deadline, &mut *reply)).await
                };
                match self.without_permit(waiting).await? {
                    Ok(answer) => answer.unwrap_or_else(|_| Answer::denied(AnsweredBy::Nobody)),
                    Err(_) if asks.close(&request_id) => Answer::denied(AnsweredBy::Timeout),
                    // It came in the same moment.
                    Err(_) => reply.await.unwrap_or_else(|_| Answer::denied(AnsweredBy::Timeout)),
                }
            }
        };
        drop(guard);
        emit.send(answered(request_id, &answer)).await;
        Ok(answer)
    }

    fn ask_path(&self) -> Arc<[AskStep]> {
        let step = |record: &Arc<crate::context::RunRecord>| AskStep {
            run_id: record.origin.run_id.clone(),
            agent: Arc::clone(&record.started.agent),
            title: Arc::clone(&record.started.title),
        };
        let mut path: Vec<AskStep> = self.record().lineage().map(step).collect();
        path.reverse();
        path.into()
    }
}

/// Dropped, the ask is open no more.
struct TakenBack<'a> {
    run: &'a RunContext,
    request_id: &'a str,
}

impl Drop for TakenBack<'_> {
    fn drop(&mut self) {
        self.run.root().ask_table().close(self.request_id);
    }
}

fn said(request_id: &str, question: &Question) -> Ask {
    Ask {
        request_id: request_id.to_owned(),
        kind: question.kind.as_str().to_owned(),
        title: question.title.clone(),
        deadline_ms: u64::try_from(question.deadline.as_millis()).unwrap_or(u64::MAX),
        tool: question.tool.as_deref().map(str::to_owned),
        args: question.args.as_deref().cloned().map(Value::Object),
        risk: question.risk.clone(),
        extra: Extra::default(),
    }
}

fn answered(request_id: String, answer: &Answer) -> AskAnswered {
    AskAnswered {
        request_id,
        decision: answer.decision.as_str().to_owned(),
        by: answer.by.as_str().to_owned(),
        text: answer.text.clone(),
        args: answer.args.clone().map(Value::Object),
        extra: Extra::default(),
    }
}
