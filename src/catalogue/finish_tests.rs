//! What `finish` takes, and what a run can mend.

use super::*;

fn schema() -> Schema {
    Schema::compile(Arc::new(json!({ "type": "object", "required": ["n"] })), "test").unwrap()
}

/// The reply, and what was noted of the end.
fn says(schema: Option<Schema>, args: Value) -> (ToolReply, Option<Report>) {
    let (finish, said) = Finish::new(schema);
    let Value::Object(args) = args else { panic!() };
    let reply = finish.finish(args).unwrap_or_else(|refusal| refusal);
    (reply, said.take())
}

#[test]
fn both_statuses_end_the_run_in_whatever_case() {
    for (word, status) in [("completed", RunStatus::Completed), (" BLOCKED ", RunStatus::Blocked)] {
        let (reply, said) = says(None, json!({ "status": word, "summary": " so it is " }));
        assert_eq!(reply.for_model, json!({ "status": status, "acknowledged": true }));
        assert_eq!(reply.finishes_with, Some(Box::new(json!("so it is"))));
        assert_eq!(said, Some(Report { status, summary: "so it is".into(), value: None }));
    }
}

/// Beside the original, where everything that is not `blocked` is completed.
#[test]
fn what_is_neither_is_an_error_that_can_be_mended() {
    let of = |args: Value| {
        let (reply, said) = says(Some(schema()), args);
        assert_eq!((reply.is_error, &reply.finishes_with, said), (true, &None, None));
        reply.for_model["error"].as_str().unwrap().to_owned()
    };
    assert_eq!(of(json!({ "status": "done", "summary": "s" })), "invalid_status");
    assert_eq!(of(json!({ "status": "", "summary": "s" })), "invalid_status");
    assert_eq!(of(json!({ "summary": "s" })), "invalid_status");
    assert_eq!(of(json!({ "status": "completed", "summary": "  " })), "missing_summary");
    assert_eq!(of(json!({ "status": "blocked" })), "missing_summary");
    assert_eq!(of(json!({ "status": "completed", "summary": "s" })), "missing_value");
    assert_eq!(of(json!({ "status": "completed", "summary": "s", "value": {} })), "invalid_value");
}

#[test]
fn with_a_schema_the_value_is_the_result() {
    let value = json!({ "n": 1 });
    let (reply, said) =
        says(Some(schema()), json!({ "status": "completed", "summary": "s", "value": value }));
    assert_eq!(reply.finishes_with, Some(Box::new(value.clone())));
    assert_eq!(said.unwrap().value, Some(value));
    // Whoever is blocked has none.
    let (reply, said) = says(Some(schema()), json!({ "status": "blocked", "summary": "s" }));
    assert_eq!((reply.finishes_with, said.unwrap().value), (Some(Box::new(Value::Null)), None));
}

#[test]
fn a_schema_that_refers_to_its_parts_is_told_instead() {
    let of = |schema: Value| {
        let (finish, _) = Finish::new(Some(Schema::compile(Arc::new(schema), "test").unwrap()));
        let value = finish.spec().parameters["properties"]["value"].clone();
        assert!(crate::tool::Toolset::new().with(finish).is_ok());
        value
    };
    assert_eq!(of(json!({ "type": "object" })), json!({ "type": "object" }));
    let value = of(json!({ "$ref": "#/$defs/n", "$defs": { "n": { "type": "integer" } } }));
    assert!(value["description"].as_str().unwrap().contains("#/$defs/n"));
}
