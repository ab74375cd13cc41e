//! The host's functions as a program sees them, and what they share with the engine.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rquickjs::function::{Opt, Rest};
use rquickjs::{Ctx, Exception, Function, Object, Promise, Result, Value};

use super::agent_call::{AgentCall, options_text};
use super::encode::{
    Encoder, PlainPrototype, called, decoded, encoder, line, make_encoder, passed, plain_prototype, shown,
};
use super::port::{Ask, GuestEvent, HostError, HostReply};
use super::program::{GuestLimits, Program, Surface};
use super::surface::mentions;
use crate::message::Severity;

/// Where programs get `parallel` and `pipeline` from, when they mention them.
const FAN_OUT: &str = include_str!("fan_out.js");

/// How much of one line is kept, in bytes: a part of what a program may log in all.
const LINE_BYTES: usize = 16 * 1024;

/// How many asks may wait for their answers at once: more than a program can await sensibly, and few enough for memory.
pub(super) const MAX_PENDING: usize = 4_096;

/// How much one ask may pass, and how much all may that wait for their answers, in bytes: it leaves the program's heap, so that
/// bound does not hold it.
const MAX_PASSED: usize = 2 << 20;
const MAX_HELD: usize = 16 << 20;

/// What passes no more is not counted: all that may wait pass a quarter of what is allowed.
const SMALL: usize = 1 << 10;

/// How many asks of a program know where they were made: more than an action may make unless its limits are raised. To note a place
/// takes the engine a quarter of what a call takes it in all.
const PLACES: u32 = 128;

/// How many rejections are told that nobody handled.
const MAX_UNHANDLED: usize = 8;

/// What the functions of a program share with its engine.
pub(super) struct Guest {
    say: Say,
    /// How many asks were made: the next one's id.
    asked: AtomicU32,
    /// Locked for one step at a time, by the thread that runs the engine.
    state: Mutex<State>,
}

/// Where what a program says goes, as soon as it says it.
pub(super) type Say = Box<dyn Fn(GuestEvent) + Send + Sync>;

#[derive(Default)]
struct State {
    /// What the large asks without an answer passed, in bytes, and the sum.
    passed: BTreeMap<u32, usize>,
    held: usize,
    agent_calls: u32,
    logged_chars: usize,
    logged_lines: usize,
    left_out: u64,
    /// What the promises of [`Unhandled`] were rejected with.
    unhandled: Vec<String>,
}

/// Asks without an answer: how to resolve and to reject each, and, of the first [`PLACES`], the error to reject it with. That was made
/// where the ask was, so it knows the place. Kept by the runtime, since it belongs to it.
type Pending<'js> = RefCell<BTreeMap<u32, Vec<Object<'js>>>>;

/// Promises that were rejected while nobody handled them.
type Unhandled<'js> = RefCell<Vec<Value<'js>>>;

/// The promise of the program itself.
pub(super) type Main<'js> = RefCell<Option<Promise<'js>>>;

