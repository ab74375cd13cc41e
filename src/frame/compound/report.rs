//! What a compound says of its passes.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::result::PassRecord;
use crate::message::{Extra, MessageBody, Severity, StepRef, StepResult, TaskRef, TaskUpdate};
use crate::stream::Emitter;

/// How much of a pass's prompt is said, in characters: the whole is the task of its agent's run.
const PROMPT_CHARS: usize = 200;

pub(super) struct Report<'a> {
    pub(super) emit: &'a Emitter,
    pub(super) name: &'a Arc<str>,
}

impl Report<'_> {
    pub(super) async fn begins(&self, pass: u32, prompt: &str) {
        let mut step = step(pass);
        step.instructions = Some(crate::tree::cut(prompt, PROMPT_CHARS));
        self.task("step_started", step).await;
    }

    /// The result of a pass, and how it was judged.
    pub(super) async fn completed(&self, record: &PassRecord, result: Value) {
        let mut step = step(record.pass);
        let judged = [
            ("passed", json!(record.passed)),
            ("score", json!(record.score)),
            ("feedback", json!(record.feedback)),
            ("confidence", json!(record.confidence)),
        ];
        let said = judged.into_iter().filter(|(_, value)| !value.is_null() && value != "");
        step.other = said.map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>();
        self.result(step.clone(), result, None).await;
        self.task("step_completed", step).await;
    }

    pub(super) async fn failed(&self, pass: u32, error: &str) {
        self.result(step(pass), Value::Null, Some(error.to_owned())).await;
        self.task("step_failed", step(pass)).await;
    }

    pub(super) async fn warns(&self, text: String) {
        self.emit.send(MessageBody::log(self.name, Severity::Warning, text)).await;
    }

    async fn task(&self, event: &str, step: StepRef) {
        let task = TaskRef { title: Some(self.name.to_string()), ..TaskRef::default() };
        let update = TaskUpdate {
            event: event.to_owned(),
            task,
            step: Some(step),
            node_id: None,
            extra: Extra::default(),
        };
        self.emit.send(update).await;
    }

    async fn result(&self, step: StepRef, result: Value, error: Option<String>) {
        self.emit
            .send(StepResult { step, result, error, is_task_result: None, extra: Extra::default() })
            .await;
    }
}

fn step(pass: u32) -> StepRef {
    StepRef { id: Some(format!("pass-{pass}")), ..StepRef::default() }
}
