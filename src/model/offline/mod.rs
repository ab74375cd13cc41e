//! The offline model: answers questions about a source tree without a language model.
//!
//! It is what runs when no model is configured: no network, no weights, no key. It is a keyword heuristic, and its
//! answers say so; but what it does is real: it delegates searches to nested runs, they call the tools that are on
//! offer, and the answer cites lines that were read. It is deterministic: the same request gives the same turn.
//!
//! What it does follows from the tools on offer:
//!
//! - With `finish_graph` it plans a workflow graph: a search for each group of terms, and a node that joins them. With `finish_plan` it
//!   plans the same as tasks.
//! - A run whose brief has inputs in blocks, as the nodes of such a graph have, answers from what these report.
//! - With `delegate`, in the root run, it hands a task that names an agent (`ask the reviewer …`, `@reviewer …`) to that agent, and
//!   answers with what it says. With `finish`, in the run of that agent, it reports its answer.
//! - With `run_search` it delegates: the terms of the question in up to four groups, one search each, all at once;
//!   then it merges what they report, ranks it and writes the answer. If no search could be made, it searches itself.
//! - With `grep` it searches: definitions, headings and plain uses of the terms, then it reads the best places with
//!   `read_file`. A run that was given a `<query>` reports its places in the form of `report.rs`, which a
//!   delegating run reads back; any other run answers itself.
//! - With neither it says what it is and what it needs.

mod answer;
mod delegate;
mod inputs;
mod lines;
mod model;
mod planner;
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