impl Guest {
    pub(super) fn new(say: Say) -> Self {
        Self { say, asked: AtomicU32::new(0), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn say(&self, event: GuestEvent) {
        (self.say)(event);
    }

    /// Lines beyond the bounds.
    pub(super) fn left_out(&self) -> u64 {
        self.lock().left_out
    }

    /// How many asks were made.
    pub(super) fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Settles the promise of an ask.
    pub(super) fn settle<'js>(&self, ctx: &Ctx<'js>, reply: HostReply) -> Result<()> {
        self.let_go(reply.id);
        let ask = ctx.userdata::<Pending<'js>>().and_then(|pending| pending.borrow_mut().remove(&reply.id));
        let Some(mut ask) = ask.map(Vec::into_iter) else { return Ok(()) };
        let (Some(resolve), Some(reject)) = (ask.next(), ask.next()) else { return Ok(()) };
        let settle = |by: Object<'js>, with: Value<'js>| match by.into_value().into_function() {
            Some(by) => by.call::<_, ()>((with,)),
            None => Ok(()),
        };
        match reply.outcome {
            Ok(text) => settle(resolve, decoded(ctx, text)?),
            Err(failure) => {
                let error = ask.next().map_or_else(|| blank_error(ctx), Ok)?;
                error.set("message", failure.message)?;
                if let Some(code) = failure.code {
                    error.set("code", code)?;
                }
                if let Some(data) = failure.data {
                    error.set("data", ctx.json_parse(data)?)?;
                }
                settle(reject, error.into_value())
            }
        }
    }

    fn ask<'js>(&self, ctx: &Ctx<'js>, ask: Ask) -> Result<Promise<'js>> {
        let Some(pending) = ctx.userdata::<Pending<'js>>() else { return Err(rquickjs::Error::Unknown) };
        if pending.borrow().len() >= MAX_PENDING {
            let text =
                format!("{MAX_PENDING} calls wait for their answers already: await some of them first");
            return rejected(ctx, &text, "too_many_calls");
        }
        let id = self.asked();
        let bytes = ask.bytes();
        if bytes > SMALL {
            if bytes > MAX_PASSED {
                let text =
                    format!("a call passes {bytes} bytes, and may pass {MAX_PASSED}: pass less, or in parts");
                return rejected(ctx, &text, "too_large");
            }
            if !self.hold(id, bytes) {
                let text = format!(
                    "calls that wait for their answers may pass {MAX_HELD} bytes in all: await some of them first"
                );
                return rejected(ctx, &text, "too_many_calls");
            }
        }
        self.asked.store(id.wrapping_add(1), Ordering::Relaxed);
        // Said before the rest, so that the host does its part while the engine does its own. If there is no memory for that, the
        // call throws although the host makes it, and nobody waits for its answer.
        (self.say)(GuestEvent::Ask { id, ask });
        let made = open_ask(ctx, id);
        // Such a call is under way too: else code that goes on with it would fill the host's memory instead of its own.
        let (promise, ask) =
            made.map_or_else(|error| (Err(error), Vec::new()), |(promise, ask)| (Ok(promise), ask));
        pending.borrow_mut().insert(id, ask);
        promise
    }

    /// Counts what a large ask passes, until it is answered. False if that is too much.
    fn hold(&self, id: u32, bytes: usize) -> bool {
        let mut state = self.lock();
        if state.held + bytes > MAX_HELD {
            return false;
        }
        state.held += bytes;
        state.passed.insert(id, bytes);
        true
    }

    fn let_go(&self, id: u32) {
        let mut state = self.lock();
        let passed = state.passed.remove(&id).unwrap_or_default();
        state.held = state.held.saturating_sub(passed);
    }

    fn log(&self, limits: &GuestLimits, severity: Severity, text: String) {
        let mut state = self.lock();
        let chars = text.chars().count();
        if state.logged_lines >= limits.log_lines || state.logged_chars + chars > limits.output_chars {
            // What comes later is left out too, so that nobody takes the rest for the whole.
            state.logged_lines = limits.log_lines;
            state.left_out += 1;
            return;
        }
        state.logged_lines += 1;
        state.logged_chars += chars;
        drop(state);
        (self.say)(GuestEvent::Log { severity, text });
    }

    /// Notes a rejection that nobody handles so far, or that somebody does after all.
    pub(super) fn rejected<'js>(
        &self,
        ctx: &Ctx<'js>,
        promise: Value<'js>,
        reason: &Value<'js>,
        is_handled: bool,
    ) {
        let Some(unhandled) = ctx.userdata::<Unhandled<'js>>() else { return };
        if !is_handled {
            // Few are worth telling.
            if unhandled.borrow().len() < MAX_UNHANDLED {
                let text = crate::message::cap_text(&shown(ctx, reason), 300);
                self.lock().unhandled.push(text);
                unhandled.borrow_mut().push(promise);
            }
            return;
        }
        let place = unhandled.borrow().iter().position(|one| *one == promise);
        if let Some(place) = place {
            unhandled.borrow_mut().remove(place);
            self.lock().unhandled.remove(place);
        }
    }

    /// Says which rejections nobody handled, at the end. That of the program itself is its end, and told as that.
    pub(super) fn tell_unhandled<'js>(&self, ctx: &Ctx<'js>, limits: &GuestLimits) {
        let main = ctx.userdata::<Main<'js>>().and_then(|main| main.borrow().clone());
        let Some(unhandled) = ctx.userdata::<Unhandled<'js>>() else { return };
        let texts = std::mem::take(&mut self.lock().unhandled);
        for (promise, text) in unhandled.take().into_iter().zip(texts) {
            if main.as_ref().is_none_or(|main| *main.as_value() != promise) {
                self.log(limits, Severity::Warning, format!("a call that nobody awaited failed: {text}"));
            }
        }
    }
}

