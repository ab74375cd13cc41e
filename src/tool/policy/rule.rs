//! One rule: whose calls of which tool with which arguments it speaks of.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use globset::{GlobBuilder, GlobMatcher};
use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind, Result};
use crate::tool::traits::Tool;

/// Says of which calls something holds: `[AGENT:]TOOL[(ARGUMENT=PATTERN;…)]`, such as `write_file`, `read_*`,
/// `write_file(path=docs/**)` or `reviewer:edit_file`. Patterns are globs: `*` stops at a `/`, `**` does not.
///
/// The case of letters in the name of an agent does not matter. A pattern for tools leaves out those by which an agent answers
/// ([`crate::tool::Tool::is_answer`]), such as `finish`: who wants to speak of one names it.
///
/// An argument that is no text is compared as JSON. One that looks like a path is compared as it is, with its `.` and `..`
/// resolved, and as what its tool says that it leads to ([`crate::tool::Tool::meaning`]): a rule that permits needs all of them to fit, one that
/// asks or forbids any of them. What a call comes upon is held against a rule on its path, too, and left out where the call could not
/// have named it ([`crate::tool::ToolContext::reach`]).
#[derive(Debug, Clone)]
pub struct Rule {
    agent: Option<Pattern>,
    tool: Pattern,
    args: Vec<(String, Pattern)>,
    text: Arc<str>,
}

#[derive(Debug, Clone)]
enum Pattern {
    Literal(String),
    Glob(Box<GlobMatcher>),
}

impl Pattern {
    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Literal(literal) => literal == text,
            Self::Glob(glob) => glob.is_match(text),
        }
    }
}

/// What an argument has to do with a rule about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fits {
    /// All readings of it fit.
    Surely,
    /// One of them fits.
    Perhaps,
    /// None does.
    No,
}

impl Rule {
    /// All calls of the tool of this name.
    #[must_use]
    pub fn tool(name: impl Into<String>) -> Self {
        let name = name.into();
        Self { agent: None, text: name.as_str().into(), tool: Pattern::Literal(name), args: Vec::new() }
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it speaks of some calls of the tool of this name, if that is not one by which an agent answers.
    #[must_use]
    pub fn speaks_of(&self, tool: &str) -> bool {
        self.tool.matches(tool)
    }

    /// Whether it speaks of some calls of this tool: of one by which an agent answers only if it names it.
    pub(super) fn concerns(&self, tool: &dyn Tool) -> bool {
        let name = &tool.spec().name;
        match &self.tool {
            Pattern::Literal(literal) => literal == name,
            Pattern::Glob(_) => !tool.is_answer() && self.speaks_of(name),
        }
    }

    /// Whether it speaks of all calls of a tool that it speaks of, whatever their arguments.
    #[must_use]
    pub fn is_about_all_arguments(&self) -> bool {
        self.args.is_empty()
    }

    /// Whether what it speaks of depends on this argument.
    pub(super) fn looks_at(&self, argument: &str) -> bool {
        self.args.iter().any(|(name, _)| name == argument)
    }

    /// Whether it speaks of calls by this agent.
    pub(super) fn speaks_for(&self, agent: &str) -> bool {
        self.agent.as_ref().is_none_or(|pattern| pattern.matches(&agent.to_ascii_lowercase()))
    }

    pub(super) fn fits(&self, args: &Map<String, Value>, meaning: Option<&Map<String, Value>>) -> Fits {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let of = |(name, pattern): &(String, Pattern)| {
            let said = args.get(name).map(text);
            // What is left out may mean something, too.
            let meant = meaning.and_then(|meaning| meaning.get(name)).map(text);
            let readings = [said.as_deref().and_then(resolved), meant, said];
            let mut fitting = readings.iter().flatten().map(|reading| pattern.matches(reading));
            let first = fitting.next().unwrap_or_default();
            match (first, fitting.all(|fits| fits == first)) {
                (true, true) => Fits::Surely,
                (false, true) => Fits::No,
                (_, false) => Fits::Perhaps,
            }
        };
        self.args.iter().map(of).fold(Fits::Surely, |all, one| match (all, one) {
            (Fits::No, _) | (_, Fits::No) => Fits::No,
            (Fits::Surely, Fits::Surely) => Fits::Surely,
            _ => Fits::Perhaps,
        })
    }
}

/// A path without `.` and `..`, as far as that can be said without looking at files; none if it has neither.
fn resolved(path: &str) -> Option<String> {
    let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    if path.split('/').enumerate().all(|(place, part)| is_plain(part) || place == 0 && part.is_empty()) {
        return None;
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    Some(format!("{root}{}", parts.join("/")))
}

impl FromStr for Rule {
    type Err = Error;

    /// # Errors
    ///
    /// [`ErrorKind::Rule`], with what is wrong and how a rule is written.
    fn from_str(text: &str) -> Result<Self> {
        let fail = |reason: String| Error::new(ErrorKind::Rule { rule: text.to_owned(), reason });
        let pattern = |part: &str, what: &str| {
            let part = part.trim();
            if part.is_empty() {
                return Err(fail(format!("{what} is missing")));
            }
            if !part.contains(['*', '?', '[', ']', '{', '}', '\\']) {
                return Ok(Pattern::Literal(part.to_owned()));
            }
            let glob = GlobBuilder::new(part).literal_separator(true).build();
            let glob =
                glob.map_err(|error| fail(format!("{what} {part:?} is no pattern: {}", error.kind())))?;
            Ok(Pattern::Glob(Box::new(glob.compile_matcher())))
        };
        let text = text.trim();
        let (head, args) = match text.split_once('(') {
            None => (text, None),
            Some((head, rest)) => match rest.strip_suffix(')') {
                Some(args) => (head, Some(args)),
                None => return Err(fail("the `)` at its end is missing".to_owned())),
            },
        };
        let (agent, tool) = match head.split_once(':') {
            None => (None, head),
            // No two agents differ by the case of letters alone.
            Some((agent, tool)) => {
                (Some(pattern(&agent.to_ascii_lowercase(), "the agent before the `:`")?), tool)
            }
        };
        let is_name = |char: char| char.is_ascii_alphanumeric() || "_-*?[]{},!".contains(char);
        if let Some(odd) = tool.trim().chars().find(|char| !is_name(*char)) {
            return Err(fail(format!("{odd:?} cannot stand in the name of a tool")));
        }
        let mut wanted = Vec::new();
        for arg in args.into_iter().flat_map(|args| args.split(';')) {
            let Some((name, value)) = arg.split_once('=') else {
                return Err(fail(format!("{:?} is no ARGUMENT=PATTERN", arg.trim())));
            };
            if name.trim().is_empty() {
                return Err(fail("the argument before the `=` is missing".to_owned()));
            }
            wanted.push((name.trim().to_owned(), pattern(value, "the pattern after the `=`")?));
        }
        Ok(Self { agent, tool: pattern(tool, "the tool")?, args: wanted, text: text.into() })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

#[cfg(test)]
#[path = "rule_tests.rs"]
mod tests;
