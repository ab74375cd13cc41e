//! The one integration-test binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::needless_pass_by_value,
    clippy::type_complexity,
    unreachable_pub,
    reason = "all of this crate is tests: a failed expectation is to end one"
)]

// What every module uses: producers, calls, roots.
mod kit;

// The pipe: order, abort, the gate of depth, reproducibility.
mod pipe;

// Settlement: exactly one terminal, whatever a producer does.
mod settle;

// Cancellation: it reaches all below, ends, and says by whom.
mod cancel;

// What the tests of agents share: a scripted model that keeps its requests, on a root for tests.
mod stage;

// The tool loop as a producer: turns, limits, cancel in each phase, reproducibility.
mod agent;
// Questions to a person, and rules that ask: from any depth, answered to exactly that call.
mod asks;
// The same for actions of code.
#[cfg(feature = "codeact")]
mod asks_of_code;
// Rules on the places that a call comes upon.
mod reach;
// Hooks around calls: skip, redirect, abort.
mod hooks;

// Tools under the loop: refusals, faults, caps, cancel.
mod tools;
// Images that tools return.
mod images;

// run_subtask and run_search.
mod subtasks;

// Agents that act by writing code.
#[cfg(feature = "codeact")]
mod codeact;

// A seed makes a log the same each time.
#[cfg(all(feature = "codeact", feature = "workspace"))]
mod seeded;
// The same: results, names and mistakes of one action.
#[cfg(feature = "codeact")]
mod actions;

// Deep values, results beside other calls, programs dropped at any moment.
#[cfg(feature = "codeact")]
mod attacks;

// What may come out of a sandbox.
#[cfg(feature = "codeact")]
mod hostile_guest;
// Agents that are written down as Rust, for what a script cannot say: ids, and waits at once.
mod acts;

// start_subtask and wait_subtasks: what they take and give.
mod detached;

// The same: waits for itself and for one another.
mod detached_waits;

// The same: scopes, and every way in which a wait, a subtask and a tree end.
mod detached_ends;

// The planners of graphs and of tasks.
mod planner;

// Graphs that run: order, failures, cancel, limits.
mod graph_runs;

// Orchestration scripts.
#[cfg(feature = "codeact")]
mod scripts;

// The same: what they pass to `agent`, and what of it counts.
#[cfg(feature = "codeact")]
mod script_agents;

// Graphs that are gone on with from a log.
mod graph_resume;

// Stack frames: sub-agents as contracts.
mod frames;

// The same as values of a program.
mod frame_values;

// Compounds: agent, executor, state, evaluator, refinement; refinement loops.
mod compound;

// Compounds of which a part fails.
mod compound_faults;

// Refinement loops, and how sure an agent is.
mod refinement;

// Tries that are repeated, and hooks around what is no tool call.
mod retries;
// What the tests of agents that are files share.
#[cfg(feature = "catalogue")]
mod agents_kit;

// Agents that are files: delegated to, narrowed, told.
#[cfg(feature = "catalogue")]
mod catalogue;
// Agents that are files, as nodes of graphs.
#[cfg(feature = "catalogue")]
mod catalogue_graphs;

// The same: every way in which such a run ends, and its log.
#[cfg(feature = "catalogue")]
mod catalogue_ends;
// What the runs of one tree share under keys.
mod shared_results;

// Situations that were reported against other systems, on the tool loop.
mod scenarios_agent;

// The same for limits, permits and deadlines.
mod scenarios_limits;

// The program itself, run as its users run it.
#[cfg(feature = "cli")]
mod cli;

// Models of providers, against a server of our own and recorded streams.
#[cfg(feature = "providers")]
mod provider;

// The same with a real model, where one is served.
#[cfg(feature = "providers")]
mod real_model;

// Each example, run.
mod examples;

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

// What an agent with all tools is told.
#[cfg(all(feature = "catalogue", feature = "codeact", feature = "workspace"))]
mod prompts;
