//! Programs that pull at every string of the engine. What they come to is theirs; the process has to survive them.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use super::*;
use crate::agent::sandbox::{Ask, GuestLimits, HostError, Surface};

/// Each is the body of an action.
const ODD: &[&str] = &[
    "function* g() { try { yield 1; yield 2 } finally { while (true) {} } }\nconst it = g(); it.next(); globalThis.it = it; return 1",
    "async function* g() { try { yield 1; await tools.read() } finally { await sleep(1e9) } }\nconst it = g(); await it.next(); it.next(); it.return(); return 1",
    "const r = new FinalizationRegistry(() => { for (;;) {} }); for (let i = 0; i < 100; i++) r.register({ i }, i); await sleep(0); return 1",
    "const r = new FinalizationRegistry(() => tools.read(1)); for (let i = 0; i < 100; i++) r.register({ i }, i); await tools.read(); return 1",
    "const w = new WeakRef({}); const m = new WeakMap(); let o = {}; m.set(o, m); o.m = m; o = null; await tools.read(); return [w.deref(), 1]",
    "return new Proxy({}, { get() { throw new Error('get') }, ownKeys() { throw 1 } })",
    "throw new Proxy({}, { get() { throw new Error('get') } })",
    "throw new Proxy(new Error('x'), { get() { throw new Error('get') } })",
    "const e = new Error('x'); for (const key of ['name', 'message', 'stack', 'code']) Object.defineProperty(e, key, { get() { throw new Error(key) } }); throw e",
    "const e = new Error('x'); for (const key of ['name', 'message', 'stack']) Object.defineProperty(e, key, { get() { for (;;) {} } }); throw e",
    "class E extends Error { get name() { throw this } get message() { throw this } get stack() { throw this } } throw new E()",
    "class E extends Error { get name() { Promise.reject(new E()); return 'E' } } Promise.reject(new E()); await tools.read(); throw new E()",
    "class E extends Error { get message() { tools.read(new E()); log(new E()); return 'm' } } log(new E()); throw new E()",
    "class E extends Error { get name() { return { toString() { throw 5 } } } } console.log(new E('a')); throw new E('b')",
    "throw { toJSON() { throw { toJSON() { throw 1 } } } }",
    "return { toJSON() { for (;;) {} } }",
    "log({ toJSON() { for (;;) {} } }); return 1",
    "tools.read({ toJSON() { for (;;) {} } }); return 1",
    "return { toJSON() { tools.read(); return tools } }",
    "throw Symbol('s')",
    "return Symbol.iterator",
    "return { [Symbol('a')]: 1, get b() { throw 2 } }",
    "log(Symbol('s'), -0, NaN, 1n, undefined, null, () => 1, class A {}, [,1], new Date(NaN)); return new Date(NaN)",
    "class P extends Promise { then(...a) { throw new Error('then') } } return await new P(() => {})",
    "class P extends Promise { constructor(f) { super(f); tools.read() } } await P.all([tools.read(), tools.read()]); return 1",
    "Promise.prototype.then = () => { throw new Error('then') }; return await tools.read(1)",
    "Promise.prototype.then = null; return await Promise.all([tools.read(1)])",
    "Promise.all = null; return await parallel([() => tools.read(1)])",
    "Array.prototype.map = () => { throw new Error('map') }; return await parallel([() => 1])",
    "Array.prototype[Symbol.iterator] = null; return await pipeline([1], n => n)",
    "JSON.stringify = () => { throw new Error('json') }; JSON.parse = null; return { a: await tools.read({ b: 1 }) }",
    "delete globalThis.JSON; return { a: await tools.read({ b: 1 }) }",
    "for (const key of Object.getOwnPropertyNames(globalThis)) { try { delete globalThis[key] } catch {} } return { a: 1 }",
    "for (const key of Object.getOwnPropertyNames(globalThis)) { try { delete globalThis[key] } catch {} } log({ a: 1 }); throw { b: 1 }",
    "for (const key of ['resolve', 'reject', 'then', 'message', 'code', 'data', 'value', 'toJSON', 'name', 'get']) Object.defineProperty(Object.prototype, key, { set() { throw new Error('set') }, get() { throw new Error('get') }, configurable: true }); log({}); try { await tools.fail() } catch (e) { log(e) } return await tools.read({ a: 1 })",
    "Object.defineProperty(Error.prototype, 'code', { set() { throw new Error('code') } }); await tools.fail()",
    "Object.defineProperty(Error.prototype, 'message', { set() { for (;;) {} } }); await tools.fail()",
    "Object.freeze(Object.prototype); Object.freeze(Error.prototype); Object.freeze(Promise.prototype); try { await tools.fail() } catch (e) { return e.code }",
    "Error.prepareStackTrace = () => { throw new Error('prepare') }; await tools.fail()",
    "Error.prepareStackTrace = () => { for (;;) {} }; await tools.fail()",
    "Error.prepareStackTrace = (e, s) => { tools.read(); return s }; await tools.fail()",
    "Error.prepareStackTrace = (e, s) => ({ toString() { throw 1 } }); throw new Error('x')",
    "Error.stackTraceLimit = 0; throw new Error('x')",
    "Error.stackTraceLimit = -1e9; throw new Error('x')",
    "Error.stackTraceLimit = { valueOf() { throw 1 } }; throw new Error('x')",
    "const e = new Error('x'); e.stack = 'action:1:1\\n    at x (action:99999999999:-1)\\n    at (action:2:4294967295)'; throw e",
    "const e = new Error('x'); e.stack = 7; e.message = {}; e.name = null; throw e",
    "const f = () => { throw new Error('x') }; Object.defineProperty(f, 'name', { value: 'n'.repeat(5e6) }); f()",
    "throw new Error('x'.repeat(5e7))",
    "const e = new Error(); e.name = 'n'.repeat(5e7); throw e",
    "let p = {}; for (let i = 0; i < 1e5; i++) p = new Proxy(p, {}); return p.x",
    "let p = []; for (let i = 0; i < 1e5; i++) p = new Proxy(p, {}); return [Array.isArray(p), p]",
    "let p = () => 1; for (let i = 0; i < 1e5; i++) p = p.bind(); return p()",
    "let p = null; for (let i = 0; i < 1e5; i++) p = { p }; return p",
    "let p = null; for (let i = 0; i < 1e5; i++) p = [p]; log(p); globalThis.p = p; return 1",
    "let p = Promise.resolve(); for (let i = 0; i < 1e5; i++) p = p.then(() => {}); globalThis.p = p; return 1",
    "let p = tools.read(1); for (let i = 0; i < 1e5; i++) p = (async (q) => await q)(p); globalThis.p = p; return 1",
    "const o = { then(r) { r(o) } }; return await o",
    "const t = { get then() { throw new Error('then') } }; return t",
    "return { then(resolve) { tools.read().then(resolve) } }",
    "return new Promise(() => {})",
    "const a = new ArrayBuffer(1 << 25); globalThis.a = a; a.transfer?.(0); return new Uint8Array(a.byteLength || 1).length",
    "new ArrayBuffer(1e12)",
    "const b = new SharedArrayBuffer(1024); Atomics.wait(new Int32Array(b), 0, 0, 1e9)",
    "return '\\ud800'.repeat(1e5)",
    "tools['\\ud800'](1); tools[''](); tools['x'.repeat(1e6)](); await tools.read(); return 1",
    "await tools.__proto__({}); return 1",
    "Object.setPrototypeOf(tools, null); tools.read = 5; return Object.keys(tools)",
    "return [typeof tools.constructor, tools + '', `${tools}`]",
    "return tools",
    "return Object.getPrototypeOf(tools)",
    "return globalThis",
    "log(globalThis); return 1",
    "return (function () { return arguments })(1, 2)",
    "return (async () => {}).constructor('return 1')()",
    "return (() => {}).constructor('for (;;) {}')()",
    "return (function* () {}).constructor('yield 1')().next()",
    "return Reflect.construct(Error, [], Promise)",
    "queueMicrotask?.(() => { throw new Error('micro') }); await tools.read(); return 1",
    "const deep = () => { try { deep() } finally { deep() } }; deep()",
    "const deep = () => tools.read({ get a() { return deep() } }); deep()",
    "const deep = () => { log({ toJSON: deep }) }; deep(); return 1",
    "const deep = () => { log({ a: 1 }, new Map([[1, 2]])); finish(); deep() }; deep()",
    "const deep = () => JSON.stringify({ toJSON: deep }); deep(); return 1",
    "const s = '('.repeat(1e5); return new RegExp(s)",
    "return /(?:a|ab)(?:c|bcd)(?:d*)+$/.exec('abcd'.repeat(1e5)) + ''",
    "return 'a'.repeat(1 << 28).split('').length",
    "return BigInt(2) ** BigInt(1e7) % 7n + ''",
    "return (2n ** 100000n) ** 100n > 1n",
    "const a = [1, 2, 3]; a.sort(() => { a.length = 0; throw new Error('sort') })",
    "const a = new Array(1e6).fill(1); a.sort(() => Math.random() - 0.5); return a.length",
    "return JSON.parse('['.repeat(1e6))",
    "return new Function('return 1')()",
    "return import.meta",
    "})(); for (;;) {} (async()=>{",
    "}), 5 + (async()=>{",
    "})(), (async()=>{ return 7",
    "*/ /* `",
    "return `",
    "return 1 // }",
    "return 1 <!-- }",
    "#!x",
    "'use strict'; with ({}) {}",
    "label: for (;;) { break label } return await (await (await 1))",
    "using x = { [Symbol.dispose]() { for (;;) {} } }; return 1",
    "for await (const x of (async function* () { yield* [tools.read(1), tools.fail()] })()) log(x)",
    "const it = { [Symbol.asyncIterator]() { return { next: () => tools.read({ value: 1, done: false }), return() { throw new Error('ret') } } } }; let n = 0; for await (const x of it) { if (n++ > 3) break }",
    "const p = tools.read(1); p.constructor = { [Symbol.species]: function (f) { f(() => {}, () => {}) } }; return await p.then(x => x)",
    "const all = []; for (let i = 0; i < 5000; i++) all.push(tools.read(i)); return (await Promise.allSettled(all)).filter(one => one.status === 'rejected').length",
    "globalThis.self = tools.read(1).finally(() => globalThis.self); return 1",
    "const dict = {}; for (let i = 0; i < 1e5; i++) dict['k' + i] = i; return Object.keys(dict).length",
    "console.log = 5; log = 6",
    "console.log(...Array(1e5).fill('x')); return 1",
    "sleep(NaN); sleep(-1); sleep('x'); sleep(1e300); sleep({}); await sleep(0); return 1",
    "sleep({ valueOf() { throw new Error('v') } })",
    "search_tools(); search_tools(1n); finish(1n); finish(() => 1); finish(Symbol()); await tools.read(); return 1",
    "try { finish(1n) } catch (e) { return e.message }",
    "const cyclic = {}; cyclic.c = cyclic; try { await tools.read(cyclic) } catch (e) { return e.message }",
    "return new Intl.NumberFormat().format(1)",
    "return new Date().toLocaleString() && 1",
    "const m = new Map(); m.set(m, m); globalThis.m = m; return m.size",
    "return new Map([[{}, 1], [Symbol('x'), 2]])",
    "Map.prototype[Symbol.iterator] = null; return new Map([[1, 2]])",
    "Object.defineProperty(Map, Symbol.hasInstance, { value() { for (;;) {} } }); return { a: 1 }",
    "return performance?.now?.() >= 0",
    "const e = new AggregateError([new Error('a'), null], 'agg', { cause: new Error('c') }); throw e",
    "throw new DOMException('x', 'AbortError')",
    "const e = new Error('e'); e.cause = e; e.self = e; return e",
    "Object.prototype.toJSON = function () { throw new Error('j') }; return { a: 1 }",
    "Array.prototype.toJSON = () => { for (;;) {} }; return [1]",
    "String.prototype.toJSON = () => { throw 1 }; Number.prototype.toJSON = () => { throw 2 }; return ['x', 1]",
    "tools.read = () => { throw new Error('mine') }; return await tools.read()",
];

