//! The names that a program sees, and the wrapper that makes a function of its text.

use super::program::Surface;

/// Names of every surface.
const COMMON: [&str; 6] = ["tools", "console", "log", "sleep", "parallel", "pipeline"];
const ACTION: [&str; 2] = ["search_tools", "finish"];
const SCRIPT: [&str; 3] = ["agent", "inputs", "budget"];

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
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$';
    code.match_indices(name).any(|(at, _)| {
        let before = code.get(..at).and_then(|text| text.chars().next_back());
        let after = code.get(at + name.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// The package that a program names in its first import, if it has one.
pub(super) fn imported(code: &str) -> Option<&str> {
    let at = code.match_indices("import").map(|(at, _)| at).find(|at| {
        let before = code.get(..*at).and_then(|text| text.chars().next_back());
        !before
            .is_some_and(|letter| letter.is_alphanumeric() || letter == '_' || letter == '$' || letter == '.')
    })?;
    let statement = code.get(at..)?.split([';', '\n']).next()?;
    let (_, rest) = statement.split_once(['\'', '"'])?;
    rest.split(['\'', '"']).next()
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
        assert_eq!(imported("await import(\"fs\")"), Some("fs"));
        assert_eq!(imported("reimport('x'); a.import('x'); import\n'x'"), None);
    }
}
