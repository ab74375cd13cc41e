//! Who runs, where in the tree, and with which rights: the state that a tree shares, and the choke point through which every
//! run comes into being.

mod ask;
mod extension;
mod lockstep;
mod pause;
mod record;
mod relayed;
mod root;
mod run;
mod spec;
mod waiting;
mod work;

pub use ask::{Answer, AnsweredBy, AskKind, AskStep, AskWatch, Decision, OpenAsk, Question, Reply};
pub use lockstep::Lockstep;
pub(crate) use record::{RunRecord, RunState, Told};
pub use root::{BackgroundPolicy, Root, RootBuilder};
pub use run::{GraceHold, RunContext, enter_subagent_depth};
pub(crate) use spec::Birth;
pub use spec::{EnterError, Entered, RunSpec};
