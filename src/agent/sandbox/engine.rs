//! One JavaScript runtime, stepped: it runs until the program waits or has ended, and then gives its thread back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rquickjs::context::EvalOptions;
use rquickjs::promise::PromiseState;
use rquickjs::{CatchResultExt, CaughtError, Context, Ctx, Promise, Value};

use super::blank::Blank;
use super::diagnose::{FILE, declaration, null_character, rebase};
use super::encode::{levels, result_text, shown, titled};
use super::guest::{Guest, Main, Say, clear, furnish, is_waiting};
use super::port::{Ended, GuestError, GuestErrorKind, GuestEvent, HostReply};
use super::program::Program;
use super::surface::{imported, refused_import, wrap};
use crate::message::MAX_LEVELS;

/// Tells an engine that it is to stop, from any thread.
#[derive(Debug)]
pub(super) struct Stop {
    is_cancelled: AtomicBool,
    start: Instant,
    /// How long it may compute. How long it may take is its host's to say, who knows what it waits for.
    wall: Duration,
    /// How long it has computed, in nanoseconds; of the step under way it does not know.
    computed: AtomicU64,
    /// The end of the step under way, in nanoseconds since the start.
    until: AtomicU64,
}

impl Stop {
    /// When it has computed for `wall`.
    pub(super) fn after(wall: Duration) -> Self {
        let until = AtomicU64::new(u64::MAX);
        let (is_cancelled, computed) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { is_cancelled, start: Instant::now(), wall, computed, until }
    }

    fn elapsed(&self) -> u64 {
        nanos(self.start.elapsed())
    }

    /// Counts the time of one step. There is one at a time.
    fn during<T>(&self, step: impl FnOnce() -> T) -> T {
        let (begin, computed) = (self.elapsed(), self.computed.load(Ordering::Relaxed));
        let left = nanos(self.wall).saturating_sub(computed);
        self.until.store(begin.saturating_add(left), Ordering::Release);
        let output = step();
        let took = self.elapsed().saturating_sub(begin);
        self.computed.store(computed.saturating_add(took), Ordering::Relaxed);
        self.until.store(u64::MAX, Ordering::Release);
        output
    }

