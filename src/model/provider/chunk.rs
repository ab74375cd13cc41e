//! One event of a chat completion, as a server sends it.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::calls::Piece;
use super::loose::{Count, Loose};
use crate::model::StopReason;
use crate::outcome::Usage;

/// One event. What is not named here is passed over: servers add keys of their own.
#[derive(Debug, Deserialize)]
pub(super) struct Chunk {
    pub(super) choices: Option<Vec<Choice>>,
    #[serde(default, deserialize_with = "if_it_fits")]
    pub(super) usage: Option<Tokens>,
    /// An error inside a stream that began well.
    #[serde(default)]
    pub(super) error: Loose,
}

#[derive(Debug, Deserialize)]
pub(super) struct Choice {
    #[serde(default)]
    pub(super) index: Count,
    pub(super) delta: Option<Delta>,
    #[serde(default)]
    pub(super) finish_reason: Loose,
    /// Only in the older protocol of plain completions.
    #[serde(default)]
    pub(super) text: Loose,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Delta {
    #[serde(default)]
    pub(super) content: Loose,
    #[serde(default)]
    pub(super) refusal: Loose,
    #[serde(default)]
    pub(super) reasoning_content: Loose,
    #[serde(default)]
    pub(super) reasoning: Loose,
    pub(super) tool_calls: Option<Vec<CallDelta>>,
    /// The one call of the protocol before there were several.
    pub(super) function_call: Option<Function>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CallDelta {
    #[serde(default)]
    pub(super) index: Count,
    #[serde(default)]
    pub(super) id: Loose,
    pub(super) function: Option<Function>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Function {
    #[serde(default)]
    pub(super) name: Loose,
    #[serde(default)]
    pub(super) arguments: Loose,
}

impl CallDelta {
    pub(super) fn piece(self) -> Piece {
        let (index, id) = (self.index.0, self.id.text().cloned());
        match self.function {
            Some(function) => function.piece(index, id),
            None => Piece { index, id, ..Piece::default() },
        }
    }
}

impl Function {
    pub(super) fn piece(self, index: Option<u64>, id: Option<Arc<str>>) -> Piece {
        Piece { index, id, name: self.name.text().cloned(), arguments: self.arguments }
    }
}

/// Counters, cumulative.
#[derive(Debug, Deserialize)]
pub(super) struct Tokens {
    #[serde(default)]
    prompt_tokens: Count,
    #[serde(default)]
    completion_tokens: Count,
    #[serde(default, deserialize_with = "if_it_fits")]
    prompt_tokens_details: Option<Details>,
    #[serde(default)]
    prompt_cache_hit_tokens: Count,
    /// US dollars, from a server that says them.
    #[serde(default)]
    cost: Loose,
}

#[derive(Debug, Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: Count,
}

/// What is told beside the answer is no reason to lose it: of another form, it is nothing.
fn if_it_fits<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(match Loose::deserialize(deserializer)? {
        Loose::Other(value @ Value::Object(_)) => serde_json::from_value(value).ok(),
        Loose::Nothing | Loose::Text(_) | Loose::Other(_) => None,
    })
}

impl Tokens {
    /// The usage, if the counters say anything.
    pub(super) fn usage(&self) -> Option<Usage> {
        let cost_usd = match &self.cost {
            Loose::Other(cost) => cost.as_f64().filter(|cost| *cost >= 0.0),
            Loose::Nothing | Loose::Text(_) => None,
        };
        if (self.prompt_tokens.0, self.completion_tokens.0, cost_usd) == (None, None, None) {
            return None;
        }
        let details = self.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens.0);
        Some(Usage {
            input_tokens: self.prompt_tokens.0.unwrap_or(0),
            output_tokens: self.completion_tokens.0.unwrap_or(0),
            cached_tokens: details.or(self.prompt_cache_hit_tokens.0),
            cost_usd,
            model_calls: 1,
        })
    }
}

/// What a content says: some servers send it as a list of typed parts.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) text: Option<Arc<str>>,
    pub(super) thinking: Option<Arc<str>>,
    /// Parts that are neither.
    pub(super) others: Vec<Value>,
}

impl Content {
    pub(super) fn of(content: Loose) -> Self {
        let parts = match content {
            Loose::Text(text) => return Self { text: Some(text), ..Self::default() },
            Loose::Other(Value::Array(parts)) => parts,
            Loose::Nothing | Loose::Other(_) => return Self::default(),
        };
        let (mut text, mut thinking, mut others) = (String::new(), String::new(), Vec::new());
        for part in parts {
            match (part.get("text"), part.get("thinking")) {
                (None, None) => others.push(part),
                (said, thought) => {
                    text.push_str(said.and_then(Value::as_str).unwrap_or_default());
                    match thought {
                        Some(Value::String(piece)) => thinking.push_str(piece),
                        Some(Value::Array(inner)) => {
                            let pieces = inner.iter().filter_map(|part| part.get("text")?.as_str());
                            pieces.for_each(|piece| thinking.push_str(piece));
                        }
                        _ => {}
                    }
                }
            }
        }
        let some = |text: String| (!text.is_empty()).then(|| text.into());
        Self { text: some(text), thinking: some(thinking), others }
    }
}

/// The reason of a finish. A word that is not known says that the turn ended, and not that anything went wrong.
pub(super) fn stop_reason(word: &str) -> StopReason {
    match word {
        "tool_calls" | "tool_use" | "function_call" => StopReason::ToolCalls,
        "length" | "max_tokens" | "model_length" | "model_context_window_exceeded" => StopReason::Length,
        "content_filter" | "refusal" | "safety" | "recitation" | "language" | "blocklist"
        | "prohibited_content" | "spii" => StopReason::ContentFilter,
        "error"
        | "network_error"
        | "insufficient_system_resource"
        | "abort"
        | "malformed_function_call"
        | "unexpected_tool_call" => StopReason::Error,
        _ => StopReason::EndTurn,
    }
}
