//! The one integration-test binary.

// What every module uses: producers, calls, roots.
mod kit;

// The pipe: order, abort, the gate of depth, reproducibility.
mod pipe;
