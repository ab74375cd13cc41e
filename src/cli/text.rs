//! Text of a stranger on a person's terminal: made harmless, cut to fit, numbers as people say them.

use std::time::Duration;

use ratatui::text::Span;

/// The most bytes of one visible character. Real ones, joined emoji included, stay far below; a heap of combining
/// marks does not.
const GRAPHEME_BYTES: usize = 64;

/// One line that cannot move the cursor, change colours, ring, or turn the reading order.
///
/// Line breaks and tabs become spaces; other control characters their pictures (`␛`); what only steers the
/// direction of text becomes `�`.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        line.push(match c {
            '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => ' ',
            c => harmless(c),
        });
    }
    line
}

/// The same for text of several lines: line breaks and tabs stay.
pub(crate) fn several_lines(text: &str) -> String {
    text.chars().map(|c| if matches!(c, '\n' | '\t') { c } else { harmless(c) }).collect()
}

fn harmless(c: char) -> char {
    match c {
        // The block of control pictures has the order of the control characters.
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('�'),
        '\u{7f}' => '␡',
        '\u{80}'..='\u{9f}'
        | '\u{ad}'
        | '\u{61c}'
        | '\u{200b}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => '�',
        c => c,
    }
}

/// How many columns of a terminal a text takes.
pub(crate) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// The text in at most `columns`, with an ellipsis where it was cut. Never cuts a visible character in two.
pub(crate) fn fit(text: &str, columns: usize) -> String {
    let (kept, whole) = keep(text, columns);
    match columns.checked_sub(1) {
        Some(columns) if !whole => keep(text, columns).0 + "…",
        _ => kept,
    }
}

/// What fits, and whether that is all.
fn keep(text: &str, columns: usize) -> (String, bool) {
    let (mut kept, mut used) = (String::new(), 0);
    for grapheme in Span::raw(text).styled_graphemes(ratatui::style::Style::default()) {
        let symbol = if grapheme.symbol.len() > GRAPHEME_BYTES { "�" } else { grapheme.symbol };
        used += width(symbol);
        if used > columns {
            return (kept, false);
        }
        kept.push_str(symbol);
    }
    (kept, true)
}

/// The last `rows` lines of a text that streams, wrapped to `columns`, blank ones left out. Of the text, only the last
/// `tail` bytes are looked at.
pub(crate) fn wrap_end(text: &str, tail: usize, columns: usize, rows: usize) -> Vec<String> {
    let from = text.floor_char_boundary(text.len().saturating_sub(tail));
    let lines = text.get(from..).unwrap_or_default().lines().filter(|line| !line.trim().is_empty());
    let mut wrapped: Vec<String> = lines.flat_map(|line| wrap_line(line, columns)).collect();
    wrapped.split_off(wrapped.len().saturating_sub(rows))
}

/// One line, wrapped to `columns`, at spaces where that is possible. Of an empty one, an empty one.
pub(crate) fn wrap_line(line: &str, columns: usize) -> impl Iterator<Item = String> + use<> {
    let line = one_line(line.trim_end());
    let mut from = 0;
    let mut is_first = true;
    std::iter::from_fn(move || {
        let rest = line.get(from..).filter(|rest| !rest.is_empty() || is_first)?;
        is_first = false;
        let mut end = keep_bytes(rest, columns);
        if end < rest.len()
            && let Some(space) = rest.get(..end).and_then(|head| head.rfind(' ')).filter(|at| *at > end / 2)
        {
            end = space + 1;
        }
        from += end;
        Some(fit(rest.get(..end).unwrap_or_default().trim_end(), columns))
    })
}

/// How many bytes of a text fit into `columns`; at least one visible character, so that a loop gets on.
fn keep_bytes(text: &str, columns: usize) -> usize {
    let (mut bytes, mut used) = (0, 0);
    for grapheme in Span::raw(text).styled_graphemes(ratatui::style::Style::default()) {
        used += width(grapheme.symbol);
        if used > columns && bytes > 0 {
            break;
        }
        bytes += grapheme.symbol.len();
    }
    bytes
}

/// A time span: `12.3s`, `4m 05s`, `2h 07m`.
pub(crate) fn duration(span: Duration) -> String {
    let (seconds, millis) = (span.as_secs(), span.subsec_millis());
    match seconds {
        0 if millis < 100 => format!("{millis}ms"),
        0..60 => format!("{seconds}.{}s", millis / 100),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// A count: `950`, `3.4k`, `12k`, `1.2M`.
pub(crate) fn count(number: u64) -> String {
    let short = |unit: u64, letter: char| match number / unit {
        whole @ 0..10 => format!("{whole}.{}{letter}", number % unit * 10 / unit),
        whole => format!("{whole}{letter}"),
    };
    match number {
        0..1000 => number.to_string(),
        1000..1_000_000 => short(1000, 'k'),
        1_000_000..1_000_000_000 => short(1_000_000, 'M'),
        _ => short(1_000_000_000, 'G'),
    }
}

/// `1 call`, `2 calls`.
pub(crate) fn plural(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Money: `$0.0123`, `$1.50`; four digits below a dollar, since model calls are cheap.
pub(crate) fn dollars(amount: f64) -> String {
    if amount.abs() < 1.0 { format!("${amount:.4}") } else { format!("${amount:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_neutralised() {
        assert_eq!(one_line("a\x1b[31mred\x07\r\nb\tc\x7f\u{9b}2J"), "a␛[31mred␇  b c␡�2J");
        assert_eq!(one_line("\u{202e}evil\u{2066}"), "�evil�");
        assert_eq!(several_lines("a\n\tb\x1b]0;x"), "a\n\tb␛]0;x");
    }

    #[test]
    fn text_is_cut_by_columns_and_never_inside_a_character() {
        assert_eq!(fit("hello", 5), "hello");
        assert_eq!(fit("hello", 4), "hel…");
        assert_eq!(fit("hello", 1), "…");
        assert_eq!(fit("hello", 0), "");
        assert_eq!(fit("日本語テキスト", 7), "日本語…");
        assert_eq!(fit("日本語テキスト", 6), "日本…");
        assert_eq!(fit("👩‍👩‍👧 family", 4), "👩‍👩‍👧 …");
        assert_eq!(fit(&format!("e{}x", "\u{301}".repeat(500)), 5), "�x");
        assert_eq!(width(&fit("日本語テキスト", 6)), 5);
    }

    #[test]
    fn numbers_are_short() {
        let spans = [5, 250, 12_340, 245_000, 7_620_000].map(|ms| duration(Duration::from_millis(ms)));
        assert_eq!(spans, ["5ms", "0.2s", "12.3s", "4m 05s", "2h 07m"]);
        assert_eq!(
            [950, 3_440, 12_999, 1_250_000].map(count),
            ["950", "3.4k", "12k", "1.2M"].map(str::to_owned)
        );
        assert_eq!((plural(1, "call"), plural(2, "call")), ("1 call".into(), "2 calls".into()));
        assert_eq!((dollars(0.0123), dollars(12.0)), ("$0.0123".into(), "$12.00".into()));
    }
}
