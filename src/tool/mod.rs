//! Tools: what a model may call, and how a sub-agent becomes one.
//!
//! A plain tool is an async function with a typed argument ([`tool_fn`]); a sub-agent tool declares its surface, its
//! parameters-to-run translation and its child's toolset ([`SubAgentTool`]). Everything else (validation, policy, caps, panics,
//! depth, events) is provided.

mod ask_user;
mod caller;
pub mod chaos;
mod context;
mod hooked;
mod invoke;
mod policy;
mod reply;
mod runtime;
mod schema;
pub mod shared;
mod sub_agent;
#[cfg(test)]
mod test_kit;
mod toolset;
mod traits;
mod typed;
#[cfg(feature = "workspace")]
pub mod workspace;

pub use ask_user::AskUser;
pub(crate) use caller::take_message;
pub use caller::{Announced, Caller, Made, NewCall};
pub use context::ToolContext;
pub use invoke::{Fatal, Invoked, invoke};
#[cfg(feature = "codeact")]
pub(crate) use policy::admitted;
pub use policy::{
    After, Before, Decided, Effect, Hook, HookResult, HookedCall, Hooks, Policy, Reach, Redirect, Rule,
    Ruling,
};
pub use reply::ToolReply;
pub use runtime::{AgentRuntime, Job, Producer};
pub use schema::Schema;
#[cfg(feature = "catalogue")]
pub(crate) use sub_agent::{Birth, refused};
pub use sub_agent::{Delegated, SubAgentRun, SubAgentTool};
pub use toolset::Toolset;
pub(crate) use toolset::{MAX_NAME, is_tool_name};
pub use traits::{Access, OnCancel, Risk, Tool};
pub use typed::{schema_of, tool_fn};
