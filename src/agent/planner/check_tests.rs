use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::tool::{Policy, ToolReply, Toolset, tool_fn};

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Write {
    #[expect(dead_code, reason = "only its schema is of interest")]
    path: String,
    #[expect(dead_code, reason = "only its schema is of interest")]
    content: String,
    #[expect(dead_code, reason = "only its schema is of interest")]
    times: Option<u64>,
}

fn catalogue() -> NodeCatalogue {
    let write = tool_fn("write", "Writes.", |_: Write, _| async { ToolReply::ok("written") });
    let grep = tool_fn("grep", "Finds.", |_: Map<String, Value>, _| async { ToolReply::ok("found") });
    NodeCatalogue::new(&Toolset::new().with(write).unwrap().with(grep).unwrap(), &Policy::default())
}

fn checked(graph: Value) -> Result<CheckedGraph, Vec<Violation>> {
    CheckedGraph::check(serde_json::from_value(graph).unwrap(), &catalogue())
}

/// The violations as `kind at place`.
fn wrong(graph: Value) -> Vec<String> {
    let found = checked(graph).unwrap_err();
    found.iter().map(|violation| format!("{} at {}", violation.kind, violation.at)).collect()
}

fn agent(id: &str) -> Value {
    json!({"id": id, "agent": "agent", "prompt": "work"})
}

#[test]
fn a_graph_that_can_run() {
    let graph = checked(json!({
        "nodes": [agent("b"), agent("a"), {"id": "w", "tool": "write", "args": {"path": "x"}}],
        "edges": [
            {"from": "a", "to": "b"},
            {"from": "b", "to": "w", "as": "content"},
            {"from": "a", "to": "w"},
        ],
    }))
    .unwrap();
    let [b, a, w] = graph.nodes() else { panic!() };
    assert_eq!((&a.next, &b.next, &w.next), (&vec![0, 2], &vec![2], &vec![]));
    let names = |node: &CheckedNode| -> Vec<_> {
        node.inputs.iter().map(|input| (input.from, input.name.as_deref().map(str::to_owned))).collect()
    };
    assert_eq!(names(b), [(1, Some("a".to_owned()))]);
    // Into a tool an edge without `as` brings nothing: it only says what comes first.
    assert_eq!(names(w), [(0, Some("content".to_owned())), (1, None)]);
}

#[test]
fn each_kind_of_fault_is_named_with_its_place() {
    let tool = |args: Value| json!({"id": "w", "tool": "write", "args": args});
    let table: Vec<(Value, Vec<&str>)> = vec![
        (json!({"nodes": []}), vec!["empty at the graph"]),
        (json!({"nodes": [agent("a b")]}), vec!["id at node a b"]),
        (json!({"nodes": [agent("")]}), vec!["id at node "]),
        (json!({"nodes": [agent("a"), agent("a")]}), vec!["duplicate at node a"]),
        (json!({"nodes": [{"id": "a"}]}), vec!["node at node a"]),
        (json!({"nodes": [{"id": "a", "agent": "agent", "tool": "write"}]}), vec!["node at node a"]),
        (json!({"nodes": [{"id": "a", "agent": "agent"}]}), vec!["missing_input at node a"]),
        (
            json!({"nodes": [{"id": "a", "agent": "agent", "prompt": "x", "args": {}}]}),
            vec!["node at node a"],
        ),
        (json!({"nodes": [{"id": "a", "agent": "nobody", "prompt": "x"}]}), vec!["unknown_node at node a"]),
        (json!({"nodes": [{"id": "a", "tool": "agent"}]}), vec!["unknown_node at node a"]),
        (json!({"nodes": [tool(json!({"path": "x"}))]}), vec!["missing_input at node w"]),
        (json!({"nodes": [tool(json!({"path": 3, "content": "x"}))]}), vec!["type at node w"]),
        (json!({"nodes": [tool(json!({"path": "x", "content": "x", "mode": 1}))]}), vec!["type at node w"]),
        (
            json!({"nodes": [{"id": "a", "agent": "agent", "prompt": "x", "output_schema": {"type": 5}}]}),
            vec!["schema at node a"],
        ),
        (
            json!({"nodes": [agent("a")], "edges": [{"from": "a", "to": "b"}, {"from": "c", "to": "d"}]}),
            vec![
                "dangling_edge at edge a -> b",
                "dangling_edge at edge c -> d",
                "dangling_edge at edge c -> d",
            ],
        ),
        (
            json!({"nodes": [agent("a"), agent("b")],
                   "edges": [{"from": "a", "to": "b"}, {"from": "a", "to": "b"}, {"from": "a", "to": "b", "as": "a"}]}),
            vec!["duplicate at edge a -> b", "duplicate at edge a -> b"],
        ),
        (
            json!({"nodes": [agent("a"), tool(json!({"path": "x", "content": "y"}))],
                   "edges": [{"from": "a", "to": "w", "as": "path"}, {"from": "a", "to": "w", "as": "mode"},
                             {"from": "a", "to": "w", "as": "times"}]}),
            vec!["duplicate at edge a -> w", "unknown_input at edge a -> w", "type at edge a -> w"],
        ),
        (
            json!({"nodes": [agent("a"), agent("b"), agent("c"), agent("d")],
                   "edges": [{"from": "a", "to": "b"}, {"from": "b", "to": "a"}, {"from": "b", "to": "c"}]}),
            vec!["cycle at node a", "unreachable at node c"],
        ),
        (json!({"nodes": [agent("a")], "edges": [{"from": "a", "to": "a"}]}), vec!["cycle at node a"]),
    ];
    for (graph, expected) in table {
        assert_eq!(wrong(graph.clone()), expected, "{graph}");
    }
}

