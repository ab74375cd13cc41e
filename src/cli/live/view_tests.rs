//! What the live picture shows, as text; on a `TestBackend` where cells matter.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::text::Text;
use serde_json::json;

use super::super::super::sample::{Sample, at, two_children, whole};
use super::*;

fn shown(tree: &RunTree, now: Timestamp, width: u16, height: u16) -> String {
    let lines = lines(tree, now, Size { width, height });
    assert!(lines.len() <= usize::from(height), "{} lines for {height}", lines.len());
    for line in &lines {
        assert!(line.width() <= usize::from(width), "{line} is wider than {width}");
    }
    lines.iter().map(|line| format!("{}\n", line.to_string().trim_end())).collect()
}

#[test]
fn settled_children_collapse_and_the_running_path_is_expanded() {
    let log = two_children();
    assert_eq!(
        shown(&log.tree(), at(2000), 80, 20),
        "\
● find where cancellation is handled (worker) · 2.0s · 1.5k tokens · 2 calls
│ I delegate twice.
├ ✓ cancel (worker) · 0.6s · 1 call
└ ● abort (worker) · 1.3s · 1 call
    → grep pattern=\"abort\"
    looking at
    the second file
2 of 3 runs live · 1.5k tokens · $0.0123 · 2.0s
"
    );
}

#[test]
fn a_settled_tree_is_one_line() {
    let log = whole();
    assert_eq!(
        shown(&log.tree(), at(9000), 60, 20),
        "\
✓ find where canc… · 2.0s · 1.5k tokens · 2 calls · 2 runs …
3 runs · 1.5k tokens · $0.0123 · 2.0s
"
    );
}

#[test]
fn it_fits_any_size() {
    let tree = two_children().tree();
    for width in [0, 1, 2, 3, 5, 8, 13, 21, 34, 200] {
        for height in 0..12 {
            shown(&tree, at(2000), width, height);
        }
    }
    assert_eq!(
        shown(&tree, at(2000), 30, 4),
        "\
● find where canc… · 2.0s · 1…
├ ● abort (worker) · 1.3s · 1…
└ … 1 more: 1 completed
2 of 3 runs live · 1.5k token…
"
    );
    assert_eq!(shown(&tree, at(2000), 60, 1), "2 of 3 runs live · 1.5k tokens · $0.0123 · 2.0s\n");
    assert_eq!(shown(&RunTree::new(), at(0), 60, 9), "waiting for the first message\n");
}

fn many(settled: usize, running: usize) -> Sample {
    let mut log = Sample::default();
    log.start("root", None, "many");
    for n in 0..settled + running {
        let run = format!("c{n}");
        log.start(&run, Some(("root", None)), &format!("child {n}"));
        if n < settled && n % 100 == 99 {
            log.end(&run, "failed", "no");
        } else if n < settled {
            log.complete(&run, json!(n));
        } else {
            log.text(&run, &format!("text of {n}"), false);
        }
    }
    log
}

#[test]
fn a_thousand_children_are_summed_up() {
    let log = many(990, 10);
    let tree = log.tree();
    let text = shown(&tree, log.now(), 60, 16);
    assert_eq!(text.lines().count(), 16);
    assert_eq!(text.lines().filter(|line| line.contains("● child")).count(), 10, "{text}");
    assert!(text.contains("└ … 990 more: 981 completed, 9 failed"), "{text}");
    assert!(text.contains("text of 990"), "what is left over goes to the first: {text}");
    // More running ones than lines: the oldest stay, so that the picture is calm.
    let log = many(0, 1000);
    let text = shown(&log.tree(), log.now(), 60, 8);
    assert!(text.contains("child 0 ") && text.contains("child 4 ") && !text.contains("child 5 "), "{text}");
    assert!(text.contains("└ … 995 more: 995 running"), "{text}");
    // Of the settled ones, the latest.
    let log = many(1000, 0);
    let text = shown(&log.tree(), log.now(), 60, 8);
    assert!(text.contains("child 999 ") && text.contains("└ … 995 more: 986 completed, 9 failed"), "{text}");
}

