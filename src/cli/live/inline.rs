//! A backend that draws where the cursor is, below what is already on the terminal.
//!
//! ratatui's own inline viewport asks the terminal where its cursor is: on start and on each resize, by a query that
//! goes to stdout, whatever the drawing goes to. Here that would end up in the result that a shell redirects, and the
//! answer would have to be read from a terminal in raw mode, in which Ctrl-C is no signal. So this backend moves
//! relative to where it began and never asks anything.
//!
//! Nothing of the terminal is changed for longer than one write: the cursor stays visible and rests on the empty line
//! below the drawing, echo and signals stay on. Whichever way the program ends, there is nothing to restore.

use std::fmt;
use std::io::{self, Write};

use ratatui::backend::{Backend, ClearType, IntoCrossterm, WindowSize};
use ratatui::buffer::{Cell, CellWidth};
use ratatui::crossterm::cursor::{MoveDown, MoveToColumn, MoveUp};
use ratatui::crossterm::queue;
use ratatui::crossterm::style::{Attribute, Print, SetAttribute, SetStyle};
use ratatui::crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType as Erase, DisableLineWrap, EnableLineWrap,
    EndSynchronizedUpdate,
};
use ratatui::layout::{Position, Size};
use ratatui::style::Style;

/// What a terminal that does not know its size is taken for.
const USUAL: Size = Size::new(80, 24);

/// See the module.
pub struct InlineBackend<W: Write> {
    out: W,
    measure: Box<dyn Fn() -> io::Result<Size> + Send>,
    /// What is drawn and not yet written: a frame is one write, so that nothing of it can be seen half done.
    frame: Vec<u8>,
    /// The cursor's row below the first line of the drawing.
    row: u16,
    /// How many columns of each row were ever drawn on since it was empty.
    extents: Vec<u16>,
    screen: Size,
    pub(super) colours: bool,
}

impl<W: Write> InlineBackend<W> {
    /// Draws on `out`, a terminal of this process.
    pub fn new(out: W) -> Self {
        Self::with_size(out, || {
            ratatui::crossterm::terminal::size().map(|(width, height)| Size { width, height })
        })
    }

    /// Draws on `out`, whose size `measure` tells.
    pub fn with_size(out: W, measure: impl Fn() -> io::Result<Size> + Send + 'static) -> Self {
        let (frame, extents) = (Vec::new(), Vec::new());
        Self { out, measure: Box::new(measure), frame, row: 0, extents, screen: USUAL, colours: true }
    }

    /// The terminal's size now.
    #[must_use]
    pub fn measure(&self) -> Size {
        (self.measure)().ok().filter(|size| size.width > 0 && size.height > 0).unwrap_or(USUAL)
    }

    /// Takes the drawing off; the next one begins where it began. Takes effect with the next flush.
    pub(super) fn erase(&mut self, screen: Size) -> io::Result<()> {
        // A terminal that became narrower has wrapped the rows that were wider: they are several now.
        let up = if screen.width < self.screen.width {
            let rows = self.extents.iter().take(usize::from(self.row));
            rows.map(|extent| extent.div_ceil(screen.width.max(1)).max(1)).fold(0, u16::saturating_add)
        } else {
            self.row
        };
        queue!(self.frame, MoveToColumn(0))?;
        if up > 0 {
            // Row by row: what is cleared from the top of the screen at once, some terminals keep in their scrollback.
            queue!(self.frame, MoveUp(up))?;
            for _ in 0..up {
                queue!(self.frame, Clear(Erase::CurrentLine), MoveDown(1))?;
            }
            queue!(self.frame, Clear(Erase::FromCursorDown), MoveUp(up))?;
        }
        self.extents.clear();
        (self.row, self.screen) = (0, screen);
        Ok(())
    }

    /// The next drawing begins where the cursor is.
    pub(super) fn begin_anew(&mut self) {
        self.frame.clear();
        self.extents.clear();
        self.row = 0;
    }

