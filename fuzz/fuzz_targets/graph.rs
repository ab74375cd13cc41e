//! Any text as a workflow graph: it is read or refused, checked or told what is wrong, and never ends in a panic.
//!
//! Run it with `cargo +nightly fuzz run graph`.

#![no_main]

use std::sync::LazyLock;

use anabranch::agent::planner::{CheckedGraph, NodeCatalogue, WorkflowGraph};
use anabranch::tool::{Policy, Toolset, chaos};
use libfuzzer_sys::fuzz_target;

static CATALOGUE: LazyLock<NodeCatalogue> = LazyLock::new(|| {
    let tools = chaos::add_to(&Toolset::new()).expect("the fault tools have names of their own");
    NodeCatalogue::new(&tools, &Policy::default())
});

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(graph) = WorkflowGraph::parse(text) else { return };
    let again = WorkflowGraph::parse(&graph.to_value().to_string()).expect("what was read can be written");
    assert_eq!(again, graph);
    let count = graph.nodes.len();
    match CheckedGraph::check(graph, &CATALOGUE) {
        Ok(checked) => assert!(checked.graph().nodes.len() == count && count > 0),
        Err(violations) => assert!(!violations.is_empty()),
    }
});
