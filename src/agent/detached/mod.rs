//! Detached subtasks: `start_subtask` begins a background run and returns at once, `wait_subtasks` fetches results.
//!
//! [`Detached`] adds both tools to a toolset. What they share is kept once for each tree, however many agents and trees use
//! the toolset: no run sees the subtasks of another tree, and all is freed when the root
//! run ends.
//!
//! # Who sees whom
//!
//! A wait that names no ids is for what the waiting run and the runs below it started: so it never is for itself or for one that it
//! works for, it does not get stuck on other runs' work, and it does not take results that are others'. By its id, every run of a
//! tree can wait for every detached subtask of that tree: whoever delegates can hand ids on in a brief.
//!
//! # Lifetime
//!
//! A detached subtask is a background run (`Scope::Background`): it goes on when the turn or the run that started it ends,
//! and it ends with the root. When the root's own work is done, the root waits for it or cancels it, as its
//! [`BackgroundPolicy`](crate::context::BackgroundPolicy) says; when the root is cancelled, dropped or out of time, it is
//! cancelled. A cancel of the run that started it reaches it too. It runs on a task of its own, which is gone when its run is.
//!
//! # Results
//!
//! The result of a subtask is handed over once, to the first wait that returns it: then the row of a later wait says
//! `"delivered": true` in its place. It counts as handed over when the call of the wait returns its reply. A wait that is cancelled
//! or dropped before that hands over nothing, and another one may still get the results. What a run does with a reply that it
//! got is its own: if it is cancelled before its model reads the reply, the result is in the log and nowhere else.
//!
//! Results that do not fit into one reply together stay where they are (`"held_back": true`) for the next wait.
//!
//! # Waits that could never end
//!
//! A wait for the waiting run itself or for a run that it works for is refused (`wait_on_self`), and so is one that would close
//! a circle of waits (`wait_cycle`), over any number of runs. A run in the foreground waits in the name of the background run, or
//! the root, that it works for: that one cannot end before it.

mod cycles;
mod registry;
mod start;
mod subtask;
mod tools;
mod wait;

pub use start::StartSubtask;
pub use tools::Detached;
pub use wait::WaitSubtasks;
