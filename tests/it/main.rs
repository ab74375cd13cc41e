//! The one integration-test binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::too_many_lines,
    clippy::type_complexity,
    reason = "helpers of tests, which clippy does not see as tests; a table of cases is one function"
)]

// What every module uses: producers, calls, roots.
mod kit;

// The pipe: order, abort, the gate of depth, reproducibility.
mod pipe;

// Settlement: exactly one terminal, whatever a producer does.
mod settle;

// Cancellation: any node, in any phase, by anybody, with a definite end.
mod cancel;

// Cancellation of a whole tree: what it takes along, what it spares, what is left.
mod cancel_tree;

// The log and its readers: any number, any pace, from any point on.
mod bus;

// Limits: refused, queued or stopped, and every permit back.
mod limits;

// The order of the rooms and the habits that the compiler does not check.
mod house;

// Random trees under random cancels and readers.
mod random_trees;

// Other situations of the catalogue that touch only these rooms.
mod scenarios;
