//! Questions to the person at the terminal: shown below the live tree, answered with a line.
//!
//! The terminal stays as it is: it echoes, and Ctrl-C is a signal. So a question is answered with a line and Enter, and the tree stands
//! still meanwhile: what is echoed lands where the cursor rests, and nothing may move that. The runs go on.

mod asker;
mod choice;
#[cfg(unix)]
mod keyboard;
#[cfg(not(unix))]
#[path = "no_keyboard.rs"]
mod keyboard;
mod picture;
#[cfg(test)]
mod test_kit;

pub(super) use asker::{Asker, Step};
