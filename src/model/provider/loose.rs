//! Values of a provider's JSON that may be of any type: a field of an unexpected type is not to end a stream.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// A text, if it is one.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum Loose {
    /// Null, or absent.
    #[default]
    Nothing,
    /// A string.
    Text(Arc<str>),
    /// Anything else, as it came.
    Other(Value),
}

impl Loose {
    /// Whether it stands for no error: absent, null, false, or empty.
    pub(super) fn says_nothing(&self) -> bool {
        match self {
            Self::Nothing | Self::Other(Value::Null | Value::Bool(false)) => true,
            Self::Text(text) => text.is_empty(),
            Self::Other(Value::Object(object)) => object.is_empty(),
            Self::Other(_) => false,
        }
    }

    /// The string, unless it is empty or none.
    pub(super) fn text(&self) -> Option<&Arc<str>> {
        match self {
            Self::Text(text) if !text.is_empty() => Some(text),
            Self::Text(_) | Self::Nothing | Self::Other(_) => None,
        }
    }
}

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LooseVisitor)
    }
}

struct LooseVisitor;

impl<'de> Visitor<'de> for LooseVisitor {
    type Value = Loose;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Loose, E> {
        Ok(Loose::Text(Arc::from(text)))
    }

    fn visit_unit<E: Error>(self) -> Result<Loose, E> {
        Ok(Loose::Nothing)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Loose, E> {
        Ok(Loose::Other(Value::Bool(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Loose, E> {
        Ok(Loose::Other(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Loose, E> {
        Ok(Loose::Other(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Loose, E> {
        Ok(Loose::Other(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Loose, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element::<Value>()? {
            values.push(value);
        }
        Ok(Loose::Other(Value::Array(values)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Loose, A::Error> {
        let mut object = serde_json::Map::new();
        while let Some((key, value)) = map.next_entry()? {
            object.insert(key, value);
        }
        Ok(Loose::Other(Value::Object(object)))
    }
}

/// A whole number that is not negative, if it is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Count(pub(super) Option<u64>);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountVisitor)
    }
}

struct CountVisitor;

impl<'de> Visitor<'de> for CountVisitor {
    type Value = Count;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Count, E> {
        Ok(Count(Some(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Count, E> {
        Ok(Count(u64::try_from(value).ok()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Count, E> {
        // Some gateways write counters as 12.0. 2^53 is where such a number stops to be one.
        let is_whole = value.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&value);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole, and within the range"
        )]
        Ok(Count(is_whole.then_some(value as u64)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Count, E> {
        Ok(Count(text.parse().ok()))
    }

    fn visit_unit<E: Error>(self) -> Result<Count, E> {
        Ok(Count(None))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Count, E> {
        Ok(Count(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Count, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Count(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Count, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Count(None))
    }
}
