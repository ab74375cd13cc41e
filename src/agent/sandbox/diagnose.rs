//! Where a program failed, told in its own lines.

use std::fmt::Write as _;

use super::port::{GuestError, GuestErrorKind};
use super::surface::{WRAPPER_LINES, places};

/// What the engine calls the program's text in its stack traces.
pub(super) const FILE: &str = "action";

/// Lines that are longer get no caret: a person could not count it out.
const CARET_LINE: usize = 160;

/// How much is told of the name of a function, which the program may choose.
const NAME_CHARS: usize = 80;

/// How many frames are told.
const MAX_FRAMES: usize = 12;

/// A place in the program, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    line: u32,
    column: u32,
}

/// The stack trace in the program's own lines, with an excerpt of the first. Frames of the host and of the wrapper are left out.
/// Empty if no frame is the program's.
pub(super) fn rebase(stack: &str, code: &str) -> String {
    let lines = u32::try_from(code.lines().count()).unwrap_or(u32::MAX).max(1);
    let mut text = String::new();
    let mut frames = 0;
    for frame in stack.lines() {
        let Some((name, place)) = read_frame(frame, lines) else { continue };
        if frames == MAX_FRAMES {
            text.push_str("    …\n");
            break;
        }
        let line = place.line;
        let source = code.lines().nth(line as usize - 1).unwrap_or_default();
        let column = in_letters(source, place.column);
        let _ = match name.map(|name| crate::tree::cut(name, NAME_CHARS)) {
            Some(name) => writeln!(text, "    at {name} ({FILE}:{line}:{column})"),
            None => writeln!(text, "    at {FILE}:{line}:{column}"),
        };
        if frames == 0 {
            push_excerpt(&mut text, source, Place { line, column });
        }
        frames += 1;
    }
    text.truncate(text.trim_end().len());
    text
}

/// What is wrong with code that the engine cannot be given at all: its text must have no null character.
pub(super) fn null_character(code: &str) -> Option<GuestError> {
    let before = code.get(..code.find('\0')?)?;
    let line = before.matches('\n').count() + 1;
    let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1) + 1;
    let message =
        format!("SyntaxError: line {line} has a null character: take it out, or write \\0 in a text");
    let stack = rebase(&format!("    at {FILE}:{}:{column}", line + WRAPPER_LINES as usize), code);
    Some(GuestError { kind: GuestErrorKind::Syntax, message, stack })
}

/// The column counted in letters: the engine counts bytes.
fn in_letters(source: &str, column: u32) -> u32 {
    let before = source.get(..(column as usize).saturating_sub(1)).map(|text| text.chars().count());
    before.and_then(|letters| u32::try_from(letters + 1).ok()).unwrap_or(column)
}

fn push_excerpt(text: &mut String, source: &str, Place { line, column }: Place) {
    let shown = crate::tree::cut(source, CARET_LINE);
    let begin = format!("      your code, line {line}: ");
    let _ = writeln!(text, "{begin}{shown}");
    if shown.len() == source.len() && source.chars().count() >= column as usize {
        // As wide as what stands above it.
        let before = source.chars().take(column as usize - 1);
        let indent: String = before.map(|letter| if letter == '\t' { '\t' } else { ' ' }).collect();
        let _ = writeln!(text, "{}{indent}^", " ".repeat(begin.len()));
    }
}

/// A frame of the program, such as `    at name (action:3:9)` or `    at action:3:9`. The engine calls functions without a name,
/// the wrapper among them, `<anonymous>`.
fn read_frame(frame: &str, lines: u32) -> Option<(Option<&str>, Place)> {
    let frame = frame.trim().strip_prefix("at ")?;
    let (name, place) = match frame.strip_suffix(')').and_then(|frame| frame.rsplit_once(" (")) {
        Some((name, place)) => (Some(name), place),
        None => (None, frame),
    };
    let mut parts = place.strip_prefix(FILE)?.strip_prefix(':')?.split(':');
    let line: u32 = parts.next()?.parse().ok()?;
    let column: u32 = parts.next().and_then(|column| column.parse().ok()).unwrap_or(1);
    if name == Some("<eval>") || line <= WRAPPER_LINES {
        return None;
    }
    // What is missing at the end is told of the wrapper's last line.
    let line = (line - WRAPPER_LINES).min(lines);
    Some((name.filter(|name| *name != "<anonymous>"), Place { line, column }))
}