/// The promise of an ask, and what settles it.
fn open_ask<'js>(ctx: &Ctx<'js>, id: u32) -> Result<(Promise<'js>, Vec<Object<'js>>)> {
    let (promise, resolve, reject) = ctx.promise()?;
    let mut ask = vec![resolve.into_inner(), reject.into_inner()];
    if id < PLACES {
        ask.push(blank_error(ctx)?);
    }
    Ok((promise, ask))
}

/// Whether an answer is awaited.
pub(super) fn is_waiting<'js>(ctx: &Ctx<'js>) -> bool {
    ctx.userdata::<Pending<'js>>().is_some_and(|pending| !pending.borrow().is_empty())
}

/// Lets go of all that belongs to the runtime, before it ends.
pub(super) fn clear<'js>(ctx: &Ctx<'js>) {
    let _ = ctx.remove_userdata::<Pending<'js>>();
    let _ = ctx.remove_userdata::<Unhandled<'js>>();
    let _ = ctx.remove_userdata::<Main<'js>>();
    let _ = ctx.remove_userdata::<Encoder<'js>>();
    let _ = ctx.remove_userdata::<PlainPrototype<'js>>();
}

/// An error that says nothing but where it was made.
fn blank_error<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    Exception::from_message(ctx.clone(), "").map(Exception::into_object)
}

/// A promise that is rejected as soon as its program waits: a call here would measure the stack anew, as [`make_encoder`] has it.
fn rejected<'js>(ctx: &Ctx<'js>, message: &str, code: &str) -> Result<Promise<'js>> {
    let error = Exception::from_message(ctx.clone(), message)?;
    error.as_object().set("code", code)?;
    let (promise, _, reject) = ctx.promise()?;
    reject.defer((error,))?;
    Ok(promise)
}

/// As [`rejected`], of a call that no program should make: with the language's own kind of error for that.
fn mistaken<'js>(ctx: &Ctx<'js>, message: &str) -> Result<Promise<'js>> {
    let _ = Exception::throw_type(ctx, message);
    let error = ctx.catch();
    let (promise, _, reject) = ctx.promise()?;
    reject.defer((error,))?;
    Ok(promise)
}

