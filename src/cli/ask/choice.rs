//! What a typed line says to a question.

use serde_json::{Map, Value};

use crate::context::{AskKind, Question, Reply};
use crate::message::cap_text;

/// How much of a line that says nothing is quoted, in bytes.
const QUOTED_BYTES: usize = 40;

/// What a terminal takes in one line, in bytes; the rest of a longer one is lost.
const LINE_BYTES: usize = 4095;

/// What was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum Typed {
    /// A line, and Enter.
    Line(String),
    /// Ctrl-D.
    End,
}

/// What a person decided.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Choice {
    /// Yes.
    Once,
    /// Yes, in this run and those below.
    ForRun,
    /// Yes, in the whole tree.
    ForRoot,
    /// Yes, with other arguments.
    With(Map<String, Value>),
    /// No, and why.
    No(Option<String>),
    /// Words.
    Words(String),
}

/// What a line says.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Said {
    /// The answer.
    Choice(Choice),
    /// They want to write other arguments.
    Edit,
    /// They go back from there.
    Back,
    /// They want to see all arguments.
    View,
    /// Nothing that can be understood; what to type instead.
    Unclear(String),
}

/// Whether this question may be answered for longer than once.
pub(super) fn lasts(question: &Question) -> bool {
    question.about.is_some()
}

/// Reads a line that answers this question; with `edits`, one that writes other arguments.
pub(super) fn read(line: &str, question: &Question, edits: bool) -> Said {
    let line = line.trim();
    match question.kind {
        _ if edits => read_arguments(line),
        AskKind::Input if line.is_empty() => {
            unclear("an empty line is no answer; type one, or Ctrl-D to decline")
        }
        AskKind::Input => Said::Choice(Choice::Words(line.to_owned())),
        AskKind::Permission => read_permission(line, question),
    }
}

fn read_permission(line: &str, question: &Question) -> Said {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let (word, rest) = (word.to_lowercase(), rest.trim());
    let yes = match word.as_str() {
        "y" | "yes" => Choice::Once,
        "r" | "run" if lasts(question) => Choice::ForRun,
        "a" | "all" if lasts(question) => Choice::ForRoot,
        "n" | "no" => return Said::Choice(Choice::No((!rest.is_empty()).then(|| rest.to_owned()))),
        "e" | "edit" if question.args.is_some() => {
            return if rest.is_empty() { Said::Edit } else { read_arguments(rest) };
        }
        "v" | "view" if rest.is_empty() && question.args.is_some() => return Said::View,
        "" => return unclear("type one of the letters and Enter"),
        _ => return unclear(&format!("{:?} is none of the choices", cap_text(line, QUOTED_BYTES))),
    };
    // "yes, but …" is not a yes.
    if rest.is_empty() {
        Said::Choice(yes)
    } else {
        unclear("a yes stands alone; to say more, type n and why")
    }
}

fn read_arguments(line: &str) -> Said {
    if line.is_empty() {
        return Said::Back;
    }
    match serde_json::from_str(line) {
        Ok(Value::Object(args)) => Said::Choice(Choice::With(args)),
        Ok(_) => unclear("the arguments are a JSON object: {\"name\": value, …}"),
        Err(_) if line.len() >= LINE_BYTES => {
            unclear(&format!("a terminal takes {LINE_BYTES} bytes in one line, and this was longer"))
        }
        Err(error) => unclear(&format!("this is no JSON: {error}")),
    }
}

fn unclear(text: &str) -> Said {
    Said::Unclear(text.to_owned())
}

impl Choice {
    /// As the run that asked gets it.
    pub(super) fn reply(&self) -> Reply {
        match self {
            Self::Once => Reply::allow(),
            Self::ForRun => Reply::allow_for_run(),
            Self::ForRoot => Reply::allow_for_root(),
            Self::With(args) => Reply::allow().with_args(args.clone()),
            Self::No(None) => Reply::deny(),
            Self::No(Some(why)) => Reply::deny().saying(why.as_str()),
            Self::Words(words) => Reply::answer(words.as_str()),
        }
    }

    /// For the record.
    pub(super) fn told(&self) -> String {
        match self {
            Self::Once => "yes, once".to_owned(),
            Self::ForRun => "yes, in this run".to_owned(),
            Self::ForRoot => "yes, in all runs".to_owned(),
            Self::With(args) => format!("yes, with {}", Value::Object(args.clone())),
            Self::No(None) => "no".to_owned(),
            Self::No(Some(why)) => format!("no: {why}"),
            Self::Words(words) => words.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn permission() -> Question {
        let args = json!({ "path": "a.md" }).as_object().cloned().unwrap_or_default();
        Question {
            about: Some("write_file".into()),
            ..Question::permission("Writing", "write_file", Arc::new(args))
        }
    }

    fn no(why: &str) -> Said {
        Said::Choice(Choice::No(Some(why.to_owned())))
    }

    #[test]
    fn a_letter_or_a_word_decides() {
        let read = |line| read(line, &permission(), false);
        for line in ["y", " Y ", "yes"] {
            assert_eq!(read(line), Said::Choice(Choice::Once), "{line}");
        }
        assert_eq!((read("r"), read("run")), (Said::Choice(Choice::ForRun), Said::Choice(Choice::ForRun)));
        assert_eq!((read("a"), read("ALL")), (Said::Choice(Choice::ForRoot), Said::Choice(Choice::ForRoot)));
        assert_eq!(
            (read("n"), read("no ")),
            (Said::Choice(Choice::No(None)), Said::Choice(Choice::No(None)))
        );
        assert_eq!(read("n not in  docs/ "), no("not in  docs/"));
        assert_eq!((read("e"), read("v")), (Said::Edit, Said::View));
    }

    #[test]
    fn nothing_else_is_a_yes() {
        for line in ["", "yes but not there", "y not", "yep", "ja", "a b", "no.", "v x", "y\u{202e}"] {
            assert!(matches!(read(line, &permission(), false), Said::Unclear(_)), "{line}");
        }
        // What a permission is for was not said: there is none for longer.
        let once = Question { about: None, ..permission() };
        for line in ["r", "a"] {
            assert!(matches!(read(line, &once, false), Said::Unclear(_)), "{line}");
        }
    }

    #[test]
    fn other_arguments_are_one_object() {
        let with =
            Said::Choice(Choice::With(json!({ "path": "b" }).as_object().cloned().unwrap_or_default()));
        assert_eq!(read(r#"{"path": "b"}"#, &permission(), true), with);
        assert_eq!(read(r#"e {"path": "b"}"#, &permission(), false), with);
        assert_eq!(read(" ", &permission(), true), Said::Back);
        for (line, hint) in
            [("[1]", "JSON object"), ("{\"a\":", "no JSON"), (&"x".repeat(4095), "4095 bytes")]
        {
            let said = read(line, &permission(), true);
            assert!(matches!(&said, Said::Unclear(text) if text.contains(hint)), "{said:?}");
        }
    }

    #[test]
    fn words_answer_a_question_for_words() {
        let question = Question::input("Which?");
        assert_eq!(read(" n or m ", &question, false), Said::Choice(Choice::Words("n or m".into())));
        assert!(matches!(read("  ", &question, false), Said::Unclear(_)));
    }
}
