//! Limits, and the reservations that hold them: nothing is counted without being reserved first.

mod ledger;
mod limits;
mod refusal;

pub use ledger::{Ledger, Reservation, WorkPermit};
pub use limits::{Limit, RunLimits, TreeLimits, WhenFull};
pub use refusal::{Refusal, RefusalKind};