/// The line in which a program declares a name, if it is found.
pub(super) fn declaration(code: &str, name: &str) -> Option<u32> {
    let at = bound(code, name).or_else(|| listed(code, name))?;
    u32::try_from(code.get(..at)?.matches('\n').count() + 1).ok()
}

/// How far a declaration is looked through, in bytes.
const DECLARATION: usize = 2_000;

/// As what stands between a keyword and its value, on however many lines, or right behind one that makes a function or a class.
fn bound(code: &str, name: &str) -> Option<usize> {
    let behind = |keyword: &'static str| {
        places(code, keyword)
            .filter_map(move |at| Some((at + keyword.len(), code.get(at + keyword.len()..)?)))
    };
    let values = ["let", "const", "var"].into_iter().flat_map(behind).filter_map(|(from, rest)| {
        let near = rest.get(..rest.floor_char_boundary(DECLARATION))?;
        Some(from + places(near.split(['=', ';']).next()?, name).next()?)
    });
    let bodies = ["function", "class"].into_iter().flat_map(behind).filter_map(|(from, rest)| {
        let at = rest.find(|letter: char| letter != '*' && !letter.is_whitespace())?;
        (places(rest, name).next()? == at).then_some(from + at)
    });
    values.chain(bodies).min()
}

/// As one more of a list: `let a = 1, name = 2`.
fn listed(code: &str, name: &str) -> Option<usize> {
    places(code, name).find(|at| {
        let before = code.get(..*at).unwrap_or_default().trim_end();
        let after = code.get(at + name.len()..).unwrap_or_default().trim_start();
        let is_set = after.starts_with('=') && !after.starts_with("==") && !after.starts_with("=>");
        before.ends_with(',') && (is_set || after.starts_with([',', ';']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ac71_ac72_frames_are_told_in_the_programs_own_lines() {
        let code = "const a = 1;\nasync function go() {\n  await tools.read({ a });\n}\nawait go();";
        let stack = "    at read (native)\n    at go (action:4:9)\n    at <anonymous> (action:6:8)\n    at <eval> (action:7:1)\n";
        let shown = rebase(stack, code);
        let excerpt = "      your code, line 3:   await tools.read({ a });";
        let caret = format!("{}^", " ".repeat(excerpt.find("tools").unwrap()));
        assert_eq!(shown, format!("    at go (action:3:9)\n{excerpt}\n{caret}\n    at action:5:8"));
    }

    #[test]
    fn a_column_is_counted_in_letters() {
        let code = "\tconst s = 'ä😀'; boom();";
        let column = code.find("boom").unwrap() + 1;
        let shown = rebase(&format!("    at action:2:{column}"), code);
        let excerpt = "      your code, line 1: ";
        let caret = format!("{}\t{}^", " ".repeat(excerpt.len()), " ".repeat("const s = 'xx'; ".len()));
        assert_eq!(shown, format!("    at action:1:18\n{excerpt}{code}\n{caret}"));
    }

    #[test]
    fn no_frame_of_the_program_gives_nothing() {
        for stack in [
            "",
            "    at read (native)",
            "    at <eval> (action:7:1)",
            "at action:1:5",
            "at action",
            "at action:x:y",
            ")(",
            "at (action",
        ] {
            assert_eq!(rebase(stack, "x"), "", "{stack}");
        }
        assert_eq!(
            rebase("    at action:9:1", "x\ny"),
            "    at action:2:1\n      your code, line 2: y\n                         ^"
        );
        assert_eq!(rebase("    at action:2:70", "x"), "    at action:1:70\n      your code, line 1: x");
    }

    #[test]
    fn declarations_are_found_by_line() {
        assert_eq!(declaration("x\nconst tools = 1", "tools"), Some(2));
        assert_eq!(declaration("x\n\nasync function agent() {}", "agent"), Some(3));
        assert_eq!(declaration("const { a, log } = b", "log"), Some(1));
        assert_eq!(declaration("tools.x(); const y = 1", "tools"), None);
        // The line of the declaration, and not one that only uses the name.
        assert_eq!(
            declaration("const r = await tools.x();\n// a class of tools\nlet tools = 5", "tools"),
            Some(3)
        );
        assert_eq!(declaration("const {\n  a,\n  log,\n} = b", "log"), Some(3));
        assert_eq!(declaration("let\n tools\n = 1", "tools"), Some(2));
        assert_eq!(declaration("let x = f(log),\n  log = 2;", "log"), Some(2));
        assert_eq!(declaration("let x = 1, sleep;", "sleep"), Some(1));
        assert_eq!(declaration("function f(log) {}\nclass log {}", "log"), Some(2));
    }
}