/// Gives a program its names.
pub(super) fn furnish<'js>(ctx: &Ctx<'js>, guest: &Arc<Guest>, program: &Program) -> Result<()> {
    let fresh = ctx.store_userdata(Pending::<'js>::default()).is_ok()
        && ctx.store_userdata(Unhandled::<'js>::default()).is_ok()
        && ctx.store_userdata(Main::<'js>::default()).is_ok()
        && ctx.store_userdata(encoder(ctx)?).is_ok()
        && ctx.store_userdata(plain_prototype(ctx)?).is_ok();
    if !fresh {
        return Err(rquickjs::Error::Allocation);
    }
    let globals = ctx.globals();
    let limits = program.limits;
    if mentions(&program.code, "log") || mentions(&program.code, "console") {
        make_encoder(ctx)?;
    }
    if mentions(&program.code, "tools") {
        globals.set("tools", tools(ctx, guest, &program.tools)?)?;
    }
    let log = |severity: Severity| {
        let guest = Arc::clone(guest);
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, values: Rest<Value<'js>>| {
            let text = line(&ctx, &values.0, LINE_BYTES);
            guest.log(&limits, severity, crate::message::cap_text(&text, LINE_BYTES));
        })
    };
    let console = Object::new(ctx.clone())?;
    for (name, severity) in [
        ("log", Severity::Info),
        ("info", Severity::Info),
        ("debug", Severity::Info),
        ("warn", Severity::Warning),
        ("error", Severity::Error),
    ] {
        console.set(name, log(severity)?)?;
    }
    globals.set("console", console)?;
    globals.set("log", log(Severity::Info)?)?;
    let sleeper = Arc::clone(guest);
    let sleep = move |ctx: Ctx<'js>, ms: Opt<Value<'js>>| {
        let time = ms.0.as_ref().and_then(Value::as_number).filter(|ms| ms.is_finite() && *ms >= 0.0);
        let Some(ms) = time else {
            let given = ms.0.as_ref().map_or("nothing".to_owned(), |ms| match ms.as_number() {
                Some(_) => shown(&ctx, ms),
                None => called(ms).to_owned(),
            });
            let text = format!("sleep(ms): give a number of milliseconds from 0 up, and not {given}");
            return mistaken(&ctx, &text).map(Promise::into_value);
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it saturates, as is meant"
        )]
        sleeper.ask(&ctx, Ask::Sleep { ms: ms as u64 }).map(Promise::into_value)
    };
    globals.set("sleep", Function::new(ctx.clone(), sleep)?)?;
    if mentions(&program.code, "parallel") || mentions(&program.code, "pipeline") {
        ctx.eval::<Function<'js>, _>(FAN_OUT)?.call::<_, ()>((globals.clone(), log(Severity::Warning)?))?;
    }
    match &program.surface {
        Surface::Action => furnish_action(ctx, guest)?,
        Surface::Script { inputs, max_agent_calls, agent_tools } => {
            furnish_script(ctx, guest, inputs, *max_agent_calls, agent_tools)?;
        }
    }
    for name in ["eval", "Function"] {
        globals.remove(name)?;
    }
    Ok(())
}

fn tools<'js>(ctx: &Ctx<'js>, guest: &Arc<Guest>, names: &[String]) -> Result<Object<'js>> {
    let tool = |ctx: &Ctx<'js>, name: Arc<str>| {
        let guest = Arc::clone(guest);
        let called = Arc::clone(&name);
        let call = move |ctx: Ctx<'js>, args: Opt<Value<'js>>| {
            let args = passed(&ctx, args.0)?;
            guest.ask(&ctx, Ask::Tool { name: Arc::clone(&called), args }).map(Promise::into_value)
        };
        Function::new(ctx.clone(), call)?.with_name(&*name)
    };
    // A name that is none of them is asked for all the same: the host says which there are.
    let other = Arc::clone(guest);
    let missing = Function::new(ctx.clone(), move |ctx: Ctx<'js>, name: Value<'js>| {
        let name = shown(&ctx, &name).into();
        other.ask(&ctx, Ask::Tool { name, args: std::string::String::new() }).map(Promise::into_value)
    })?;
    let beyond: Object<'js> = ctx.eval::<Function<'js>, _>(BEYOND)?.call((missing,))?;
    let tools = Object::new(ctx.clone())?;
    tools.set_prototype(Some(&beyond))?;
    for name in names {
        tools.set(name.as_str(), tool(ctx, name.as_str().into())?)?;
    }
    Ok(tools)
}

