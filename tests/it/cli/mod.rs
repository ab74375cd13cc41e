//! The program, run as its users run it.

// How it is started, waited for and signalled.
mod program;

// How a run ends, and what the limits do.
mod status;

// What goes where, for each form of output; golden texts.
mod output;

// Logs read back: whole, cut, foreign, empty.
mod logs;

// Graphs: planned, run, gone on with.
mod plan;

// What cannot be used, and what the workspace may hold.
mod input;

// Agents that are files: listed, and delegated to.
mod agents;

// Scripts, from a file to what they return.
mod script;

// A seed: the same log each time.
mod seeded;

// Code in processes of their own.
#[cfg(target_os = "linux")]
mod sandbox;

// Questions to the person at the terminal.
#[cfg(unix)]
mod asks;

// Signals, readers that leave and readers that sleep.
#[cfg(unix)]
mod signals;
