//! The indented lines, as text.

use std::sync::Arc;

use serde_json::json;

use super::super::sample::{Sample, two_children, whole};
use super::*;
use crate::tree::Gap;

fn shown(log: &Sample) -> String {
    let (mut lines, mut out) = (IndentedLines::new(), Vec::new());
    for delivery in log.deliveries() {
        lines.apply(&delivery, &mut out).unwrap();
    }
    assert_eq!(*lines.tree(), log.tree());
    String::from_utf8(out).unwrap()
}

#[test]
fn a_run_reads_as_a_story() {
    let text = shown(&whole());
    assert_eq!(
        text,
        "\
[1] ▶ find where cancellation is handled (worker)
[1] | I delegate twice.
[1] → run_search query=\"cancel\"
[1] → run_search query=\"abort\"
  [2] ▶ cancel (worker)
  [3] ▶ abort (worker)
  [2] → grep pattern=\"cancel\" path=\"src\"
  [3] → grep pattern=\"abort\"
  [2] ← grep · 40ms
  [2] | found 3 places
  [2] ✓ completed · 0.6s · 1 call
[1] ← run_search · 40ms
  [3] ← grep failed · 40ms · no such pattern
  [3] | looking at
  [3] | the second file
  [3] ✗ failed · 1.0s · 1 call · nothing found
[1] ← run_search failed · 40ms · nothing found
[1] | In src/cancel.rs.
[1] | That is all.
[1] ✓ completed · 2.0s · 1.5k tokens · 2 calls
"
    );
    assert_eq!(text, shown(&whole()));
}

#[test]
fn all_kinds_have_their_line_or_none() {
    let mut log = Sample::default();
    log.start("root", None, "r");
    for body in [
        json!({"type": "task_update", "event": "step_started", "task": {"title": "T"}}),
        json!({"type": "step_result", "step": {}, "result": 1}),
        json!({"type": "step_result", "step": {}, "error": "no"}),
        json!({"type": "planning_update", "phase": "generation", "status": "running"}),
        json!({"type": "log_update", "content": "a\nb\x07", "severity": "warning", "node_id": "n", "node_name": "n"}),
        json!({"type": "todo_update", "todos": [{"content": "c", "status": "completed"},
            {"content": "d", "status": "pending"}]}),
        json!({"type": "retrying", "attempt": 2, "delay_ms": 1500, "reason": "429"}),
        json!({"type": "queued", "waiting_for": "permit"}),
        json!({"type": "ask", "request_id": "q", "kind": "permission", "title": "Write?", "deadline_ms": 5}),
        json!({"type": "ask_answered", "request_id": "q", "decision": "deny", "by": "nobody"}),
        json!({"type": "alert", "from": "f", "kind": "completed", "text": "t"}),
        json!({"type": "error", "message": "odd"}),
        json!({"type": "brand_new", "x": 1}),
        json!({"type": "chunk", "content": "hm", "done": true, "thinking": true}),
        json!({"type": "tool_call_update", "tool_call_id": "c", "call_index": 0, "name": "t", "args": {}}),
        json!({"type": "tool_call_update", "tool_call_id": "c", "call_index": 0, "name": "t", "args": {},
            "message": "half"}),
    ] {
        log.say("root", body);
    }
    assert_eq!(
        shown(&log),
        "\
[1] ▶ r (worker)
[1] · step_started T
[1] · step failed: no
[1] · planning: generation running
[1] · warning: a b␇
[1] · to do: 1 of 2 done
[1] ↻ attempt 2 in 1.5s: 429
[1] ◌ queued: waits for permit
[1] ? permission: Write?
[1] ! deny by nobody
[1] ! completed from f: t
[1] ! error: odd
[1] · brand_new
[1] → t
[1] … t half
"
    );
}

#[test]
fn long_text_is_cut_and_text_without_an_end_is_printed_with_its_turn() {
    let mut log = Sample::default();
    let long: String = (0..50).map(|n| format!("line {n}\n")).collect();
    log.start("root", None, "r").text("root", &long, false).text("root", &"x".repeat(1000), true);
    log.text("root", "open", false).end("root", "failed", "cut");
    let text = shown(&log);
    assert!(text.contains("| line 39\n[1] | … 11 more lines\n[1] | open\n[1] ✗ failed"), "{text}");
}

#[test]
fn what_comes_twice_or_late_is_not_printed_and_a_gap_is() {
    let log = two_children();
    let (mut lines, mut out) = (IndentedLines::new(), Vec::new());
    let all: Vec<_> = log.deliveries().collect();
    for delivery in all.iter().chain(&all) {
        lines.apply(delivery, &mut out).unwrap();
    }
    let once = out.len();
    let gap = Gap { from_seq: 15, to_seq: 20, snapshot: Arc::new(whole().tree()) };
    lines.apply(&Delivery::Gap(gap), &mut out).unwrap();
    assert_eq!(&out[once..], "… messages 15 to 20 are no longer there\n".as_bytes());
    assert_eq!(String::from_utf8(out[..once].to_vec()).unwrap(), shown(&log));
    assert_eq!(*lines.tree(), whole().tree());
}
