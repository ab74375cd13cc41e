//! The engine through its port: what a program sees, what it gives back, and how it is ended.

use std::future::poll_fn;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::agent::sandbox::encode::read_json;
use crate::agent::sandbox::{Ask, HostError, Surface};

/// A program that runs, with a host that the test plays.
struct Bench {
    session: Box<dyn Session>,
    logs: Vec<String>,
}

impl Bench {
    fn new(code: &str) -> Self {
        Self::of(Program::action(code, vec!["read".into(), "fail".into()]))
    }

    fn of(program: Program) -> Self {
        Self { session: InProcess.start(program), logs: Vec::new() }
    }

    async fn next(&mut self) -> Option<GuestEvent> {
        tokio::time::timeout(Duration::from_secs(120), poll_fn(|cx| self.session.poll_event(cx)))
            .await
            .unwrap()
    }

    /// Answers until it has ended: `tools.read` gives back its arguments, `tools.fail` fails.
    async fn end(&mut self) -> Result<Value, GuestError> {
        loop {
            match self.next().await.unwrap() {
                GuestEvent::Ask { id, ask } => {
                    let outcome = match ask {
                        Ask::Tool { name, args } if &*name == "read" => {
                            Ok(if args.is_empty() { "null".into() } else { args })
                        }
                        Ask::Tool { name, .. } if &*name == "fail" => Err(HostError {
                            message: "it broke".into(),
                            code: Some("broken".into()),
                            data: Some(r#"{"error":"broken","depth":2}"#.into()),
                        }),
                        other => Ok(json!(format!("{other:?}")).to_string()),
                    };
                    self.session.reply(HostReply { id, outcome });
                }
                GuestEvent::Log { text, .. } => self.logs.push(text),
                GuestEvent::Waiting { .. } => {}
                GuestEvent::Ended(ended) => {
                    assert_eq!(self.next().await, None);
                    return ended.result.map(|text| read_json(&text).unwrap());
                }
            }
        }
    }
}

async fn result(code: &str) -> Result<Value, GuestError> {
    Bench::new(code).end().await
}

async fn error(code: &str) -> GuestError {
    result(code).await.unwrap_err()
}

/// The answer to an ask of the number `id`, which is that number.
fn numbered(id: u32) -> HostReply {
    HostReply { id, outcome: Ok(id.to_string()) }
}

#[tokio::test]
async fn with_what_is_answered_ahead_a_program_goes_on_when_all_that_it_asked_for_was_heard() {
    // Each answer is told twice, by code that goes on at different times: so it shows which of them came at once.
    let mut bench = Bench::new(
        "await Promise.all([0, 1, 2].map(async n => { log(await tools.read(n)); await null; log(n) })); await sleep(1)",
    );
    let mut lines = Vec::new();
    loop {
        match bench.next().await.unwrap() {
            GuestEvent::Ask { id, ask: Ask::Tool { .. } } => {
                let mut replies = vec![numbered(id)];
                bench.session.reply_ahead(&mut replies, id + 1);
                assert!(replies.is_empty());
            }
            GuestEvent::Log { text, .. } => lines.push(text),
            GuestEvent::Ask { .. } => {}
            GuestEvent::Waiting { answered: 3 } => break,
            GuestEvent::Waiting { answered } => assert_eq!(answered, 0),
            GuestEvent::Ended(ended) => panic!("{ended:?}"),
        }
    }
    assert_eq!(lines, ["0", "1", "2", "0", "1", "2"]);
}

#[tokio::test]
async fn an_ask_that_is_heard_and_not_answered_holds_nothing_up() {
    let mut bench = Bench::new("const [a, b] = [tools.read(0), tools.read(1)]; log(await a); log(await b)");
    for id in 0..2 {
        assert!(matches!(bench.next().await, Some(GuestEvent::Ask { id: heard, .. }) if heard == id));
        if id == 0 {
            bench.session.reply_ahead(&mut vec![numbered(id)], 1);
        }
    }
    assert_eq!(bench.next().await, Some(GuestEvent::Waiting { answered: 0 }));
    // The second ask was heard too: now the program has nothing to wait for but its answer.
    bench.session.reply_ahead(&mut Vec::new(), 2);
    assert!(matches!(bench.next().await, Some(GuestEvent::Log { text, .. }) if text == "0"));
    assert_eq!(bench.next().await, Some(GuestEvent::Waiting { answered: 1 }));
    bench.session.reply(numbered(1));
    assert!(matches!(bench.next().await, Some(GuestEvent::Log { text, .. }) if text == "1"));
    assert!(matches!(bench.next().await, Some(GuestEvent::Ended(ended)) if ended.result.is_ok()));
}

#[tokio::test]
async fn values_come_back_as_json() {
    for (code, expected) in [
        ("return 1+1", json!(2)),
        ("", json!(null)),
        ("return 'ä😀'", json!("ä😀")),
        (
            "return { a: [1, null, undefined], f: () => 1, b: 10n }",
            json!({"a": [1, null, null], "f": "[function f]", "b": "10n"}),
        ),
        ("return new Map([['k', new Set([1])]])", json!({"k": [1]})),
        ("return new Error('x')", json!({"name": "Error", "message": "x"})),
        ("return '\\ud800'", json!("\u{FFFD}")),
        ("return await tools.read({ a: 1 })", json!({"a": 1})),
        ("return (await tools.nope()).slice(0, 12)", json!("Tool { name:")),
        ("return typeof tools.then", json!("undefined")),
        ("return Object.keys(tools)", json!(["read", "fail"])),
        (
            "return [typeof eval, typeof Function, typeof setTimeout, typeof fetch, typeof require]",
            json!(vec!["undefined"; 5]),
        ),
        ("return await Promise.all([1, 2].map(n => tools.read(n)))", json!([1, 2])),
        ("return await parallel([() => tools.read(1), () => tools.fail(), 3])", json!([1, null, 3])),
        (
            "return await pipeline([1, 2], (n, item, i) => n * 10 + i, n => { if (n > 20) throw new Error('big'); return n })",
            json!([10, null]),
        ),
        ("return globalThis['to' + 'ols'] === undefined", json!(true)),
        ("// tools\nreturn await globalThis['to' + 'ols'].read(7)", json!(7)),
    ] {
        assert_eq!(result(code).await, Ok(expected), "{code}");
    }
}

#[tokio::test]
async fn ac61_a_failing_call_throws_with_its_code_and_the_whole_value() {
    let code = "try { await tools.fail() } catch (e) { return [e instanceof Error, e.code, e.message, e.data.depth] }";
    assert_eq!(result(code).await, Ok(json!([true, "broken", "it broke", 2])));
    let error = error("const a = 1;\nasync function go() {\n  await tools.fail();\n}\nawait go();").await;
    assert_eq!((error.kind, error.message.as_str()), (GuestErrorKind::Threw, "it broke"));
    assert!(
        error.stack.starts_with("    at go (action:3:15)\n      your code, line 3:   await tools.fail();\n"),
        "{}",
        error.stack
    );
    assert!(error.stack.contains("at action:5:"), "{}", error.stack);
}

#[tokio::test]
async fn what_does_not_compile_says_where() {
    let error = error("const a = 1;\nconst b = ;\n").await;
    assert_eq!(error.kind, GuestErrorKind::Syntax);
    assert!(error.message.contains("unexpected token"), "{}", error.message);
    assert!(
        error.stack.contains("at action:2:") && error.stack.contains("your code, line 2: const b = ;"),
        "{}",
        error.stack
    );
    for (code, name, line) in [
        ("const tools = 1", "tools", 1),
        ("let x;\nfunction finish() {}", "finish", 2),
        ("\n\nif (1) { var log = 2 }", "log", 3),
        ("class console {}", "console", 1),
        ("const { parallel } = x", "parallel", 1),
    ] {
        let error = super::tests::error(code).await;
        let text =
            format!("the name `{name}` is taken and is declared anew in line {line}: call it something else");
        assert_eq!((error.kind, error.message), (GuestErrorKind::Syntax, text), "{code}");
    }
    // In a function of its own a name is its own.
    assert_eq!(
        result("const f = (log) => { const tools = log; return tools }; return f(3)").await,
        Ok(json!(3))
    );
    assert!(super::tests::error("tools = 3").await.message.contains("read-only"));
    // AC-68: no package is on the allowlist.
    for code in ["import x from 'lodash'", "const x = await import('lodash')"] {
        let error = super::tests::error(code).await;
        let text = "importing \"lodash\" is not possible: the allowlist of packages is empty";
        assert!(error.message.starts_with(text), "{code}: {}", error.message);
    }
    // The word alone is no import, and what is wrong is told.
    let error = super::tests::error("// important: don't\nlet b = ;").await;
    assert!(error.message.starts_with("SyntaxError: unexpected token"), "{}", error.message);
    assert!(super::tests::error("const x = await import('fs')").await.kind == GuestErrorKind::Threw);
}

#[tokio::test]
async fn lines_are_capped_in_number_and_size() {
    let mut bench =
        Bench::new("console.log('a', 1, {b: 2}, new TypeError('x')); console.error('e'); log([1])");
    bench.end().await.unwrap();
    assert_eq!(bench.logs, ["a 1 {\"b\":2} TypeError: x", "e", "[1]"]);
    let mut bench = Bench::new(
        "for (let i = 0; i < 100; i++) console.log('x'.repeat(1 << 20)); for (let i = 0; i < 1e5; i++) log('y')",
    );
    let mut ended = None;
    while let Some(event) = bench.next().await {
        match event {
            GuestEvent::Log { text, .. } => bench.logs.push(text),
            GuestEvent::Ended(end) => ended = Some(end),
            GuestEvent::Ask { .. } | GuestEvent::Waiting { .. } => unreachable!(),
        }
    }
    let kept: usize = bench.logs.iter().map(String::len).sum();
    assert!(kept < 110_000 && bench.logs.len() < 1_000, "{kept} in {}", bench.logs.len());
    assert!(bench.logs[0].contains("[cut: 16384 of "));
    assert_eq!(ended.unwrap().lines_left_out as usize + bench.logs.len(), 100_100);
}

#[tokio::test]
async fn a_rejection_that_nobody_handles_is_told() {
    let mut bench = Bench::new(
        "tools.fail(); const p = tools.fail(); await tools.read(); try { await p } catch {} return 1",
    );
    assert_eq!(bench.end().await, Ok(json!(1)));
    assert_eq!(bench.logs, ["a call that nobody awaited failed: it broke"]);
}

fn within(code: &str, wall: Duration) -> Program {
    let mut program = Program::action(code, vec!["read".into()]);
    program.limits.wall = wall;
    program
}

#[tokio::test]
async fn whatever_a_program_does_it_ends_in_time() {
    for (code, kind) in [
        ("while (true) {}", GuestErrorKind::TimedOut),
        (
            "(function f() { Promise.resolve().then(f) })(); await new Promise(() => {})",
            GuestErrorKind::TimedOut,
        ),
        ("for (;;) { try { for (;;) {} } catch {} }", GuestErrorKind::TimedOut),
        ("for (;;) await null", GuestErrorKind::TimedOut),
        ("await new Promise(() => {})", GuestErrorKind::Stuck),
        ("/(a+)+$/.test('a'.repeat(40) + 'b')", GuestErrorKind::TimedOut),
        ("const a = []; for (;;) a.push('x'.repeat(1 << 16) + a.length)", GuestErrorKind::Memory),
        ("let s = 'x'; for (;;) s += s", GuestErrorKind::Threw),
        ("const f = () => f() + 1; f()", GuestErrorKind::Threw),
        ("[].concat(...Array(1e9))", GuestErrorKind::Memory),
        ("JSON.stringify(Array(1e7).fill({a: 1}))", GuestErrorKind::Memory),
        ("const o = {}; o.o = o; return o", GuestErrorKind::Threw),
        ("throw null", GuestErrorKind::Threw),
        ("throw { a: 1 }", GuestErrorKind::Threw),
        ("return 'x'.repeat(200000)", GuestErrorKind::Threw),
    ] {
        let end = Bench::of(within(code, Duration::from_millis(300))).end().await.unwrap_err();
        // A slow machine may be out of time before the program is out of memory.
        assert!(end.kind == kind || end.kind == GuestErrorKind::TimedOut, "{code}: {end:?}");
        assert!(!end.message.is_empty(), "{code}");
    }
}

#[tokio::test]
async fn deep_recursion_and_memory_say_so() {
    let deep = error("const f = (n) => f(n + 1) + 1; return f(0)").await;
    assert_eq!(deep.message, "the calls nest too deep: a program's stack has 512 KiB");
    let memory = error("const a = []; for (;;) a.push(new Array(1000).fill(a.length))").await;
    assert_eq!(
        (memory.kind, memory.message.as_str()),
        (GuestErrorKind::Memory, "out of memory: a program has 64 MiB")
    );
}

#[test]
fn ax10_programs_that_wait_hold_no_thread() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let mut waiting: Vec<Bench> =
            (0..20).map(|_| Bench::new("return await tools.read(await tools.read(5))")).collect();
        let mut asked = Vec::new();
        for bench in &mut waiting {
            let Some(GuestEvent::Ask { id, .. }) = bench.next().await else { panic!() };
            asked.push(id);
        }
        // All of them wait at once, on one thread.
        for (bench, id) in waiting.iter_mut().zip(asked).rev() {
            bench.session.reply(HostReply { id, outcome: Ok("5".into()) });
            assert_eq!(bench.end().await, Ok(json!(5)));
        }
    });
}

