//! What the model reads of an action.

use serde_json::{Map, Value, json};

use crate::agent::sandbox::{Ended, read_json};
use crate::tree::cut;

/// How large a whole observation may be, in characters. From the original core.
const MAX_CHARS: usize = 25_000;

/// How much of that its parts may take. What stands first is kept longest.
const ERROR_CHARS: usize = 4_000;
pub(super) const RESULT_CHARS: usize = 14_000;
pub(super) const LOG_CHARS: usize = 6_000;

/// What is told of an action.
#[derive(Debug, Default)]
pub(super) struct Observation<'a> {
    /// How the program ended.
    pub(super) ended: Option<&'a Ended>,
    /// Instead of a program's end: why it was not run.
    pub(super) refusal: Option<String>,
    /// Set in a run that is to end from code: whether it has.
    pub(super) finished: Option<bool>,
    /// What to do next, if that is to be said.
    pub(super) note: Option<&'a str>,
    /// The same failure again.
    pub(super) repeated: bool,
    /// How many of the images that its tools returned are not shown.
    pub(super) images_dropped: u32,
    /// The tools that it called.
    pub(super) calls: u32,
    /// What it logged.
    pub(super) logs: &'a [String],
}

impl Observation<'_> {
    /// The observation as JSON, its keys in the order of their weight. True if the action succeeded.
    pub(super) fn to_value(&self) -> (Value, bool) {
        // Written as JSON, a text may be several times as long.
        let fits = |(value, _): &(Value, bool)| value.to_string().chars().count() <= MAX_CHARS;
        [1, 2, 4]
            .into_iter()
            .map(|part| self.to_value_in(part))
            .find(fits)
            .unwrap_or_else(|| self.to_value_in(8))
    }

    /// With the parts of it cut to this part of their sizes.
    fn to_value_in(&self, part: usize) -> (Value, bool) {
        let error = self.refusal.as_deref().or_else(|| {
            let error = self.ended?.result.as_ref().err()?;
            Some(error.message.as_str())
        });
        let is_ok = error.is_none();
        let mut map = Map::new();
        map.insert("ok".into(), json!(is_ok));
        if let Some(finished) = self.finished {
            map.insert("finished".into(), json!(finished));
        }
        if let Some(note) = self.note {
            map.insert("note".into(), json!(note));
        }
        if let Some(error) = error {
            map.insert("error".into(), json!(cut(error, ERROR_CHARS / part)));
        }
        if self.repeated {
            map.insert("repeated".into(), json!(true));
        }
        let Some(ended) = self.ended else { return (Value::Object(map), is_ok) };
        if let Err(error) = &ended.result
            && !error.stack.is_empty()
            && !self.repeated
        {
            map.insert("stack".into(), json!(cut(&error.stack, ERROR_CHARS / part)));
        }
        if self.images_dropped > 0 {
            map.insert("imagesDropped".into(), json!(self.images_dropped));
        }
        map.insert("toolCalls".into(), json!(self.calls));
        if !self.repeated {
            if let Ok(text) = &ended.result {
                map.insert("result".into(), result(text, RESULT_CHARS / part));
            }
            let logs = log_lines(self.logs, ended.lines_left_out, LOG_CHARS / part);
            if !logs.is_empty() {
                map.insert("logs".into(), json!(logs));
            }
        }
        (Value::Object(map), is_ok)
    }
}

/// The result, or the beginning of its text.
fn result(text: &str, max: usize) -> Value {
    let chars = text.chars().count();
    if chars <= max {
        return read_json(text).unwrap_or_else(|_| json!(text));
    }
    let kept: String = text.chars().take(max).collect();
    json!(format!("{kept}… [cut: {max} of {chars} characters; return less of it]"))
}

/// Whole lines up to the cap; of a first line that is too long, its head; then how many are missing.
fn log_lines(lines: &[String], left_out: u64, max: usize) -> Vec<String> {
    let mut kept = Vec::new();
    let mut room = max;
    for line in lines {
        let chars = line.chars().count() + 1;
        if chars > room {
            if kept.is_empty() {
                kept.push(cut(line, room));
            }
            break;
        }
        room -= chars;
        kept.push(line.clone());
    }
    let missing = (lines.len() - kept.len()) as u64 + left_out;
    if missing > 0 {
        kept.push(format!("({missing} more lines are left out)"));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::sandbox::{GuestError, GuestErrorKind};

    fn ended(result: &str) -> Ended {
        Ended { result: Ok(result.into()), lines_left_out: 0 }
    }

    #[test]
    fn keys_stand_in_the_order_of_their_weight() {
        let end = ended("{\"a\":1}");
        let logs = ["one".to_owned()];
        let observation = Observation {
            ended: Some(&end),
            finished: Some(false),
            note: Some("n"),
            calls: 2,
            logs: &logs,
            ..Default::default()
        };
        assert_eq!(
            observation.to_value().0.to_string(),
            r#"{"ok":true,"finished":false,"note":"n","toolCalls":2,"result":{"a":1},"logs":["one"]}"#
        );
        let end = Ended {
            result: Err(GuestError { kind: GuestErrorKind::Threw, message: "m".into(), stack: "s".into() }),
            lines_left_out: 3,
        };
        let failed = Observation { ended: Some(&end), ..Default::default() };
        assert_eq!(
            failed.to_value().0.to_string(),
            r#"{"ok":false,"error":"m","stack":"s","toolCalls":0,"logs":["(3 more lines are left out)"]}"#
        );
        let repeated =
            Observation { ended: Some(&end), repeated: true, images_dropped: 4, ..Default::default() };
        assert_eq!(
            repeated.to_value().0.to_string(),
            r#"{"ok":false,"error":"m","repeated":true,"imagesDropped":4,"toolCalls":0}"#
        );
        let refused = Observation { refusal: Some("no code".into()), ..Default::default() };
        assert_eq!(refused.to_value(), (json!({"ok": false, "error": "no code"}), false));
    }

    #[test]
    fn no_observation_is_larger_than_the_cap() {
        let end = ended(&json!("ä".repeat(90_000)).to_string());
        let logs: Vec<String> =
            std::iter::once("😀".repeat(50_000)).chain((0..500).map(|n| format!("line {n}"))).collect();
        let observation = Observation { ended: Some(&end), logs: &logs, ..Default::default() };
        let text = observation.to_value().0.to_string();
        assert!(text.chars().count() < MAX_CHARS, "{}", text.chars().count());
        assert!(
            text.contains("[cut: 14000 of 90002 characters")
                && text.contains("(500 more lines are left out)")
        );
        let logs: Vec<String> = (0..5_000).map(|n| format!("line {n}")).collect();
        let observation = Observation { ended: Some(&end), logs: &logs, ..Default::default() };
        assert!(observation.to_value().0.to_string().chars().count() < MAX_CHARS);
        let quotes = ended(&json!("\"\u{1}".repeat(9_000)).to_string());
        let observation = Observation { ended: Some(&quotes), ..Default::default() };
        assert!(observation.to_value().0.to_string().chars().count() < MAX_CHARS);
    }
}
