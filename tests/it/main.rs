//! The one integration-test binary.

// What every module uses: producers, calls, roots.
mod kit;

// The pipe: order, abort, the gate of depth, reproducibility.
mod pipe;

// Settlement: exactly one terminal, whatever a producer does.
mod settle;
