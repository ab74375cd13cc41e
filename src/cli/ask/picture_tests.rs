use serde_json::json;

use super::super::test_kit::{asking, permission};
use super::*;
use crate::context::{Question, Root};

/// The question of a run with this title below the root, as it waits.
async fn open(title: &'static str, question: Question) -> std::sync::Arc<OpenAsk> {
    let root = Root::new();
    let mut asks = root.asks();
    let run = asking(&root, vec![(title, question)]);
    tokio::select! {
        ask = asks.next() => ask.unwrap(),
        outcome = run.settle() => panic!("nobody asks: {outcome:?}"),
    }
}

fn picture(shown: &Shown<'_>, width: u16, height: u16) -> String {
    let lines = shown.lines(Size { width, height });
    assert!(lines.len() <= usize::from(height), "{lines:?}");
    assert!(lines.iter().all(|line| line.width() <= usize::from(width)), "{lines:?}");
    lines.iter().map(|line| line.to_string().trim_end().to_owned() + "\n").collect()
}

fn shown(ask: &OpenAsk) -> Shown<'_> {
    Shown { ask, left: ask.question.deadline, others: 0, edits: false, hint: None }
}

#[tokio::test]
async fn it_says_who_asks_what_for_and_what_may_be_typed() {
    let args = json!({ "path": "docs/a.md", "content": "# Title\n\nA line.", "mode": { "append": true } });
    let ask = open("docs", permission(args)).await;
    let question = Shown { others: 2, ..shown(&ask) };
    assert_eq!(
        picture(&question, 90, 20),
        "\
? main › docs (subtask) asks · waits 10m 00s · 2 more questions
  write_file · medium risk · Writing
    path: docs/a.md
    content:
      # Title

      A line.
    mode: {\"append\":true}
y yes, once · r yes, in this run · a yes, in all runs · n no, or n WHY · e edit
v view all
"
    );
    let question = Shown { edits: true, hint: Some("this is no JSON"), ..shown(&ask) };
    assert_eq!(
        picture(&question, 60, 20),
        "\
? main › docs (subtask) asks · waits 10m 00s
  write_file · medium risk · Writing
    {\"path\":\"docs/a.md\",\"content\":\"# Title\\n\\nA
    line.\",\"mode\":{\"append\":true}}
type all arguments as one line of JSON
an empty line goes back
this is no JSON
"
    );
    let once = open("docs", Question { about: None, risk: None, ..permission(json!({})) }).await;
    assert_eq!(
        picture(&shown(&once), 80, 20),
        "\
? main › docs (subtask) asks · waits 10m 00s
  write_file · Writing
y yes, once · n no, or n WHY · e edit · v view all
"
    );
}

#[tokio::test]
async fn a_question_for_words_stands_there_whole() {
    let ask = open("docs", Question::input("Which one?\nThe long one, or the one that is short?")).await;
    assert_eq!(
        picture(&shown(&ask), 30, 20),
        "\
? main › docs (subtask) asks
  a question to you
    Which one?
    The long one, or the one
    that is short?
type the answer and Enter
Ctrl-D declines
"
    );
}

#[tokio::test]
async fn what_has_no_room_is_said_to_be_missing() {
    let content: String = (1..100).map(|line| format!("line {line}\n")).collect();
    let ask = open("docs", permission(json!({ "path": "a.md", "content": content }))).await;
    assert_eq!(
        picture(&shown(&ask), 80, 7),
        "\
? main › docs (subtask) asks · waits 10m 00s
  write_file · medium risk · Writing
    path: a.md
    content:
    … cut: 1.0k bytes in all; v shows all of it
y yes, once · r yes, in this run · a yes, in all runs · n no, or n WHY · e edit
v view all
"
    );
    // What may be typed is the last to go.
    assert_eq!(picture(&shown(&ask), 80, 1), "v view all\n");
    for (width, height) in [(0, 0), (0, 5), (1, 1), (1, 50), (5, 3), (12, 12), (300, 100)] {
        picture(&shown(&ask), width, height);
        picture(&Shown { edits: true, hint: Some("日本語 日本語"), others: 9, ..shown(&ask) }, width, height);
    }
}

#[tokio::test]
async fn a_stranger_cannot_draw() {
    let args = json!({ "pa\u{1b}[2Jth": "a\u{7}\r\n\u{202e}gpj.exe\u{1b}]0;x", "n": 1 });
    let ask = open("docs\n› main", Question { risk: Some("low\n".into()), ..permission(args) }).await;
    let text = picture(&shown(&ask), 90, 20);
    assert_eq!(
        text,
        "\
? main › docs > main (subtask) asks · waits 10m 00s
  write_file · low  risk · Writing
    pa␛[2Jth:
      a␇
      �gpj.exe␛]0;x
    n: 1
y yes, once · r yes, in this run · a yes, in all runs · n no, or n WHY · e edit
v view all
"
    );
    assert!(!text.contains(['\u{1b}', '\u{7}', '\r', '\u{202e}']), "{text}");
}

#[tokio::test]
async fn a_record_has_both_the_question_and_the_answer_on_a_line() {
    let ask = open("a run with quite a long title", permission(json!({}))).await;
    assert_eq!(
        record(&ask, "yes, once", 100),
        "? a run with quite a long title (sub… asked for write_file (Writing) → yes, once"
    );
    let narrow = record(&ask, "no: not there, and nowhere else in the whole wide world", 40);
    assert_eq!(narrow, "? … asked for write… → no: not there, a…");
    let ask = open("docs", Question::input("Which?")).await;
    assert_eq!(record(&ask, "the\nsecond", 80), "? main › docs (subtask) asked Which? → the second");
    assert!(whole(&ask).starts_with("? main › docs (subtask) asks for Which?:"));
}
