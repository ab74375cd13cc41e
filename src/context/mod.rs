//! Who runs, where in the tree, and with which rights: the state that a tree shares, and the choke point through which every
//! run comes into being.

mod extension;
mod record;
mod relayed;
mod root;
mod run;
mod spec;
mod waiting;
mod work;

pub(crate) use record::{RunRecord, RunState, Told};
pub use root::{BackgroundPolicy, Root, RootBuilder};
pub use run::{GraceHold, RunContext, enter_subagent_depth};
pub(crate) use spec::Birth;
pub use spec::{EnterError, Entered, RunSpec};
