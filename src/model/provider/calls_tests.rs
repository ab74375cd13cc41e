use super::*;

fn piece(index: Option<u64>, id: &str, name: &str, arguments: &str) -> Piece {
    let some = |text: &str| (!text.is_empty()).then(|| text.into());
    Piece { index, id: some(id), name: some(name), arguments: Loose::Text(arguments.into()) }
}

/// Each call as `label name arguments`.
fn read(pieces: Vec<Piece>) -> Vec<String> {
    let mut calls = Calls::default();
    let mut found: Vec<(String, String, String)> = Vec::new();
    let mut take = |event: ChatEvent| match event {
        ChatEvent::ToolCallStart { index, id, name } => {
            let at = index as usize;
            found.resize_with(found.len().max(at + 1), Default::default);
            let put = |old: &mut String, new: String| {
                if !new.is_empty() {
                    *old = new;
                }
            };
            put(&mut found[at].0, id);
            put(&mut found[at].1, name);
        }
        ChatEvent::ToolCallArgs { index, delta } => found[index as usize].2.push_str(&delta),
        other => panic!("{other:?}"),
    };
    for piece in pieces {
        assert!(calls.push(piece, &mut take));
    }
    calls.end(&mut take);
    found.into_iter().map(|(id, name, arguments)| format!("{id} {name} {arguments}")).collect()
}

#[test]
fn pieces_of_calls_may_be_interleaved() {
    let found = read(vec![
        piece(Some(0), "a", "read", ""),
        piece(Some(1), "b", "grep", "{\"p"),
        piece(Some(0), "", "", "{\"x\":"),
        piece(Some(1), "", "", "\":1}"),
        piece(Some(0), "", "", "2}"),
    ]);
    assert_eq!(found, ["a read {\"x\":2}", "b grep {\"p\":1}"]);
}

#[test]
fn a_place_that_is_used_twice_is_told_apart_by_the_label() {
    let found = read(vec![piece(Some(0), "a", "read", "{}"), piece(Some(0), "b", "read", "{\"x\":1}")]);
    assert_eq!(found, ["a read {}", "b read {\"x\":1}"]);
    // The same label again is the same call, also where label and name are repeated with every piece.
    let found = read(vec![piece(Some(0), "a", "read", "{\"x\""), piece(Some(0), "a", "read", ":1}")]);
    assert_eq!(found, ["a read {\"x\":1}"]);
}

#[test]
fn calls_with_one_label_stay_two() {
    let found = read(vec![piece(Some(0), "a", "read", "{}"), piece(Some(1), "a", "grep", "{}")]);
    assert_eq!(found, ["a read {}", "a grep {}"]);
}

#[test]
fn without_places_the_label_or_the_name_begins_a_call() {
    let found = read(vec![
        piece(None, "a", "read", "{\"x\""),
        piece(None, "a", "", ":1}"),
        piece(None, "b", "read", "{}"),
        piece(None, "", "grep", "{\"y"),
        piece(None, "", "", "\":2}"),
    ]);
    assert_eq!(found, ["a read {\"x\":1}", "b read {}", " grep {\"y\":2}"]);
}

#[test]
fn arguments_that_repeat_what_came_before_are_told_from_pieces_at_the_end() {
    let whole = read(vec![
        piece(Some(0), "a", "read", "{"),
        piece(Some(0), "", "", "{\"x\":"),
        piece(Some(0), "", "", "{\"x\":{}}"),
        piece(Some(0), "", "", "{\"x\":{}}"),
    ]);
    assert_eq!(whole, ["a read {\"x\":{}}"]);
    let pieces = read(vec![
        piece(Some(0), "a", "read", "{\"x\":"),
        piece(Some(0), "", "", "{\"x\":"),
        piece(Some(0), "", "", "1}}"),
    ]);
    assert_eq!(pieces, ["a read {\"x\":{\"x\":1}}"]);
}

#[test]
fn arguments_that_are_no_text_go_on_as_they_came() {
    let value = |arguments| Piece { arguments, ..piece(Some(0), "a", "read", "") };
    let object = Loose::Other(serde_json::json!({"x": 1}));
    assert_eq!(read(vec![value(object.clone())]), ["a read {\"x\":1}"]);
    assert_eq!(read(vec![value(object.clone()), value(object)]), ["a read {\"x\":1}"]);
    assert_eq!(read(vec![value(Loose::Other(serde_json::json!([1])))]), ["a read [1]"]);
    assert_eq!(read(vec![value(Loose::Nothing)]), ["a read "]);
    assert_eq!(read(vec![value(Loose::Text("".into()))]), ["a read "]);
}

#[test]
fn a_place_of_four_milliards_is_a_call_and_not_so_many() {
    assert_eq!(read(vec![piece(Some(u64::MAX), "a", "read", "{}")]), ["a read {}"]);
    let mut calls = Calls::default();
    let refused = (0..2000).find(|at| !calls.push(piece(Some(*at), "", "read", ""), |_| {}));
    assert_eq!(refused, Some(1024));
}
