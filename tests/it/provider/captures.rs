use std::fs;
use std::path::{Path, PathBuf};

use anabranch::model::provider::ChatCompletions;

use super::mock::{Answer, Mock, Told, ask, hello};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/captures")
}

/// The recorded streams with their names, of which `wanted` is true.
fn captures(wanted: impl Fn(&str) -> bool) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<(String, Vec<u8>)> = fs::read_dir(folder())
        .unwrap()
        .filter_map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem()?.to_str()?.to_owned();
            (path.extension()? == "sse" && wanted(&name)).then(|| (name, fs::read(&path).unwrap()))
        })
        .collect();
    found.sort();
    found
}

/// Streams of the protocol that is read in this crate.
fn is_chat(name: &str) -> bool {
    name.starts_with("openai-")
}

/// The provider that speaks the protocol of a stream; none does for the rest.
fn provider(name: &str) -> &'static str {
    match name {
        name if name.starts_with("anthropic-") => "anthropic:m",
        name if name.starts_with("responses-") => "openai_resp:m",
        _ => "openai:m",
    }
}

/// The places just behind each event.
fn ends_of_events(body: &[u8]) -> Vec<usize> {
    (2..=body.len()).filter(|at| body[..*at].ends_with(b"\n\n")).collect()
}

fn drain(decoder: &mut ChatCompletions, told: &mut Told) {
    while let Some(event) = decoder.next_event() {
        told.take(event);
    }
}

fn decode(body: &[u8]) -> Told {
    let mut told = Told::default();
    let mut decoder = ChatCompletions::new();
    decoder.push(body);
    decoder.close(None);
    drain(&mut decoder, &mut told);
    told
}

#[tokio::test]
async fn every_recorded_stream_means_what_is_written_down() {
    let mut lines = Vec::new();
    for (name, body) in captures(|_| true) {
        let mock = Mock::new(vec![Answer::sse(&body)]).await;
        let told = ask(&mock.model(provider(&name)), hello()).await;
        if is_chat(&name) {
            assert_eq!(decode(&body).line(), told.line(), "{name}: the transport changes nothing");
        }
        lines.push(format!("{name}: {}", told.line()));
    }
    assert_eq!(lines.len(), 47);
    let found = lines.join("\n") + "\n";
    let expected = fs::read_to_string(folder().join("expected.txt")).unwrap_or_default();
    assert!(found == expected, "tests/it/captures/expected.txt is not:\n{found}");
}

/// What is left of an answer that was cut is a beginning of it, and never looks whole.
fn assert_honest(name: &str, cut: &Told, whole: &Told) {
    assert!(whole.text.starts_with(&cut.text), "{name}: {}", cut.line());
    let is_whole = cut.text == whole.text && cut.calls == whole.calls && cut.end == whole.end;
    let is_cut = cut.end.is_empty() || cut.end == "missing" || cut.end.contains(": ");
    assert!(is_cut || is_whole, "{name}: {} is not {}", cut.line(), whole.line());
    for (cut, whole) in cut.calls.iter().zip(&whole.calls) {
        assert!(
            cut.0 == whole.0 && cut.1 == whole.1 && whole.2.starts_with(&cut.2),
            "{name}: {cut:?} {whole:?}"
        );
    }
}

#[test]
fn a_chat_completion_that_is_cut_anywhere_is_cut_or_failed_and_never_short() {
    for (name, body) in captures(is_chat) {
        let whole = decode(&body);
        for at in ends_of_events(&body) {
            assert_honest(&name, &decode(&body[..at]), &whole);
        }
        // And within the events.
        for at in (0..body.len()).step_by(97) {
            assert_honest(&name, &decode(&body[..at]), &whole);
        }
    }
}

/// Of each event, every split: before it the decoder is the same as that of the unsplit stream, and behind it again, by its
/// whole state. So the stream means the same wherever it is split.
#[test]
fn a_chat_completion_means_the_same_split_at_every_byte() {
    for (name, body) in captures(is_chat) {
        let mut decoder = ChatCompletions::new();
        let mut told = Told::default();
        let mut start = 0;
        for end in ends_of_events(&body) {
            let event = &body[start..end];
            let mut whole = decoder.clone();
            whole.push(event);
            let expected = format!("{whole:?}");
            for at in 0..event.len() {
                let mut split = decoder.clone();
                split.push(&event[..at]);
                split.push(&event[at..]);
                assert!(format!("{split:?}") == expected, "{name}: split at {}", start + at);
            }
            decoder = whole;
            drain(&mut decoder, &mut told);
            start = end;
        }
        let mut told = Told::default();
        let mut decoder = ChatCompletions::new();
        body.chunks(1).for_each(|byte| decoder.push(byte));
        decoder.close(None);
        drain(&mut decoder, &mut told);
        assert_eq!(told.line(), decode(&body).line(), "{name}: byte by byte");
    }
}

#[tokio::test]
async fn the_other_protocols_are_as_honest() {
    for (name, body) in captures(|name| provider(name) != "openai:m") {
        let whole_mock = Mock::new(vec![Answer::sse(&body)]).await;
        let whole = ask(&whole_mock.model(provider(&name)), hello()).await;
        let split = Mock::new(vec![Answer::sse(&body).split(1)]).await;
        let told = ask(&split.model(provider(&name)), hello()).await;
        assert_eq!(told.line(), whole.line(), "{name}: byte by byte");
        for at in ends_of_events(&body) {
            for answer in [Answer::sse(&body[..at]), Answer::sse(&body[..at]).breaks()] {
                let mock = Mock::new(vec![answer]).await;
                let cut = ask(&mock.model(provider(&name)), hello()).await;
                assert_honest(&name, &cut, &whole);
            }
        }
    }
}

#[tokio::test]
async fn a_stream_of_another_protocol_is_told_apart() {
    for (name, body) in captures(|name| !is_chat(name)) {
        let told = decode(&body);
        assert!(told.end.starts_with("protocol: "), "{name}: {}", told.line());
        let mock = Mock::new(vec![Answer::sse(&body)]).await;
        for other in ["anthropic:m", "gemini:m", "ollama:m", "openai_resp:m"] {
            if other != provider(&name) {
                let told = ask(&mock.model(other), hello()).await;
                assert!(told.end.contains(": "), "{name} as {other}: {}", told.line());
            }
        }
    }
}
