//! A sub-agent bound to an executor that acts on the real world, refined until an evaluator is content.
//!
//! One pass is: the agent answers, the executor acts on its answer, the state updater writes the result into the state, the evaluator
//! judges it. [`Compound`] makes passes until one is good or there may be no more; [`RefinementLoop`] is the same without an
//! executor, with more ways to end.

mod builder;
mod course;
mod drive;
mod error;
mod parts;
mod refinement;
mod report;
mod result;
mod run;
mod tool;

pub use builder::CompoundBuilder;
pub use course::Convergence;
pub use error::{CompoundError, Stage};
pub use parts::{Action, Evaluation, Judging, Refinement};
pub use refinement::{RefinementLoop, RefinementLoopBuilder};
pub use result::{CompoundResult, ExitReason, PassRecord};
pub use run::{Compound, CompoundCall};
