//! How sure an agent is of what it answered.
//!
//! The figures of different protocols cannot be compared with each other, and no figure is not zero.

mod agreement;
mod enrich;
mod enriched;
mod protocol;
mod rating;

pub use enrich::enrich;
pub use enriched::{Confidence, Enriched};
pub use protocol::{ConfidenceProtocol, StructuredFields};
