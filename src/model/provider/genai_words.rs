//! What genai says, in the words of the port, and the other way round.

use genai::chat::{
    ChatMessage as Message, ContentPart, MessageContent, StopReason as Stop, ToolCall, ToolResponse,
    Usage as Tokens,
};

use serde_json::Value;

use super::fault;
use super::images::{Part, base64, beside, by_turn};
use super::loose::Loose;
use crate::model::{ChatMessage, ModelError, ModelErrorKind, StopReason};
use crate::outcome::Usage;

/// The conversation; the results of one turn together, as the strictest protocol wants them.
pub(super) fn messages(conversation: &[ChatMessage]) -> Vec<Message> {
    let mut messages = Vec::with_capacity(conversation.len());
    for turn in by_turn(conversation) {
        let mut results: Vec<ToolResponse> = Vec::new();
        for message in turn {
            match message {
                ChatMessage::User { text } => messages.push(Message::user(text.as_str())),
                ChatMessage::Assistant { text, tool_calls } => {
                    let calls = tool_calls.iter().map(|call| {
                        ContentPart::ToolCall(ToolCall {
                            call_id: call.id.as_str().to_owned(),
                            fn_name: call.name.to_string(),
                            fn_arguments: call.arguments.clone(),
                            thought_signatures: None,
                        })
                    });
                    let said = (!text.is_empty()).then(|| ContentPart::Text(text.clone()));
                    messages.push(Message::assistant(MessageContent::from_parts(
                        said.into_iter().chain(calls).collect::<Vec<_>>(),
                    )));
                }
                ChatMessage::ToolResult { id, name, content, .. } => {
                    results.push(
                        ToolResponse::new(id.as_str(), content.as_str()).with_fn_name(name.to_string()),
                    );
                }
            }
        }
        if !results.is_empty() {
            messages.push(Message::from(results));
        }
        let beside = beside(turn).into_iter().map(|part| match part {
            Part::Text(text) => ContentPart::Text(text),
            Part::Image(image) => ContentPart::from_binary_base64(image.media_type(), base64(image), None),
        });
        let beside: Vec<ContentPart> = beside.collect();
        if !beside.is_empty() {
            messages.push(Message::user(beside));
        }
    }
    messages
}

pub(super) fn stop_of(stop: &Stop) -> StopReason {
    match stop {
        Stop::MaxTokens(_) => StopReason::Length,
        Stop::ToolCall(_) => StopReason::ToolCalls,
        Stop::ContentFilter(_) => StopReason::ContentFilter,
        Stop::Completed(_) | Stop::StopSequence(_) => StopReason::EndTurn,
        Stop::Other(word) => super::chunk::stop_reason(&word.to_ascii_lowercase()),
    }
}

pub(super) fn usage_of(tokens: &Tokens) -> Usage {
    let count = |count: Option<i32>| count.and_then(|count| u64::try_from(count).ok());
    let cached = tokens.prompt_tokens_details.as_ref().and_then(|details| count(details.cached_tokens));
    Usage {
        input_tokens: count(tokens.prompt_tokens).unwrap_or(0),
        output_tokens: count(tokens.completion_tokens).unwrap_or(0),
        cached_tokens: cached,
        cost_usd: None,
        model_calls: 1,
    }
}

/// What an error of genai means. Its own text is not passed on where it holds a request. What the network did, the relay knows.
pub(super) fn of_genai(error: &genai::Error) -> ModelError {
    match error {
        genai::Error::WebStream { error, .. } => {
            let error: &(dyn std::error::Error + 'static) = error.as_ref();
            if error.downcast_ref::<std::string::FromUtf8Error>().is_some() {
                return ModelError::new(ModelErrorKind::Protocol, "the answer is not UTF-8");
            }
            ModelError::new(ModelErrorKind::Network, fault::chain(error))
        }
        // Of a frame of Bedrock's that is none: the server itself reports nothing, and sends the same again.
        genai::Error::ChatResponse { body, .. } if is_no_frame(body) => {
            let words = fault::quote(body.to_string().as_bytes());
            ModelError::new(
                ModelErrorKind::Protocol,
                format!("the answer is not what the protocol says: {words}"),
            )
        }
        genai::Error::ChatResponse { body, .. } => fault::of_event(&Loose::Other(body.clone())),
        genai::Error::StreamParse { serde_error, .. } => ModelError::new(
            ModelErrorKind::Protocol,
            format!("an event of the answer is not JSON: {serde_error}"),
        ),
        other => {
            let words = fault::quote(other.to_string().as_bytes());
            ModelError::new(
                ModelErrorKind::Protocol,
                format!("the answer is not what the protocol says: {words}"),
            )
        }
    }
}

fn is_no_frame(body: &Value) -> bool {
    let words = body.get("error").and_then(Value::as_str).unwrap_or_default();
    ["invalid event-stream", "prelude CRC", "message CRC", "header parse"]
        .iter()
        .any(|fault| words.starts_with(fault))
}
