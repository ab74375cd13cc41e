//! Runtimes in which nothing has run yet.

use std::sync::{Mutex, PoisonError};

use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::module::Declared;
use rquickjs::{Context, Ctx, Exception, Module, Result, Runtime};

use super::surface::refused_import;

/// One that was made ahead, for the next program of any run: most of what a program costs is to make its runtime, and between two
/// programs of an agent its model is asked. Held while one is made, which takes a tenth of a millisecond: who wants it then has it
/// sooner than one of its own.
static SPARE: Mutex<Option<Blank>> = Mutex::new(None);

/// A fresh runtime with the language's own names. No program has seen it, and each gets its own.
pub(super) struct Blank(Context);

impl Blank {
    fn new() -> Result<Self> {
        let runtime = Runtime::new()?;
        runtime.set_loader(NoPackages, NoPackages);
        Context::full(&runtime).map(Self)
    }

    /// The one that was made ahead, or a new one.
    ///
    /// # Errors
    ///
    /// If there is no memory for it.
    pub(super) fn take() -> Result<Self> {
        let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).take();
        spare.map_or_else(Self::new, Ok)
    }

    /// Makes one ahead, if none is there: to be called where nobody waits.
    pub(super) fn make_ahead() {
        // Where it is held, somebody else is at it.
        let Ok(mut spare) = SPARE.try_lock() else { return };
        if spare.is_none() {
            // If there is no memory for it now, there may be when it is needed.
            *spare = Self::new().ok();
        }
    }

    pub(super) fn into_context(self) -> Context {
        self.0
    }
}

/// What a program imports is refused by its name, in words that help.
struct NoPackages;

impl Resolver for NoPackages {
    fn resolve<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        _: &str,
        name: &str,
        _: Option<ImportAttributes<'js>>,
    ) -> Result<String> {
        Err(Exception::throw_message(ctx, &refused_import(name)))
    }
}

impl Loader for NoPackages {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        _: Option<ImportAttributes<'js>>,
    ) -> Result<Module<'js, Declared>> {
        Err(Exception::throw_message(ctx, &refused_import(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_made_ahead_knows_nothing_of_those_before() {
        for _ in 0..3 {
            let context = Blank::take().unwrap().into_context();
            let seen: bool =
                context.with(|ctx| ctx.eval("'left' in globalThis || (globalThis.left = 1, false)").unwrap());
            assert!(!seen);
            Blank::make_ahead();
        }
    }
}
