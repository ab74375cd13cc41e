//! The limits of a definition, in the words of the program's flags.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::error::{DefinitionError, DefinitionErrorKind};
use super::front::{Front, kind_of, nearest};
use crate::budget::{Limit, RunLimits};

const WORDS: [&str; 6] =
    ["max_turns", "max_tool_calls", "timeout", "idle_timeout", "budget_tokens", "budget_usd"];

/// Limits of a whole tree, which one agent cannot set.
const OF_TREES: [&str; 3] = ["max_depth", "max_live", "max_runs"];

/// Reads the value of `limits`.
pub(super) fn read_limits(
    value: &Value,
    path: &Path,
    front: &Front<'_>,
) -> Result<RunLimits, DefinitionError> {
    let line = front.line_of("limits");
    let fail = |message: String| DefinitionError::new(path, line, DefinitionErrorKind::BadLimit, message);
    let map = match value {
        Value::Null => return Ok(RunLimits::default()),
        Value::Object(map) => map,
        other => {
            return Err(fail(format!(
                "`limits` is {}; give a mapping such as `{{ timeout: 5m }}`",
                kind_of(other)
            )));
        }
    };
    let mut limits = RunLimits::default();
    for (key, value) in map {
        let word = key.replace('-', "_");
        let bad =
            |what: &str| fail(format!("the limit `{key}` is {}; give {what}, or `unlimited`", shown(value)));
        match word.as_str() {
            "max_turns" | "max_steps" => {
                limits.turns = number(value).ok_or_else(|| bad("a whole number from 1"))?;
                if limits.turns == Limit::At(0) {
                    return Err(bad("a whole number from 1"));
                }
            }
            "max_tool_calls" => {
                limits.tool_calls = number(value).ok_or_else(|| bad("a whole number from 0"))?;
            }
            "budget_tokens" => {
                limits.tokens = number(value).ok_or_else(|| bad("a whole number from 0"))?;
            }
            "budget_usd" => limits.cost_usd = money(value).ok_or_else(|| bad("an amount such as 0.50"))?,
            "timeout" => {
                limits.wall =
                    duration(value).ok_or_else(|| bad("a number with its unit, such as 90s or 5m"))?;
            }
            "idle_timeout" => {
                limits.idle =
                    duration(value).ok_or_else(|| bad("a number with its unit, such as 90s or 5m"))?;
            }
            other if OF_TREES.contains(&other) => {
                return Err(fail(format!(
                    "the limit `{key}` is one of a whole tree; give it to the program as a flag"
                )));
            }
            other => {
                let near = nearest(other, WORDS.into_iter()).map(|near| format!("; did you mean `{near}`?"));
                let near = near.unwrap_or_else(|| format!("; the limits are {}", WORDS.join(", ")));
                return Err(fail(format!(
                    "there is no limit `{}`{near}",
                    crate::message::cap_text(key, 100)
                )));
            }
        }
    }
    Ok(limits)
}

fn is_unlimited(value: &Value) -> bool {
    value.as_str() == Some("unlimited")
}

fn number(value: &Value) -> Option<Limit<u64>> {
    if is_unlimited(value) { Some(Limit::Unlimited) } else { value.as_u64().map(Limit::At) }
}

fn money(value: &Value) -> Option<Limit<f64>> {
    let fits = |amount: &f64| amount.is_finite() && *amount >= 0.0;
    if is_unlimited(value) { Some(Limit::Unlimited) } else { value.as_f64().filter(fits).map(Limit::At) }
}

fn duration(value: &Value) -> Option<Limit<Duration>> {
    if is_unlimited(value) {
        return Some(Limit::Unlimited);
    }
    humantime::parse_duration(value.as_str()?).ok().map(Limit::At)
}

fn shown(value: &Value) -> String {
    match value {
        Value::Number(_) | Value::String(_) | Value::Bool(_) => {
            crate::message::cap_text(&value.to_string(), 100)
        }
        other => kind_of(other).to_owned(),
    }
}