/// The prototype of `tools`: what every object has, and a call for every other name. What the language itself asks an object for is no
/// tool.
const BEYOND: &str = "((get, plain) => missing => new Proxy(plain, { get: (_, name, tools) =>
  typeof name === 'symbol' || name in plain || name === 'then' || name === 'toJSON'
    ? get(plain, name, tools) : () => missing(name) }))(Reflect.get, {})";

fn furnish_action<'js>(ctx: &Ctx<'js>, guest: &Arc<Guest>) -> Result<()> {
    let globals = ctx.globals();
    let searcher = Arc::clone(guest);
    let search = move |ctx: Ctx<'js>, query: Opt<Value<'js>>, limit: Opt<Value<'js>>| {
        let ask = Ask::SearchTools { query: passed(&ctx, query.0)?, limit: passed(&ctx, limit.0)? };
        searcher.ask(&ctx, ask).map(Promise::into_value)
    };
    globals.set("search_tools", Function::new(ctx.clone(), search)?)?;
    let finisher = Arc::clone(guest);
    let finish = move |ctx: Ctx<'js>, value: Opt<Value<'js>>| {
        let value = passed(&ctx, value.0)?;
        finisher.ask(&ctx, Ask::Finish { value }).map(Promise::into_value)
    };
    globals.set("finish", Function::new(ctx.clone(), finish)?)
}

fn furnish_script<'js>(
    ctx: &Ctx<'js>,
    guest: &Arc<Guest>,
    inputs: &serde_json::Value,
    max_calls: u32,
    tools: &[String],
) -> Result<()> {
    let globals = ctx.globals();
    globals.set("inputs", ctx.json_parse(inputs.to_string())?)?;
    let budget = Object::new(ctx.clone())?;
    budget.set("maxAgentCalls", max_calls)?;
    let (calls, left, usage) = (Arc::clone(guest), Arc::clone(guest), Arc::clone(guest));
    budget.set("agentCalls", Function::new(ctx.clone(), move || calls.lock().agent_calls)?)?;
    let remaining = move || max_calls.saturating_sub(left.lock().agent_calls);
    budget.set("remainingCalls", Function::new(ctx.clone(), remaining)?)?;
    let usage = move |ctx: Ctx<'js>| usage.ask(&ctx, Ask::Usage).map(Promise::into_value);
    budget.set("usage", Function::new(ctx.clone(), usage)?)?;
    globals.set("budget", budget)?;
    let (caller, tools) = (Arc::clone(guest), tools.to_vec());
    let agent = move |ctx: Ctx<'js>, prompt: Opt<Value<'js>>, options: Opt<Value<'js>>| {
        let prompt =
            prompt.0.as_ref().and_then(Value::as_string).map(|prompt| shown(&ctx, prompt.as_value()));
        let Some(prompt) = prompt.filter(|prompt| !prompt.trim().is_empty()) else {
            let text = "agent(prompt, options): the prompt must be a text that says what to do";
            return rejected(&ctx, text, "missing_prompt").map(Promise::into_value);
        };
        // Looked at here as the host does, so that both count a call or neither does.
        let options = options_text(&ctx, options.0)?;
        let options = options.and_then(|text| AgentCall::read(&text, &tools).map(|_| text));
        let options = match options {
            Ok(options) => options,
            Err(HostError { message, code, .. }) => {
                let code = code.unwrap_or_default();
                return rejected(&ctx, &message, &code).map(Promise::into_value);
            }
        };
        if caller.lock().agent_calls >= max_calls {
            let text = format!("the script has made all of its {max_calls} agent calls");
            return rejected(&ctx, &text, "max_agent_calls_reached").map(Promise::into_value);
        }
        let before = caller.asked();
        let promise = caller.ask(&ctx, Ask::Agent { prompt, options });
        // Not if it was refused.
        if caller.asked() != before {
            caller.lock().agent_calls += 1;
        }
        promise.map(Promise::into_value)
    };
    globals.set("agent", Function::new(ctx.clone(), agent)?)
}
