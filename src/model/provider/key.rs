//! A key, and how it stays out of everything that is written.

use std::fmt;
use std::sync::Arc;

/// A provider's key. It has no `Display`, and its `Debug` does not show it.
#[derive(Clone)]
pub(super) struct ApiKey(Arc<str>);

/// Shorter ones are placeholders such as `none` or `x`: to take them out of a text would garble it.
const SHORTEST_SECRET: usize = 6;

impl ApiKey {
    pub(super) fn new(key: &str) -> Self {
        Self(key.trim().into())
    }

    /// The key itself, for the header that carries it.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }

    /// A text without the key: servers quote it in their errors.
    pub(super) fn redact(&self, text: String) -> String {
        if self.0.len() >= SHORTEST_SECRET && text.contains(&*self.0) {
            return text.replace(&*self.0, "[key]");
        }
        text
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey([key])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_in_no_text() {
        let key = ApiKey::new(" sk-secret-1\n");
        assert_eq!(format!("{key:?}"), "ApiKey([key])");
        assert_eq!(key.redact("bad key sk-secret-1.".to_owned()), "bad key [key].");
        assert_eq!(ApiKey::new("x").redact("fix".to_owned()), "fix");
    }
}
