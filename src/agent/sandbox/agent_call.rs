//! What a program may pass to `agent`: read in one way where the program counts its calls and where its host makes them, so that both
//! count the same.

use std::sync::Arc;

use rquickjs::{Atom, Ctx, Type};
use serde_json::Value;

use super::encode::{called, is_plain, passed, read_json, shown};
use super::port::HostError;
use crate::message::cap_text;
use crate::tool::Schema;

/// What messages call the call.
const CALL: &str = "agent(prompt, options)";

/// How much of something wrong is quoted, in bytes.
const QUOTED_BYTES: usize = 100;

/// The stack on which a schema is compiled, in bytes: twice what the deepest one takes, of which a program may have used up its own.
const STACK_BYTES: usize = 4 << 20;

/// The second argument of `agent`, without anything wrong in it.
#[derive(Debug, Default)]
pub(crate) struct AgentCall {
    /// A schema that compiles.
    pub(crate) schema: Option<Arc<Value>>,
    /// Names of tools that there are.
    pub(crate) tools: Option<Vec<String>>,
    /// Not blank.
    pub(crate) label: Option<String>,
}

impl AgentCall {
    /// Reads the options, as JSON text, of a call that may choose among these tools.
    ///
    /// # Errors
    ///
    /// What is wrong with them. Such a call is none, and is not counted.
    pub(crate) fn read(options: &str, known: &[String]) -> Result<Self, HostError> {
        let mut call = Self::default();
        let options = match options {
            "" => Value::Null,
            text => read_json(text)
                .map_err(|_| invalid("the options nest too deep to be read, or are no JSON"))?,
        };
        let options = match options {
            Value::Null => return Ok(call),
            Value::Object(options) => options,
            other => return Err(no_object(&quoted(&other))),
        };
        for (key, value) in options {
            match (key.as_str(), value) {
                ("schema" | "tools" | "label", Value::Null) => {}
                ("schema", value) => call.schema = Some(compiled(value)?),
                ("tools", value) => call.tools = Some(chosen(&value, known)?),
                ("label", Value::String(label)) => {
                    call.label = Some(label.trim().to_owned()).filter(|label| !label.is_empty());
                }
                ("label", other) => {
                    return Err(invalid(&format!("`label` has to be a text, and is {}", quoted(&other))));
                }
                _ => {
                    let key = cap_text(&key, QUOTED_BYTES);
                    return Err(invalid(&format!(
                        "there is no option {key:?}; the options are `schema`, `tools` and `label`"
                    )));
                }
            }
        }
        Ok(call)
    }
}

/// The options of a program as JSON text, or what is wrong with them that JSON would not show.
pub(super) fn options_text<'js>(
    ctx: &Ctx<'js>,
    options: Option<rquickjs::Value<'js>>,
) -> rquickjs::Result<Result<String, HostError>> {
    let Some(options) = options.filter(|options| !options.is_undefined() && !options.is_null()) else {
        return Ok(Ok(String::new()));
    };
    let object = match options.as_object() {
        Some(object) if matches!(options.type_of(), Type::Object | Type::Proxy) => object.clone(),
        _ => return Ok(Err(no_object(called(&options)))),
    };
    for key in object.keys::<Atom<'js>>() {
        let key = key?;
        let value: rquickjs::Value<'js> = object.get(key.clone())?;
        if value.is_function() || value.is_symbol() {
            let key = cap_text(&shown(ctx, key.to_js_string()?.as_value()), QUOTED_BYTES);
            return Ok(Err(invalid(&format!("`{key}` is {}", called(&value)))));
        }
    }
    let text = passed(ctx, Some(options.clone()))?;
    // A map, for one, has its members elsewhere.
    Ok(if text.is_empty() || text == "{}" && !is_plain(ctx, &options) {
        Err(no_object("one without members of its own"))
    } else {
        Ok(text)
    })
}

fn no_object(what: &str) -> HostError {
    invalid(&format!("the options have to be an object such as {{label: \"reader\"}}, and are {what}"))
}

fn invalid(what: &str) -> HostError {
    HostError::new("invalid_options", format!("{CALL}: {what}"))
}

fn quoted(value: &Value) -> String {
    cap_text(&value.to_string(), QUOTED_BYTES)
}

