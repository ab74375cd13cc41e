//! The one integration-test binary.

// What every module uses: producers, calls, roots.
mod kit;

// The pipe: order, abort, the gate of depth, reproducibility.
mod pipe;

// Settlement: exactly one terminal, whatever a producer does.
mod settle;

// Cancellation: any node, in any phase, by anybody, with a definite end.
mod cancel;

// The log and its readers: any number, any pace, from any point on.
mod bus;
