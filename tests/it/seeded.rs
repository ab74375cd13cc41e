//! A seed makes a tree's log the same each time, also where several programs run at once on threads of their own.

use std::time::Duration;

use anabranch::agent::codeact::CodeAct;
use anabranch::message::{MessageBody, ProcessingMessage};
use anabranch::outcome::OutcomeKind;
use anabranch::tool::Toolset;
use anabranch::tool::workspace::Workspace;
use serde_json::{Value, json};

use crate::stage::{Played, Stage, all_tools};

/// What a model of three levels plays: eight children of one action, two children of an action of each of them, and on each level
/// several other calls at the same time.
pub fn nested() -> Value {
    let root = "return await Promise.all([...'abcdefgh'].map(name => tools.run_subtask({ description: name, prompt: name })))";
    let middle = "console.log('begins');
        const read = tools.read_file({ path: 'notes.txt' });
        const both = [1, 2].map(n => tools.run_subtask({ description: 'leaf ' + n, prompt: 'leaf' }));
        const echoes = [1, 2, 3].map(async n => { await tools.grep({ pattern: 'line ' + n }); console.log(n); return n });
        return (await Promise.all([read, ...both, ...echoes])).length";
    let leaf = "let sum = 0;
        for (let n = 0; n < 20000; n++) sum += n;
        const found = await Promise.all(['*.txt', '*.md'].map(pattern => tools.glob({ pattern })));
        try { await tools.read_file({ path: 'none' }) } catch (error) { console.log(error.code) }
        await tools.list_directory({});
        return [sum, found.length]";
    let acts = |depth: u32, code: &str| json!({ "when": { "depth": depth }, "turns": [{ "code": code }, { "text": "done" }] });
    json!([acts(0, root), acts(1, middle), acts(2, leaf)])
}

/// A workspace of two files, and the tools that read it.
fn reading() -> (tempfile::TempDir, Toolset) {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("notes.txt"), "line 1\nline 2\nline 3\n").unwrap();
    std::fs::write(place.path().join("more.md"), "line 1\n").unwrap();
    let tools = Workspace::open(place.path()).unwrap().add_to(&all_tools()).unwrap();
    (place, tools)
}

async fn play(agents: Value) -> Played {
    let (_place, tools) = reading();
    Stage::new(agents).produced_by(CodeAct::default()).tools(tools).play().await
}

/// The log, one message a line.
fn lines(log: &[ProcessingMessage]) -> Vec<String> {
    log.iter().map(|message| serde_json::to_string(message).unwrap()).collect()
}

/// The same without what a clock says that goes on.
pub fn timeless(lines: &[String]) -> Vec<String> {
    let mask = regex::Regex::new(r#""(time|duration_ms)":("[^"]*"|\d+)"#).unwrap();
    lines.iter().map(|line| mask.replace_all(line, r#""$1":0"#).into_owned()).collect()
}

#[track_caller]
pub fn assert_same(one: &[String], other: &[String], round: u32) {
    let differs = one.iter().zip(other).position(|(one, other)| one != other);
    assert_eq!(
        differs,
        None,
        "round {round}:\n{}\n{}",
        one[differs.unwrap_or(0)],
        other[differs.unwrap_or(0)]
    );
    assert_eq!(one.len(), other.len(), "round {round}");
}

const ROUNDS: u32 = 30;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ax15_with_a_seed_programs_that_run_at_once_give_one_log() {
    let first = timeless(&lines(&play(nested()).await.log));
    assert!(first.len() > 500, "{}", first.len());
    for round in 1..ROUNDS {
        assert_same(&first, &timeless(&lines(&play(nested()).await.log)), round);
    }
}

#[test]
fn ax15_with_a_paused_clock_it_is_the_same_to_the_byte() {
    let once = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        lines(&runtime.block_on(play(nested())).log)
    };
    let first = once();
    for round in 1..ROUNDS {
        assert_same(&first, &once(), round);
    }
}

/// A child of one action for each letter, which all do this.
pub fn children(letters: &str, code: &str) -> Value {
    let root = "return await Promise.all([...'LETTERS'].map(name => tools.run_subtask({ description: name, prompt: name })))";
    json!([
        { "when": { "depth": 0 }, "turns": [{ "code": root.replace("LETTERS", letters) }, { "text": "done" }] },
        { "turns": [{ "code": code }, { "text": "computed" }] },
    ])
}

#[tokio::test]
async fn programs_that_compute_for_longer_than_they_are_waited_for_end_like_others() {
    let code = "const until = Date.now() + 1200; while (Date.now() < until); await tools.chaos_sleep({ ms: 1 }); return 1";
    let played = play(children("abcd", code)).await;
    assert_eq!(played.end().outcome, OutcomeKind::Completed);
    assert_eq!(played.timeline().matches("\"result\":1").count(), 4, "{}", played.timeline());
}

#[tokio::test]
async fn a_cancel_reaches_programs_that_are_waited_for() {
    let (_place, tools) = reading();
    let stage =
        Stage::new(children("abcdefgh", "while (true);")).produced_by(CodeAct::default()).tools(tools);
    let is_last = |body: &MessageBody| matches!(body, MessageBody::RunStarted(run) if &*run.title == "h");
    let played = tokio::time::timeout(Duration::from_secs(60), stage.cancel_when(is_last)).await.unwrap();
    assert_eq!(played.end().outcome, OutcomeKind::Cancelled, "{}", played.timeline());
}

#[tokio::test]
async fn what_is_under_way_has_its_turn_beside_a_program_that_never_waits() {
    // Calls that are refused as fast as they are made, until the one that takes longer has been answered.
    let code =
        "let has = false; tools.run_subtask({ description: 'x', prompt: 'x' }).then(() => { has = true });
        let n = 0; while (!has) { n++; try { await search_tools() } catch {} } return n";
    let agents = json!([
        { "when": { "depth": 0 }, "turns": [{ "code": code }, { "text": "done" }] },
        { "turns": [{ "text": "found" }] },
    ]);
    let (played, again) = (play(agents.clone()).await, play(agents).await);
    assert_same(&timeless(&lines(&played.log)), &timeless(&lines(&again.log)), 1);
    assert!(played.timeline().contains("\"ok\":true"), "{}", played.timeline());
}
