//! What counts as the answer of a run: text in prose mode, a validated value with a schema.

use serde_json::Value;

use crate::tool::Schema;

/// What the last text of a structured run is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    /// The value, validated.
    Valid(Value),
    /// JSON that violates the schema.
    Violates(Vec<String>),
    /// No JSON in it.
    NotJson,
}

/// Reads the answer of a structured run: the text as it is, else one fence around the whole, else prose with one fence. The
/// first candidate that validates counts; a fence inside a JSON string does not, since the text as it is comes first.
pub(super) fn read_answer(text: &str, schema: &Schema) -> Answer {
    let mut violations = None;
    for candidate in candidates(text) {
        if let Ok(value) = serde_json::from_str::<Value>(candidate) {
            let found = schema.violations(&value);
            if found.is_empty() {
                return Answer::Valid(value);
            }
            violations.get_or_insert(found);
        }
    }
    violations.map_or(Answer::NotJson, Answer::Violates)
}

fn candidates(text: &str) -> impl Iterator<Item = &str> {
    let text = text.trim();
    [Some(text), whole_fence(text), only_fence(text)].into_iter().flatten()
}

/// The inside of one fence that begins and ends the text. It ends at the last fence mark, so that the value may contain some.
pub(crate) fn whole_fence(text: &str) -> Option<&str> {
    let inside = text.strip_prefix("```")?.strip_suffix("```")?;
    let (language, body) = inside.split_once('\n')?;
    (!language.contains('`')).then_some(body.trim())
}

/// The inside of the one fence in a text; none if there are more.
fn only_fence(text: &str) -> Option<&str> {
    let mut marks = text
        .match_indices("```")
        .filter(|(at, _)| text.get(..*at).is_some_and(|before| before.is_empty() || before.ends_with('\n')));
    let (open, close) = (marks.next()?.0, marks.next()?.0);
    if marks.next().is_some() {
        return None;
    }
    let inside = text.get(open + 3..close)?;
    inside.split_once('\n').map(|(_, body)| body.trim())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Answer {
        let schema = json!({"type": "object", "required": ["a"], "properties": {"a": {"type": ["integer", "string"]}}});
        read_answer(text, &Schema::compile(Arc::new(schema), "test").unwrap())
    }

    #[test]
    fn c21_fences_are_taken_off_and_only_what_validates_counts() {
        let valid = Answer::Valid(json!({"a": 1}));
        for text in [
            "{\"a\": 1}",
            " \n{\"a\":1}\n",
            "```json\n{\"a\": 1}\n```",
            "```\n{\"a\": 1}\n```\n",
            "Here it is:\n```json\n{\"a\": 1}\n```\nThat is all.",
        ] {
            assert_eq!(read(text), valid, "{text}");
        }
        let inner = "{\"a\": \"x\\n```\\ny\\n```\"}";
        assert_eq!(read(inner), Answer::Valid(json!({"a": "x\n```\ny\n```"})));
        assert_eq!(read(&format!("```json\n{inner}\n```")), Answer::Valid(json!({"a": "x\n```\ny\n```"})));
        assert_eq!(read("no json"), Answer::NotJson);
        assert_eq!(read(""), Answer::NotJson);
        assert_eq!(read("```json\n{\"a\":1}\n```\nor\n```json\n{\"a\":2}\n```"), Answer::NotJson);
        assert!(matches!(read("```json\n{\"b\":1}\n```"), Answer::Violates(issues) if issues.len() == 1));
    }
}
