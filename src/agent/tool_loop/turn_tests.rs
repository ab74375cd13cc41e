use super::*;
use crate::outcome::StopReason;

fn text(piece: &str) -> ChatEvent {
    ChatEvent::Text(piece.into())
}

fn start(index: u32, id: &str, name: &str) -> ChatEvent {
    ChatEvent::ToolCallStart { index, id: id.into(), name: name.into() }
}

fn args(index: u32, delta: &str) -> ChatEvent {
    ChatEvent::ToolCallArgs { index, delta: delta.into() }
}

fn end() -> ChatEvent {
    ChatEvent::End { stop_reason: StopReason::EndTurn, usage: None }
}

/// The turn, and what a watcher sees of it: text in brackets is thinking, a bar is the end of a text.
fn play(events: impl IntoIterator<Item = ChatEvent>) -> (Turn, String) {
    let mut builder = TurnBuilder::default();
    let mut shown = String::new();
    let mut show = |chunk: Chunk| match (chunk.thinking, chunk.done) {
        (_, true) => shown.push('|'),
        (true, false) => shown.push_str(&format!("[{}]", chunk.content)),
        (false, false) => shown.push_str(&chunk.content),
    };
    for event in events {
        builder.push(event).into_iter().for_each(&mut show);
    }
    builder.ends().for_each(&mut show);
    (builder.finish(), shown)
}

#[test]
fn c12_deltas_alone_are_the_text() {
    let (turn, shown) = play([text("a"), text(""), text("b"), end()]);
    assert_eq!((turn.text.as_str(), shown.as_str()), ("ab", "ab|"));
    assert_eq!(turn.stop_reason, Some(StopReason::EndTurn));
}

#[test]
fn c13_deltas_and_a_snapshot_are_the_text_once() {
    let (turn, shown) = play([text("a"), text("b"), ChatEvent::Snapshot("ab".into()), end()]);
    assert_eq!((turn.text.as_str(), shown.as_str()), ("ab", "ab|"));
    // A provider without deltas.
    let (turn, shown) = play([ChatEvent::Snapshot("ab".into()), end()]);
    assert_eq!((turn.text.as_str(), shown.as_str()), ("ab", "ab|"));
    // Deltas that repeat the snapshot change nothing of the result.
    let (turn, _) = play([ChatEvent::Snapshot("ab".into()), text("ab"), end()]);
    assert_eq!(turn.text, "ab");
}

#[test]
fn a_snapshot_without_text_takes_nothing_back() {
    let (turn, shown) = play([text("a"), ChatEvent::Snapshot(String::new()), text("b"), end()]);
    assert_eq!((turn.text.as_str(), shown.as_str()), ("ab", "ab|"));
    let mut builder = TurnBuilder::default();
    assert_eq!(builder.push(ChatEvent::Snapshot(String::new())), None);
    assert!(!builder.has_content() && builder.ends().next().is_none());
}

#[test]
fn thinking_is_shown_and_is_no_text() {
    let (turn, shown) =
        play([ChatEvent::Thinking("hm".into()), ChatEvent::Thinking("".into()), text("a"), end()]);
    assert_eq!((turn.text.as_str(), shown.as_str()), ("a", "[hm]a||"));
}

#[test]
fn calls_come_in_the_order_of_their_starts_whatever_their_deltas_do() {
    let (turn, _) = play([
        start(0, "a", "read"),
        start(1, "b", "grep"),
        args(1, "{\"y\""),
        args(0, "{\"x\":"),
        args(1, ":2}"),
        args(0, "1}"),
        end(),
    ]);
    let calls: Vec<_> = turn.calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
    assert_eq!(calls, [("a", "read", "{\"x\":1}"), ("b", "grep", "{\"y\":2}")]);
}

#[test]
fn a_start_may_be_repeated_or_come_in_parts_or_after_its_arguments() {
    let (turn, _) = play([
        start(3, "a", ""),
        start(3, "", "read"),
        args(3, "{"),
        start(3, "a", "read"),
        args(3, "}"),
        args(7, "{}"),
        start(7, "", "grep"),
        end(),
    ]);
    let calls: Vec<_> = turn.calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
    assert_eq!(calls, [("a", "read", "{}"), ("", "grep", "{}")]);
}

#[test]
fn usage_is_the_last_report() {
    let (early, late) = (Usage::of_call(1, 2), Usage::of_call(3, 4));
    let ends = |usage| ChatEvent::End { stop_reason: StopReason::EndTurn, usage };
    let (turn, _) = play([ChatEvent::Usage(early), ChatEvent::Usage(late), ends(None)]);
    assert_eq!(turn.usage, late);
    let (turn, _) = play([ChatEvent::Usage(early), ends(Some(late))]);
    assert_eq!(turn.usage, late);
}

#[test]
fn what_was_begun_is_content() {
    let begun = |event| {
        let mut builder = TurnBuilder::default();
        builder.push(event);
        builder.has_content()
    };
    assert!(begun(text("a")) && begun(ChatEvent::Thinking("a".into())) && begun(start(0, "", "")));
    assert!(!begun(text("")) && !begun(ChatEvent::Usage(Usage::of_call(1, 1))) && !begun(end()));
}
