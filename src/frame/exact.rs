//! Numbers that would change if they were kept as numbers.

use std::collections::HashMap;

use serde_json::Value;
use serde_json::value::RawValue;

/// The first number of a JSON text, with its place as a JSON pointer, that 64 bits do not hold as it is written. The text is known
/// to be JSON, so it is nested no deeper than the parser goes.
pub(super) fn inexact_number(text: &str) -> Option<(String, String)> {
    // Most answers have no number that is long enough to lose anything, and none with an exponent.
    let bytes = text.as_bytes();
    let is_suspect = bytes.windows(LONG).any(|part| part.iter().all(is_of_number))
        || bytes.windows(2).any(|part| matches!(part, [b'0'..=b'9', b'e' | b'E']));
    if !is_suspect {
        return None;
    }
    within(text.trim(), String::new())
}

/// Any number with fewer characters and no exponent is held as it is.
const LONG: usize = 16;

fn is_of_number(byte: &u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+' | b'e' | b'E')
}

fn within(text: &str, path: String) -> Option<(String, String)> {
    match text.bytes().next()? {
        b'{' => {
            let object: HashMap<String, &RawValue> = serde_json::from_str(text).ok()?;
            let mut members: Vec<_> = object.into_iter().collect();
            members.sort_by(|one, other| one.0.cmp(&other.0));
            members.into_iter().find_map(|(key, value)| {
                let key = key.replace('~', "~0").replace('/', "~1");
                within(value.get(), format!("{path}/{key}"))
            })
        }
        b'[' => {
            let array: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            let mut places = array.into_iter().enumerate();
            places.find_map(|(place, value)| within(value.get(), format!("{path}/{place}")))
        }
        b'-' | b'0'..=b'9' => (!is_kept(text)).then(|| (path, text.to_owned())),
        _ => None,
    }
}

/// Whether the number is the same when it has been read and written.
fn is_kept(number: &str) -> bool {
    let Ok(value) = serde_json::from_str::<Value>(number) else { return false };
    let is_it = |written: String| plain(&written) == plain(number);
    // Half-way between two texts of 17 digits there are two shortest ones, and writers differ in which they take.
    is_it(value.to_string())
        || value.is_f64() && value.as_f64().is_some_and(|float| is_it(format!("{float:e}")))
}

/// Sign, digits without zeros at their ends, and the power of ten that belongs to the last digit.
fn plain(number: &str) -> (bool, String, i64) {
    let (is_negative, number) = number.strip_prefix('-').map_or((false, number), |rest| (true, rest));
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let kept = digits.trim_end_matches('0');
    let dropped = digits.len() - kept.len();
    let power = exponent.parse::<i64>().unwrap_or(i64::MAX);
    let power = power.saturating_sub_unsigned(fraction.len() as u64).saturating_add_unsigned(dropped as u64);
    let kept = kept.trim_start_matches('0');
    if kept.is_empty() { (false, String::new(), 0) } else { (is_negative, kept.to_owned(), power) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_that_are_kept() {
        for number in [
            "0",
            "-0.0",
            "9007199254740993",
            "18446744073709551615",
            "-9223372036854775808",
            "0.1",
            "1.50",
            "1.5e3",
            "15E+2",
            "1e300",
            "0.30000000000000004",
            "3.141592653589793",
            "252610005320243.62",
            "252610005320243.63",
            "100000000000000000000000",
        ] {
            assert!(is_kept(number), "{number}");
        }
    }

    #[test]
    fn numbers_that_would_change_are_found_with_their_place() {
        for number in [
            "18446744073709551617",
            "0.1000000000000000055511151231257827",
            "1e-400",
            "123456789.12345678901",
            "252610005320243.64",
        ] {
            assert!(!is_kept(number), "{number}");
        }
        let text = r#" {"a": ["9007199254740993123456789", {"b/c~": [1, 123456789012345678901234567890]}]} "#;
        let found = inexact_number(text).unwrap();
        assert_eq!(found, ("/a/1/b~1c~0/1".to_owned(), "123456789012345678901234567890".to_owned()));
        assert_eq!(inexact_number(r#"{"a": "123456789012345678901234567890"}"#), None);
        assert_eq!(inexact_number(r#"{"a": 1e-400}"#), Some(("/a".to_owned(), "1e-400".to_owned())));
    }

    proptest! {
        #[test]
        fn what_64_bits_hold_is_kept_however_it_is_written(float in proptest::num::f64::NORMAL, whole: u64, signed: i64) {
            for number in [format!("{float}"), format!("{float:e}"), json!(float).to_string(), whole.to_string(), signed.to_string()] {
                prop_assert!(is_kept(&number), "{number}");
            }
        }

        #[test]
        fn any_text_is_looked_through(text: String) {
            let _ = inexact_number(&text);
        }
    }
}
