//! The pair of tools, as a host adds it.

use super::start::StartSubtask;
use super::wait::WaitSubtasks;
use crate::agent::RunSubtask;
use crate::error::Result;
use crate::tool::Toolset;

/// Adds `start_subtask` and `wait_subtasks` to a toolset.
///
/// # Examples
///
/// ```
/// use anabranch::agent::{Detached, RunSubtask};
/// use anabranch::tool::Toolset;
///
/// let tools = Toolset::new().with_sub_agent(RunSubtask::default())?;
/// let tools = Detached::new().add_to(&tools)?;
/// assert_eq!(tools.names().collect::<Vec<_>>(), ["run_subtask", "start_subtask", "wait_subtasks"]);
/// # Ok::<(), anabranch::error::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Detached {
    subtask: RunSubtask,
    max: usize,
}

impl Detached {
    /// How many detached subtasks a tree may have unless its host says otherwise: each keeps its result until somebody waits for
    /// it, so this and the size of a result bound what a tree keeps.
    pub const MAX_SUBTASKS: usize = 100;

    /// With every default.
    #[must_use]
    pub fn new() -> Self {
        Self { subtask: RunSubtask::default(), max: Self::MAX_SUBTASKS }
    }

    /// Detached subtasks are run as this tool runs its own: with its turns and its limits. Default: [`RunSubtask::default`].
    #[must_use]
    pub fn run_as(mut self, subtask: RunSubtask) -> Self {
        self.subtask = subtask;
        self
    }

    /// At most so many detached subtasks in one tree, ever, settled ones included; 0 means none. One more is refused, with the
    /// code `max_background_subtasks_reached` and both numbers. Default: [`Detached::MAX_SUBTASKS`].
    #[must_use]
    pub fn at_most(mut self, subtasks: usize) -> Self {
        self.max = subtasks;
        self
    }

    /// The tools and the pair, at the end. A detached subtask has every inheritable tool of the run that starts it, and
    /// `run_subtask`, `start_subtask` and `wait_subtasks` where those lack one of them.
    ///
    /// # Errors
    ///
    /// As [`Toolset::with`]: most likely, that a tool of one of these names is there already.
    pub fn add_to(&self, tools: &Toolset) -> Result<Toolset> {
        let companions = Toolset::new().with_sub_agent(self.subtask.clone())?.with(WaitSubtasks::new())?;
        let wait = companions.only(&[WaitSubtasks::NAME]);
        let start = StartSubtask::new(self.subtask.clone(), self.max, companions);
        tools.with_sub_agent(start)?.with_all(&wait)
    }
}

impl Default for Detached {
    fn default() -> Self {
        Self::new()
    }
}
