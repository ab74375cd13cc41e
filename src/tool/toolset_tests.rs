use serde_json::json;

use super::*;
use crate::tool::ToolContext;
use futures::future::BoxFuture;

struct Named(ToolSpec, Access);

fn named(name: &str) -> Named {
    let parameters = json!({"type": "object"});
    Named(ToolSpec { name: name.into(), description: "Does it.".into(), parameters }, Access::Read)
}

impl Tool for Named {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn access(&self) -> Access {
        self.1
    }

    fn call<'a>(&'a self, _: Map<String, Value>, _: ToolContext) -> BoxFuture<'a, ToolReply> {
        Box::pin(std::future::ready(ToolReply::ok("done")))
    }
}

fn of(names: &[&str]) -> Toolset {
    names.iter().fold(Toolset::new(), |tools, name| tools.with(named(name)).unwrap())
}

fn names(tools: &Toolset) -> Vec<&str> {
    tools.names().collect()
}

#[test]
fn tools_keep_their_order_and_views_share_it() {
    let tools = of(&["d", "a", "c"]);
    assert_eq!(names(&tools), ["d", "a", "c"]);
    assert_eq!(names(&tools.only(&["c", "d", "x"])), ["d", "c"]);
    assert_eq!(names(&tools.without(&["a"])), ["d", "c"]);
    assert_eq!(tools.specs().iter().map(|spec| &*spec.name).collect::<Vec<_>>(), ["d", "a", "c"]);
    assert_eq!((tools.len(), tools.is_empty(), Toolset::new().is_empty()), (3, false, true));
    assert!(tools.get("a").is_some() && tools.get("x").is_none());
    assert_eq!(format!("{tools:?}"), r#"["d", "a", "c"]"#);
    // A view is a set of its own: adding to one changes no other.
    let view = tools.only(&["a"]);
    assert_eq!(names(&view.with(named("z")).unwrap()), ["a", "z"]);
    assert_eq!(names(&tools), ["d", "a", "c"]);
}

#[test]
fn tools_that_start_runs_can_be_left_out() {
    let spawn = Named(named("s").0, Access::Spawn);
    assert_eq!(names(&of(&["a"]).with(spawn).unwrap().without_spawning()), ["a"]);
}

#[test]
fn one_tool_can_stand_first_but_not_twice() {
    let own = of(&["own"]);
    let first = own.entry("own").unwrap();
    assert_eq!(names(&of(&["a", "b"]).with_first(first)), ["own", "a", "b"]);
    assert_eq!(names(&of(&["a", "own"]).with_first(first)), ["a", "own"]);
}

#[test]
fn what_no_provider_takes_is_refused_with_a_sentence() {
    let refused = |tool: Named| of(&["a"]).with(tool).unwrap_err().to_string();
    for name in ["", "has space", "läs", "a.b", &"x".repeat(65)] {
        assert!(refused(named(name)).contains("a name has 1 to 64 of the characters"), "{name}");
    }
    assert!(refused(named("a")).contains("another tool of the set has this name"));
    let mut blank = named("b");
    blank.0.description = " ".into();
    assert!(refused(blank).contains("needs a description"));
    for parameters in
        [json!(null), json!(true), json!({}), json!({"type": "string"}), json!({"type": ["object"]})]
    {
        let mut wrong = named("b");
        wrong.0.parameters = parameters;
        assert!(refused(wrong).contains("must be an object schema"));
    }
    let mut wrong = named("b");
    wrong.0.parameters = json!({"type": "object", "properties": {"x": {"type": "sting"}}});
    assert!(refused(wrong).contains("schema"));
    let mut taken = named("b");
    taken.0.parameters = json!({"type": "object", "properties": {"_message": {"type": "string"}}});
    assert!(refused(taken).contains("`_message` is taken"));
    assert!(of(&["a"]).with(named(&"x".repeat(64))).is_ok());
}
