//! The questions of a tree, one by one: shown, read, answered.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use super::super::live::LiveTree;
use super::super::text::width;
use super::choice::{Choice, Said, Typed, read};
use super::keyboard::Keyboard;
use super::picture::{Shown, record, whole};
use crate::context::{AskWatch, OpenAsk, Root};
use crate::error::ErrorKind;
use crate::message::Timestamp;

/// Why a question is taken off that nobody answered.
const LATE: &str = "nobody answered in time";

/// The same before its time.
const WITHDRAWN: &str = "no answer is needed any more";

/// What a person reads whose pager has the keyboard.
const TAKEN: &str = "? a run asks, and nobody can answer: another program reads the keys of this terminal";

/// The person at the terminal. Dropped, nobody is there any more, and what is open is denied.
pub(in crate::cli) struct Asker {
    root: Root,
    watch: AskWatch,
    keyboard: Keyboard,
    open: Option<Open>,
}

/// The question that is being answered.
#[derive(Debug)]
struct Open {
    ask: Arc<OpenAsk>,
    /// What is on the screen is the question as it is now.
    is_shown: bool,
    edits: bool,
    hint: Option<String>,
}

/// What happened.
#[derive(Debug)]
pub(in crate::cli) enum Step {
    /// Somebody asks.
    Asked(Arc<OpenAsk>),
    /// The question is open no more, and was not answered here.
    Closed,
    /// A line was typed, or the terminal is gone.
    Typed(io::Result<Typed>),
    /// Nobody will ask any more.
    Ended,
}

impl Asker {
    /// Watches for questions of this tree from now on, if standard input is a terminal.
    pub(in crate::cli) fn attach(root: &Root) -> Option<Self> {
        Keyboard::of_terminal().map(|keyboard| Self::at(keyboard, root))
    }

    fn at(keyboard: Keyboard, root: &Root) -> Self {
        Self { root: root.clone(), watch: root.asks(), keyboard, open: None }
    }

    /// Whether a question is open: then [`Asker::draw`] draws.
    pub(in crate::cli) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// What happens next.
    ///
    /// # Cancel safety
    ///
    /// Dropping it loses nothing.
    pub(in crate::cli) async fn next(&mut self) -> Step {
        let Some(open) = &self.open else {
            return self.watch.next().await.map_or(Step::Ended, Step::Asked);
        };
        tokio::select! {
            biased;
            () = self.watch.closed(&open.ask) => Step::Closed,
            typed = self.keyboard.line(), if open.is_shown => Step::Typed(typed),
        }
    }

    /// Does what follows from a step. False: nobody can be asked here any more.
    ///
    /// # Errors
    ///
    /// Those of the terminal.
    pub(in crate::cli) fn take<W: Write>(&mut self, step: Step, tree: &mut LiveTree<W>) -> io::Result<bool> {
        match step {
            Step::Asked(ask) => self.open = Some(Open { ask, is_shown: false, edits: false, hint: None }),
            Step::Closed => self.unanswered(tree)?,
            Step::Typed(Ok(Typed::Line(line))) => {
                tree.typed(width(&line));
                self.said(&line, tree)?;
            }
            Step::Typed(Ok(Typed::End)) => match self.open.as_mut().filter(|open| open.edits) {
                Some(open) => (open.edits, open.is_shown) = (false, false),
                None => self.answer(&Choice::No(None), tree)?,
            },
            Step::Typed(Err(_)) => {
                self.end(tree);
                return Ok(false);
            }
            Step::Ended => return Ok(false),
        }
        Ok(true)
    }

    /// Draws the question below the tree, if what is on the screen is not that. Both stand still until a line is typed. False: nobody
    /// can be asked here any more.
    ///
    /// # Errors
    ///
    /// Those of the terminal.
    pub(in crate::cli) fn draw<W: Write>(
        &mut self,
        tree: &mut LiveTree<W>,
        now: Timestamp,
    ) -> io::Result<bool> {
        let Some(open) = self.open.as_mut().filter(|open| !open.is_shown) else { return Ok(true) };
        if self.keyboard.is_taken() {
            self.end(tree);
            tree.print_above(TAKEN)?;
            return Ok(false);
        }
        // Before it can be seen: no key is lost that was meant for it.
        self.keyboard.forget();
        let waiting: usize = tree.tree().nodes().map(|node| node.open_asks.len()).sum();
        let Open { ask, edits, hint, .. } = &*open;
        let left = ask.question.deadline.saturating_sub(now.since(ask.asked));
        // In whole seconds, the one that has begun too.
        let left = Duration::from_secs(u64::try_from(left.as_millis().div_ceil(1000)).unwrap_or(u64::MAX));
        let shown =
            Shown { ask, left, others: waiting.saturating_sub(1), edits: *edits, hint: hint.as_deref() };
        tree.ask(|size| shown.lines(size), now)?;
        open.is_shown = true;
        Ok(true)
    }

    /// The terminal has to be drawn on anew, since others have used it.
    pub(in crate::cli) fn begin_anew(&mut self) {
        if let Some(open) = &mut self.open {
            open.is_shown = false;
        }
    }

    /// The question is over, as it is when its tree has ended: what became of it is told.
    ///
    /// # Errors
    ///
    /// Those of the terminal.
    pub(in crate::cli) fn unanswered<W: Write>(&mut self, tree: &mut LiveTree<W>) -> io::Result<()> {
        let is_late =
            |open: &Open| self.root.clock().now().since(open.ask.asked) >= open.ask.question.deadline;
        let why = if self.open.as_ref().is_some_and(is_late) { LATE } else { WITHDRAWN };
        self.close(why, tree)
    }

    /// Nobody can be asked any more: what was half typed is nobody's.
    fn end<W: Write>(&mut self, tree: &mut LiveTree<W>) {
        if self.open.take().is_some_and(|open| open.is_shown) {
            self.keyboard.forget();
        }
        tree.answered();
    }

    fn said<W: Write>(&mut self, line: &str, tree: &mut LiveTree<W>) -> io::Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        open.is_shown = false;
        open.hint = None;
        match read(line, &open.ask.question, open.edits) {
            Said::Choice(choice) => self.answer(&choice, tree)?,
            Said::Edit => open.edits = true,
            Said::Back => open.edits = false,
            Said::View => tree.print_above(&whole(&open.ask))?,
            Said::Unclear(hint) => open.hint = Some(hint),
        }
        Ok(())
    }

    fn answer<W: Write>(&mut self, choice: &Choice, tree: &mut LiveTree<W>) -> io::Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        match self.root.answer(&open.ask.request_id, choice.reply()) {
            Ok(()) => self.close(&choice.told(), tree),
            Err(error) => match error.kind() {
                ErrorKind::AskReply { reason, .. } => {
                    (open.is_shown, open.hint) = (false, Some(reason.clone()));
                    Ok(())
                }
                _ => self.close(WITHDRAWN, tree),
            },
        }
    }

    fn close<W: Write>(&mut self, answer: &str, tree: &mut LiveTree<W>) -> io::Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        if open.is_shown {
            self.keyboard.forget();
        }
        tree.answered();
        tree.print_above(&record(&open.ask, answer, tree.columns()))
    }
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker").field("open", &self.open).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(unix)]
#[path = "asker_tests.rs"]
mod tests;
