//! Reads what tools answered: the text of `grep` and `read_file`, and errors.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::terms::one_line;

/// One line that matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) path: Arc<str>,
    pub(super) line: u64,
    pub(super) text: String,
}

/// What one `grep` found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hits {
    pub(super) hits: Vec<Hit>,
    /// Whether there were more than it shows.
    pub(super) cut: bool,
}

/// The lines of a file that were read, by number.
pub(super) type Lines = BTreeMap<u64, String>;

/// Reads `path:line:content` lines. Context lines, separators and notes in brackets are no hits.
pub(super) fn hits(text: &str) -> Hits {
    let mut found = Hits::default();
    for line in text.lines() {
        if let Some(hit) = hit(line) {
            found.hits.push(hit);
        } else if line.starts_with('[') {
            let note = line.to_lowercase();
            // A note that nothing was found may quote any word.
            let cut = ["more hits", "more matches", "truncated"].iter().any(|words| note.contains(words));
            found.cut |= cut && !note.starts_with("[no ");
        }
    }
    found
}

/// Reads what was found in one file, with context: all its lines, and those that matched. A line of context is
/// `path-line-content`, which only who knows the path can read.
pub(super) fn in_file(path: &str, text: &str) -> (Vec<Hit>, Lines) {
    let (mut hits, mut lines) = (Vec::new(), Lines::new());
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("./").unwrap_or(line).strip_prefix(path) else { continue };
        let Some(separator) = rest.chars().next().filter(|c| matches!(c, ':' | '-')) else { continue };
        let numbered = rest.get(1..).and_then(|rest| rest.split_once(separator));
        let Some((number, content)) = numbered else { continue };
        let Ok(number) = number.parse() else { continue };
        let content = content.trim_end().to_owned();
        if separator == ':' {
            hits.push(Hit { path: path.into(), line: number, text: content.clone() });
        }
        lines.insert(number, content);
    }
    (hits, lines)
}

/// A path may contain a colon, and so may the content: the first number between colons is the line.
fn hit(line: &str) -> Option<Hit> {
    let mut start = 0;
    while let Some(colon) = line.get(start..)?.find(':') {
        let at = start + colon;
        let after = line.get(at + 1..)?;
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        if at > 0
            && digits > 0
            && let Some(content) = after.get(digits..)?.strip_prefix(':')
            && let Ok(number) = after.get(..digits)?.parse()
        {
            let path = line.get(..at)?;
            let path = path.strip_prefix("./").unwrap_or(path);
            return Some(Hit { path: path.into(), line: number, text: content.trim_end().to_owned() });
        }
        start = at + 1;
    }
    None
}

/// Reads `line<tab>text` lines; all else is notes.
pub(super) fn lines(text: &str) -> Lines {
    let numbered = |line: &str| {
        let (number, text) = line.split_once('\t')?;
        Some((number.trim().parse().ok()?, text.trim_end().to_owned()))
    };
    text.lines().filter_map(numbered).collect()
}

/// One line that says why a call failed: the `message` of an error object, else its text.
pub(super) fn failure(content: &str) -> String {
    let message = match serde_json::from_str(content) {
        Ok(Value::Object(object)) => {
            object.get("message").or_else(|| object.get("error")).and_then(Value::as_str).map(str::to_owned)
        }
        _ => None,
    };
    shortened(&one_line(message.as_deref().unwrap_or(content).trim()), 200)
}

/// The text of a sub-agent: its result is a string, or an object that has it as `result`.
pub(super) fn child_text(content: &str) -> String {
    match serde_json::from_str(content) {
        Ok(Value::String(text)) => text,
        Ok(Value::Object(object)) => {
            object.get("result").and_then(Value::as_str).map_or_else(|| content.to_owned(), str::to_owned)
        }
        _ => content.to_owned(),
    }
}

/// At most so many characters.
pub(super) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default().trim_end()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit_of(path: &str, line: u64, text: &str) -> Hit {
        Hit { path: path.into(), line, text: text.into() }
    }

    #[test]
    fn grep_text() {
        let found = hits(
            "src/a.rs:12:let x = 3:4:5;\n./b:c-d.py:7:\nsrc/a.rs-13-context: 9: no\n--\n[id].tsx:3:x\n\
             [no hits for \"more hits\"]\n:3:no path\nplain\n[3 more matches not shown]\n",
        );
        assert_eq!(
            found.hits,
            [hit_of("src/a.rs", 12, "let x = 3:4:5;"), hit_of("b:c-d.py", 7, ""), hit_of("[id].tsx", 3, "x")]
        );
        assert!(found.cut);
        assert!(!hits("[no matches]").cut);
        assert!(hits("größe.rs:1:ä\r").hits[0].text == "ä");
    }

    #[test]
    fn grep_text_of_one_file_with_context() {
        let (hits, lines) =
            in_file("a-1-b.rs", "a-1-b.rs-6-x:7:y\na-1-b.rs:7:two\n--\n[3 of more hits shown]\na:8:z");
        assert_eq!(hits, [hit_of("a-1-b.rs", 7, "two")]);
        assert_eq!(lines.into_iter().collect::<Vec<_>>(), [(6, "x:7:y".to_owned()), (7, "two".to_owned())]);
    }

    #[test]
    fn file_text() {
        let read = lines("  7\tone\ttwo\n8\t\n[4 more lines]\nx\ty");
        assert_eq!(read.into_iter().collect::<Vec<_>>(), [(7, "one\ttwo".to_owned()), (8, String::new())]);
    }

    #[test]
    fn errors_and_results() {
        assert_eq!(failure(r#"{"error":"missing_query","message":"give a\nquery"}"#), "give a query");
        assert_eq!(failure(r#"{"error":"denied"}"#), "denied");
        assert_eq!(failure(" it broke "), "it broke");
        assert_eq!(child_text(r#"{"result":"a\nb"}"#), "a\nb");
        assert_eq!(child_text(r#""a""#), "a");
        assert_eq!(child_text("a: b"), "a: b");
        assert_eq!(shortened("größer", 3), "grö…");
    }
}
