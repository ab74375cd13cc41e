//! The event log of one root: append-only, with independent cursors.
//!
//! Appending never waits for anybody. Whoever reads does so from a position of its own, at its own pace; what it was
//! too slow for it gets as the tree that those messages made.

mod journal;
mod log;
mod subscription;
mod window;

pub use journal::{Journal, MemoryJournal};
pub(crate) use log::Wakers;
pub use log::{EventBus, Retain};
pub use subscription::{From, Subscription};
