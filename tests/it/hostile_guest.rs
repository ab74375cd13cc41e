//! Whatever comes out of a sandbox, the run that plays it ends with a log that holds.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use anabranch::agent::codeact::{ActionLimits, CodeAct};
use anabranch::agent::sandbox::{
    Ask, Ended, GuestError, GuestErrorKind, GuestEvent, HostReply, Program, Sandbox, Session,
};
use anabranch::message::{MessageBody, Severity};
use anabranch::outcome::CancelledBy;
use proptest::prelude::*;
use serde_json::json;

use crate::stage::Stage;

/// A sandbox in which no program runs: it says what it was told to say, and then nothing more, or that it has ended.
#[derive(Debug)]
struct Says(Mutex<VecDeque<GuestEvent>>);

struct SaysSession(VecDeque<GuestEvent>);

impl Sandbox for Says {
    fn start(&self, _: Program) -> Box<dyn Session> {
        Box::new(SaysSession(self.0.lock().unwrap().clone()))
    }
}

impl Session for SaysSession {
    fn poll_event(&mut self, _: &mut Context<'_>) -> Poll<Option<GuestEvent>> {
        match self.0.pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            // Silent for ever: the host's own time ends it.
            None => Poll::Pending,
        }
    }

    fn reply(&mut self, _: HostReply) {}

    fn poll_closed(&mut self, _: &mut Context<'_>) -> Poll<()> {
        self.0.clear();
        Poll::Ready(())
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("{\"ms\":1}".to_owned()),
        Just("{\"description\":\"c\",\"prompt\":\"c\"}".to_owned()),
        Just("{\"a\":\"\\ud800\"}".to_owned()),
        Just("[[[[".to_owned()),
        ".{0,12}",
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    let names = prop_oneof![
        Just("chaos_sleep".to_owned()),
        Just("chaos_error".to_owned()),
        Just("run_subtask".to_owned()),
        Just("execute_code".to_owned()),
        ".{0,80}",
    ];
    prop_oneof![
        4 => (names, text()).prop_map(|(name, args)| Ask::Tool { name: name.into(), args }),
        1 => (text(), text()).prop_map(|(query, limit)| Ask::SearchTools { query, limit }),
        1 => text().prop_map(|value| Ask::Finish { value }),
        1 => prop_oneof![0..5_u64, Just(u64::MAX)].prop_map(|ms| Ask::Sleep { ms }),
        1 => (text(), text()).prop_map(|(prompt, options)| Ask::Agent { prompt, options }),
        1 => Just(Ask::Usage),
    ]
}

fn event() -> impl Strategy<Value = GuestEvent> {
    let failed = |text: String| Err(GuestError::new(GuestErrorKind::Threw, text));
    let result = prop_oneof![text().prop_map(Ok), text().prop_map(failed)];
    prop_oneof![
        6 => (0..4_u32, ask()).prop_map(|(id, ask)| GuestEvent::Ask { id, ask }),
        2 => text().prop_map(|text| GuestEvent::Log { severity: Severity::Info, text }),
        2 => (0..6_u64).prop_map(|answered| GuestEvent::Waiting { answered }),
        1 => (result, 0..3_u64).prop_map(|(result, lines_left_out)| GuestEvent::Ended(Ended { result, lines_left_out })),
    ]
}

fn stage(code: &str) -> Stage {
    let agents = json!([{ "turns": [{ "code": code }, { "text": "done" }] }]);
    Stage::new(agents).produced_by(CodeAct::default())
}

/// On one thread, so that whoever keeps it keeps it from all.
#[tokio::test]
async fn code_that_asks_without_a_pause_holds_nobody_up() {
    for code in [
        "for (;;) await search_tools('x')",
        "for (;;) { try { await tools.nope() } catch {} }",
        "tools.chaos_hang(); for (;;) { try { await tools.nope() } catch {} }",
    ] {
        let limits = ActionLimits { wall: Duration::from_secs(5), ..ActionLimits::default() };
        let stage = stage(code).produced_by(CodeAct::default().with_limits(limits));
        let played = stage
            .play_with(|root, message| {
                let hit = matches!(message.body(), MessageBody::ToolCallUpdate(_));
                if hit {
                    // By another task, which has to come to its turn, when the code is in its loop.
                    let root = root.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        drop(root.cancel_all(CancelledBy::User));
                    });
                }
                hit
            })
            .await;
        assert_eq!(played.end_of("root"), "cancelled by user", "{code}");
    }
    // And a call that is under way goes on, whatever the code does meanwhile.
    let code = "let slept = false; tools.chaos_sleep({ ms: 30 }).then(() => slept = true);
        while (!slept) { try { await tools.nope() } catch {} } return 'slept'";
    let played = stage(code).play().await;
    assert!(played.timeline().contains("\"result\":\"slept\""), "{}", played.timeline());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_guest_says_the_log_holds(events in prop::collection::vec(event(), 0..24)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let limits = ActionLimits { wall: Duration::from_secs(60), max_calls: 8, ..ActionLimits::default() };
        let sandbox = Arc::new(Says(Mutex::new(events.into())));
        let stage = Stage::new(json!([
            { "when": { "depth": 0 }, "turns": [{ "code": "it does not matter" }, { "text": "done" }] },
            { "turns": [{ "text": "a child" }] },
        ]));
        // `play` holds the log against the invariants.
        let played = runtime.block_on(stage.produced_by(CodeAct::new(sandbox).with_limits(limits)).play());
        prop_assert!(played.outcome.is_ok(), "{:?}", played.outcome);
    }

    #[test]
    fn what_crosses_is_read_as_it_was_written(event in event()) {
        let line = serde_json::to_string(&event).unwrap();
        prop_assert!(!line.contains('\n'));
        prop_assert_eq!(serde_json::from_str::<GuestEvent>(&line).unwrap(), event);
    }

    #[test]
    fn no_line_is_too_strange(line in prop_oneof![".{0,60}", "\\{\"(ask|log|ended|waiting)\":.{0,40}"]) {
        let _ = serde_json::from_str::<GuestEvent>(&line);
        let _ = serde_json::from_str::<HostReply>(&line);
        let _ = serde_json::from_str::<Program>(&line);
    }
}
