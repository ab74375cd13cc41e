//! The live tree: messages in, frames out.

use std::io::{self, Write};
use std::time::Duration;

use ratatui::layout::{Rect, Size};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::{Terminal, TerminalOptions, Viewport};

use super::super::text::several_lines;
use super::inline::InlineBackend;
use super::paint::write_lines;
use super::view::lines;
use super::whole::final_lines;
use crate::message::Timestamp;
use crate::tree::{Delivery, RunTree};

/// The shortest time between two frames: 30 a second.
pub const FRAME: Duration = Duration::from_millis(33);

/// How often the clock on the screen moves when nothing else does.
const TICK: Duration = Duration::from_millis(100);

/// How often everything is painted anew: heals what others wrote into the drawing, such as a typed line feed.
const REPAINT: Duration = Duration::from_secs(1);

/// What stands before what a person types.
const MARK: &str = "> ";

/// What the tree says while a person is asked.
const STILL: &str = "stands still while you answer";

/// How many lines are left free for what is typed: what scrolls out of the screen cannot be taken off any more.
fn typing(screen: Size) -> u16 {
    1 + screen.height / 6
}

/// The tree of a root while it grows, drawn on a terminal below what is already there.
///
/// It changes nothing of the terminal that would have to be restored: see [`InlineBackend`]. Dropped without
/// [`Self::finish`], it leaves its last frame where it is, and the cursor below it.
pub struct LiveTree<W: Write> {
    terminal: Terminal<InlineBackend<W>>,
    tree: RunTree,
    /// Something happened since the last frame.
    dirty: bool,
    drawn: Option<Timestamp>,
    painted: Option<Timestamp>,
    /// When the terminal last changed its size.
    resized: Option<Timestamp>,
    screen: Size,
    height: u16,
    note: Option<String>,
    /// What stands below the tree while a person is asked.
    question: Option<Vec<Line<'static>>>,
}

impl<W: Write> LiveTree<W> {
    /// A tree without runs, to be drawn on `out`, a terminal of this process. Nothing is drawn yet.
    ///
    /// # Errors
    ///
    /// None that a terminal could cause; those of the drawing library.
    pub fn new(out: W) -> io::Result<Self> {
        Self::on(InlineBackend::new(out))
    }

