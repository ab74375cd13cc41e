use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::mock::{Answer, Mock, ask, hello};

/// Everything that anybody logs on this thread, at any level.
#[derive(Clone, Default)]
struct Everything(Arc<Mutex<String>>);

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = writeln!(self.0, "{field}={value:?}");
    }
}

impl Subscriber for Everything {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut Fields(&mut self.0.lock().unwrap()));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Fields(&mut self.0.lock().unwrap()));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Fields(&mut self.0.lock().unwrap()));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn a_key_is_in_no_log_at_any_level() {
    let log = Everything::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let quoted = "{\"error\":{\"message\":\"sk-very-secret is no key\"}}";
    for name in ["openai:m", "anthropic:m", "gemini:m", "ollama:m", "openai_resp:m"] {
        for answer in [
            Answer::with("401 Unauthorized", "", quoted),
            Answer::sse(format!("data: {quoted}\n\n")),
            Answer::sse(format!("event: error\ndata: {quoted}\n\n")),
            Answer::sse("data: sk-very-secret\n\n"),
        ] {
            let mock = Mock::new(vec![answer]).await;
            let told = ask(&mock.builder(name).api_key("sk-very-secret").build().unwrap(), hello()).await;
            assert!(told.end.contains(": ") && !told.end.contains("very-secret"), "{name}: {}", told.end);
        }
    }
    let log = log.0.lock().unwrap();
    assert!(!log.is_empty(), "nothing was logged: the test sees nothing");
    assert!(
        !log.contains("very-secret"),
        "{}",
        log.lines().find(|line| line.contains("very-secret")).unwrap()
    );
}
