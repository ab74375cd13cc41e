//! Any bytes as the body of a provider's answer: no panic, at most one end, and the same events however they are split.
//! The first byte says how large the pieces are. `tests/it/captures` makes a good corpus.
#![no_main]

use anabranch::model::ChatEvent;
use anabranch::model::provider::ChatCompletions;
use libfuzzer_sys::fuzz_target;

fn events(pieces: impl Iterator<Item = Vec<u8>>) -> Vec<String> {
    let mut decoder = ChatCompletions::new();
    for piece in pieces {
        decoder.push(&piece);
    }
    decoder.close(None);
    let mut found = Vec::new();
    let mut ends = 0;
    while let Some(event) = decoder.next_event() {
        assert_eq!(ends, 0, "something after the end");
        ends += usize::from(matches!(event, Err(_) | Ok(ChatEvent::End { .. })));
        found.push(format!("{event:?}"));
    }
    found
}

fuzz_target!(|bytes: &[u8]| {
    let Some((size, body)) = bytes.split_first() else { return };
    let whole = events(std::iter::once(body.to_vec()));
    let split = events(body.chunks(usize::from(*size).max(1)).map(<[u8]>::to_vec));
    assert_eq!(whole, split);
});