    /// The same on a backend of one's own.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn on(backend: InlineBackend<W>) -> io::Result<Self> {
        let options = TerminalOptions { viewport: Viewport::Fixed(Rect::ZERO) };
        Ok(Self {
            terminal: Terminal::with_options(backend, options)?,
            tree: RunTree::new(),
            dirty: true,
            drawn: None,
            painted: None,
            resized: None,
            screen: Size::ZERO,
            height: 0,
            note: None,
            question: None,
        })
    }

    /// Whether colours are used. Default: they are.
    #[must_use]
    pub fn colours(mut self, colours: bool) -> Self {
        self.terminal.backend_mut().colours = colours;
        self
    }

    /// The tree so far.
    pub fn tree(&self) -> &RunTree {
        &self.tree
    }

    /// Takes what a subscription delivers. Draws nothing: any number of messages make one frame.
    pub fn apply(&mut self, delivery: &Delivery) {
        self.tree.apply(delivery);
        self.dirty = true;
    }

    /// Draws a frame if one is due: at most one in [`FRAME`], whatever happens; and some a second when nothing does,
    /// for the clock's sake. Returns whether it drew. Call it about every [`FRAME`]. While a question is shown, it draws none.
    ///
    /// # Errors
    ///
    /// Those of the writer. The tree stays right; the next frame is painted whole.
    pub fn draw(&mut self, now: Timestamp) -> io::Result<bool> {
        if self.question.is_some() {
            return Ok(false);
        }
        let pause = if self.dirty { FRAME } else { TICK };
        if self.drawn.is_some_and(|drawn| drawn <= now && now.since(drawn) < pause) {
            return Ok(false);
        }
        self.drawn = Some(now);
        self.frame(now).inspect_err(|_| self.painted = None)?;
        self.dirty = false;
        Ok(true)
    }

    fn frame(&mut self, now: Timestamp) -> io::Result<()> {
        let screen = self.terminal.backend().measure();
        // The line below the drawing is where the cursor rests.
        let room = Size { width: screen.width, height: screen.height.saturating_sub(1) };
        let question = self.question.clone().unwrap_or_default();
        let taken = if self.question.is_some() { typing(screen) } else { 0 };
        let taken = taken.saturating_add(u16::try_from(question.len()).unwrap_or(u16::MAX));
        let mut lines = lines(&self.tree, now, Size { height: room.height.saturating_sub(taken), ..room });
        let note = self.note.as_deref().or(self.question.is_some().then_some(STILL));
        if let (Some(note), Some(totals)) = (note, lines.last_mut()) {
            totals.spans.insert(0, Span::styled(format!("{note} · "), Style::new().fg(Color::Yellow)));
        }
        lines.extend(question);
        let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).min(room.height);
        if screen != self.screen && self.painted.is_some() {
            self.resized = Some(now);
        }
        let within =
            |time: Option<Timestamp>| time.is_some_and(|time| time <= now && now.since(time) < REPAINT);
        // While a window is dragged, the size that was measured may be gone when the frame arrives.
        let fresh = within(self.painted) && !within(self.resized);
        if !fresh || (screen, height) != (self.screen, self.height) {
            self.terminal.backend_mut().erase(screen)?;
            self.terminal.resize(Rect::new(0, 0, screen.width, height))?;
            (self.screen, self.height, self.painted) = (screen, height, Some(now));
        }
        let text = Text::from(lines);
        self.terminal.draw(|frame| frame.render_widget(text, frame.area()))?;
        self.terminal.backend_mut().show(height)
    }

    /// Takes the drawing off, so that something else may be written to the terminal; the next frame is drawn below it.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn hide(&mut self) -> io::Result<()> {
        if self.painted.take().is_some() {
            let backend = self.terminal.backend_mut();
            let screen = backend.measure();
            backend.erase(screen)?;
            backend.write_queued()?;
            (self.height, self.drawn) = (0, None);
        }
        Ok(())
    }

    /// Draws a question below the tree now, with the cursor below that, behind a mark, for a person to type. `lines` says what it is in
    /// so much room. Nothing is drawn any more until the next question, or until [`Self::answered`]: the terminal shows what is typed
    /// where the cursor is, so that must stay.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn ask(&mut self, lines: impl FnOnce(Size) -> Vec<Line<'static>>, now: Timestamp) -> io::Result<()> {
        let screen = self.terminal.backend().measure();
        let height = screen.height.saturating_sub(1 + typing(screen));
        self.question = Some(lines(Size { height, ..screen }));
        // Painted whole.
        self.height = 0;
        self.frame(now).inspect_err(|_| self.painted = None)?;
        let out = self.terminal.backend_mut().out();
        out.write_all(MARK.as_bytes())?;
        out.flush()
    }

    /// A line of so many columns was typed, and Enter.
    pub fn typed(&mut self, columns: usize) {
        self.terminal.backend_mut().typed(MARK.len().saturating_add(columns));
        self.height = 0;
    }

    /// No question is shown any more.
    pub fn answered(&mut self) {
        if self.question.take().is_some() {
            (self.height, self.dirty) = (0, true);
        }
    }

    /// How wide the terminal is now.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.terminal.backend().measure().width.into()
    }

    /// Says something in front of the totals from now on.
    pub fn note(&mut self, note: &str) {
        self.note = Some(note.to_owned());
        self.dirty = true;
    }

    /// Leaves the last frame where it is; the next one is drawn where the cursor is then. For a process that was stopped
    /// and goes on: its shell has written below the drawing.
    pub fn begin_anew(&mut self) {
        self.terminal.backend_mut().begin_anew();
        (self.height, self.painted, self.drawn) = (0, None, None);
    }

    /// Writes text that stays, above the drawing.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn print_above(&mut self, text: &str) -> io::Result<()> {
        self.hide()?;
        let out = self.terminal.backend_mut().out();
        writeln!(out, "{}", several_lines(text.trim_end()))?;
        out.flush()
    }

    /// Replaces the drawing by the whole tree, a line for each run, which stays.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn finish(mut self) -> io::Result<()> {
        self.hide()?;
        let columns = usize::from(self.terminal.backend().measure().width);
        let mut bytes = Vec::new();
        let colours = self.terminal.backend().colours;
        write_lines(&mut bytes, &final_lines(&self.tree, columns), colours)?;
        let out = self.terminal.backend_mut().out();
        out.write_all(&bytes)?;
        out.flush()
    }
}

impl<W: Write> std::fmt::Debug for LiveTree<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveTree").field("runs", &self.tree.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
impl LiveTree<Vec<u8>> {
    /// The lines that were written as such and stayed, without what was drawn.
    pub(in crate::cli) fn above(&mut self) -> Vec<String> {
        let written = String::from_utf8_lossy(self.terminal.backend_mut().out()).into_owned();
        let plain = |line: &str| match line.rsplit_once('\x1b') {
            None => line.to_owned(),
            Some((_, rest)) => {
                rest.trim_start_matches(|c: char| !c.is_ascii_alphabetic()).chars().skip(1).collect()
            }
        };
        written.split('\n').map(plain).filter(|line| line.starts_with("? ")).collect()
    }
}

#[cfg(test)]
#[path = "live_tree_tests.rs"]
mod tests;
