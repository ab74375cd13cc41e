//! The tool loop: a model, its tools, and turns until there is an answer.
//!
//! [`Machine`] decides and never awaits; the driver awaits and never decides. [`ToolLoop`] is the producer that joins both.

mod answer;
mod driver;
mod images;
mod machine;
mod turn;

pub(crate) use answer::whole_fence;
pub use driver::ToolLoop;
pub use machine::{Action, LoopConfig, Machine, PlannedCall};
pub use turn::{RawCall, Turn, TurnBuilder};
