use std::io::Write as _;
use std::os::unix::net::UnixStream;

use ratatui::layout::Size;
use serde_json::{Value, json};

use super::super::super::live::InlineBackend;
use super::super::test_kit::{asking, permission};
use super::*;
use crate::context::Question;
use crate::outcome::CancelledBy;
use crate::testing::TestRoot;

/// A person at a terminal that is wide enough, who answers what is asked.
struct Desk {
    test: TestRoot,
    asker: Asker,
    tree: LiveTree<Vec<u8>>,
    fingers: UnixStream,
}

impl Desk {
    fn new() -> Self {
        let (ours, fingers) = UnixStream::pair().unwrap();
        let test = TestRoot::new();
        let asker = Asker::at(Keyboard::of(ours).unwrap(), test.root());
        let size = Size { width: 200, height: 50 };
        let tree = LiveTree::on(InlineBackend::with_size(Vec::new(), move || Ok(size))).unwrap();
        Self { test, asker, tree, fingers }
    }

    /// Runs children that ask these questions. Each question gets the next of the lines, as soon as it is shown; and again, as long as
    /// it stays. What the children heard, and what stands on the terminal of questions with their answers.
    async fn plays(
        mut self,
        questions: Vec<(&'static str, Question)>,
        lines: &[&str],
    ) -> (Vec<Value>, Vec<String>) {
        let mut lines = lines.iter();
        let mut run = std::pin::pin!(asking(self.test.root(), questions).settle());
        let outcome = loop {
            tokio::select! {
                biased;
                outcome = &mut run => break outcome,
                step = self.asker.next() => {
                    assert!(self.asker.take(step, &mut self.tree).unwrap());
                    let open = self.asker.open.as_ref().is_some_and(|open| !open.is_shown);
                    assert!(self.asker.draw(&mut self.tree, Timestamp::default()).unwrap());
                    if open && let Some(line) = lines.next() {
                        self.fingers.write_all(line.as_bytes()).unwrap();
                    }
                }
            }
        };
        assert_eq!(lines.next(), None, "never asked for");
        while self.asker.is_open() {
            let step = self.asker.next().await;
            self.asker.take(step, &mut self.tree).unwrap();
        }
        self.asker.unanswered(&mut self.tree).unwrap();
        drop(self.asker);
        self.test.finish();
        let heard = outcome.result().and_then(Value::as_array).cloned().unwrap_or_default();
        let records = self.tree.above();
        (heard, records)
    }
}

async fn plays(questions: Vec<(&'static str, Question)>, lines: &[&str]) -> (Vec<Value>, Vec<String>) {
    Desk::new().plays(questions, lines).await
}

fn writes() -> Question {
    permission(json!({ "path": "a.md" }))
}

#[tokio::test]
async fn one_question_after_the_other_each_answer_to_its_own() {
    let questions = vec![("a", writes()), ("b", Question::input("Which?")), ("c", writes()), ("d", writes())];
    let (heard, records) = plays(questions, &["y\n", "this one\n", "n not there\n", "y\n"]).await;
    let expected = ["allow by user", "answer by user: this one", "deny by user: not there", "allow by user"];
    assert_eq!(heard, expected);
    assert_eq!(
        records,
        [
            "? main › a (subtask) asked for write_file (Writing) → yes, once",
            "? main › b (subtask) asked Which? → this one",
            "? main › c (subtask) asked for write_file (Writing) → no: not there",
            "? main › d (subtask) asked for write_file (Writing) → yes, once",
        ]
    );
}

#[tokio::test]
async fn a_yes_for_longer_answers_what_waits_for_the_same() {
    let questions =
        vec![("a", writes()), ("b", Question { about: Some("other".into()), ..writes() }), ("c", writes())];
    let (heard, records) = plays(questions.clone(), &["a\n", "n\n"]).await;
    assert_eq!(heard, ["allow_for_root by user", "deny by user", "allow by policy"]);
    assert_eq!(records.len(), 2, "{records:?}");
    // Of one run only.
    let (heard, _) = plays(questions, &["r\n", "n\n", "n\n"]).await;
    assert_eq!(heard, ["allow_for_run by user", "deny by user", "deny by user"]);
}

#[tokio::test]
async fn a_line_that_says_nothing_leaves_the_question_open() {
    let lines = ["what?\n", "\n", "v\n", "e\n", "[]\n", "{\"path\": \"b.md\"}\n"];
    let (heard, records) = plays(vec![("a", writes())], &lines).await;
    assert_eq!(heard, ["allow by user: {\"path\":\"b.md\"}"]);
    assert_eq!(
        records.first().map(String::as_str),
        Some("? main › a (subtask) asks for write_file (Writing):")
    );
    let last = "? main › a (subtask) asked for write_file (Writing) → yes, with {\"path\":\"b.md\"}";
    assert_eq!(records.last().map(String::as_str), Some(last));
    // Back from there, and on.
    assert_eq!(plays(vec![("a", writes())], &["e\n", "\n", "y\n"]).await.0, ["allow by user"]);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_too_late_is_taken_off_with_what_was_half_typed() {
    let questions =
        vec![("a", writes().within(Duration::from_secs(5))), ("b", writes().within(Duration::from_secs(9)))];
    let (heard, records) = plays(questions, &["y"]).await;
    assert_eq!(heard, ["deny by timeout", "deny by timeout"]);
    assert_eq!(
        records,
        [
            "? main › a (subtask) asked for write_file (Writing) → nobody answered in time",
            "? main › b (subtask) asked for write_file (Writing) → nobody answered in time",
        ]
    );
}

/// A busy machine hears of the end of the tree before it hears that the question is over.
#[tokio::test(start_paused = true)]
async fn what_became_of_a_question_is_told_when_its_tree_ends_first() {
    let Desk { test, mut asker, mut tree, fingers: _fingers } = Desk::new();
    let questions = vec![("a", writes().within(Duration::from_secs(5)))];
    let mut run = std::pin::pin!(asking(test.root(), questions).settle());
    loop {
        tokio::select! {
            biased;
            _ = &mut run => break,
            step = asker.next(), if !asker.is_open() => {
                asker.take(step, &mut tree).unwrap();
                asker.draw(&mut tree, Timestamp::default()).unwrap();
            }
        }
    }
    assert!(asker.is_open());
    asker.unanswered(&mut tree).unwrap();
    assert!(!asker.is_open());
    let told = "? main › a (subtask) asked for write_file (Writing) → nobody answered in time";
    assert_eq!(tree.above(), [told]);
    drop(asker);
    test.finish();
}

#[tokio::test]
async fn a_terminal_that_goes_away_leaves_nobody() {
    let Desk { test, mut asker, mut tree, fingers } = Desk::new();
    let mut run = std::pin::pin!(asking(test.root(), vec![("a", writes()), ("b", writes())]).settle());
    let mut fingers = Some(fingers);
    loop {
        tokio::select! {
            biased;
            outcome = &mut run => panic!("{outcome:?}"),
            step = asker.next() => {
                if !asker.take(step, &mut tree).unwrap() {
                    break;
                }
                asker.draw(&mut tree, Timestamp::default()).unwrap();
                fingers = None;
            }
        }
    }
    assert!(fingers.is_none());
    drop(asker);
    assert_eq!(run.await.result(), Some(&json!(["deny by nobody", "deny by nobody"])));
    test.finish();
}

#[tokio::test]
async fn a_cancel_takes_the_question_off() {
    let Desk { test, mut asker, mut tree, fingers: _fingers } = Desk::new();
    let mut run = std::pin::pin!(asking(test.root(), vec![("a", writes())]).settle());
    let outcome = loop {
        tokio::select! {
            biased;
            outcome = &mut run => break outcome,
            step = asker.next() => {
                asker.take(step, &mut tree).unwrap();
                asker.draw(&mut tree, Timestamp::default()).unwrap();
                drop(test.root().cancel_all(CancelledBy::User));
            }
        }
    };
    assert!(outcome.error_text().is_some_and(|text| text.contains("cancelled by user")));
    while asker.is_open() {
        let step = asker.next().await;
        asker.take(step, &mut tree).unwrap();
    }
    assert_eq!(
        tree.above(),
        ["? main › a (subtask) asked for write_file (Writing) → no answer is needed any more"]
    );
    assert!(matches!(asker.next().await, Step::Ended));
    test.finish();
}