#[test]
fn a_deep_chain_ends_with_the_screen() {
    let mut log = Sample::default();
    log.start("root", None, "root");
    let mut above = "root".to_owned();
    for n in 1..3000 {
        let run = format!("c{n}");
        log.start(&run, Some((&above, None)), &format!("level {n}"));
        above = run;
    }
    let text = shown(&log.tree(), log.now(), 60, 10);
    assert!(text.contains("level 7 "), "{text}");
    assert!(text.ends_with("3000 of 3000 runs live · 5m 00s\n"), "{text}");
}

#[test]
fn waiting_is_visible() {
    let mut log = Sample::default();
    log.start("root", None, "root")
        .start("q", Some(("root", None)), "queued one")
        .say("q", json!({"type": "queued", "waiting_for": "permit"}))
        .start("r", Some(("root", None)), "retrying one")
        .say(
            "r",
            json!({"type": "retrying", "attempt": 2, "delay_ms": 100, "reason": "429 from the provider"}),
        )
        .start("p", Some(("root", None)), "asking one")
        .say(
            "p",
            json!({"type": "ask", "request_id": "1", "kind": "permission", "title": "May I?",
            "deadline_ms": 1000}),
        )
        .start("n", Some(("root", None)), "noting one")
        .say(
            "n",
            json!({"type": "log_update", "content": "halfway\nsecond", "severity": "info", "node_id": "n",
            "node_name": "n"}),
        );
    for index in 0..7 {
        log.call("n", index, "grep", json!({ "n": index }));
    }
    assert_eq!(
        shown(&log.tree(), at(1600), 60, 30),
        "\
● root (worker) · 1.6s
├ ◌ queued one (worker) · 1.5s · queued
├ ↻ retrying one (worker) · 1.3s · retrying
│   ↻ 429 from the provider
├ ? asking one (worker) · 1.1s · asking
│   1 question waits for an answer
└ ● noting one (worker) · 0.9s · 7 calls
    → grep n=0
    → grep n=1
    → grep n=2
    → grep n=3
    → 3 more open calls
    · halfway
5 of 5 runs live · 1.6s
"
    );
}

#[test]
fn text_of_any_script_is_cut_by_columns_and_cannot_steer_the_terminal() {
    let mut log = Sample::default();
    log.start("root", None, "日本語の長い題名がここにあります👩‍👩‍👧").text(
        "root",
        "\x1b[2J\x1b]0;owned\x07 bell\u{202e} 日本語テキストが続く\r\nnext",
        false,
    );
    let text = shown(&log.tree(), at(500), 30, 10);
    assert_eq!(
        text,
        "\
● 日本語の長い題名がこ… · 0.5s
  ␛[2J␛]0;owned␇ bell�
  日本語テキストが続く
  next
1 of 1 run live · 0.5s
"
    );
    let mut terminal = Terminal::new(TestBackend::new(30, 5)).unwrap();
    let size = Size { width: 30, height: 5 };
    terminal
        .draw(|frame| frame.render_widget(Text::from(lines(&log.tree(), at(500), size)), frame.area()))
        .unwrap();
    terminal.backend().assert_buffer_lines([
        Line::from(vec![
            Span::styled("● ", Style::new().fg(Color::Cyan)),
            Span::styled("日本語の長い題名がこ…", Style::new().bold()),
            Span::styled(" · 0.5s", DIM),
        ]),
        Line::from(vec![Span::styled("  ", DIM), Span::raw("␛[2J␛]0;owned␇ bell�        ")]),
        Line::from(vec![Span::styled("  ", DIM), Span::raw("日本語テキストが続く        ")]),
        Line::from(vec![Span::styled("  ", DIM), Span::raw("next                        ")]),
        Line::from(vec![Span::styled("1 of 1 run live · 0.5s", DIM), Span::raw("        ")]),
    ]);
}

#[test]
fn a_log_without_its_head_is_shown() {
    let log = two_children();
    let tree = RunTree::of(log.messages.get(8..).unwrap());
    let text = shown(&tree, at(2000), 70, 20);
    assert!(text.contains("(start not in the log)") && text.contains("8 missing"), "{text}");
}
