//! The front matter of a file: YAML, and what its keys mean.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::error::{DefinitionError, DefinitionErrorKind, DefinitionWarning};

/// Keys that have a meaning here.
const KNOWN: [&str; 16] = [
    "name",
    "description",
    "tools",
    "disallowed_tools",
    "disallowedTools",
    "disallowed-tools",
    "model",
    "max_steps",
    "maxSteps",
    "max_turns",
    "maxTurns",
    "output_schema",
    "outputSchema",
    "output-schema",
    "limits",
    "color",
];

/// Keys of other programs that mean nothing here, and of which nobody expects anything.
const PASSED_OVER: [&str; 6] = ["author", "version", "tags", "license", "metadata", "category"];

/// So many unknown keys of one file are told.
const MAX_UNKNOWN: usize = 10;

/// The most that one key's names are.
const MAX_NAMES: usize = 100;

/// Read front matter.
#[derive(Debug)]
pub(super) struct Front<'a> {
    map: Map<String, Value>,
    yaml: &'a str,
    first_line: usize,
    path: PathBuf,
}

/// A value and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Read<T> {
    pub(super) value: Option<T>,
    pub(super) line: Option<usize>,
}

impl<'a> Front<'a> {
    /// Reads the text between the markers, which begins at this line of the file.
    pub(super) fn read(yaml: &'a str, first_line: usize, path: &Path) -> Result<Self, DefinitionError> {
        let parsed = match parse(yaml) {
            Ok(value) => value,
            // In the wild a description is written as people write: with colons in it and no quotes around it.
            Err(error) => match requoted(yaml).map(|yaml| parse(&yaml)) {
                Some(Ok(value)) => value,
                Some(Err(_)) => {
                    return Err(broken(
                        &error,
                        first_line,
                        path,
                        "; put quotes around values with `: ` in them",
                    ));
                }
                None => {
                    return Err(broken(
                        &error,
                        first_line,
                        path,
                        "; mend that line, or put quotes around its value",
                    ));
                }
            },
        };
        let map = match parsed {
            Value::Object(map) => map,
            Value::Null => Map::new(),
            _ => {
                let message = "the front matter is no mapping; write lines such as `description: what the agent is for`";
                let kind = DefinitionErrorKind::Yaml;
                return Err(DefinitionError::new(path, Some(first_line), kind, message));
            }
        };
        Ok(Self { map, yaml, first_line, path: path.to_owned() })
    }

    /// The keys that nothing knows, each told with its line.
    pub(super) fn unknown_keys(&self) -> Vec<DefinitionWarning> {
        let known = |key: &str| KNOWN.contains(&key) || PASSED_OVER.contains(&key);
        let unknown = self.map.keys().filter(|key| !known(key));
        let tell = |key: &String| {
            let near = nearest(key, KNOWN.into_iter()).map(|near| format!("; did you mean `{near}`?"));
            let shown = crate::message::cap_text(key, 100);
            let message = format!("the key `{shown}` has no effect{}", near.unwrap_or_default());
            DefinitionWarning { path: self.path.clone(), line: self.line_of(key), message }
        };
        unknown.take(MAX_UNKNOWN).map(tell).collect()
    }

    /// The value of the first of these keys that is there.
    pub(super) fn value(&self, keys: &[&str]) -> Option<&Value> {
        keys.iter().find_map(|key| self.map.get(*key))
    }

    /// The line of the file at which a key of the mapping stands.
    pub(super) fn line_of(&self, key: &str) -> Option<usize> {
        let has_key = |line: &str| {
            let line = line.trim_start_matches(['"', '\'']);
            let rest = line.strip_prefix(key).map(|rest| rest.trim_start_matches(['"', '\'']));
            rest.is_some_and(|rest| rest.trim_start().starts_with(':'))
        };
        self.yaml.lines().position(has_key).map(|at| self.first_line + at)
    }

    fn read_as<T>(
        &self,
        keys: &[&str],
        what: &str,
        read: impl FnOnce(&Value) -> Option<Option<T>>,
    ) -> Result<Read<T>, DefinitionError> {
        let Some(key) = keys.iter().find(|key| self.map.contains_key(**key)) else {
            return Ok(Read { value: None, line: None });
        };
        let (value, line) = (self.map.get(*key).unwrap_or(&Value::Null), self.line_of(key));
        match read(value) {
            Some(value) => Ok(Read { value, line }),
            None => Err(self.error(line, format!("`{key}` is {}; give {what}", kind_of(value)))),
        }
    }

    /// A value that is none of what it could be.
    pub(super) fn error(&self, line: Option<usize>, message: String) -> DefinitionError {
        DefinitionError::new(&self.path, line, DefinitionErrorKind::BadValue, message)
    }

