//! Any lines as what comes out of a sandbox: those that are events are played by a run of CodeAct, whose log holds afterwards.
//!
//! Run it with `cargo +nightly fuzz run sandbox_json`.

#![no_main]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use anabranch::Agent;
use anabranch::agent::RunSubtask;
use anabranch::agent::codeact::{ActionLimits, CodeAct};
use anabranch::agent::sandbox::{GuestEvent, HostReply, Program, Sandbox, Session};
use anabranch::model::{Script, ScriptModel};
use anabranch::testing::TestRoot;
use anabranch::tool::{Toolset, chaos};
use libfuzzer_sys::fuzz_target;

/// A sandbox in which no program runs: it says these events, and then nothing more.
#[derive(Debug)]
struct Says(Mutex<VecDeque<GuestEvent>>);

struct SaysSession(VecDeque<GuestEvent>);

impl Sandbox for Says {
    fn start(&self, _: Program) -> Box<dyn Session> {
        Box::new(SaysSession(std::mem::take(&mut *self.0.lock().expect("nobody panicked"))))
    }
}

impl Session for SaysSession {
    fn poll_event(&mut self, _: &mut Context<'_>) -> Poll<Option<GuestEvent>> {
        self.0.pop_front().map_or(Poll::Pending, |event| Poll::Ready(Some(event)))
    }

    fn reply(&mut self, _: HostReply) {}

    fn poll_closed(&mut self, _: &mut Context<'_>) -> Poll<()> {
        self.0.clear();
        Poll::Ready(())
    }
}

const MODEL: &str = r#"{ "anabranch_script": 1, "agents": [
    { "when": { "depth": 0 }, "turns": [ { "code": "it does not matter" }, { "text": "done" } ] },
    { "turns": [ { "text": "a child" } ] } ] }"#;

fuzz_target!(|bytes: &[u8]| {
    let lines = bytes.split(|byte| *byte == b'\n').take(64);
    let events: VecDeque<GuestEvent> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    if events.is_empty() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("there is room for a runtime").block_on(async {
        let limits = ActionLimits { wall: Duration::from_secs(60), max_calls: 8, ..ActionLimits::default() };
        let producer = CodeAct::new(Arc::new(Says(Mutex::new(events)))).with_limits(limits);
        let model = ScriptModel::new(Script::parse(MODEL, "the target").expect("it is a script"));
        let tools = chaos::add_to(&Toolset::new()).expect("the fault tools have names of their own");
        let tools = tools.without(&["chaos_panic", "chaos_busy"]).with_sub_agent(RunSubtask::default());
        let agent = Agent::with_producer(Arc::new(model), Arc::new(producer)).tools(tools.expect("a name of its own"));
        let test = TestRoot::new();
        agent.run(test.root(), "work").settle().await;
        let violations = test.violations();
        assert!(violations.is_empty(), "{violations:?}");
    });
});
