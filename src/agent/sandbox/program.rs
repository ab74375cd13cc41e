//! A program and its bounds.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// The body of an async function: `return` gives its result, `await` works at the top.
    pub code: String,
    /// The names under `tools`.
    pub tools: Vec<String>,
    /// What else it sees.
    pub surface: Surface,
    /// Its bounds.
    pub limits: GuestLimits,
}

/// What a program sees besides `tools`, `console`, `log`, `sleep`, `parallel` and `pipeline`. Exhaustive on purpose: each kind has
/// names of its own that a program may not take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Surface {
    /// One action of an agent: `search_tools` and `finish`.
    Action,
    /// An orchestration script: `agent`, `inputs` and `budget`.
    Script {
        /// What `inputs` is.
        inputs: Value,
        /// How many runs `agent` may start.
        max_agent_calls: u32,
        /// The tools that `agent` may give them.
        agent_tools: Vec<String>,
    },
}

/// The bounds of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestLimits {
    /// From its begin to its end, waiting included. Default 600 s, as the original core gives an action.
    pub wall: Duration,
    /// Its heap, in bytes; at least 1 MiB, which the engine itself needs. Default 64 MiB, as in the original core.
    pub heap_bytes: usize,
    /// Its stack, in bytes; at least 16 KiB, and at most 1 MiB, since the threads that run it have 2 MiB. Default 512 KiB, as in
    /// the original core.
    pub stack_bytes: usize,
    /// What it may give back, and what it may log in all, in characters each. Default 100,000, as in the original core.
    pub output_chars: usize,
    /// How many lines it may log. Default 1,000, as many as the original core allows reports of progress.
    pub log_lines: usize,
}

impl Default for GuestLimits {
    fn default() -> Self {
        Self {
            wall: Duration::from_mins(10),
            heap_bytes: 64 << 20,
            stack_bytes: 512 << 10,
            output_chars: 100_000,
            log_lines: 1_000,
        }
    }
}

impl GuestLimits {
    /// With what is out of its range at the end of it. The engine takes 0 for no limit, and does not survive too little.
    pub(super) fn in_range(self) -> Self {
        Self {
            heap_bytes: self.heap_bytes.max(1 << 20),
            stack_bytes: self.stack_bytes.clamp(16 << 10, 1 << 20),
            ..self
        }
    }
}

impl Program {
    /// An action with every default.
    #[must_use]
    pub fn action(code: impl Into<String>, tools: Vec<String>) -> Self {
        Self { code: code.into(), tools, surface: Surface::Action, limits: GuestLimits::default() }
    }
}
