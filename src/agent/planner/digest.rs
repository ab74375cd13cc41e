//! A short name for a JSON value: equal values have one, in every process and version.

use serde_json::Value;

/// The 128-bit FNV-1a hash. It tells apart what was changed by accident or by hand; it is no protection against forgery, and a log
/// that somebody forges can say anything anyway.
#[derive(Debug, Clone, Copy)]
struct Fnv(u128);

const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
    }

    /// A tag and a length before each part, so that no two values give one sequence.
    fn add_value(&mut self, value: &Value) {
        match value {
            Value::Array(items) => {
                self.add(format!("[{};", items.len()).as_bytes());
                items.iter().for_each(|item| self.add_value(item));
            }
            Value::Object(map) => {
                // The order of keys says nothing.
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_unstable_by_key(|(key, _)| *key);
                self.add(format!("{{{};", entries.len()).as_bytes());
                for (key, value) in entries {
                    self.add(format!("{};", key.len()).as_bytes());
                    self.add(key.as_bytes());
                    self.add_value(value);
                }
            }
            Value::String(text) => {
                self.add(format!("\"{};", text.len()).as_bytes());
                self.add(text.as_bytes());
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => self.add(format!("{value};").as_bytes()),
        }
    }
}

/// The digest of a value, as 32 hexadecimal digits.
pub(super) fn digest(value: &Value) -> String {
    let mut hash = Fnv(OFFSET);
    hash.add_value(value);
    format!("{:032x}", hash.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_values_have_one_digest_and_others_have_others() {
        assert_eq!(digest(&json!({"a": 1, "b": [2]})), digest(&json!({"b": [2], "a": 1})));
        let values = [
            json!(null),
            json!(1),
            json!("1"),
            json!([1]),
            json!([[1]]),
            json!([1, 1]),
            json!({"a": "b"}),
            json!({"ab": ""}),
            json!(["a", "b"]),
            json!(["ab", ""]),
        ];
        let digests: std::collections::HashSet<String> = values.iter().map(digest).collect();
        assert_eq!(digests.len(), values.len());
        // Written into logs, so it stays.
        assert_eq!(digest(&json!({"a": [1, "x", null, true]})), "483c9323feb096884742bd89be1284a2");
    }
}
