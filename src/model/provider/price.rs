//! What models cost: a small table with its date. What is not in it is unknown, and not free.

use crate::model::ChatEvent;
use crate::outcome::Usage;

/// US dollars for a million tokens.
#[derive(Debug, PartialEq)]
pub(super) struct Price {
    provider: &'static str,
    /// The model, without the date that providers append.
    model: &'static str,
    input: f64,
    /// Input that the provider had in its cache.
    cached: f64,
    output: f64,
    /// With more input than this, in tokens, another price holds, which is not in the table.
    up_to: u64,
}

const fn price(provider: &'static str, model: &'static str, input: f64, cached: f64, output: f64) -> Price {
    Price { provider, model, input, cached, output, up_to: u64::MAX }
}

/// List prices as far as they were known in December 2025: estimates, since providers change them. Surcharges for writing into a
/// cache are not in it.
#[rustfmt::skip]
static PRICES: &[Price] = &[
    price("openai", "gpt-5", 1.25, 0.125, 10.0),
    price("openai", "gpt-5-mini", 0.25, 0.025, 2.0),
    price("openai", "gpt-5-nano", 0.05, 0.005, 0.4),
    price("openai", "gpt-4.1", 2.0, 0.5, 8.0),
    price("openai", "gpt-4.1-mini", 0.4, 0.1, 1.6),
    price("openai", "gpt-4.1-nano", 0.1, 0.025, 0.4),
    price("openai", "gpt-4o", 2.5, 1.25, 10.0),
    price("openai", "gpt-4o-mini", 0.15, 0.075, 0.6),
    price("openai", "o3", 2.0, 0.5, 8.0),
    price("openai", "o4-mini", 1.1, 0.275, 4.4),
    price("anthropic", "claude-opus-4-5", 5.0, 0.5, 25.0),
    price("anthropic", "claude-opus-4-1", 15.0, 1.5, 75.0),
    price("anthropic", "claude-sonnet-4-5", 3.0, 0.3, 15.0),
    price("anthropic", "claude-haiku-4-5", 1.0, 0.1, 5.0),
    Price { up_to: 200_000, ..price("gemini", "gemini-2.5-pro", 1.25, 0.125, 10.0) },
    price("gemini", "gemini-2.5-flash", 0.3, 0.03, 2.5),
    price("gemini", "gemini-2.5-flash-lite", 0.1, 0.01, 0.4),
];

impl Price {
    /// The price of a model at its provider's own address, if it is known. A model with a date costs what it costs without.
    pub(super) fn of(provider: &str, model: &str) -> Option<&'static Self> {
        let is_date = |rest: &str| {
            let digits = rest.chars().filter(char::is_ascii_digit).count();
            digits == 8
                && rest.starts_with('-')
                && rest.chars().all(|letter| letter == '-' || letter.is_ascii_digit())
        };
        PRICES.iter().find(|price| {
            let rest = model.strip_prefix(price.model);
            price.provider == provider && rest.is_some_and(|rest| rest.is_empty() || is_date(rest))
        })
    }

    fn cost(&self, usage: &Usage) -> Option<f64> {
        if usage.input_tokens > self.up_to {
            return None;
        }
        let cached = usage.cached_tokens.unwrap_or(0).min(usage.input_tokens);
        #[expect(clippy::cast_precision_loss, reason = "counters of tokens are far below 2^53")]
        let millions = |tokens: u64| tokens as f64 / 1e6;
        let input = millions(usage.input_tokens - cached) * self.input + millions(cached) * self.cached;
        Some(input + millions(usage.output_tokens) * self.output)
    }
}

/// The event with its cost, where it is known and the server did not say it.
pub(super) fn priced(event: ChatEvent, price: Option<&Price>) -> ChatEvent {
    let Some(price) = price else { return event };
    let with_cost = |usage: Usage| Usage { cost_usd: usage.cost_usd.or_else(|| price.cost(&usage)), ..usage };
    match event {
        ChatEvent::Usage(usage) => ChatEvent::Usage(with_cost(usage)),
        ChatEvent::End { stop_reason, usage } => ChatEvent::End { stop_reason, usage: usage.map(with_cost) },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_model_costs_what_the_table_says_and_an_unknown_one_is_unknown() {
        let usage = Usage { cached_tokens: Some(400_000), ..Usage::of_call(1_000_000, 100_000) };
        let price = Price::of("openai", "gpt-5-mini-2025-08-07").unwrap();
        let ChatEvent::Usage(priced) = priced(ChatEvent::Usage(usage), Some(price)) else {
            panic!("a usage")
        };
        assert!((priced.cost_usd.unwrap() - (0.6 * 0.25 + 0.4 * 0.025 + 0.1 * 2.0)).abs() < 1e-12);
        assert_eq!(Price::of("openai", "gpt-5-pro"), None);
        assert_eq!(Price::of("openrouter", "gpt-5"), None);
        assert_eq!(Price::of("gemini", "gemini-2.5-pro").unwrap().cost(&Usage::of_call(200_001, 1)), None);
    }
}
