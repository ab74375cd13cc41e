//! The names that a program sees, and the wrapper that makes a function of its text.

use super::program::Surface;

/// Names of every surface.
const COMMON: [&str; 6] = ["tools", "console", "log", "sleep", "parallel", "pipeline"];
const ACTION: [&str; 2] = ["search_tools", "finish"];
const SCRIPT: [&str; 3] = ["agent", "inputs", "budget"];

/// How much of a package's name is quoted, in bytes.
const MAX_PACKAGE: usize = 200;

/// Lines that the wrapper puts before the program's own.
pub(super) const WRAPPER_LINES: u32 = 1;

impl Surface {
    /// The names that a program of this kind may not take.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        let own: &[&'static str] = match self {
            Self::Action => &ACTION,
            Self::Script { .. } => &SCRIPT,
        };
        COMMON.iter().chain(own).copied()
    }

    /// Those of them that stand in the text. What it does not mention it gets all the same, as a global.
    pub(super) fn mentioned(&self, code: &str) -> Vec<&'static str> {
        self.names().filter(|name| mentions(code, name)).collect()
    }
}

/// Whether an identifier stands in a text, be it in a comment.
pub(super) fn mentions(code: &str, name: &str) -> bool {
    places(code, name).next().is_some()
}

/// Where an identifier stands in a text.
pub(super) fn places<'a>(code: &'a str, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$';
    code.match_indices(name).map(|(at, _)| at).filter(move |at| {
        let before = code.get(..*at).and_then(|text| text.chars().next_back());
        let after = code.get(at + name.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// Why a package cannot be imported.
pub(super) fn refused_import(package: &str) -> String {
    let package = crate::message::cap_text(package, MAX_PACKAGE);
    format!(
        "importing {package:?} is not possible: the allowlist of packages is empty; what a program has are its tools"
    )
}

/// The package that a program names in its first import statement, which is not what the body of a function may have. Only what stands
/// where a statement may is one: the word stands in comments and texts too, and in longer words.
pub(super) fn imported(code: &str) -> Option<&str> {
    code.match_indices("import").find_map(|(at, word)| {
        let (before, after) = (code.get(..at)?, code.get(at + word.len()..)?);
        let begins = before.trim_end_matches([' ', '\t']);
        let is_statement =
            begins.is_empty() || begins.ends_with(['\n', '\r', ';', '{', '}']) || begins.ends_with("*/");
        if !is_statement {
            return None;
        }
        let names = after.trim_start();
        if names.starts_with(['"', '\'', '`']) {
            return quoted(names);
        }
        after
            .starts_with(|letter: char| letter.is_whitespace() || "{*/".contains(letter))
            .then(|| from(names))?
    })
}

/// The package behind `from`. What is imported may stand on several lines: names, braces, a star, commas, and comments between them.
fn from(names: &str) -> Option<&str> {
    let is_name = |letter: char| letter.is_alphanumeric() || "_$ ,{}*\t\r\n".contains(letter);
    places(names, "from").find_map(|at| {
        let package = names.get(at + "from".len()..)?;
        without_comments(names.get(..at)?).chars().all(is_name).then(|| quoted(package.trim_start()))?
    })
}

fn without_comments(text: &str) -> String {
    let mut rest = text;
    let mut out = String::new();
    while let Some((before, after)) = rest.split_once('/') {
        out.push_str(before);
        let end = if after.starts_with('*') { "*/" } else { "\n" };
        rest = match after.split_once(end) {
            Some((_, rest)) if after.starts_with(['/', '*']) => rest,
            // A stroke of its own, which no name has.
            _ => return text.to_owned(),
        };
    }
    out + rest
}

/// The text of a literal at the beginning.
fn quoted(text: &str) -> Option<&str> {
    let quote = text.chars().next().filter(|quote| matches!(quote, '"' | '\'' | '`'))?;
    let (inside, _) = text.get(1..)?.split_once(quote)?;
    (!inside.contains('\n')).then_some(inside)
}

/// The program as an expression whose value is its promise. The names become constants of the same block, so that the engine
/// itself refuses a program that declares one of them anew, before it runs.
pub(super) fn wrap(code: &str, names: &[&str]) -> String {
    let names = names.join(",");
    format!("(async()=>{{\"use strict\";const{{{names}}}=globalThis;\n{code}\n}})()")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_as_identifiers_only() {
        assert!(mentions("await tools.read()", "tools") && mentions("tools", "tools"));
        assert!(!mentions("mytools.x; toolset; $tools; tools2", "tools"));
        assert_eq!(Surface::Action.mentioned("return finish(log)"), ["log", "finish"]);
        assert_eq!(Surface::Action.mentioned("return agent(inputs)"), [""; 0]);
        assert_eq!(imported("const a = 1\nimport x from 'lodash'; x()"), Some("lodash"));
        assert_eq!(imported("import{a}from'tight'"), Some("tight"));
        assert_eq!(imported("/* all */ import {\n  a, // don't\n  b, /* from 'c' */\n} from 'd'"), Some("d"));
        assert_eq!(imported("import {\n  a,\n  b as c,\n} from \"deep/er\";"), Some("deep/er"));
        assert_eq!(imported("import 'side'; import * as x from 'later'"), Some("side"));
        assert_eq!(imported("f(); import x from `y`"), Some("y"));
        for none in [
            "reimport('x'); a.import('x')",
            "// important: don't\nlet b = ;",
            "// import x from 'y'\nlet b = ;",
            "const text = \"import x from 'y'\"; let b = ;",
            "/* how to import 'x' */ let b = ;",
            "important 'x'",
            "import(name)",
            "await import('called')",
            "import a / b from 'c'",
            "import x, 'y'",
        ] {
            assert_eq!(imported(none), None, "{none}");
        }
    }
}