/// Plays a host that answers all but long sleeps, until the program has ended or waits beyond its time.
async fn play(program: Program) -> Option<Ended> {
    let wall = program.limits.wall;
    let start = Instant::now();
    let mut session = InProcess.start(program);
    let play = async {
        while let Some(event) = poll_fn(|cx| session.poll_event(cx)).await {
            let (id, ask) = match event {
                GuestEvent::Ask { id, ask } => (id, ask),
                GuestEvent::Log { .. } => continue,
                GuestEvent::Waiting { .. } if start.elapsed() > wall => return None,
                GuestEvent::Waiting { .. } => continue,
                GuestEvent::Ended(ended) => return Some(ended),
            };
            let outcome = match ask {
                Ask::Tool { name, args } if &*name == "read" => {
                    Ok(if args.is_empty() { "null".into() } else { args })
                }
                Ask::Tool { name, .. } => Err(HostError {
                    message: "it broke".into(),
                    code: Some(name.chars().take(9).collect()),
                    data: Some(r#"{"a":1}"#.into()),
                }),
                Ask::Sleep { ms } if ms > 1_000 => continue,
                _ => Ok("1".into()),
            };
            session.reply(HostReply { id, outcome });
        }
        None
    };
    tokio::time::timeout(Duration::from_secs(60), play).await.unwrap()
}

#[tokio::test]
async fn odd_programs_end_like_others() {
    for code in ODD {
        let mut program = Program::action(*code, vec!["read".into(), "fail".into()]);
        program.limits.wall = Duration::from_millis(150);
        let ended = play(program).await;
        if let Some(Err(error)) = ended.as_ref().map(|ended| &ended.result) {
            assert!(!error.message.trim().is_empty(), "{code}");
            assert!(error.stack.len() < 20_000, "{code}: {}", error.stack.len());
            assert!(!error.message.contains("interrupted"), "{code}: {error:?}");
        }
    }
}

#[tokio::test]
async fn refused_calls_do_not_deepen_the_stack() {
    let surface =
        Surface::Script { inputs: serde_json::Value::Null, max_agent_calls: 0, agent_tools: Vec::new() };
    let code = "const deep = () => { agent(''); agent('x'); log({}); deep() }; deep()".to_owned();
    let ended =
        play(Program { code, tools: Vec::new(), surface, limits: GuestLimits::default() }).await.unwrap();
    assert!(ended.result.unwrap_err().message.contains("nest too deep"));
}

#[tokio::test]
async fn limits_out_of_their_range_are_limits_at_its_end() {
    let deep = "const f = n => f(n + 1) + 1; return f(0)";
    let full = "const all = []; for (;;) all.push(new Array(100).fill(all.length))";
    for bytes in [0, 1, 1_000, 29_696, 100_000] {
        for (code, text) in [(deep, "nest too deep"), (full, ""), ("return 1", "")] {
            let mut program = Program::action(code, Vec::new());
            program.limits.stack_bytes = bytes;
            program.limits.heap_bytes = if code == deep { 64 << 20 } else { bytes };
            program.limits.wall = Duration::MAX;
            let ended = play(program).await.unwrap();
            match ended.result {
                Ok(value) => assert_eq!((code, value.as_str()), ("return 1", "1")),
                Err(error) => {
                    assert!(error.message.contains(text) && code != "return 1", "{bytes} {code}: {error:?}")
                }
            }
        }
    }
}

#[tokio::test]
async fn what_an_interrupt_broke_off_is_out_of_time() {
    for code in [
        "return { toJSON() { for (;;) {} } }",
        "const e = new Error('x'); Object.defineProperty(e, 'message', { get() { for (;;) {} } }); throw e",
    ] {
        let mut program = Program::action(code, Vec::new());
        program.limits.wall = Duration::from_millis(150);
        let error = play(program).await.unwrap().result.unwrap_err();
        assert_eq!(error.kind, GuestErrorKind::TimedOut, "{code}: {error:?}");
    }
}

#[tokio::test]
async fn an_error_without_a_message_is_called_by_its_name() {
    for (code, message) in [
        ("throw new Error()", "Error"),
        ("throw new TypeError('')", "TypeError"),
        (
            "const e = new Error('x'); for (const key of ['name', 'message']) Object.defineProperty(e, key, { get() { throw 1 } }); throw e",
            "Error",
        ),
    ] {
        let error = play(Program::action(code, Vec::new())).await.unwrap().result.unwrap_err();
        assert_eq!(error.message, message);
    }
}

#[tokio::test]
async fn what_leaves_the_heap_has_bounds_of_its_own() {
    let code = "const codes = {};
        const one = 'x'.repeat(1 << 20);
        const calls = [tools.read(one.repeat(3))];
        for (let i = 0; i < 40; i++) calls.push(tools.read(one));
        for (const { reason } of await Promise.allSettled(calls)) { const code = reason?.code ?? 'fine'; codes[code] = (codes[code] ?? 0) + 1 }
        return [codes, (await tools.read(one)).length]";
    let ended = play(Program::action(code, vec!["read".into()])).await.unwrap();
    assert_eq!(ended.result, Ok(r#"[{"too_large":1,"fine":15,"too_many_calls":25},1048576]"#.into()));
}

#[tokio::test]
async fn calls_for_which_there_is_no_memory_are_counted_too() {
    // Filled to the last few bytes: what a call needs in the engine does not fit, what it says does.
    let code = "const f = tools.read; const hold = []; let size = 1 << 22;
        while (size > 8) { try { hold.push(new ArrayBuffer(size)) } catch { size >>= 1 } }
        let full = null; for (;;) { try { full = { full } } catch { break } }
        for (let i = 0; i < 300000; i++) { try { f() } catch {} }
        hold.length = 0; full = null; return 1";
    let mut program = Program::action(code, vec!["read".into()]);
    program.limits.heap_bytes = 8 << 20;
    program.limits.wall = Duration::from_secs(20);
    let mut session = InProcess.start(program);
    let (mut asks, mut open) = (0, 0_usize);
    loop {
        match poll_fn(|cx| session.poll_event(cx)).await {
            Some(GuestEvent::Ask { .. }) => {
                asks += 1;
                open += 1;
            }
            // Nobody answers: it waits for what is open, or has ended.
            Some(GuestEvent::Waiting { .. } | GuestEvent::Ended(_)) | None => break,
            Some(GuestEvent::Log { .. }) => {}
        }
    }
    assert!(asks <= crate::agent::sandbox::guest::MAX_PENDING, "{asks} asks, {open} of them open");
}
