//! The protocols that genai speaks: where an event ends, what is known of one, and where it says that the answer is over.

use genai::adapter::AdapterKind;
use serde_json::Value;

use super::events::Framing;

/// A protocol that genai speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speech {
    /// Anthropic's messages.
    Messages,
    /// OpenAI's responses.
    Responses,
    /// Gemini's generated content.
    Gemini,
    /// Gemini's interactions.
    Interactions,
    /// Ollama's chat.
    Ollama,
    /// Bedrock's conversations.
    Converse,
}

impl Speech {
    /// What an adapter speaks with a model.
    pub(super) fn of(kind: AdapterKind, model: &str) -> Self {
        match kind {
            AdapterKind::OpenAIResp => Self::Responses,
            AdapterKind::Gemini => Self::Gemini,
            AdapterKind::GeminiIx => Self::Interactions,
            AdapterKind::Ollama | AdapterKind::OllamaCloud => Self::Ollama,
            AdapterKind::BedrockApi => Self::Converse,
            AdapterKind::Vertex if !model.starts_with("claude") => Self::Gemini,
            // Anthropic itself, and who speaks like it.
            _ => Self::Messages,
        }
    }

    pub(super) fn framing(self) -> Framing {
        match self {
            Self::Ollama => Framing::Lines,
            Self::Converse => Framing::Lengths,
            Self::Messages | Self::Responses | Self::Gemini | Self::Interactions => Framing::Events,
        }
    }

    /// Whether any schema of an answer is enforced; elsewhere only that of an object.
    pub(super) fn takes_any_schema(self) -> bool {
        matches!(self, Self::Ollama | Self::Gemini | Self::Interactions)
    }

    /// The kind of an event that this protocol did not have when it was read for this adapter, or of a part within it. What keeps a
    /// connection alive and what repeats in other words is known.
    pub(super) fn unknown(self, name: Option<&str>, event: &Value) -> Option<String> {
        let text = |path: &str| event.pointer(path).and_then(Value::as_str);
        let among =
            |known: &[&str], kind: Option<&str>| kind.filter(|kind| !known.contains(kind)).map(str::to_owned);
        match self {
            Self::Messages => among(MESSAGES, text("/type"))
                .or_else(|| among(MESSAGE_BLOCKS, text("/content_block/type")))
                .or_else(|| among(MESSAGE_DELTAS, text("/delta/type"))),
            Self::Responses => {
                let kind =
                    text("/type").filter(|kind| !RESPONSES.iter().any(|known| kind.starts_with(known)));
                let item = || {
                    among(RESPONSE_ITEMS, text("/item/type"))
                        .filter(|_| text("/type") == Some("response.output_item.done"))
                };
                kind.map(str::to_owned).or_else(item)
            }
            Self::Gemini => {
                event.pointer("/candidates/0/content/parts")?.as_array()?.iter().find_map(|part| {
                    part.as_object()?.keys().find(|key| !GEMINI_PARTS.contains(&key.as_str())).cloned()
                })
            }
            Self::Interactions => among(INTERACTIONS, text("/event_type"))
                .or_else(|| among(INTERACTION_DELTAS, text("/delta/type"))),
            Self::Converse => {
                let kind = name.filter(|name| !name.is_empty() && !name.ends_with("Exception"));
                let delta = || event.get("delta")?.as_object()?.keys().next().map(String::as_str);
                among(CONVERSE, kind).or_else(|| among(CONVERSE_DELTAS, delta()))
            }
            // One object a line, to which keys are added.
            Self::Ollama => None,
        }
    }
}

/// <https://docs.anthropic.com/en/api/messages-streaming>
const MESSAGES: &[&str] = &[
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "ping",
    "error",
];
const MESSAGE_BLOCKS: &[&str] = &["text", "thinking", "redacted_thinking", "tool_use"];
const MESSAGE_DELTAS: &[&str] = &["text_delta", "input_json_delta", "thinking_delta", "signature_delta"];

/// Beginnings of <https://platform.openai.com/docs/api-reference/responses-streaming>: what a text or a call of ours brings.
const RESPONSES: &[&str] = &[
    "response.created",
    "response.queued",
    "response.in_progress",
    "response.completed",
    "response.failed",
    "response.incomplete",
    "response.output_item.",
    "response.content_part.",
    "response.output_text.",
    "response.refusal.",
    "response.reasoning",
    "response.function_call_arguments.",
    "response.custom_tool_call_input.",
    "error",
    "keepalive",
];
const RESPONSE_ITEMS: &[&str] = &["message", "reasoning", "function_call", "custom_tool_call"];

/// <https://ai.google.dev/api/caching#Part>
const GEMINI_PARTS: &[&str] =
    &["text", "thought", "thoughtSignature", "thought_signature", "functionCall", "partMetadata"];

/// <https://ai.google.dev/gemini-api/docs/interactions/streaming>
const INTERACTIONS: &[&str] = &[
    "interaction.created",
    "interaction.status_update",
    "interaction.completed",
    "step.start",
    "step.delta",
    "step.stop",
    "error",
];
const INTERACTION_DELTAS: &[&str] = &["text", "thought_summary", "thought_signature", "arguments_delta"];

/// <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html>
const CONVERSE: &[&str] = &[
    "messageStart",
    "contentBlockStart",
    "contentBlockDelta",
    "contentBlockStop",
    "messageStop",
    "metadata",
];
const CONVERSE_DELTAS: &[&str] = &["text", "toolUse", "reasoningContent"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_protocol_does_not_know_has_a_kind() {
        let block = json!({"type": "content_block_start", "content_block": {"type": "server_tool_use"}});
        let cited = json!({"type": "content_block_delta", "delta": {"type": "citations_delta"}});
        let searched = json!({"type": "response.web_search_call.searching"});
        let item = json!({"type": "response.output_item.done", "item": {"type": "web_search_call"}});
        let part = json!({"candidates": [{"content": {"parts": [{"executableCode": {}}]}}]});
        for (speech, event, kind) in [
            (Speech::Messages, json!({"type": "ping"}), None),
            (Speech::Messages, json!({"type": "news"}), Some("news")),
            (Speech::Messages, block, Some("server_tool_use")),
            (Speech::Messages, cited, Some("citations_delta")),
            (Speech::Responses, json!({"type": "response.output_text.done"}), None),
            (Speech::Responses, searched, Some("response.web_search_call.searching")),
            (Speech::Responses, item, Some("web_search_call")),
            (Speech::Gemini, json!({"usageMetadata": {}}), None),
            (Speech::Gemini, part, Some("executableCode")),
            (
                Speech::Interactions,
                json!({"event_type": "step.delta", "delta": {"type": "audio"}}),
                Some("audio"),
            ),
            (Speech::Converse, json!({"delta": {"citation": {}}}), Some("citation")),
            (Speech::Ollama, json!({"new": 1}), None),
        ] {
            assert_eq!(speech.unknown(None, &event).as_deref(), kind, "{event}");
        }
        assert_eq!(Speech::Converse.unknown(Some("metadata"), &json!({})), None);
        assert_eq!(Speech::Converse.unknown(Some("news"), &json!({})).as_deref(), Some("news"));
    }
}
