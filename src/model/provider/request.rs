//! A conversation as a chat completion asks for it.

use serde_json::{Map, Value, json};

use super::images::{Part, base64, beside, by_turn};
use crate::model::{ChatMessage, ChatRequest, ToolChoice, ToolSpec};

/// What of a request differs between servers that speak the same protocol.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dialect {
    /// Takes a schema of the answer together with tools. Others would have to answer in JSON before they may call a tool.
    pub(super) schema_with_tools: bool,
    /// Wants the output bound as `max_completion_tokens`.
    pub(super) max_completion_tokens: bool,
    /// Enforces no schema but that of an object.
    pub(super) only_objects: bool,
    /// Has to be asked for its counters. Others send them unasked, and refuse a request that asks.
    pub(super) asks_usage: bool,
    /// Takes images in a result, and no message of the user behind it.
    pub(super) images_in_results: bool,
}

impl Dialect {
    /// The dialect of a provider at its own address, or of a server of whoever set another one.
    pub(super) fn of(provider: &str, is_own_address: bool) -> Self {
        let is_openai = provider == "openai" && is_own_address;
        let asks_usage = !matches!(provider, "mistral" | "cohere");
        Self {
            schema_with_tools: is_openai,
            max_completion_tokens: is_openai,
            only_objects: is_openai,
            asks_usage,
            images_in_results: provider == "mistral",
        }
    }
}

/// The body of the request.
pub(super) fn body(model: &str, dialect: Dialect, request: &ChatRequest) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(model));
    body.insert("stream".to_owned(), json!(true));
    if dialect.asks_usage {
        body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    if !request.tools.is_empty() {
        body.insert("tools".to_owned(), request.tools.iter().map(|tool| tool_of(tool)).collect());
        let choice = match request.tool_choice {
            ToolChoice::Auto => "auto",
            ToolChoice::Required => "required",
            ToolChoice::None => "none",
        };
        body.insert("tool_choice".to_owned(), json!(choice));
    }
    let native = native_schema(dialect.schema_with_tools, dialect.only_objects, request);
    if let Some(schema) = native {
        // Not `strict`: that refuses a schema with a key that is optional.
        let format = json!({"type": "json_schema", "json_schema": {"name": "result", "schema": schema}});
        body.insert("response_format".to_owned(), format);
    }
    if let Some(most) = request.max_output_tokens {
        let key = if dialect.max_completion_tokens { "max_completion_tokens" } else { "max_tokens" };
        body.insert(key.to_owned(), json!(most));
    }
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if let Some(system) = system(request, native.is_some()) {
        messages.push(json!({"role": "system", "content": system}));
    }
    for turn in by_turn(&request.messages) {
        if dialect.images_in_results {
            messages.extend(turn.iter().map(with_images));
            continue;
        }
        messages.extend(turn.iter().map(message_of));
        let beside = beside(turn);
        if !beside.is_empty() {
            messages.push(json!({"role": "user", "content": parts(beside)}));
        }
    }
    body.insert("messages".to_owned(), Value::Array(messages));
    Value::Object(body)
}

/// The schema of the answer, if the server is to enforce it. One that says nothing is for no server.
pub(super) fn native_schema(with_tools: bool, only_objects: bool, request: &ChatRequest) -> Option<&Value> {
    let schema = request.output_schema.as_deref().filter(|_| with_tools || request.tools.is_empty())?;
    let is_object = schema.get("type").is_some_and(|kind| kind == "object");
    (is_object || schema.is_object() && !only_objects).then_some(schema)
}

/// What stands before the conversation: a schema that the server does not enforce is told to the model.
pub(super) fn system(request: &ChatRequest, is_schema_native: bool) -> Option<String> {
    let system = request.system.as_deref().filter(|system| !system.trim().is_empty());
    let schema = request.output_schema.as_deref().filter(|_| !is_schema_native);
    let told = schema.map(|schema| {
        format!("Your final answer has to be one JSON value, without any other text, that satisfies this JSON schema: {schema}")
    });
    match (system, told) {
        (Some(system), Some(told)) => Some(format!("{system}\n\n{told}")),
        (Some(system), None) => Some(system.to_owned()),
        (None, told) => told,
    }
}

fn tool_of(tool: &ToolSpec) -> Value {
    let ToolSpec { name, description, parameters } = tool;
    json!({"type": "function", "function": {"name": name, "description": description, "parameters": parameters}})
}

fn message_of(message: &ChatMessage) -> Value {
    match message {
        ChatMessage::User { text } => json!({"role": "user", "content": text}),
        ChatMessage::Assistant { text, tool_calls } if tool_calls.is_empty() => {
            json!({"role": "assistant", "content": text})
        }
        ChatMessage::Assistant { text, tool_calls } => {
            let calls: Vec<Value> = tool_calls
                .iter()
                .map(|call| {
                    let function = json!({"name": call.name, "arguments": call.arguments.to_string()});
                    json!({"id": call.id.as_str(), "type": "function", "function": function})
                })
                .collect();
            // Some servers refuse an empty text beside calls, none refuses null.
            let text = if text.is_empty() { Value::Null } else { json!(text) };
            json!({"role": "assistant", "content": text, "tool_calls": calls})
        }
        ChatMessage::ToolResult { id, content, .. } => {
            json!({"role": "tool", "tool_call_id": id.as_str(), "content": content})
        }
    }
}

