//! The tree: everything a watcher wants to know, derived from the log by one pure fold.
//!
//! [`RunTree`] takes messages and never fails: what does not fit is counted in [`Diagnostics`]. [`verify()`] holds a log
//! against the invariants; [`compact()`] makes a shorter log that says the same.

#[cfg(test)]
mod any_log_tests;
mod compact;
mod delivery;
mod node;
mod positions;
mod reducer;
#[cfg(test)]
mod soak_tests;
#[cfg(test)]
mod test_log;
mod verify;
mod view;
mod watch;

pub use compact::compact;
pub use delivery::{Delivery, Gap};
pub(crate) use node::cut;
pub use node::{Call, CallState, Node, Status};
pub use reducer::{Diagnostics, RunTree};
pub use verify::{Verifier, Violation, verify};
pub(crate) use watch::{Misfit, RunWatch};
