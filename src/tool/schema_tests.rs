use serde_json::json;

use super::*;

fn compiled(schema: Value) -> Result<Schema> {
    Schema::compile(Arc::new(schema), "test")
}

fn violations(schema: Value, value: &Value) -> Vec<String> {
    compiled(schema).unwrap().violations(value)
}

#[test]
fn violations_name_their_place() {
    let schema = json!({"type": "object", "properties": {"a": {"items": {"type": "integer"}}}});
    assert_eq!(violations(schema.clone(), &json!({"a": [1, 2]})), [""; 0]);
    assert_eq!(
        violations(schema.clone(), &json!({"a": [1, "x"]})),
        ["/a/1: \"x\" is not of type \"integer\""]
    );
    assert_eq!(violations(schema, &json!(3)), ["the value: 3 is not of type \"object\""]);
}

#[test]
fn violations_are_few_and_short() {
    let schema = json!({"items": {"type": "integer"}});
    let many = violations(schema, &json!(vec!["x"; 20]));
    assert_eq!((many.len(), many[8].as_str()), (9, "and 12 more"));
    let long = violations(json!({"type": "integer"}), &json!("x".repeat(1 << 20)));
    assert!(long[0].len() < 400, "{}", long[0].len());
}

#[test]
fn references_inside_the_document_are_followed() {
    let schema = json!({"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}});
    assert_eq!(violations(schema, &json!({"a": "x"})).len(), 1);
    let tree =
        json!({"type": "object", "properties": {"child": {"$ref": "#"}}, "additionalProperties": false});
    assert_eq!(violations(tree, &json!({"child": {"child": {"x": 1}}})).len(), 1);
}

#[test]
fn references_to_other_documents_fail_closed() {
    let file = format!("file://{}", file!());
    for target in
        ["http://127.0.0.1:9/x.json", "https://example.com/x.json", "file:///etc/passwd", &file, "x.json"]
    {
        for schema in
            [json!({"$ref": target}), json!({"properties": {"a": {"$ref": format!("{target}#/a")}}})]
        {
            let error = compiled(schema).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Schema { .. }), "{target}: {error}");
        }
    }
}

#[test]
fn what_is_no_schema_is_refused() {
    for schema in [json!(null), json!(3), json!("x"), json!([]), json!({"type": 7}), json!({"pattern": "("})]
    {
        assert!(compiled(schema.clone()).is_err(), "{schema}");
    }
    assert!(violations(json!(true), &json!(1)).is_empty() && !violations(json!(false), &json!(1)).is_empty());
}

#[test]
fn a_schema_that_refers_to_itself_without_end_is_refused() {
    for schema in [json!({"$ref": "#"}), json!({"allOf": [{"$ref": "#"}]})] {
        match compiled(schema.clone()) {
            Ok(schema) => drop(schema.violations(&json!(1))),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Schema { .. })),
        }
    }
}

#[test]
fn a_schema_nests_so_deep_and_no_deeper() {
    let nested = |levels: usize| {
        let text = format!("{}true{}", "{\"unevaluatedProperties\":".repeat(levels), "}".repeat(levels));
        compiled(serde_json::from_str(&text).unwrap()).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(nested(MAX_LEVELS - 1), Ok(()));
    assert!(nested(MAX_LEVELS).unwrap_err().contains("nests deeper than 64 levels"));
}
