//! The one integration-test binary.

// What every module uses: producers, calls, roots.
mod kit;

// The pipe: order, abort, the gate of depth, reproducibility.
mod pipe;

// Each example, run.
mod examples;
// What the tests of agents share: a scripted model that keeps its requests, on a root for tests.
mod stage;

// The tool loop as a producer: turns, limits, cancel in each phase, reproducibility.
mod agent;

// Tools under the loop: refusals, faults, caps, cancel.
mod tools;

// run_subtask and run_search.
mod subtasks;

// Situations that were reported against other systems, on the tool loop.
mod scenarios_agent;

// The same for limits, permits and deadlines.
mod scenarios_limits;