fn chosen(names: &Value, known: &[String]) -> Result<Vec<String>, HostError> {
    let list = || invalid(&format!("`tools` has to be a list of names, and is {}", quoted(names)));
    let given = names.as_array().ok_or_else(list)?;
    let mut chosen = Vec::with_capacity(given.len());
    for name in given {
        let name = name.as_str().ok_or_else(list)?;
        if !known.iter().any(|one| one == name) {
            let (name, known) = (cap_text(name, QUOTED_BYTES), known.join(", "));
            let known = if known.is_empty() { "none" } else { &known };
            let text = format!("{CALL}: there is no tool {name:?} among `tools`; the tools are: {known}");
            return Err(HostError::new("unknown_tool", text));
        }
        chosen.push(name.to_owned());
    }
    Ok(chosen)
}

/// The schema, if it compiles.
fn compiled(schema: Value) -> Result<Arc<Value>, HostError> {
    let fail = |reason: String| HostError::new("invalid_schema", format!("{CALL}: {reason}"));
    let schema = Arc::new(schema);
    let given = Arc::clone(&schema);
    let compile = move || Schema::compile(given, "this agent").map(|_| ()).map_err(|error| error.to_string());
    let compiling = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(compile);
    let compiling = compiling.map_err(|error| fail(format!("no thread to compile `schema`: {error}")))?;
    let broken = |_| Err("`schema` cannot be compiled".to_owned());
    compiling.join().unwrap_or_else(broken).map_err(fail)?;
    Ok(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_options_is_told_in_the_programs_terms() {
        let known = ["grep".to_owned()];
        let refused = |options: &str| AgentCall::read(options, &known).unwrap_err();
        for (options, told) in [
            ("[]", "have to be an object such as {label: \"reader\"}, and are []"),
            (r#"[{}, ["grep"], "x"]"#, "and are [{},[\"grep\"],\"x\"]"),
            ("\"reader\"", "and are \"reader\""),
            ("{", "the options nest too deep to be read, or are no JSON"),
            (
                r#"{"tool": "grep"}"#,
                "there is no option \"tool\"; the options are `schema`, `tools` and `label`",
            ),
            (r#"{"tools": "grep"}"#, "`tools` has to be a list of names, and is \"grep\""),
            (r#"{"tools": [5]}"#, "`tools` has to be a list of names, and is [5]"),
            (r#"{"tools": {"0": "grep"}}"#, "`tools` has to be a list of names"),
            (r#"{"label": 5}"#, "`label` has to be a text, and is 5"),
        ] {
            let refusal = refused(options);
            assert_eq!(refusal.code.as_deref(), Some("invalid_options"), "{options}");
            assert!(
                refusal.message.starts_with("agent(prompt, options): ") && refusal.message.contains(told),
                "{options}: {}",
                refusal.message
            );
        }
        let unknown = refused(r#"{"tools": ["grep", "glob"]}"#);
        assert!(
            unknown.message.ends_with("there is no tool \"glob\" among `tools`; the tools are: grep"),
            "{}",
            unknown.message
        );
        assert_eq!(unknown.code.as_deref(), Some("unknown_tool"));
        for schema in ["5", "[]", "\"x\"", r#"{"type": 5}"#, r#"{"$ref": "http://127.0.0.1:1/x"}"#] {
            let refusal = refused(&format!("{{\"schema\": {schema}}}"));
            assert_eq!(refusal.code.as_deref(), Some("invalid_schema"), "{schema}");
            assert!(refusal.message.contains("schema of this agent is not usable: "), "{}", refusal.message);
        }
    }

    #[test]
    fn what_is_left_out_is_none_and_an_empty_list_is_no_tools() {
        let read = |options: &str| AgentCall::read(options, &["grep".to_owned()]).unwrap();
        for none in
            ["", "null", "{}", r#"{"schema": null, "tools": null, "label": null}"#, r#"{"label": " "}"#]
        {
            let call = read(none);
            assert!(call.schema.is_none() && call.tools.is_none() && call.label.is_none(), "{none}");
        }
        let call = read(r#"{"schema": {"type": "object"}, "tools": [], "label": " reader "}"#);
        assert_eq!(call.tools, Some(Vec::new()));
        assert_eq!(call.label.as_deref(), Some("reader"));
        assert_eq!(*call.schema.unwrap(), serde_json::json!({ "type": "object" }));
        assert_eq!(read(r#"{"tools": ["grep", "grep"]}"#).tools.unwrap(), ["grep", "grep"]);
    }
}
