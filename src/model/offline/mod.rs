//! The offline model: answers questions about a source tree without a language model.
//!
//! It is what runs when no model is configured: no network, no weights, no key. It is a keyword heuristic, and its
//! answers say so; but what it does is real: it delegates searches to nested runs, they call the tools that are on
//! offer, and the answer cites lines that were read. It is deterministic: the same request gives the same turn.
//!
//! What it does follows from the tools on offer:
//!
//! - With `run_search` it delegates: the terms of the question in up to four groups, one search each, all at once;
//!   then it merges what they report, ranks it and writes the answer. If no search could be made, it searches itself.
//! - With `grep` it searches: definitions, headings and plain uses of the terms, then it reads the best places with
//!   `read_file`. A run that was given a `<query>` reports its places in the form of `report.rs`, which a
//!   delegating run reads back; any other run answers itself.
//! - With neither it says what it is and what it needs.

mod answer;
mod lines;
mod model;
mod rank;
mod report;
mod results;
mod root;
mod searcher;
mod terms;
mod words;

#[cfg(test)]
mod test_kit;

pub use model::OfflineModel;