    pub(super) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
    }

    /// Why it is to stop, if it is.
    pub(super) fn why(&self) -> Option<GuestErrorKind> {
        let is_late = || self.elapsed() >= self.until.load(Ordering::Acquire);
        self.cancelled().or_else(|| is_late().then_some(GuestErrorKind::TimedOut))
    }

    /// As [`Stop::why`], without a look at the clock.
    fn cancelled(&self) -> Option<GuestErrorKind> {
        self.is_cancelled.load(Ordering::Acquire).then_some(GuestErrorKind::Cancelled)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Jobs between two looks at the clock.
const JOBS: u32 = 16;

/// A program in its runtime. A runtime of its own for each: nothing survives it.
pub(super) struct Engine {
    program: Program,
    stop: Arc<Stop>,
    guest: Arc<Guest>,
    has_begun: bool,
    answered: u64,
    has_answers: bool,
    context: Context,
}

impl Engine {
    /// A runtime with the program's names in it. Nothing of the program has run.
    ///
    /// # Errors
    ///
    /// If there is no memory for it.
    pub(super) fn new(mut program: Program, stop: Arc<Stop>, say: Say) -> Result<Self, Box<Ended>> {
        program.limits = program.limits.in_range();
        let guest = Arc::new(Guest::new(say));
        let build = || -> rquickjs::Result<Context> {
            let context = Blank::take()?.into_context();
            let runtime = context.runtime();
            runtime.set_memory_limit(program.limits.heap_bytes);
            runtime.set_max_stack_size(program.limits.stack_bytes);
            let watched = Arc::clone(&stop);
            runtime.set_interrupt_handler(Some(Box::new(move || watched.why().is_some())));
            let noted = Arc::clone(&guest);
            runtime.set_host_promise_rejection_tracker(Some(Box::new(
                move |ctx, promise, reason, is_handled| {
                    noted.rejected(&ctx, promise, &reason, is_handled);
                },
            )));
            Ok(context)
        };
        let failed = |error: rquickjs::Error| {
            let error =
                GuestError::new(GuestErrorKind::Memory, format!("the runtime does not start: {error}"));
            Box::new(Ended { result: Err(error), lines_left_out: 0 })
        };
        let context = build().map_err(failed)?;
        let furnished = context.with(|ctx| furnish(&ctx, &guest, &program).catch(&ctx).map_err(|_| ()));
        if furnished.is_err() {
            context.with(|ctx| clear(&ctx));
            return Err(failed(rquickjs::Error::Allocation));
        }
        Ok(Self { program, stop, guest, has_begun: false, answered: 0, has_answers: false, context })
    }

    /// How many asks it has made.
    pub(super) fn asked(&self) -> u32 {
        self.guest.asked()
    }

    /// Whether there are answers that the program has not gone on with.
    pub(super) fn has_answers(&self) -> bool {
        self.has_answers
    }

    /// Settles what the replies answer, and empties the list; where `goes_on`, runs until the program waits or has ended. After the end
    /// there is no step.
    pub(super) fn step(&mut self, replies: &mut Vec<HostReply>, goes_on: bool) -> Option<Ended> {
        let stop = Arc::clone(&self.stop);
        stop.during(|| self.step_on(replies, goes_on))
    }

    fn step_on(&mut self, replies: &mut Vec<HostReply>, goes_on: bool) -> Option<Ended> {
        let context = self.context.clone();
        self.answered += replies.len() as u64;
        self.has_answers = !goes_on && (self.has_answers || !replies.is_empty());
        let result = context.with(|ctx| {
            let settled = self.settle(&ctx, replies);
            let result = if goes_on { settled.or_else(|| self.run(&ctx)) } else { settled }?;
            // What an interrupt broke off did not fail by itself.
            let result = result.map_err(|error| self.stop.why().map_or(error, |kind| self.stopped(kind)));
            self.guest.tell_unhandled(&ctx, &self.program.limits);
            Some(result)
        });
        if result.is_none() && goes_on {
            self.guest.say(GuestEvent::Waiting { answered: self.answered });
        }
        result.map(|result| Ended { result, lines_left_out: self.guest.left_out() })
    }

    /// The end of the program, if it comes to that.
    fn settle<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        replies: &mut Vec<HostReply>,
    ) -> Option<Result<String, GuestError>> {
        if let Some(kind) = self.stop.cancelled() {
            return Some(Err(self.stopped(kind)));
        }
        if !self.has_begun {
            if let Err(error) = self.begin(ctx) {
                return Some(Err(error));
            }
            self.has_begun = true;
        }
        for reply in replies.drain(..) {
            // An answer that its memory cannot hold.
            if let Err(error) = self.guest.settle(ctx, reply).catch(ctx) {
                return Some(Err(self.threw(ctx, &error)));
            }
        }
        None
    }

    fn run<'js>(&mut self, ctx: &Ctx<'js>) -> Option<Result<String, GuestError>> {
        let mut jobs = 0_u32;
        while ctx.execute_pending_job() {
            jobs = jobs.wrapping_add(1);
            // Endless small jobs do not meet the interrupt handler. A look at the clock costs as much as such a job.
            let why = if jobs.is_multiple_of(JOBS) { self.stop.why() } else { self.stop.cancelled() };
            if let Some(kind) = why {
                return Some(Err(self.stopped(kind)));
            }
        }
        if let Some(kind) = self.stop.why() {
            return Some(Err(self.stopped(kind)));
        }
        let main = ctx.userdata::<Main<'js>>()?.borrow().clone()?;
        match main.state() {
            PromiseState::Pending if is_waiting(ctx) => None,
            PromiseState::Pending => {
                let text = "the program waits for a promise that nothing will settle";
                Some(Err(GuestError::new(GuestErrorKind::Stuck, text)))
            }
            PromiseState::Resolved | PromiseState::Rejected => {
                let result =
                    main.result::<Value<'js>>()?.and_then(|value| result_text(ctx, &value)).catch(ctx);
                Some(result.map_err(|error| self.threw(ctx, &error)).and_then(|text| self.fitting(text)))
            }
        }
    }

    fn begin<'js>(&self, ctx: &Ctx<'js>) -> Result<(), GuestError> {
        if let Some(error) = null_character(&self.program.code) {
            return Err(error);
        }
        let names = self.program.surface.mentioned(&self.program.code);
        match eval(ctx, wrap(&self.program.code, &names)) {
            Ok(main) => {
                if let Some(place) = ctx.userdata::<Main<'js>>() {
                    *place.borrow_mut() = Some(main);
                }
                Ok(())
            }
            Err(error) => {
                let error = self.threw(ctx, &error);
                // The names are the first suspects of what compiles without them.
                if error.kind == GuestErrorKind::Syntax
                    && let Some(taken) = self.taken_name(ctx, &names)
                {
                    return Err(taken);
                }
                Err(error)
            }
        }
    }

    /// The name that the program declares although it is taken, if that is what is wrong with it.
    fn taken_name(&self, ctx: &Ctx<'_>, names: &[&'static str]) -> Option<GuestError> {
        let code = &self.program.code;
        // Made and never called: only the compiler looks at it.
        let compiles = |names: &[&str]| {
            let result = eval_value(ctx, format!("(()=>{})", wrap(code, names)));
            result.map_err(|_| ctx.catch()).is_ok()
        };
        if !compiles(&[]) {
            return None;
        }
        let name = names.iter().find(|name| !compiles(&[**name]))?;
        let place = declaration(code, name).map(|line| format!(" in line {line}")).unwrap_or_default();
        let text = format!("the name `{name}` is taken and is declared anew{place}: call it something else");
        Some(GuestError::new(GuestErrorKind::Syntax, text))
    }

    fn stopped(&self, kind: GuestErrorKind) -> GuestError {
        let text = match kind {
            GuestErrorKind::TimedOut => {
                format!(
                    "the program ran for its {} and was ended",
                    humantime::format_duration(self.program.limits.wall)
                )
            }
            _ => "the program was ended from outside".to_owned(),
        };
        GuestError::new(kind, text)
    }

    fn threw<'js>(&self, ctx: &Ctx<'js>, error: &CaughtError<'js>) -> GuestError {
        let (name, message, stack) = match error {
            CaughtError::Exception(error) => {
                let name: Option<String> = error.as_object().get("name").ok();
                (name, error.message().unwrap_or_default(), error.stack().unwrap_or_default())
            }
            CaughtError::Value(value) if value.is_null() => {
                let text = "null was thrown, as also happens where no memory is left for an error";
                (None, text.to_owned(), String::new())
            }
            CaughtError::Value(value) => (None, shown(ctx, value), String::new()),
            CaughtError::Error(error) => (None, error.to_string(), String::new()),
        };
        let kind = match (name.as_deref(), message.as_str()) {
            (_, "out of memory") => GuestErrorKind::Memory,
            (Some("SyntaxError"), _) if !self.has_begun => GuestErrorKind::Syntax,
            _ => GuestErrorKind::Threw,
        };
        let message = match (kind, message.as_str()) {
            (GuestErrorKind::Memory, _) => {
                format!("out of memory: a program has {} MiB", self.program.limits.heap_bytes >> 20)
            }
            (_, "Maximum call stack size exceeded" | "stack overflow") => {
                format!(
                    "the calls nest too deep: a program's stack has {} KiB",
                    self.program.limits.stack_bytes >> 10
                )
            }
            (_, "circular reference") => {
                "a value holds itself, and so can neither be returned nor passed: circular reference"
                    .to_owned()
            }
            (_, "BigInt are forbidden in JSON.stringify") => {
                "a big integer cannot be passed: make a number or a text of it".to_owned()
            }
            _ => match imported(&self.program.code) {
                Some(package) if kind == GuestErrorKind::Syntax => refused_import(package),
                _ => titled(name.as_deref(), &message),
            },
        };
        let message = crate::message::cap_text(&message, 4_000);
        GuestError { kind, message, stack: rebase(&stack, &self.program.code) }
    }

    fn fitting(&self, text: String) -> Result<String, GuestError> {
        let (chars, max) = (text.chars().count(), self.program.limits.output_chars);
        let text = if chars > max {
            format!("the result has {chars} characters, and a program may return {max}: return less of it")
        } else if levels(&text) > MAX_LEVELS {
            // No reader of the log, and none of the result, reads what is much deeper.
            format!(
                "the result nests {} levels deep, and a program may return {MAX_LEVELS}: put its parts side by side",
                levels(&text)
            )
        } else {
            return Ok(text);
        };
        Err(GuestError::new(GuestErrorKind::Threw, text))
    }
}

