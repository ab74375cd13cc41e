//! The `anabranch` program: flags to validated options, the tree on a terminal, logs read back.
//!
//! Nothing here is needed to use the library, and nothing that a library user would miss is here.
//!
//! | command | what it does |
//! |---|---|
//! | `run` | runs an agent on a task in a workspace |
//! | `plan` | plans a workflow graph, and runs it with `--execute` |
//! | `script` | runs an orchestration script |
//! | `agents` | lists the agents that are defined by files |
//! | `replay` | folds a log to its tree and prints it |
//! | `verify` | holds a log against the invariants |

mod agents;
mod args;
mod ask;
mod entry;
mod exit;
mod host;
mod lines;
mod live;
mod log_file;
mod options;
mod outlet;
mod output;
mod panics;
mod plan;
mod read;
mod replay;
mod run;
mod save;
mod script;
mod show;
mod signals;
#[cfg(test)]
mod sample;
mod text;
mod verify;

pub use entry::main;
pub use exit::ExitStatus;
pub use lines::IndentedLines;
pub use live::{FRAME, InlineBackend, LiveTree, final_lines, lines, write_lines};
pub use log_file::{LineProblem, LogFile, LogLine, ProblemKind, open_log};
