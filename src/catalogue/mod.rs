//! Agents that are files: `agents/<name>.md`, found, read and delegated to by name.
//!
//! A [`Definition`] is one file: front matter that says what the agent is for and what it may use, and a body that is its system
//! prompt. A [`Catalogue`] reads directories of them, anew at each look, so that a new file counts at once. A [`Spawner`] runs
//! them; [`Delegate`] is its tool, `delegate`, and each child has [`Finish`], with which it says how it ended. [`session_log`]
//! gives the whole log of a child.
//!
//! # Where definitions are
//!
//! In this order ([`Catalogue::standard`]); the first one of a name wins, whatever the case of its letters, and those behind it
//! are told as shadowed:
//!
//! 1. directories that are named (`--agents DIR`), in their order;
//! 2. `agents/` of the workspace;
//! 3. `.claude/agents/` of the workspace;
//! 4. `anabranch/agents/` of the user's configuration directory, such as `~/.config/anabranch/agents/`.
//!
//! Only a file that can be used takes a name: a broken one lets the next directory's through. Files end in `.md`, with small
//! letters; directories below and hidden files are not looked at.
//!
//! # The file
//!
//! ```text
//! ---
//! name: reviewer
//! description: Reads code and names its defects, each with its line.
//! tools: read_file, grep, glob
//! model: inherit
//! max_steps: 20
//! limits: { timeout: 5m, budget_tokens: 200000 }
//! ---
//! You review code. Read what you are given, …
//! ```
//!
//! | key | meaning |
//! |---|---|
//! | `name` | 1 to 64 of `a-z A-Z 0-9 _ - .`, the first a letter or digit. Default: the file's name without `.md` |
//! | `description` | required: whoever delegates chooses by it |
//! | `tools` | a list, or names with commas between; absent or empty: every tool that the parent hands down. It only narrows |
//! | `disallowed_tools` | the same, of tools that it may not have |
//! | `model` | a model of the host's; absent or `inherit`: the parent's. One that the host does not serve is told, and is the parent's too |
//! | `max_steps` | model turns, from 1. Default: the producer's |
//! | `output_schema` | a JSON schema that the result satisfies: here, or the name of a JSON file beside this one |
//! | `limits` | `max_turns`, `max_tool_calls`, `timeout`, `idle_timeout`, `budget_tokens`, `budget_usd`, in the words of the program's flags |
//! | `color` and others | keys that other programs know are passed over; a key that nothing knows is told |
//!
//! `maxSteps`, `maxTurns`, `outputSchema`, `disallowedTools` are read too. Names of tools that other programs use stand for ours:
//!
//! | there | here | | there | here |
//! |---|---|---|---|---|
//! | `Read` | `read_file` | | `LS` | `list_directory` |
//! | `Grep` | `grep` | | `Write` | `write_file` |
//! | `Glob` | `glob` | | `Edit`, `MultiEdit` | `edit_file` |
//! | `Task`, `Agent` | `delegate` | | `*` | every tool |
//!
//! A name without a counterpart (`Bash`, `WebFetch`), or with a pattern (`Read(src/**)`), is told and grants nothing; if nothing of a
//! list is left, the agent cannot run.

mod audit;
mod definition;
mod delegate;
mod directories;
mod error;
mod file;
mod finish;
mod front;
mod grant;
mod limits;
mod node;
mod notices;
mod record;
mod schema;
mod section;
mod spawner;
mod split;

pub use audit::{SessionLog, session_log};
pub use definition::Definition;
pub use delegate::Delegate;
pub use directories::{Catalogue, Listing, Shadowed};
pub use error::{DefinitionError, DefinitionErrorKind, DefinitionWarning};
pub use finish::Finish;
pub use grant::{COUNTERPARTS, Grant};
pub use record::{Record, RunStatus};
pub use spawner::{ModelResolver, Request, Spawner, Started};
