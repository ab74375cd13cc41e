//! The tree as text: while it grows, on a terminal; and when it is done, anywhere.
//!
//! All that is drawn comes from a [`RunTree`](crate::tree::RunTree) and a time that the caller gives. [`lines`] is
//! the picture of a tree that grows, [`final_lines`] of one that is done: pure functions, which [`LiveTree`] paints.

mod inline;
mod live_tree;
mod paint;
mod row;
mod view;
mod whole;

pub use inline::InlineBackend;
pub use live_tree::{FRAME, LiveTree};
pub use paint::write_lines;
pub(super) use row::sign;
pub use view::lines;
pub use whole::final_lines;
