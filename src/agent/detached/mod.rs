//! Detached subtasks: `start_subtask` begins a background run and returns at once, `wait_subtasks` fetches results. What they do
//! says [`Detached`], which adds both to a toolset.

mod cycles;
mod registry;
mod start;
mod subtask;
mod tools;
mod wait;

pub use tools::Detached;
