//! Letters that a server cut in two: where it counts in UTF-16, an emoji may end one event and begin the next.

/// The half that ended the last event that was cut so.
#[derive(Debug, Clone, Default)]
pub(super) struct Halves {
    first: Option<[u8; 6]>,
}

/// Which half of a pair an escape is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    First,
    Second,
}

/// What stands for a half that has no other.
const LOST: &[u8] = b"\\ufffd";

impl Halves {
    /// The JSON of an event with each half brought to the other, and those without another replaced; none if it has no half.
    pub(super) fn mend(&mut self, data: &[u8]) -> Option<Vec<u8>> {
        let mut mended = Vec::with_capacity(data.len() + 6);
        let (mut rest, mut has_half) = (data, false);
        while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
            let (plain, escaped) = rest.split_at(at);
            mended.extend_from_slice(plain);
            let Some((escape, half)) = half(escaped) else {
                // An escape of another kind: the letter after the backslash is no beginning of one.
                let (pair, after) = escaped.split_at(escaped.len().min(2));
                mended.extend_from_slice(pair);
                rest = after;
                continue;
            };
            rest = escaped.get(escape.len()..).unwrap_or_default();
            match (half, self::half(rest)) {
                (Half::First, Some((second, Half::Second))) => {
                    mended.extend_from_slice(&escape);
                    mended.extend_from_slice(&second);
                    rest = rest.get(second.len()..).unwrap_or_default();
                    continue;
                }
                (Half::First, _) if rest.first() == Some(&b'"') => self.first = Some(escape),
                (Half::Second, _) if mended.last() == Some(&b'"') && self.first.is_some() => {
                    mended.extend(self.first.take().into_iter().flatten());
                    mended.extend_from_slice(&escape);
                }
                _ => mended.extend_from_slice(LOST),
            }
            has_half = true;
        }
        mended.extend_from_slice(rest);
        has_half.then_some(mended)
    }
}

/// The escape at the beginning, if it is half of a pair.
fn half(text: &[u8]) -> Option<([u8; 6], Half)> {
    let escape: [u8; 6] = text.get(..6)?.try_into().ok()?;
    let digits = escape.strip_prefix(b"\\u")?;
    let unit = u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    match unit {
        0xd800..=0xdbff => Some((escape, Half::First)),
        0xdc00..=0xdfff => Some((escape, Half::Second)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mend(halves: &mut Halves, data: &str) -> Option<String> {
        halves.mend(data.as_bytes()).map(|mended| String::from_utf8(mended).unwrap())
    }

    #[test]
    fn halves_find_each_other_over_events() {
        let mut halves = Halves::default();
        assert_eq!(mend(&mut halves, r#"{"a":"x\n\\ud83d \u00e4 \ud83d\ude00"}"#), None);
        assert_eq!(mend(&mut halves, r#"{"a":"x\ud83d"}"#).unwrap(), r#"{"a":"x"}"#);
        assert_eq!(mend(&mut halves, r#"{"a":"between"}"#), None);
        assert_eq!(mend(&mut halves, r#"{"a":"\ude00y"}"#).unwrap(), r#"{"a":"\ud83d\ude00y"}"#);
        // What has no other half.
        assert_eq!(mend(&mut halves, r#"{"a":"\ude00y"}"#).unwrap(), r#"{"a":"\ufffdy"}"#);
        assert_eq!(
            mend(&mut halves, r#"{"a":"\ud83dy\ud83d\ud83d\ude00"}"#).unwrap(),
            r#"{"a":"\ufffdy\ufffd\ud83d\ude00"}"#
        );
        for odd in ["\\", "\\u", "\\ud8", "\"\\u+d83\"", "\\uzzzz"] {
            assert_eq!(mend(&mut halves, odd), None, "{odd}");
        }
    }
}
