//! Values of a program as JSON text.

use std::cell::RefCell;

use rquickjs::atom::PredefinedAtom;
use rquickjs::{Atom, Ctx, Function, Object, Result, Type, Value};
use serde::de::DeserializeOwned;

/// What JSON has no word for is shown rather than lost: big integers, functions, maps, sets, errors.
const ENCODE: &str = r"((M, S, E) => (key, x) =>
  typeof x === 'bigint' ? `${x}n`
  : typeof x === 'function' ? `[function ${x.name || 'without a name'}]`
  : typeof x === 'symbol' ? x.toString()
  : x instanceof M ? Object.fromEntries(x)
  : x instanceof S ? [...x]
  : x instanceof E ? { name: x.name, message: x.message, code: x.code, data: x.data }
  : x)";

/// What replaces the values that JSON has no word for; before it is made, what it is made of: to compile it takes a tenth of what an action
/// costs, and many need it not. Kept by the runtime, since it belongs to it.
pub(super) type Encoder<'js> = RefCell<std::result::Result<Function<'js>, Vec<Value<'js>>>>;

/// The encoder of a runtime in which nothing has run: a program may change what the names mean that it is made of.
pub(super) fn encoder<'js>(ctx: &Ctx<'js>) -> Result<Encoder<'js>> {
    let globals = ctx.globals();
    let parts: Result<Vec<Value<'js>>> =
        ["Map", "Set", "Error"].into_iter().map(|name| globals.get(name)).collect();
    parts.map(|parts| RefCell::new(Err(parts)))
}

/// Makes the encoder ready, if it is not: to be called where the program is not running, since a call of ours in the midst of it would
/// measure the stack anew from where it is.
pub(super) fn make_encoder<'js>(ctx: &Ctx<'js>) -> Result<()> {
    let encoder = ctx.userdata::<Encoder<'js>>().ok_or(rquickjs::Error::Unknown)?;
    let mut encoder = encoder.borrow_mut();
    if let Err(parts) = &*encoder
        && let [map, set, error] = &parts[..]
    {
        let make: Function<'js> = ctx.eval(ENCODE)?;
        *encoder = Ok(make.call((map, set, error))?);
    }
    Ok(())
}

/// The encoder, if it is ready.
fn made_encoder<'js>(ctx: &Ctx<'js>) -> Option<Function<'js>> {
    ctx.userdata::<Encoder<'js>>()?.borrow().as_ref().ok().cloned()
}

/// What objects have as their prototype that are written as `{…}`. Kept by the runtime, since it belongs to it.
pub(super) type PlainPrototype<'js> = RefCell<Option<Object<'js>>>;

/// The prototype of plain objects, in a runtime in which nothing has run.
pub(super) fn plain_prototype<'js>(ctx: &Ctx<'js>) -> Result<PlainPrototype<'js>> {
    Ok(RefCell::new(Object::new(ctx.clone())?.get_prototype()))
}

/// The value that a program comes to, as JSON text. What is undefined is null.
pub(super) fn result_text<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> Result<String> {
    if value.is_object() || value.is_symbol() || value.is_big_int() {
        make_encoder(ctx)?;
    }
    encode(ctx, value)
}

/// A value as JSON text. What is undefined is null. Where the encoder is not ready, what JSON has no word for is what the language makes of
/// it.
fn encode<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> Result<String> {
    if value.is_undefined() || value.is_null() {
        return Ok("null".to_owned());
    }
    // A function of the program is called by the engine here, not by us: each call of ours would measure the stack anew from where
    // it is, and code that logs in a recursion would have no bound.
    let is_plain = value.is_string() || value.is_number() || value.is_bool();
    let encoder = if is_plain { None } else { made_encoder(ctx) };
    let text: Option<rquickjs::String<'js>> = match encoder {
        None => ctx.json_stringify(value.clone())?,
        Some(encoder) => ctx.json_stringify_replacer(value.clone(), encoder)?,
    };
    text.map_or_else(|| Ok("null".to_owned()), |text| text_of(ctx, &text))
}

/// A value from JSON text. The commonest short ones need no parser.
pub(super) fn decoded<'js>(ctx: &Ctx<'js>, text: String) -> Result<Value<'js>> {
    match text.as_str() {
        "null" => return Ok(Value::new_null(ctx.clone())),
        "true" => return Ok(Value::new_bool(ctx.clone(), true)),
        "false" => return Ok(Value::new_bool(ctx.clone(), false)),
        // `-0` is a number of its own, and `+0` none.
        number if !number.starts_with('+') && number != "-0" => {
            if let Ok(number) = number.parse() {
                return Ok(Value::new_int(ctx.clone(), number));
            }
        }
        _ => {}
    }
    ctx.json_parse(text)
}

