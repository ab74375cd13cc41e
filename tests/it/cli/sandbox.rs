//! Code in processes of their own: the same as in this one, and a crash harms nobody.

use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anabranch::agent::codeact::{ActionLimits, CodeAct};
use anabranch::agent::sandbox::{
    ChildProcess, GuestEvent, GuestLimits, HostReply, InProcess, Program, Sandbox,
};
use anabranch::message::MessageBody;
use serde_json::{Value, json};

use crate::stage::{Played, Stage, results};

const PROGRAM: &str = env!("CARGO_BIN_EXE_anabranch");

fn stage(sandbox: impl Sandbox, codes: &[&str]) -> Stage {
    let turns = codes.iter().map(|code| json!({ "code": code }));
    let turns: Vec<Value> = turns.chain([json!({ "text": "done" })]).collect();
    let limits = ActionLimits {
        wall: Duration::from_secs(2),
        guest: GuestLimits { heap_bytes: 32 << 20, ..GuestLimits::default() },
        ..ActionLimits::default()
    };
    let agents = json!([
        { "when": { "depth": 0 }, "turns": turns },
        { "turns": [{ "text": "the child's answer" }] },
    ]);
    Stage::new(agents).produced_by(CodeAct::new(Arc::new(sandbox)).with_limits(limits))
}

fn observations(played: &Played) -> Vec<Value> {
    results(played.model.requests().last().unwrap())
        .iter()
        .map(|text| serde_json::from_str(text).unwrap())
        .collect()
}

/// Processes that run code for this one, by their places in `/proc`.
fn processes() -> Vec<std::path::PathBuf> {
    let me = std::process::id().to_string();
    let is_child = |place: &std::path::PathBuf| {
        let status = std::fs::read_to_string(place.join("status")).unwrap_or_default();
        let command = std::fs::read(place.join("cmdline")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).map(str::trim);
        parent == Some(&me) && command.ends_with(b"\0sandbox\0")
    };
    std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()).filter(is_child).collect()
}

/// A process belongs to its session, not to the thread that happened to begin it, and has its limits and no environment.
async fn outlives_the_thread_that_began_it() {
    let runtime = tokio::runtime::Handle::current();
    let begin = move || {
        let _entered = runtime.enter();
        ChildProcess::new(PROGRAM, ["sandbox"])
            .start(Program::action("return await tools.read()", vec!["read".into()]))
    };
    let mut session = std::thread::spawn(begin).join().unwrap();
    while let Some(event) = poll_fn(|cx| session.poll_event(cx)).await {
        match event {
            GuestEvent::Ask { id, .. } => {
                let process = processes().pop().unwrap();
                let limits = std::fs::read_to_string(process.join("limits")).unwrap();
                let limit = |name: &str| {
                    let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
                    line[name.len()..].split_whitespace().next().unwrap().to_owned()
                };
                assert_eq!(limit("Max open files"), "16");
                assert_eq!(limit("Max core file size"), "0");
                assert_eq!(limit("Max file size"), "0");
                assert_eq!(limit("Max cpu time"), "602");
                assert_eq!(limit("Max data size"), ((64_u64 + 128) << 20).to_string());
                assert_eq!(std::fs::read(process.join("environ")).unwrap(), b"");
                session.reply(HostReply { id, outcome: Ok("7".into()) });
            }
            GuestEvent::Ended(ended) => assert_eq!(ended.result, Ok("7".into())),
            GuestEvent::Log { .. } | GuestEvent::Waiting { .. } => {}
        }
    }
    poll_fn(|cx| session.poll_closed(cx)).await;
    drop(session);
}

/// One test, since it counts the processes of the whole test binary.
#[tokio::test]
async fn code_in_a_process_of_its_own_is_code() {
    let process = || ChildProcess::new(PROGRAM, ["sandbox"]);
    let codes = [
        "return 1 + 1",
        "console.log('a'); return await Promise.all(['x', 'y'].map(name => tools.run_subtask({ description: name, prompt: name })))",
        "try { await tools.chaos_error({ message: 'no' }) } catch (error) { return [error.code, error.data] }",
        "const a = 1;\nboom()",
        "const tools = 1",
        "await new Promise(() => {})",
        "return 'ä😀\\n'",
        "const all = []; for (;;) all.push(new Array(1000).fill(all.length))",
        "tools.chaos_hang(); return 3",
        "for (let i = 0; i < 3000; i++) console.log(i)",
    ];
    let apart = stage(process(), &codes).play().await;
    let here = stage(InProcess, &codes).play().await;
    assert_eq!(observations(&apart), observations(&here));
    // A runaway and a native call that heeds nobody are killed.
    let played = stage(process(), &["while (true) {}", "return new Array(3e8) + ''"]).play().await;
    for seen in observations(&played) {
        assert_eq!(seen["ok"], json!(false), "{seen}");
    }
    // What is no sandbox.
    for (program, args, text) in [
        ("/no/such/program", vec![], "does not start"),
        ("/bin/cat", vec![], "said what is no event"),
        ("/bin/false", vec![], "crashed (exit status: 1)"),
        ("/bin/sh", vec!["-c", "read line; kill -SEGV $$"], "crashed (signal: 11"),
        ("/bin/sh", vec!["-c", "read line; head -c 20000000 /dev/zero"], "cannot be heard"),
    ] {
        if !Path::new("/bin/sh").exists() {
            continue;
        }
        let played = stage(ChildProcess::new(program, args), &["return 1"]).play().await;
        let error = observations(&played)[0]["error"].as_str().unwrap().to_owned();
        assert!(error.contains(text), "{program}: {error}");
    }
    // One that says more than a program may.
    if Path::new("/bin/sh").exists() {
        let flood = "read line; yes '{\"log\":{\"severity\":\"info\",\"text\":\"x\"}}' | head -n 5000;
            echo '{\"ended\":{\"result\":{\"Ok\":\"7\"},\"lines_left_out\":1}}'";
        let played = stage(ChildProcess::new("/bin/sh", ["-c", flood]), &["return 1"]).play().await;
        let seen = &observations(&played)[0];
        assert_eq!(seen["result"], json!(7), "{seen}");
        assert_eq!(seen["logs"].as_array().unwrap().last(), Some(&json!("(4001 more lines are left out)")));
        let said = |body: &MessageBody| matches!(body, MessageBody::LogUpdate(_));
        assert_eq!(played.log.iter().filter(|message| said(message.body())).count(), 1_000);
    }
    outlives_the_thread_that_began_it().await;
    // After a cancel no process is left.
    let stage = stage(process(), &["await tools.chaos_sleep({ ms: 0 }); while (true) {}"]);
    let played = stage.cancel_when(|body| matches!(body, MessageBody::ToolResultUpdate(_))).await;
    assert_eq!(played.end_of("root"), "cancelled by user");
    assert_eq!(processes(), [""; 0].map(std::path::PathBuf::from));
}

#[test]
fn the_program_takes_the_sandbox_as_a_flag() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script.json");
    let agents =
        json!({ "anabranch_script": 1, "agents": [{ "turns": [{ "code": "await finish(6 * 7)" }] }] });
    std::fs::write(&script, agents.to_string()).unwrap();
    for kind in ["in-process", "process"] {
        let output = std::process::Command::new(PROGRAM)
            .args(["run", "--sandbox", kind, "--output", "text", "--model"])
            .arg(format!("script:{}", script.display()))
            .arg("what is it?")
            .current_dir(directory.path())
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "42\n",
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
