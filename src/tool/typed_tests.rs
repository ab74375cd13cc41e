use super::*;
use crate::tool::test_kit::{Bench, error_of};
use crate::tool::{Access, OnCancel, Toolset};

#[derive(serde::Deserialize, JsonSchema)]
struct Inner {
    /// How deep.
    depth: u8,
}

/// What the type says of itself.
#[derive(serde::Deserialize, JsonSchema)]
struct Args {
    /// Where.
    path: String,
    inner: Option<Inner>,
    #[serde(default)]
    more: Vec<Inner>,
}

#[test]
fn the_schema_comes_from_the_type_without_references() {
    let schema = parameters_of::<Args>();
    assert_eq!(schema["type"], json!("object"));
    assert_eq!(schema["properties"]["path"], json!({"type": "string", "description": "Where."}));
    assert_eq!(schema["required"], json!(["path"]));
    assert!(schema.get("$schema").is_none() && schema.get("title").is_none());
    assert!(!schema.to_string().contains("$ref"), "{schema}");
    assert!(schema["properties"]["more"]["items"].to_string().contains("How deep."));
}

#[test]
fn types_without_fields_give_object_schemas_too() {
    #[derive(serde::Deserialize, JsonSchema)]
    struct Nothing {}
    for schema in [parameters_of::<Nothing>(), parameters_of::<Map<String, Value>>()] {
        assert_eq!((&schema["type"], &schema["properties"]), (&json!("object"), &json!({})), "{schema}");
    }
}

#[test]
fn what_does_not_fit_the_type_is_told_like_a_violation() {
    let args = Map::from_iter([("path".to_owned(), json!("x".repeat(10_000)))]);
    #[derive(Debug, serde::Deserialize)]
    struct Number {
        #[serde(rename = "path")]
        _path: u8,
    }
    let reply = parse_arguments::<Number>(args).unwrap_err();
    let (code, message) = error_of(&reply);
    assert_eq!(code, "invalid_tool_arguments");
    assert!(message.len() < 600, "{}", message.len());
    assert_eq!(reply.for_model["issues"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_function_is_a_tool_that_reads() {
    let tool = tool_fn("find", "Finds.", |args: Args, _| async move {
        let depth =
            args.inner.map_or(0, |inner| inner.depth) + args.more.iter().map(|one| one.depth).sum::<u8>();
        ToolReply::ok(format!("{} at {depth}", args.path))
    });
    assert_eq!((tool.access(), tool.on_cancel()), (Access::Read, OnCancel::Drop));
    assert_eq!(tool.status_text(&Map::new()), None);
    let bench = Bench::new(Toolset::new().with(tool).unwrap());
    let args = json!({"path": "a", "inner": {"depth": 2}, "more": [{"depth": 3}]});
    assert_eq!(bench.call("find", args).await.reply, ToolReply::ok("a at 5"));
    assert_eq!(error_of(&bench.call("find", json!({"path": 3})).await.reply).0, "invalid_tool_arguments");
}

/// Some providers refuse a format that they do not know.
#[test]
fn a_schema_names_no_number_types_of_rust() {
    #[derive(serde::Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema counts")]
    struct Numbers {
        /// How many.
        count: Option<u32>,
        ratios: Vec<f64>,
        deep: Option<Deep>,
    }
    #[derive(serde::Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema counts")]
    struct Deep {
        at: usize,
        by: i64,
    }
    let schema = parameters_of::<Numbers>();
    assert!(!schema.to_string().contains("\"format\""), "{schema}");
    let count = &schema["properties"]["count"];
    assert_eq!(
        count,
        &json!({"type": ["integer", "null"], "minimum": 0, "description": "How many."}),
        "what the format said beside the type is still said"
    );
}
