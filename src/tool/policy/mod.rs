//! What calls may do: rules by tool, argument and agent; hooks around each call; questions to a person.
//!
//! A call goes through them in this order: the hooks' `before` (which may replace it), the rules on what is then to be called,
//! the person where a rule says so, the tool, the hooks' `after` or `on_error`.

mod gate;
mod hooks;
mod offered;
mod reach;
mod rule;
mod rules;
mod verdict;

pub(super) use gate::{Passed, ask, question_about, ruled};
pub use hooks::{Decided, Hook, HookResult, Hooks};
pub(crate) use offered::{admitted, offered};
pub use reach::Reach;
pub use rule::Rule;
pub use rules::{Effect, Policy, Ruling};
pub use verdict::{After, Before, HookedCall, Redirect};