/// How long it may take to compile: text that closes the wrapper's brackets could else run for as long as it likes.
const COMPILING: Duration = Duration::from_secs(1);

/// Whether a program compiles and takes no name that is taken. Nothing of it is run.
///
/// # Errors
///
/// Why not.
pub(crate) fn compile(program: Program) -> Result<(), GuestError> {
    if let Some(error) = null_character(&program.code) {
        return Err(error);
    }
    let stop = Arc::new(Stop::after(COMPILING));
    let engine = Engine::new(program, stop, Box::new(|_| {})).map_err(|ended| match ended.result {
        Err(error) => error,
        Ok(_) => GuestError::new(GuestErrorKind::Crashed, "the runtime does not start"),
    })?;
    let names = engine.program.surface.mentioned(&engine.program.code);
    engine.context.with(|ctx| {
        // Made and never called.
        let code = format!("(()=>{})", wrap(&engine.program.code, &names));
        match eval_value(&ctx, code).catch(&ctx) {
            Ok(_) => Ok(()),
            Err(error) => Err(engine.taken_name(&ctx, &names).unwrap_or_else(|| engine.threw(&ctx, &error))),
        }
    })
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.context.with(|ctx| clear(&ctx));
    }
}

fn eval<'js>(ctx: &Ctx<'js>, code: String) -> Result<Promise<'js>, CaughtError<'js>> {
    let value = eval_value(ctx, code).catch(ctx)?;
    value.into_promise().ok_or(CaughtError::Error(rquickjs::Error::Unknown))
}

fn eval_value<'js>(ctx: &Ctx<'js>, code: String) -> rquickjs::Result<Value<'js>> {
    let mut options = EvalOptions::default();
    options.filename = Some(FILE.to_owned());
    ctx.eval_with_options(code, options)
}
