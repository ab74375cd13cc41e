//! How a blocking operation is stopped: it asks, often.

use std::cell::Cell;
use std::io::{self, Read};

use crate::tool::ToolReply;

/// What an operation answers that was told to stop.
pub(super) fn cancelled() -> ToolReply {
    ToolReply::error("cancelled", "cancelled before it was done; no file was changed")
}

/// `Err` with [`cancelled`] once `stop` says so.
pub(super) fn check(stop: &dyn Fn() -> bool) -> Result<(), ToolReply> {
    if stop() { Err(cancelled()) } else { Ok(()) }
}

/// A reader that asks before each block whether to go on, and that ends after `left` bytes: a file may grow while it
/// is read.
pub(super) struct Watched<'a, R> {
    inner: io::Take<R>,
    stop: &'a dyn Fn() -> bool,
    stopped: &'a Cell<bool>,
}

impl<'a, R: Read> Watched<'a, R> {
    /// `stopped` is set when the reader refused to go on.
    pub(super) fn new(inner: R, left: u64, stop: &'a dyn Fn() -> bool, stopped: &'a Cell<bool>) -> Self {
        Self { inner: inner.take(left), stop, stopped }
    }
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if (self.stop)() {
            self.stopped.set(true);
            // Not `Interrupted`: that kind means "try again".
            return Err(io::Error::other("cancelled"));
        }
        self.inner.read(buffer)
    }
}
