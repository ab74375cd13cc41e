//! The agents as a model that may delegate is told of them.

use std::fmt::Write as _;

use super::directories::Listing;

/// How much of a description stands there, in characters.
const DESCRIPTION_CHARS: usize = 400;

/// How much room all of them have, in bytes. Of those beyond it, as far as that goes, the names are told.
const SECTION_BYTES: usize = 12 * 1024;

/// A line for each agent; empty if there is none.
pub(super) fn section(listing: &Listing) -> String {
    if listing.definitions.is_empty() {
        return String::new();
    }
    let mut text = String::from("The agents that `delegate` takes:\n");
    let mut left = Vec::new();
    for definition in &listing.definitions {
        let line = format!("- {}: {}", definition.name, one_line(&definition.description));
        if text.len() + line.len() > SECTION_BYTES {
            left.push(&*definition.name);
            continue;
        }
        let _ = writeln!(text, "{line}");
    }
    if !left.is_empty() {
        let _ = writeln!(
            text,
            "- and, without a word on them: {}",
            crate::message::cap_text(&left.join(", "), SECTION_BYTES)
        );
    }
    text.truncate(text.trim_end().len());
    text
}

/// A description as one line: it cannot begin another entry.
fn one_line(description: &str) -> String {
    let visible = |letter: char| if letter.is_control() { ' ' } else { letter };
    let text: String = description.chars().map(visible).collect();
    crate::tree::cut(&text.split_whitespace().collect::<Vec<_>>().join(" "), DESCRIPTION_CHARS)
}