/// What a program passes to its host, as JSON text; empty if that is nothing, or nothing that JSON has.
pub(super) fn passed<'js>(ctx: &Ctx<'js>, value: Option<Value<'js>>) -> Result<String> {
    match value {
        None => Ok(String::new()),
        Some(value) if value.is_undefined() => Ok(String::new()),
        Some(value) => match plain(ctx, &value) {
            Some(object) => members(ctx, &object),
            None => Ok(stringified(ctx, value)?.unwrap_or_default()),
        },
    }
}

fn stringified<'js>(ctx: &Ctx<'js>, value: Value<'js>) -> Result<Option<String>> {
    ctx.json_stringify(value)?.map(|text| text_of(ctx, &text)).transpose()
}

/// An object that has nothing to say about how it is written, which is what most calls pass.
fn plain<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> Option<Object<'js>> {
    let object = value.as_object().filter(|_| value.type_of() == Type::Object)?;
    let prototype = ctx.userdata::<PlainPrototype<'js>>()?.borrow().clone();
    let is_plain = prototype.is_some() && object.get_prototype() == prototype;
    if !is_plain {
        return None;
    }
    match object.get::<_, Value<'js>>(PredefinedAtom::ToJSON) {
        Ok(says_how) => says_how.is_undefined().then(|| object.clone()),
        Err(_) => {
            // It throws again where it is asked in earnest.
            ctx.catch();
            None
        }
    }
}

/// How much is passed most often, in bytes: so much is kept ready at once.
const SHORT: usize = 56;

/// Whether it is an object as `{…}` and `Object.create(null)` make it.
pub(super) fn is_plain<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> bool {
    let bare = || value.as_object().is_some_and(|object| object.get_prototype().is_none());
    value.type_of() == Type::Object && (plain(ctx, value).is_some() || bare())
}

/// What a value is called where it is out of place.
pub(super) fn called(value: &Value<'_>) -> &'static str {
    match value.type_of() {
        Type::Undefined | Type::Uninitialized => "undefined",
        Type::Null => "null",
        Type::Bool => "true or false",
        Type::Int | Type::Float => "a number",
        Type::BigInt => "a big integer",
        Type::String => "a text",
        Type::Symbol => "a symbol",
        Type::Array => "a list",
        Type::Function | Type::Constructor => "a function",
        Type::Promise => "a promise: await it",
        Type::Exception => "an error",
        _ => "an object",
    }
}

/// What `JSON.stringify` makes of a plain object, and more than twice as fast where its members are no objects: the engine's own begins
/// with four objects and a memory of its own.
fn members<'js>(ctx: &Ctx<'js>, object: &Object<'js>) -> Result<String> {
    let mut out = String::with_capacity(SHORT);
    out.push('{');
    for key in object.keys::<Atom<'js>>() {
        let key = key?;
        let value: Value<'js> = object.get(key.clone())?;
        let before = out.len();
        if before > 1 {
            out.push(',');
        }
        // Not the atom's own text, which is another where it has halves of characters.
        let key = key.to_js_string()?;
        match key.to_string() {
            Ok(text) => quote(&text, &mut out),
            Err(_) => out.push_str(&stringified(ctx, key.into_value())?.unwrap_or_default()),
        }
        out.push(':');
        if !member(ctx, value, &mut out)? {
            out.truncate(before);
        }
    }
    out.push('}');
    Ok(out)
}

/// False if JSON has no word for it.
fn member<'js>(ctx: &Ctx<'js>, value: Value<'js>, out: &mut String) -> Result<bool> {
    match value.type_of() {
        Type::Null => out.push_str("null"),
        Type::Bool => out.push_str(if value.as_bool() == Some(true) { "true" } else { "false" }),
        Type::Int => out.push_str(&value.as_int().unwrap_or_default().to_string()),
        Type::String if let Some(Ok(text)) = value.as_string().map(rquickjs::String::to_string) => {
            quote(&text, out);
        }
        Type::Undefined => return Ok(false),
        _ => match stringified(ctx, value)? {
            Some(text) => out.push_str(&text),
            None => return Ok(false),
        },
    }
    Ok(true)
}

fn quote(text: &str, out: &mut String) {
    if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&serde_json::Value::from(text).to_string());
    }
}