/// A message with the images of a result in it.
fn with_images(message: &ChatMessage) -> Value {
    let mut sent = message_of(message);
    let beside = beside(std::slice::from_ref(message));
    if !beside.is_empty()
        && let Some(content) = sent.get_mut("content")
    {
        let text = Part::Text(content.as_str().unwrap_or_default().to_owned());
        *content = parts(std::iter::once(text).chain(beside));
    }
    sent
}

fn parts<'a>(parts: impl IntoIterator<Item = Part<'a>>) -> Value {
    let part = |part| match part {
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::Image(image) => {
            let url = format!("data:{};base64,{}", image.media_type(), base64(image));
            json!({"type": "image_url", "image_url": {"url": url}})
        }
    };
    parts.into_iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::id::{IdMint, ToolCallId};
    use crate::model::{Images, RunLabel, ToolRequest};

    fn request() -> ChatRequest {
        let label = RunLabel {
            run_id: IdMint::seeded(1).mint(0),
            depth: 0,
            agent: "agent".into(),
            title: "t".into(),
            prompt: "p".into(),
        };
        let call =
            ToolRequest { id: ToolCallId::new("c1"), name: "read".into(), arguments: json!({"path": "a"}) };
        let messages = vec![
            ChatMessage::User { text: "hi".to_owned() },
            ChatMessage::Assistant { text: String::new(), tool_calls: vec![call] },
            ChatMessage::ToolResult {
                id: ToolCallId::new("c1"),
                name: "read".into(),
                content: "ok".to_owned(),
                images: Images::default(),
                is_error: false,
            },
            ChatMessage::Assistant { text: "done".to_owned(), tool_calls: Vec::new() },
        ];
        let tool = ToolSpec {
            name: "read".to_owned(),
            description: "reads".to_owned(),
            parameters: json!({"type": "object"}),
        };
        ChatRequest {
            run: Arc::new(label),
            call: 0,
            system: Some("be brief".into()),
            messages: Arc::new(messages),
            tools: [Arc::new(tool)].into(),
            tool_choice: ToolChoice::Auto,
            output_schema: Some(Arc::new(json!({"type": "object"}))),
            max_output_tokens: Some(7),
        }
    }

    #[test]
    fn a_conversation_goes_out_as_the_protocol_says() {
        let body = body("m", Dialect::of("openai", false), &request());
        assert_eq!(body["max_tokens"], 7);
        assert_eq!(body.get("response_format"), None);
        let told = "be brief\n\nYour final answer has to be one JSON value, without any other text, that satisfies this JSON schema: {\"type\":\"object\"}";
        assert_eq!(
            body["messages"],
            json!([
                {"role": "system", "content": told},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{\"path\":\"a\"}"}}]},
                {"role": "tool", "tool_call_id": "c1", "content": "ok"},
                {"role": "assistant", "content": "done"},
            ])
        );
        assert_eq!(body["tools"][0]["function"]["name"], "read");
    }

    #[test]
    fn a_schema_is_enforced_by_the_server_where_that_leaves_room_for_tools() {
        let openai = body("m", Dialect::of("openai", true), &request());
        assert_eq!(openai["response_format"]["json_schema"]["schema"], json!({"type": "object"}));
        assert_eq!(openai["response_format"]["json_schema"].get("strict"), None);
        assert_eq!(
            (&openai["max_completion_tokens"], &openai["messages"][0]["content"]),
            (&json!(7), &json!("be brief"))
        );
        assert_eq!(openai["stream_options"]["include_usage"], true);
        // These two refuse what they do not know.
        for strict in ["mistral", "cohere"] {
            let body = body("m", Dialect::of(strict, true), &request());
            let known = ["model", "stream", "tools", "tool_choice", "max_tokens", "messages"];
            assert!(body.as_object().unwrap().keys().all(|key| known.contains(&key.as_str())), "{body}");
        }
        // It refuses a schema of anything but an object; the model is told that, as where there is none to enforce it.
        let list = json!({"type": "array", "items": {"type": "string"}});
        let list = ChatRequest { output_schema: Some(Arc::new(list)), tools: [].into(), ..request() };
        let openai = body("m", Dialect::of("openai", true), &list);
        assert_eq!(openai.get("response_format"), None);
        assert!(openai["messages"][0]["content"].as_str().unwrap().contains("\"array\""));
        assert!(body("m", Dialect::of("openai", false), &list).get("response_format").is_some());
        let without_tools = ChatRequest { tools: [].into(), ..request() };
        let local = body("m", Dialect::of("openai", false), &without_tools);
        assert_eq!(local["response_format"]["type"], "json_schema");
    }
}
