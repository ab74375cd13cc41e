use serde_json::{Map, Value, json};

use super::*;
use crate::model::ToolSpec;
use crate::tool::ToolContext;
use futures::future::BoxFuture;

struct Does(ToolSpec, Access);

fn does(access: Access) -> Does {
    Does(ToolSpec { name: "it".into(), description: "Does it.".into(), parameters: json!({}) }, access)
}

impl Tool for Does {
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

#[test]
fn reading_and_delegating_are_allowed_and_writing_is_not() {
    let policy = Policy::default();
    assert!(policy.check(&does(Access::Read)).is_ok() && policy.check(&does(Access::Spawn)).is_ok());
    let refusal = policy.check(&does(Access::Write)).unwrap_err();
    assert_eq!(refusal.for_model["error"], json!("tool_denied"));
    assert!(refusal.is_error);
    // The model is told what to do instead, the person how to allow it.
    assert!(refusal.model_text().contains("Say what you would change"));
    assert!(refusal.for_person.unwrap().contains("--allow it"));
    assert!(policy.allow(["it"]).check(&does(Access::Write)).is_ok());
}

#[test]
fn a_denial_wins() {
    let policy = Policy::default().allow(["it"]).deny(["it", "that"]);
    for access in [Access::Read, Access::Write, Access::Spawn] {
        assert_eq!(policy.check(&does(access)).unwrap_err().for_model["error"], json!("tool_denied"));
    }
    assert_eq!(policy.names().collect::<Vec<_>>(), ["it", "it", "that"]);
}