#[test]
fn a_fault_says_how_to_mend_it() {
    let found = checked(json!({
        "nodes": [agent("a"), agent("b"), {"id": "c", "agent": "wrote", "prompt": "x"}],
        "edges": [{"from": "a", "to": "b"}, {"from": "b", "to": "a"}],
    }))
    .unwrap_err();
    let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "unknown_node at node c: there is no agent \"wrote\"; the agents are: agent, search",
            "cycle at node a: a -> b -> a wait for one another; remove one of these edges",
        ]
    );
}

#[test]
fn what_is_too_large_is_refused_before_it_is_looked_at() {
    let nodes: Vec<Value> = (0..=CheckedGraph::MAX_NODES).map(|at| agent(&format!("n{at}"))).collect();
    assert_eq!(wrong(json!({ "nodes": nodes })), ["too_large at the graph"]);
    let edges: Vec<Value> = (0..=CheckedGraph::MAX_EDGES).map(|_| json!({"from": "a", "to": "a"})).collect();
    assert_eq!(wrong(json!({"nodes": [agent("a")], "edges": edges})), ["too_large at the graph"]);
    let long = "x".repeat(CheckedGraph::PROMPT_BYTES + 1);
    assert_eq!(
        wrong(json!({"nodes": [{"id": "a", "agent": "agent", "prompt": long}]})),
        ["too_large at node a"]
    );
    assert!(
        WorkflowGraph::parse(&"x".repeat(WorkflowGraph::TEXT_BYTES + 1)).unwrap_err().contains("too many")
    );
}

#[test]
fn a_text_that_is_no_graph_is_told_with_line_and_column() {
    let text = "{\"nodes\": [\n  {\"id\": \"a\", \"promt\": \"x\"}\n]}";
    let error = WorkflowGraph::parse(text).unwrap_err();
    assert!(error.contains("`promt`") && error.contains("line 2"), "{error}");
    assert!(WorkflowGraph::parse("{").unwrap_err().contains("line 1"));
    assert!(WorkflowGraph::parse("{}").unwrap_err().contains("nodes"));
    for places in [
        r#"[[{ "id": "a" }], []]"#,
        r#"{ "nodes": [["a", "agent", null, "work"]] }"#,
        r#"{ "nodes": [{ "id": "a" }], "edges": [["a", "a"]] }"#,
        "null",
    ] {
        let error = WorkflowGraph::parse(places).unwrap_err();
        assert!(error.contains("expected an object with named members at line 1"), "{places}: {error}");
    }
}

fn any_graph() -> impl Strategy<Value = WorkflowGraph> {
    let word = prop_oneof!["[a-e]", "", "[a-e] ", "agent", "search", "write", "grep"].boxed();
    let value = prop_oneof![Just(json!(1)), Just(json!("x")), Just(json!({"type": "integer"}))];
    let node = (
        word.clone(),
        proptest::option::of(word.clone()),
        proptest::option::of(word.clone()),
        proptest::option::of(word.clone()),
        proptest::option::of(proptest::collection::btree_map("path|content|times|x", value.clone(), 0..3)),
        proptest::option::of(value),
    );
    let node = node.prop_map(|(id, agent, tool, prompt, args, output_schema)| GraphNode {
        id,
        agent,
        tool,
        prompt,
        args: args.map(|args| args.into_iter().collect()),
        output_schema,
    });
    let edge = (
        word.clone(),
        word.clone(),
        proptest::option::of(prop_oneof![word, Just("content".to_owned()).boxed()]),
    );
    let edge = edge.prop_map(|(from, to, name)| GraphEdge { from, to, name });
    let lists = (proptest::collection::vec(node, 0..8), proptest::collection::vec(edge, 0..12));
    lists.prop_map(|(nodes, edges)| WorkflowGraph { nodes, edges })
}

proptest! {
    /// Any graph gives a checked one or at least one violation, and a checked one keeps all that was written.
    #[test]
    fn any_graph_is_checked_without_a_panic(graph in any_graph()) {
        let text = graph.to_value().to_string();
        prop_assert_eq!(&WorkflowGraph::parse(&text).unwrap(), &graph);
        match CheckedGraph::check(graph.clone(), &catalogue()) {
            Ok(checked) => prop_assert_eq!(checked.nodes().len(), graph.nodes.len()),
            Err(violations) => prop_assert!(!violations.is_empty()),
        }
    }
}

/// A schema that leads back to itself is one like any other: it neither hangs the check nor a node that uses it.
#[test]
fn a_schema_that_leads_to_itself() {
    for schema in
        [json!({"$ref": "#"}), json!({"allOf": [{"$ref": "#"}]}), json!({"properties": {"a": {"$ref": "#"}}})]
    {
        let node = json!({"id": "a", "agent": "agent", "prompt": "x", "output_schema": schema});
        if let Ok(checked) = checked(json!({"nodes": [node]})) {
            let _ = checked.nodes()[0].schema.as_ref().unwrap().violations(&json!({"a": {"a": 1}}));
        }
    }
}
