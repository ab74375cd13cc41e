//! The script model: what each run's model says, written down beforehand.
//!
//! For tests, demonstrations and work on a user interface: the whole tree of agents runs, only the words come from
//! a file. It is deterministic, it checks the conversation that it is sent as strictly as the strictest provider
//! does, and its delays are timers of tokio, so a test with a paused clock plays an hour in no time.
//!
//! A script is JSON. Its entries say for which runs they are (`when`: depth, agent, title, prompt); a run plays
//! the turns of the first entry that matches it, one a model call:
//!
//! ```
//! use anabranch::model::{Script, ScriptModel};
//!
//! let script = Script::parse(
//!     r#"{ "anabranch_script": 1, "agents": [
//!         { "when": { "depth": 0 },
//!           "turns": [
//!             { "text": "Delegating.", "tool_calls": [
//!                 { "name": "run_subtask", "arguments": { "description": "count", "prompt": "Count." } } ] },
//!             { "chunks": ["There are ", "three."], "chunk_delay_ms": 20 } ] },
//!         { "turns": [ { "text": "three" } ] } ] }"#,
//!     "example.json",
//! )?;
//! let model = ScriptModel::new(script);
//! # Ok::<(), anabranch::error::Error>(())
//! ```
//!
//! | key of a turn | meaning, in the order in which it is played |
//! |---|---|
//! | `delay_ms` | wait before the first event |
//! | `thinking` | one delta of thinking |
//! | `text`, or `chunks`, or `generate {chunks, text}` | one delta; a list of deltas; so many equal ones |
//! | `chunk_delay_ms` | wait before each delta of the text |
//! | `code` | one call of `execute_code` with this program |
//! | `tool_calls` | a list of `{id?, name, arguments?}`; a string as arguments is sent as it is, also if it is not JSON |
//! | `usage` | `{input_tokens?, output_tokens?, cached_tokens?, cost_usd?}`; one call without tokens by default |
//! | `hang`, or `error {message, kind, retry_after_ms?}`, or `stop` | how it ends: never; failed; with this reason, and `null` is a stream that just ends |

mod format;
mod history;
mod player;
mod read;

pub use format::Script;
pub use player::ScriptModel;
