//! The pair of tools, as a host adds it.

use super::start::StartSubtask;
use super::wait::WaitSubtasks;
use crate::agent::RunSubtask;
use crate::error::Result;
use crate::tool::Toolset;

/// Adds `start_subtask` and `wait_subtasks` to a toolset.
///
/// # Lifetime
///
/// A detached subtask is a background run (`Scope::Background`): it goes on when the turn or the run that started it ends,
/// and it ends with the root. When the root's own work is done, the root waits for it or cancels it, as its
/// [`BackgroundPolicy`](crate::context::BackgroundPolicy) says; when the root is cancelled, dropped or out of time, it is
/// cancelled. A cancel of the run that started it reaches it too. It runs on a task of its own, which is gone when its run is.
///
/// # Who sees whom
///
/// What the two tools share is kept once for each tree, however many agents and trees use the toolset, and freed when the root
/// run ends. A wait that names no ids is for what the waiting run and the runs below it started: so it never is for itself or for
/// one that it works for, it does not get stuck on other runs' work, and it does not take results that are others'. By its id,
/// every run of a tree can wait for every detached subtask of that tree: whoever delegates can hand ids on in a brief.
///
/// # Results
///
/// `wait_subtasks` answers `{"subtasks": [row…], "all_settled": bool, "message"?}`, with rows in the order of the starts:
///
/// | key | when |
/// |---|---|
/// | `subtask_id`, `depth`, `description`, `status` | always; of an id that there is not, `subtask_id` and the status `unknown` alone |
/// | `result` | completed |
/// | `error`, `code`, `outcome`, `stop_class`, `partial?` | failed, stopped, cancelled: what `run_subtask` would have said; `error` is the text |
/// | `delivered: true` | it has settled, and an earlier wait got the keys above |
/// | `held_back: true` | it has settled, and this reply had no room for the keys above: the next one may |
///
/// What a subtask came to is handed over once, to the first wait that returns it. It counts as handed over when the call of the
/// wait returns its reply. A wait that is cancelled or dropped before that hands over nothing, and another one may still get it.
/// What a run does with a reply that it got is its own: if it is cancelled before its model reads the reply, the result is in the
/// log and nowhere else.
///
/// A run that waits holds no permit: see [`RunContext::without_permit`](crate::context::RunContext::without_permit).
///
/// # Refusals
///
/// | code | when |
/// |---|---|
/// | those of `run_subtask` | as there: `max_recursion_depth_reached`, `missing_prompt`, … |
/// | `max_background_subtasks_reached` | the tree has had all that it may: see [`Detached::at_most`] |
/// | `background_unavailable` | there is no tokio runtime |
/// | `invalid_tool_arguments` | `ids` or `timeout_ms` have another type, or the time is negative |
/// | `wait_on_self` | a named id is the waiting run or one that it works for |
/// | `wait_cycle` | the wait would close a circle of waits, over any number of runs; the message names it |
///
/// A run in the foreground waits in the name of the background run, or the root, that it works for: that one cannot end before
/// it. So circles are found through foreground children, too.
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
