//! For tests of what runs in a tree: logs as text, a root whose log is held against the invariants, and the battery that any
//! producer has to pass.
//!
//! Part of the library, not of its tests: whoever writes a producer, a tool or a planner needs the same. Nothing here pauses
//! time; a test does (`#[tokio::test(start_paused = true)]`), and then a log is reproducible to the byte.

mod conformance;
mod probe;
mod root;
mod timeline;

pub use conformance::{Conformance, ConformanceReport, check_sub_agent};
pub use root::{TestRoot, assert_verified, log_violations};
pub use timeline::timeline;
