use anabranch::model::provider::ChatCompletions;
use proptest::prelude::*;

/// Bytes that are sometimes a piece of a stream.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "data: ",
        "event: error\n",
        "\n\n",
        "\r\n\r\n",
        "\r",
        ": c\n",
        "[DONE]",
        "{\"choices\":[{\"index\":0,\"delta\":",
        "{\"content\":\"x\"}",
        "{\"tool_calls\":[{\"index\":4294967295,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}",
        "{\"tool_calls\":[{\"function\":{\"arguments\":{\"a\":1}}}]}",
        ",\"finish_reason\":\"stop\"}]}",
        "}]}",
        "\"usage\":{\"prompt_tokens\":1e99}",
        "{\"error\":{\"message\":\"no\",\"code\":\"429\"}}",
        "null",
        "\u{1f980}",
        "{",
        "<html>",
    ]);
    prop_oneof![3 => words.prop_map(|word| word.as_bytes().to_vec()), 1 => prop::collection::vec(any::<u8>(), 0..20)]
}

/// What comes of the pieces: texts and the number of the other events, in order.
fn read(pieces: &[Vec<u8>]) -> Vec<String> {
    let mut decoder = ChatCompletions::new();
    let mut found = Vec::new();
    let mut take = |decoder: &mut ChatCompletions| {
        while let Some(event) = decoder.next_event() {
            found.push(format!("{event:?}"));
        }
    };
    for piece in pieces {
        decoder.push(piece);
        take(&mut decoder);
    }
    decoder.close(None);
    take(&mut decoder);
    assert!(decoder.is_over());
    found
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_to_deltas_and_at_most_one_end(pieces in prop::collection::vec(piece(), 0..40)) {
        let found = read(&pieces);
        let ends = found.iter().filter(|event| event.starts_with("Err") || event.contains("End {")).count();
        prop_assert!(ends <= 1, "{found:?}");
        prop_assert!(ends == 0 || !found.last().is_some_and(|last| last.starts_with("Ok(Text")), "{found:?}");
        // Any other split means the same.
        prop_assert_eq!(&read(&[pieces.concat()]), &found);
        let bytes: Vec<Vec<u8>> = pieces.concat().into_iter().map(|byte| vec![byte]).collect();
        prop_assert_eq!(&read(&bytes), &found);
    }
}