    /// Rests on the empty line below a drawing of `height` lines and writes the frame.
    pub(super) fn show(&mut self, height: u16) -> io::Result<()> {
        if self.frame.is_empty() {
            return Ok(());
        }
        self.move_to(0, height)?;
        let mut write = Vec::with_capacity(self.frame.len() + 32);
        // Where the terminal takes a character for wider than we do, the row must not spill over into the next.
        queue!(write, BeginSynchronizedUpdate, DisableLineWrap)?;
        write.append(&mut self.frame);
        queue!(write, EnableLineWrap, EndSynchronizedUpdate)?;
        self.out.write_all(&write)?;
        self.out.flush()
    }

    /// Someone typed a line of so many columns where the cursor rested, and Enter: the cursor is below it now.
    pub(super) fn typed(&mut self, columns: usize) {
        let width = self.measure().width;
        let mut left = u16::try_from(columns).unwrap_or(u16::MAX);
        self.extents.resize(usize::from(self.row), 0);
        loop {
            self.extents.push(left.min(width));
            self.row = self.row.saturating_add(1);
            left = left.saturating_sub(width);
            if left == 0 {
                return;
            }
        }
    }

    /// What writes past the drawing; only after [`Self::erase`] and a flush.
    pub(super) fn out(&mut self) -> &mut W {
        &mut self.out
    }

    /// Writes what is queued, and nothing else.
    pub(super) fn write_queued(&mut self) -> io::Result<()> {
        self.out.write_all(&self.frame)?;
        self.frame.clear();
        self.out.flush()
    }

    fn move_to(&mut self, column: u16, row: u16) -> io::Result<()> {
        if row < self.row {
            queue!(self.frame, MoveUp(self.row - row))?;
        }
        // Downwards by line feeds: at the bottom of the screen these scroll, which moving down does not.
        for _ in self.row..row {
            queue!(self.frame, Print("\r\n"))?;
        }
        self.row = row;
        queue!(self.frame, MoveToColumn(column))
    }
}

impl<W: Write> Backend for InlineBackend<W> {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let (mut next, mut style) = (None, Style::reset());
        for (column, row, cell) in content {
            if next != Some((column, row)) {
                self.move_to(column, row)?;
            }
            let mut wanted = cell.style();
            if !self.colours {
                (wanted.fg, wanted.bg, wanted.underline_color) = (None, None, None);
            }
            if wanted != style {
                style = wanted;
                queue!(self.frame, SetAttribute(Attribute::Reset), SetStyle(style.into_crossterm()))?;
            }
            queue!(self.frame, Print(cell.symbol()))?;
            if self.extents.len() <= usize::from(row) {
                self.extents.resize(usize::from(row) + 1, 0);
            }
            if let Some(extent) = self.extents.get_mut(usize::from(row)) {
                *extent = (*extent).max(column.saturating_add(cell.cell_width())).min(self.screen.width);
            }
            // How wide other characters are is the terminal's opinion: after one, the column is set anew.
            next = cell.symbol().is_ascii().then_some((column.saturating_add(1), row));
        }
        queue!(self.frame, SetAttribute(Attribute::Reset))
    }

    /// Never: the cursor stays as it is.
    fn hide_cursor(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::new(0, self.row))
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, _position: P) -> io::Result<()> {
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Nothing: what is drawn is taken off whole, by `erase`, before ratatui wants any of it cleared.
    fn clear_region(&mut self, _region: ClearType) -> io::Result<()> {
        Ok(())
    }

    fn size(&self) -> io::Result<Size> {
        Ok(self.screen)
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.screen, pixels: Size::ZERO })
    }

    /// Nothing: a frame is written by `show`, whole.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write> fmt::Debug for InlineBackend<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InlineBackend")
            .field("row", &self.row)
            .field("screen", &self.screen)
            .finish_non_exhaustive()
    }
}