/// A line of the record: texts as they are, other values as JSON, errors as they read.
pub(super) fn line<'js>(ctx: &Ctx<'js>, values: &[Value<'js>], cap: usize) -> String {
    let mut line = String::new();
    for (place, value) in values.iter().enumerate() {
        if place > 0 {
            line.push(' ');
        }
        line.push_str(&shown(ctx, value));
        if line.len() > cap {
            break;
        }
    }
    line
}

/// A value as a person reads it.
pub(super) fn shown<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> String {
    if let Some(text) = value.as_string() {
        return text_of(ctx, text).unwrap_or_default();
    }
    if value.is_undefined() {
        return "undefined".to_owned();
    }
    // JSON would call them null.
    if let Some(number) = value.as_float().filter(|number| !number.is_finite()) {
        let name = if number.is_nan() {
            "NaN"
        } else if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        };
        return name.to_owned();
    }
    if let Some(error) = value.as_exception() {
        let name: Option<String> = error.as_object().get("name").ok();
        return titled(name.as_deref(), &error.message().unwrap_or_default());
    }
    encode(ctx, value).unwrap_or_else(|_| {
        ctx.catch();
        "(a value that cannot be shown)".to_owned()
    })
}

/// `Name: message`; the name is left out where it says nothing, or the message says it already. Never blank.
pub(super) fn titled(name: Option<&str>, message: &str) -> String {
    match name {
        name if message.is_empty() => name.filter(|name| !name.is_empty()).unwrap_or("Error").to_owned(),
        Some(name) if !name.is_empty() && name != "Error" && !message.contains(name) => {
            format!("{name}: {message}")
        }
        _ => message.to_owned(),
    }
}

/// JavaScript's strings may have halves of characters, which UTF-8 has not: such a string is shown with them escaped.
fn text_of<'js>(ctx: &Ctx<'js>, text: &rquickjs::String<'js>) -> Result<String> {
    text.to_string().or_else(|_| {
        let escaped =
            ctx.json_stringify(text.as_value().clone())?.map(|text| text.to_string()).transpose()?;
        Ok(escaped.unwrap_or_default().trim_matches('"').to_owned())
    })
}

/// How many levels JSON text nests, the innermost value counted.
pub(super) fn levels(json: &str) -> usize {
    let (mut open, mut most, mut in_text, mut is_escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_text,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                open += 1;
                most = most.max(open);
            }
            b']' | b'}' if !in_text => open = open.saturating_sub(1),
            _ => {}
        }
    }
    most + 1
}

/// Reads JSON text of a program. Halves of characters, which JavaScript escapes and Rust has no word for, become U+FFFD.
pub(crate) fn read_json(text: &str) -> std::result::Result<serde_json::Value, serde_json::Error> {
    read_json_as(text)
}

/// As [`read_json`], for a value of which the kind is known.
pub(super) fn read_json_as<T: DeserializeOwned>(text: &str) -> std::result::Result<T, serde_json::Error> {
    serde_json::from_str(text).or_else(|error| {
        if !text.contains("\\u") {
            return Err(error);
        }
        serde_json::from_str(&well_formed(text))
    })
}

