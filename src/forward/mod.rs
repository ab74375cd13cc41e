//! The one pipe: it drives a producer, stamps each message once, appends it to the root's log, and sees to it that the run ends
//! as the invariants say, whatever its producer does.

mod cancel;
mod close;
mod delegate;
mod endings;
mod guarded;
mod join;
mod live_run;
mod pipe;
mod relay;
mod root_run;
mod say;
mod straight;
mod timers;

pub use cancel::CancelEnd;
pub use pipe::{Forward, forward_subagent_stream};
pub use root_run::RootRun;
