//! Models of providers, over HTTP.
//!
//! A name is `provider:model`, such as `anthropic:claude-sonnet-4-5` or `ollama:qwen3`; the key comes from the provider's usual
//! variable. `openai` with another base URL is any server that is compatible with OpenAI's.
//!
//! ```no_run
//! use anabranch::model::ProviderModel;
//!
//! let model = ProviderModel::builder("openai:gpt-5-mini".parse()?).build()?;
//! # Ok::<(), anabranch::error::Error>(())
//! ```
//!
//! # What is promised
//!
//! - A key is in no error, no log, no `Debug`.
//! - Every wait, and everything that is kept until it ends, has a bound, and the error that it ends in names it.
//! - A turn that was not answered whole never looks like one that was.
//! - A "too many requests" shuts a [`Gate`](super::Gate) for all runs that ask the same model.
//!
//! # Two ways to a provider
//!
//! Most providers are spoken to through genai, each in its own protocol. OpenAI's chat completions, which a hundred servers imitate
//! more or less well, are read here ([`ChatCompletions`]): genai loses the place of a call and with it calls that share a label, drops
//! a call without a place and arguments that are no text, makes as many calls as the largest place says, and neither bounds an
//! event nor keeps what is none, so that a bare error page cannot be quoted. For the other protocols its bytes go through a relay of
//! this module, on loopback, which bounds an event and the body of an error at 16 MiB and 64 KiB.
//!
//! What a provider says that is not known here is no part of the answer and not lost: it is passed on as
//! [`ChatEvent::Other`](super::ChatEvent::Other).

mod calls;
mod chunk;
mod decoder;
mod events;
mod fault;
mod genai;
mod genai_words;
mod halves;
mod images;
mod key;
mod lines;
mod loose;
mod model;
mod name;
mod price;
mod relay;
mod request;
mod server;
mod speech;
mod stream;
mod tap;

pub use decoder::ChatCompletions;
pub use model::{ProviderBuilder, ProviderModel};
pub use name::ProviderName;