fn well_formed(text: &str) -> String {
    let unit = |at: usize| {
        let escape = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(escape, 16).ok()
    };
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| rest.find('\\')) {
        let escape = at + found;
        out.push_str(text.get(at..escape).unwrap_or_default());
        let (shown, length) = match (unit(escape), unit(escape + 6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => (text.get(escape..escape + 12), 12),
            (Some(0xD800..=0xDFFF), _) => (Some("\u{FFFD}"), 6),
            _ => (text.get(escape..escape + 2), 2),
        };
        out.push_str(shown.unwrap_or_default());
        at = escape + length;
    }
    out.push_str(text.get(at..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_are_what_the_engines_own_parser_makes_of_them() {
        let context = rquickjs::Context::full(&rquickjs::Runtime::new().unwrap()).unwrap();
        context.with(|ctx| {
            let same: Function<'_> = ctx
                .eval("(a, b) => Object.is(a, b) || typeof a === 'object' && JSON.stringify(a) === JSON.stringify(b)")
                .unwrap();
            for text in [
                "null", "true", "false", "0", "-0", "7", "-7", "2147483647", "-2147483648", "2147483648",
                "9007199254740993", "1.5", "1e3", "\"7\"", "\"\"", "[1]", "{\"a\":null}",
            ] {
                let values = (decoded(&ctx, text.to_owned()).unwrap(), ctx.json_parse(text).unwrap());
                assert!(same.call::<_, bool>(values).unwrap(), "{text}");
            }
            for text in ["", "+1", "-", "x"] {
                assert!(decoded(&ctx, text.to_owned()).is_err(), "{text}");
                ctx.catch();
            }
        });
    }

    #[test]
    fn what_is_passed_is_what_the_engines_own_serializer_makes_of_it() {
        let context = rquickjs::Context::full(&rquickjs::Runtime::new().unwrap()).unwrap();
        context.with(|ctx| {
            assert!(ctx.store_userdata(plain_prototype(&ctx).unwrap()).is_ok());
            let values = [
                "({})",
                "({ n: 7, m: -7, big: 2 ** 40, half: 0.5, huge: 1e300, zero: -0 })",
                "({ a: null, b: undefined, c: true, d: false, e: NaN, f: Infinity })",
                "({ u: undefined, f() {}, s: Symbol('x'), last: 1 })",
                "({ 2: 'b', 1: 'a', [Symbol('x')]: 1 })",
                r#"({ text: 'a "quoted"\nline\t\\ \u0001 ä😀', 'key "k"\n': 1, '': 2 })"#,
                r"({ half: '\ud800', '\udc00': 1 })",
                "({ list: [1, [undefined, () => 1], { x: {} }], deep: { y: { z: [] } } })",
                "({ when: new Date(0), map: new Map([[1, 2]]), error: new Error('x'), re: /x/ })",
                "({ toJSON: () => ({ instead: 1 }) })",
                "({ toJSON: 1, x: 2 })",
                "({ inner: { toJSON: () => 'inner' } })",
                "({ get got() { return 'got' } })",
                "Object.defineProperty({ a: 1 }, 'hidden', { value: 2 })",
                "Object.create({ inherited: 1 })",
                "Object.create(null)",
                "Object.assign(Object.create(null), { a: 1 })",
                "new (class Point { x = 1; toJSON() { return [this.x] } })",
                "new (class Plain { x = 1 })",
                "new Proxy({ a: 1 }, {})",
                "[1, 'a', null]",
                "'text'",
                "7",
                "null",
                "new Number(7)",
                "({ __proto__: { a: 1 }, b: 2 })",
                "({ boxed: new String('s'), number: new Number(1), bool: Object(true) })",
            ];
            for code in values {
                let value: Value<'_> = ctx.eval(code).unwrap();
                let own =
                    ctx.json_stringify(value.clone()).unwrap().map(|text| text_of(&ctx, &text).unwrap());
                let text = passed(&ctx, Some(value)).unwrap();
                let read =
                    |text: &str| read_json(text).unwrap_or_else(|error| panic!("{code}: {error}: {text}"));
                assert_eq!(read(&text), read(&own.unwrap()), "{code}");
                assert!(!text.contains(": ") || code.contains(": "), "{code}: {text}");
            }
            let circle = "(() => { const a = {}; a.a = a; return a })()";
            for code in [
                circle,
                "({ big: 1n })",
                "({ get x() { throw new Error('no') } })",
                "({ get toJSON() { throw 1 } })",
            ] {
                let value: Value<'_> = ctx.eval(code).unwrap();
                assert!(passed(&ctx, Some(value)).is_err(), "{code}");
                ctx.catch();
            }
            ctx.eval::<(), _>("Object.prototype.toJSON = function () { return 'all' }").unwrap();
            let value: Value<'_> = ctx.eval("({ a: 1 })").unwrap();
            assert_eq!(passed(&ctx, Some(value)).unwrap(), "\"all\"");
            let _ = ctx.remove_userdata::<PlainPrototype<'_>>();
        });
    }

    #[test]
    fn levels_are_those_of_lists_and_objects_and_not_of_texts() {
        for (json, deep) in
            [("1", 1), ("[]", 2), (r#"{"a":[1],"b":2}"#, 3), (r#"["[{\"["]"#, 2), (r#"["\\",[1]]"#, 3)]
        {
            assert_eq!(levels(json), deep, "{json}");
        }
    }

    #[test]
    fn half_characters_do_not_lose_the_whole() {
        assert_eq!(read_json(r#"{"a": "x\ud800y"}"#).unwrap(), json!({"a": "x\u{FFFD}y"}));
        assert_eq!(
            read_json(r#"["\ud83d\ude00", "\\ud800", "\udc00\ud83d"]"#).unwrap(),
            json!(["😀", "\\ud800", "\u{FFFD}\u{FFFD}"])
        );
        assert!(read_json(r#"["\ud800""#).is_err() && read_json("{").is_err());
    }
}
