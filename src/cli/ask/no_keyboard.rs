//! Where terminals are of another kind, nobody is asked.

use std::io;

use super::choice::Typed;

/// There is none.
#[derive(Debug)]
pub(super) enum Keyboard {}

impl Keyboard {
    pub(super) fn of_terminal() -> Option<Self> {
        None
    }

    pub(super) fn is_taken(&self) -> bool {
        match *self {}
    }

    pub(super) fn forget(&mut self) {
        match *self {}
    }

    pub(super) async fn line(&mut self) -> io::Result<Typed> {
        match *self {}
    }
}
