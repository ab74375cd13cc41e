//! Models of providers: the adapter against a server of our own, and against recorded streams.

// A server that answers what it is told, stalls, cuts, counts, and sees its connections close.
pub mod mock;

// The recorded streams: whole, cut at every event, split at every byte.
mod captures;

// What can go wrong in an answer, and how it settles.
mod faults;

// Floods, ends that do not come, what is not known, and how each provider is asked.
mod bounds;

// Retries, the gate, silence, cancel, keys.
mod calls;

// Images of results, as each protocol wants them.
mod images;

// What is logged meanwhile.
mod log;

// Any bytes at all.
mod any_bytes;

// The program with a provider's model.
#[cfg(feature = "cli")]
mod program;
