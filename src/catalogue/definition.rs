//! One agent, as its file says it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::error::{DefinitionError, DefinitionErrorKind, DefinitionWarning};
use super::front::{Front, Read};
use super::limits::read_limits;
use super::schema::{SchemaFile, read_schema};
use super::split::split;
use crate::budget::{Limit, RunLimits};

/// The longest name, in characters, as for a tool.
const NAME_CHARS: usize = 64;

/// An agent that can be delegated to by name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Definition {
    /// Its name; no other definition of a catalogue has it, in whatever case.
    pub name: Arc<str>,
    /// What it is for: whoever delegates chooses by it.
    pub description: Arc<str>,
    /// The file it is from.
    pub path: PathBuf,
    /// The tools that it may have, as the file has their names. Empty: every tool that its parent hands down.
    pub tools: Vec<String>,
    /// The model that the file asks for; none is its parent's.
    pub model: Option<String>,
    /// Tools that it may not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disallowed_tools: Vec<String>,
    /// Model turns; none is the producer's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u64>,
    /// What its result has to satisfy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Arc<Value>>,
    /// Its system prompt: the body of the file.
    #[serde(skip)]
    pub prompt: Arc<str>,
    /// Further limits. Those of its parent narrow them.
    #[serde(skip)]
    pub limits: RunLimits,
    /// The line of its file at which the tools are listed.
    #[serde(skip)]
    pub(super) tools_line: Option<usize>,
}

/// What a file came to.
#[derive(Debug, Clone)]
pub(super) struct Parsed {
    pub(super) definition: Result<Arc<Definition>, DefinitionError>,
    pub(super) warnings: Vec<DefinitionWarning>,
    /// The file of the schema, where it is one: what is read depends on it too.
    pub(super) schema: Option<SchemaFile>,
}

impl Definition {
    /// Reads a definition from the text of its file.
    ///
    /// A schema that is a file is read from beside `path`.
    ///
    /// # Errors
    ///
    /// A [`DefinitionError`] with the line, where that is known, and how to mend it.
    pub fn parse(text: &str, path: &Path) -> Result<Self, DefinitionError> {
        parse(text, path).definition.map(Arc::unwrap_or_clone)
    }
}

/// The same, with what is not wrong and yet to be told.
pub(super) fn parse(text: &str, path: &Path) -> Parsed {
    let mut warnings = Vec::new();
    let mut schema = None;
    let definition = definition(text, path, &mut warnings, &mut schema).map(Arc::new);
    Parsed { definition, warnings, schema }
}

fn definition(
    text: &str,
    path: &Path,
    warnings: &mut Vec<DefinitionWarning>,
    schema_file: &mut Option<SchemaFile>,
) -> Result<Definition, DefinitionError> {
    use DefinitionErrorKind::{BadName, BadValue, NoDescription, NoPrompt};
    let fail = |line, kind, message: &str| DefinitionError::new(path, line, kind, message);
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let parts = split(&text);
    let Some(yaml) = parts.front else {
        let message = match parts.unclosed {
            Some(_) => "the front matter is not closed; put a line `---` below it",
            None => {
                "it has no front matter; begin it with a line `---`, `description: what the agent is for`, and a line `---`"
            }
        };
        return Err(fail(parts.unclosed.or(Some(1)), NoDescription, message));
    };
    let front = Front::read(yaml, parts.first_line, path)?;
    warnings.extend(front.unknown_keys());
    let description = front.text(&["description"])?.ok_or_else(|| {
        let message = "it has no description; add `description: what the agent is for` to its front matter";
        let line = front.line_of("description").unwrap_or(parts.first_line - 1);
        fail(Some(line), NoDescription, message)
    })?;
    let file_name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = file_name.strip_suffix(".md").unwrap_or(&file_name);
    let name = front.text(&["name"])?;
    let name_line = front.line_of("name");
    let name = name.unwrap_or_else(|| stem.to_owned());
    if !is_name(&name) {
        let shown = crate::message::cap_text(&name, 100);
        let message = format!("the name {shown:?} cannot be one; {}", name_fix(&name));
        return Err(fail(name_line, BadName, &message));
    }
    let max_steps = match front.whole_number(&["max_steps", "maxSteps", "maxTurns", "max_turns"])? {
        Read { value: Some(0), line } => {
            return Err(fail(
                line,
                BadValue,
                "max_steps is 0, which leaves no step; give at least 1, or leave it out",
            ));
        }
        Read { value, .. } => value,
    };
    let mut limits = match front.value(&["limits"]) {
        Some(value) => read_limits(value, path, &front)?,
        None => RunLimits::default(),
    };
    let schema_keys = ["output_schema", "outputSchema", "output-schema"];
    let output_schema = match front.value(&schema_keys) {
        None | Some(Value::Null) => None,
        Some(value) => {
            let line = schema_keys.iter().find_map(|key| front.line_of(key));
            Some(read_schema(value, path, line, schema_file)?)
        }
    };
    let turns = max_steps.map_or(Limit::Unlimited, Limit::At).narrowed_by(limits.turns);
    // Said to the producer, which counts them, and not twice.
    limits.turns = Limit::Unlimited;
    let prompt = parts.body.trim();
    if prompt.is_empty() {
        let message = "it has no prompt; write below the front matter what the agent is to do";
        return Err(fail(Some(text.lines().count()), NoPrompt, message));
    }
    Ok(Definition {
        name: name.into(),
        description: description.into(),
        path: path.to_owned(),
        tools: front.names(&["tools"])?,
        model: front.text(&["model"])?.filter(|model| !model.eq_ignore_ascii_case("inherit")),
        disallowed_tools: front.names(&["disallowed_tools", "disallowedTools", "disallowed-tools"])?,
        max_steps: turns.bound(),
        output_schema,
        prompt: prompt.into(),
        limits,
        tools_line: front.line_of("tools"),
    })
}

/// Whether it may be the name of an agent.
pub(super) fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=NAME_CHARS).contains(&name.len())
        && name.bytes().all(fits)
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
}

/// What to do about a name that is none.
fn name_fix(name: &str) -> String {
    let words = name.to_ascii_lowercase();
    let words = words.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let near: String = words.collect::<Vec<_>>().join("-").chars().take(NAME_CHARS).collect();
    let rule = "a name has 1 to 64 of a-z, A-Z, 0-9, `_`, `-` and `.`, and begins with a letter or digit";
    if is_name(&near) { format!("{rule}: such as {near}") } else { rule.to_owned() }
}

#[cfg(test)]
#[path = "definition_tests.rs"]
mod tests;