    /// A text, trimmed; none if it is blank.
    pub(super) fn text(&self, keys: &[&str]) -> Result<Option<String>, DefinitionError> {
        let read = |value: &Value| match value {
            Value::Null => Some(None),
            value => scalar(value).map(|text| Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        };
        self.read_as(keys, "a text", read).map(|read| read.value)
    }

    /// A whole number from 0.
    pub(super) fn whole_number(&self, keys: &[&str]) -> Result<Read<u64>, DefinitionError> {
        let read = |value: &Value| match value {
            Value::Null => Some(None),
            value => value.as_u64().map(Some),
        };
        self.read_as(keys, "a whole number", read)
    }

    /// Names: a list, or a text with commas between them. Trimmed, without blank ones, in order.
    pub(super) fn names(&self, keys: &[&str]) -> Result<Vec<String>, DefinitionError> {
        let read = |value: &Value| match value {
            Value::Null => Some(None),
            Value::Array(items) => items.iter().map(scalar).collect::<Option<Vec<_>>>().map(Some),
            value => scalar(value).map(|text| Some(at_commas(&text))),
        };
        let read = self.read_as(keys, "a list of names, or names with commas between them", read)?;
        let names = read.value.unwrap_or_default();
        let names: Vec<String> = names.iter().map(|name| name.trim().to_owned()).collect();
        let names: Vec<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
        if names.len() > MAX_NAMES {
            let key = keys.first().copied().unwrap_or_default();
            return Err(
                self.error(read.line, format!("`{key}` has {} names; give at most {MAX_NAMES}", names.len()))
            );
        }
        Ok(names)
    }
}

fn parse(yaml: &str) -> Result<Value, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        // A name or a version is what is written, not what it counts; and `n`, `no` and `on` are words.
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        with_snippet: false,
        // Whoever repeats a thing that often means harm.
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 1000 },
    };
    serde_saphyr::from_str_with_options(yaml, options)
}

fn broken(error: &serde_saphyr::Error, first_line: usize, path: &Path, fix: &str) -> DefinitionError {
    let line = error.location().and_then(|at| usize::try_from(at.line()).ok()).filter(|line| *line > 0);
    // Where it does not say so, the front matter as a whole is meant.
    let line = Some(line.map_or(first_line, |line| first_line + line - 1));
    let text = error.without_snippet().to_string();
    // The place is the file's, not the front matter's.
    let said = text.lines().next().unwrap_or_default();
    let said = said.split_once(" at line ").map_or(said, |(said, _)| said);
    let message = format!("the front matter is no YAML: {}{fix}", crate::message::cap_text(said, 300));
    DefinitionError::new(path, line, DefinitionErrorKind::Yaml, message)
}

/// The same text with quotes around values that cannot be without them; none if there is no such value.
///
/// Only values of the outermost mapping that are written without quotes, with the indented lines that belong to them.
fn requoted(yaml: &str) -> Option<String> {
    let mut text = String::new();
    let mut changed = false;
    let mut lines = yaml.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((key, value)) = key_and_value(line) else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        let mut whole = vec![value];
        while let Some(more) = lines.next_if(|next| next.starts_with([' ', '\t']) && !next.trim().is_empty())
        {
            whole.push(more.trim());
        }
        let whole = whole.join(" ");
        changed |= needs_quotes(&whole);
        // Quoting what does not need it changes nothing: such a value is a text anyway, or one of ours that is read as one.
        text.push_str(&format!("{key}: '{}'\n", whole.replace('\'', "''")));
    }
    changed.then_some(text)
}

/// A line of the outermost mapping whose value is a text without quotes.
fn key_and_value(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(": ")?;
    let is_key = !key.is_empty()
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    let value = value.trim();
    let quoted = is_quoted(value, '"', "\\\"") || is_quoted(value, '\'', "''");
    let structured = value.starts_with(['|', '>', '[', '{', '#']);
    let is_text = !value.is_empty() && !quoted && !structured && value.parse::<f64>().is_err();
    (is_key && is_text).then_some((key, value))
}

/// Whether a value is one text in these quotes.
fn is_quoted(value: &str, quote: char, escaped: &str) -> bool {
    let inside = value.strip_prefix(quote).and_then(|value| value.strip_suffix(quote));
    inside.is_some_and(|inside| !inside.replace(escaped, "").contains(quote))
}

fn needs_quotes(value: &str) -> bool {
    value.contains(": ") || value.ends_with(':') || value.starts_with(['@', '`', '%', '*', '"', '\''])
}

/// A text, or what a number or a boolean is as one.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The parts of a text at its commas, but not at those in brackets.
fn at_commas(text: &str) -> Vec<String> {
    let mut depth = 0_usize;
    let split = |letter: char| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    };
    text.split(split).map(str::to_owned).collect()
}

/// What a value is, for a sentence.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number of another range",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

/// The name that is most like this one, if one is.
pub(super) fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    /// From 0 to 1: 0.6 takes two wrong letters in a name of five, or a part of a name that is left out.
    const LIKE: f64 = 0.6;
    /// What a model sends may be a whole text: so much of it is compared, in characters.
    const LONGEST: usize = 100;
    let name = name.chars().take(LONGEST).collect::<String>().to_lowercase();
    let likeness = |other: &&str| strsim::normalized_damerau_levenshtein(&name, &other.to_lowercase());
    let scored = names.map(|other| (likeness(&other), other)).filter(|(score, _)| *score >= LIKE);
    scored.max_by(|one, two| one.0.total_cmp(&two.0)).map(|(_, name)| name)
}

#[cfg(test)]
#[path = "front_tests.rs"]
mod tests;
