//! Reads JSON so that every mistake has a place: no key twice, no key unknown, each type named.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A mistake in a document.
#[derive(Debug, PartialEq)]
pub(super) struct Fault {
    /// A key path, or a line and column.
    pub(super) at: String,
    /// What is wrong there.
    pub(super) reason: String,
}

/// Reads a document. A key that is there twice is a mistake too: serde_json alone would keep the last one.
pub(super) fn parse(text: &str) -> Result<Value, Fault> {
    serde_json::from_str::<Strict>(text).map(|strict| strict.0).map_err(|error| {
        let full = error.to_string();
        // serde_json puts the position at the end of its message; here the position has a place of its own.
        let reason = full.rsplit_once(" at line ").map_or(full.as_str(), |(reason, _)| reason);
        Fault {
            at: format!("line {}, column {}", error.line(), error.column()),
            reason: format!("not JSON: {reason}"),
        }
    })
}

/// A value and where it stands.
#[derive(Debug)]
pub(super) struct Node<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> Node<'a> {
    /// The whole document.
    pub(super) fn root(value: &'a Value) -> Self {
        Self { path: String::new(), value }
    }

    /// A mistake at this place.
    pub(super) fn fault(&self, reason: impl Into<String>) -> Fault {
        let at = if self.path.is_empty() { "the top level" } else { &self.path };
        Fault { at: at.to_owned(), reason: reason.into() }
    }

    fn expected(&self, what: &str) -> Fault {
        self.fault(format!("expected {what}, found {}", name_of(self.value)))
    }

    pub(super) fn value(&self) -> &'a Value {
        self.value
    }

    /// An object, whatever its keys.
    pub(super) fn fields(&self) -> Result<Fields<'a>, Fault> {
        match self.value {
            Value::Object(map) => Ok(Fields { path: self.path.clone(), map }),
            _ => Err(self.expected("an object")),
        }
    }

    /// An object that has no keys but these.
    pub(super) fn object(&self, known: &[&str]) -> Result<Fields<'a>, Fault> {
        let fields = self.fields()?;
        fields.only(known)?;
        Ok(fields)
    }

    pub(super) fn array(&self) -> Result<Vec<Node<'a>>, Fault> {
        let Value::Array(items) = self.value else { return Err(self.expected("an array")) };
        let node = |(index, value)| Node { path: format!("{}[{index}]", self.path), value };
        Ok(items.iter().enumerate().map(node).collect())
    }

    pub(super) fn string(&self) -> Result<&'a str, Fault> {
        self.value.as_str().ok_or_else(|| self.expected("a string"))
    }

    pub(super) fn boolean(&self) -> Result<bool, Fault> {
        self.value.as_bool().ok_or_else(|| self.expected("true or false"))
    }

    pub(super) fn whole_number(&self) -> Result<u64, Fault> {
        self.value.as_u64().ok_or_else(|| self.expected("a whole number from 0"))
    }

    pub(super) fn number(&self) -> Result<f64, Fault> {
        self.value.as_f64().filter(|number| *number >= 0.0).ok_or_else(|| self.expected("a number from 0"))
    }

    /// One of these words.
    pub(super) fn word(&self, noun: &str, known: &[&str]) -> Result<&'a str, Fault> {
        let word = self.string()?;
        if known.contains(&word) { Ok(word) } else { Err(self.fault(unknown(noun, word, known))) }
    }
}

/// The keys of an object and where it stands.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    path: String,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// Refuses keys that are not among these.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Fault> {
        match self.map.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(Fault { at: join(&self.path, key), reason: unknown("key", key, known) }),
            None => Ok(()),
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<Node<'a>> {
        self.map.get(key).map(|value| Node { path: join(&self.path, key), value })
    }

    pub(super) fn require(&self, key: &str) -> Result<Node<'a>, Fault> {
        self.get(key).ok_or_else(|| Fault { at: join(&self.path, key), reason: "is missing".to_owned() })
    }

    /// Reads a key that may be absent.
    pub(super) fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Node<'a>) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        self.get(key).as_ref().map(read).transpose()
    }

    /// Refuses more than one of these keys, whose meanings exclude each other.
    pub(super) fn at_most_one(&self, keys: &[&str]) -> Result<(), Fault> {
        let mut present = keys.iter().filter(|key| self.map.contains_key(**key));
        match (present.next(), present.next()) {
            (Some(one), Some(two)) => Err(Fault {
                at: join(&self.path, two),
                reason: format!("cannot stand beside `{one}`: keep one of the two"),
            }),
            _ => Ok(()),
        }
    }
}

fn join(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || c == '_');
    match (path.is_empty(), plain) {
        (true, true) => key.to_owned(),
        (false, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}[{key:?}]"),
    }
}

fn name_of(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

fn unknown(noun: &str, word: &str, known: &[&str]) -> String {
    match nearest(word, known) {
        Some(best) => format!("unknown {noun} {word:?}; did you mean {best:?}?"),
        None => format!("unknown {noun} {word:?}; known here: {}", known.join(", ")),
    }
}

/// The known word that is at most a third of its letters away: close enough to be a typo of it.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    let (distance, best) = known.iter().map(|best| (distance(&word, best), *best)).min()?;
    (distance <= best.len().div_ceil(3).min(3)).then_some(best)
}

/// The edit distance of Levenshtein, one row at a time.
fn distance(one: &str, two: &str) -> usize {
    let two: Vec<char> = two.chars().collect();
    let mut row: Vec<usize> = (0..=two.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut next = vec![i + 1];
        for ((b, pair), left) in two.iter().zip(row.windows(2)).zip(0..) {
            let (diagonal, above) = match pair {
                [diagonal, above] => (*diagonal, *above),
                _ => (0, 0),
            };
            let before = next.get(left).copied().unwrap_or(0);
            next.push((diagonal + usize::from(a != *b)).min(above + 1).min(before + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

/// A value no object of which has a key twice.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Strict(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("the key {key:?} is there twice")));
            }
            let Strict(value) = access.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