#[tokio::test]
async fn closing_waits_until_nothing_is_left() {
    for code in ["while (true) {}", "await tools.read()", "return 1"] {
        let mut bench = Bench::new(code);
        if code.contains("tools") {
            bench.next().await;
        }
        let Bench { mut session, .. } = bench;
        tokio::time::timeout(Duration::from_secs(60), poll_fn(|cx| session.poll_closed(cx))).await.unwrap();
    }
    // A reply after the end, and one that nobody asked for.
    let mut bench = Bench::new("return 1");
    bench.session.reply(HostReply { id: 99, outcome: Ok("{".into()) });
    assert_eq!(bench.end().await, Ok(json!(1)));
    bench.session.reply(HostReply { id: 0, outcome: Ok("1".into()) });
}

#[tokio::test]
async fn scripts_have_names_of_their_own() {
    let script = |code: &str| {
        let surface =
            Surface::Script { inputs: json!({"topic": "x"}), max_agent_calls: 2, agent_tools: Vec::new() };
        Bench::of(Program { code: code.into(), tools: Vec::new(), surface, limits: Default::default() })
    };
    assert_eq!(
        script("return [inputs.topic, budget.maxAgentCalls, typeof finish]").end().await,
        Ok(json!(["x", 2, "undefined"]))
    );
    let code = "const tried = [];
        for (const prompt of ['', 5, 'a', 'b', 'c']) {
            const before = budget.agentCalls();
            const call = agent(prompt, { label: 'l' });
            tried.push(budget.agentCalls() - before);
            try { await call } catch (e) { tried.push(e.code) }
        }
        return [tried, budget.remainingCalls()]";
    let expected = json!([[0, "missing_prompt", 0, "missing_prompt", 1, 1, 0, "max_agent_calls_reached"], 0]);
    assert_eq!(script(code).end().await, Ok(expected));
}
