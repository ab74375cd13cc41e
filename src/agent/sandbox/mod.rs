//! Where code runs that a model wrote: JavaScript behind a port, with no network, no files and no timers of its own.
//!
//! A program asks its host for everything that it cannot do itself (tools, sub-agents, sleep), and the host answers. What crosses
//! is JSON, whether the program runs in this process ([`InProcess`]) or in one of its own ([`ChildProcess`]).
//!
//! The engine is one JavaScript runtime that is stepped: it runs until it waits, and holds no thread while it does.

mod agent_call;
mod blank;
mod bridge;
mod child;
mod child_process;
mod diagnose;
mod encode;
mod engine;
mod guest;
mod in_process;
mod lane;
mod patience;
mod play;
mod port;
mod program;
mod running;
mod spin;
mod surface;

pub(crate) use agent_call::AgentCall;
pub(crate) use bridge::{Bridge, Hands};
pub use child::serve_stdio;
pub use child_process::ChildProcess;
pub(crate) use encode::read_json;
pub(crate) use engine::compile;
pub use in_process::InProcess;
pub(crate) use play::Played;
pub use port::{Ask, Ended, GuestError, GuestErrorKind, GuestEvent, HostError, HostReply, Sandbox, Session};
pub use program::{GuestLimits, Program, Surface};
