//! Questions that travel from a run to whoever watches its root, and answers that return to exactly that run.

mod asking;
mod question;
mod table;
mod watch;

pub use question::{Answer, AnsweredBy, AskKind, Decision, Question, Reply};
pub(super) use table::Asks;
pub use watch::{AskStep, AskWatch, OpenAsk};
