//! Shared results: what the runs of one tree know in common, under keys. What steps and subtasks came to and what scripts were given
//! their producers put there; what a model shares stands under `shared:`. The whole ends with the root.

mod key;
mod store;
mod tools;

pub use key::Namespace;
pub use store::{Author, NoRoom, SharedResult, SharedResults};
pub use tools::add_to;
