//! What a line is, and what a path says, in the languages that source trees are written in.

/// What a line is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LineKind {
    /// It defines a name.
    Definition {
        /// The name.
        name: String,
        /// Of what.
        of: Defined,
    },
    /// A heading of a document.
    Heading,
    /// A comment that documents.
    Doc,
    /// Another comment.
    Comment,
    /// It only makes names visible.
    Import,
    /// Anything else.
    Code,
}

/// What a definition defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Defined {
    /// A type, a class, a trait.
    Type,
    /// A function, a method.
    Function,
    /// A constant, a module, anything else.
    Value,
}

/// What kind of file a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileKind {
    /// Source code.
    Source,
    /// Tests.
    Test,
    /// Documents.
    Document,
    /// Examples, benchmarks.
    Example,
    /// Neither code nor documents: configuration, data.
    Data,
    /// Not written here: vendored, generated, locks, change logs.
    Foreign,
}

const SOURCE: &[&str] = &[
    "rs", "py", "pyi", "js", "mjs", "cjs", "jsx", "ts", "tsx", "mts", "go", "c", "h", "cc", "cpp", "hpp",
    "java", "kt", "rb", "php", "cs", "swift", "scala", "sh", "bash", "lua", "zig", "ex", "exs", "hs", "ml",
    "sql", "vue", "svelte", "proto", "dart",
];
/// Languages whose methods have no keyword.
const SCRIPT: &[&str] = &["js", "mjs", "cjs", "jsx", "ts", "tsx", "mts", "vue", "svelte"];
const DOCUMENT: &[&str] = &["md", "mdx", "rst", "txt", "adoc", "markdown"];
const DATA: &[&str] = &[
    "toml", "json", "yaml", "yml", "ini", "cfg", "xml", "html", "css", "csv", "svg", "lock", "jsonl",
    "graphql", "snap",
];

/// Words that stand before the keyword of a definition.
const MODIFIERS: &[&str] = &[
    "pub",
    "export",
    "default",
    "async",
    "static",
    "abstract",
    "public",
    "private",
    "protected",
    "final",
    "unsafe",
    "extern",
    "override",
    "declare",
    "readonly",
    "inline",
];
const KEYWORDS: &[&str] = &[
    "fn",
    "struct",
    "enum",
    "trait",
    "union",
    "mod",
    "type",
    "class",
    "def",
    "function",
    "function*",
    "interface",
    "namespace",
    "func",
    "const",
    "static",
    "let",
    "var",
    "macro_rules!",
];

/// Finds lines that may define what follows it in a pattern. Short, since people watch the calls; what a line really is,
/// [`line_kind`] decides.
pub(super) const DEFINITION_PATTERN: &str = r"\b(?:fn|struct|enum|trait|type|mod|class|def|function\*?|interface|func|const|macro_rules!)\s+(?:\([^)]*\)\s*)?\w*?";

/// Whether files with this extension are read as text here.
pub(super) fn is_known_extension(extension: &str) -> bool {
    [SOURCE, DOCUMENT, DATA].iter().any(|list| list.contains(&extension))
}

/// Files of source code.
pub(super) fn source_glob() -> String {
    format!("*.{{{}}}", SOURCE.join(","))
}

/// Documents.
pub(super) fn document_glob() -> String {
    format!("*.{{{}}}", DOCUMENT.join(","))
}

/// All other files.
pub(super) fn other_glob() -> String {
    format!("!*.{{{},{}}}", SOURCE.join(","), DOCUMENT.join(","))
}

/// Files of tests, as [`file_kind`] knows them.
pub(super) fn test_glob() -> String {
    "{**/test/**,**/tests/**,**/__tests__/**,**/spec/**,**/test_*,**/*_test.*,**/*_tests.*,**/*.test.*,**/*.spec.*,\
     **/tests.*,**/test.*}"
        .to_owned()
}

/// The line that begins the tests inside of a Rust file: by convention all that follows is tests.
pub(super) const TEST_MODULE: &str = r"^\s*mod \w*tests? \{";

/// Whether a line matches [`TEST_MODULE`].
pub(super) fn begins_tests(line: &str) -> bool {
    let name = line.trim_start().strip_prefix("mod ").and_then(|rest| rest.strip_suffix(" {"));
    name.is_some_and(|name| name.ends_with("test") || name.ends_with("tests"))
}

/// What the path of a file says about it.
pub(super) fn file_kind(path: &str) -> FileKind {
    let lower = path.to_lowercase();
    let (folders, file) = lower.rsplit_once('/').unwrap_or(("", &lower));
    let (name, extension) = file.rsplit_once('.').unwrap_or((file, ""));
    let in_folder = |names: &[&str]| folders.split('/').any(|folder| names.contains(&folder));
    let foreign_file = extension == "lock"
        || ["package-lock.json", "pnpm-lock.yaml", "go.sum"].contains(&file)
        || ["changelog", "changes", "history", "news", "releases"].contains(&name)
        || [".min", "_pb2", "_pb2_grpc", ".pb", "_generated", ".generated", ".bundle"]
            .iter()
            .any(|end| name.ends_with(end))
        || ["snap", "svg", "map", "csv", "jsonl"].contains(&extension);
    if foreign_file
        || in_folder(&[
            "vendor",
            "vendored",
            "_vendor",
            "node_modules",
            "third_party",
            "third-party",
            "dist",
            "target",
            "generated",
            "site-packages",
            "snapshots",
            "__snapshots__",
            "fixtures",
            "testdata",
            "__pycache__",
        ])
    {
        return FileKind::Foreign;
    }
    let test_file = ["test_", "tests_"].iter().any(|start| name.starts_with(start))
        || ["_test", "_tests", ".test", ".spec", "_spec", "-test"].iter().any(|end| name.ends_with(end))
        || ["tests", "test", "conftest"].contains(&name);
    if SOURCE.contains(&extension)
        && (test_file || in_folder(&["tests", "test", "__tests__", "spec", "specs", "e2e", "testing"]))
    {
        return FileKind::Test;
    }
    if in_folder(&["examples", "example", "benches", "benchmarks", "bench", "demo", "demos", "samples"]) {
        return FileKind::Example;
    }
    if SOURCE.contains(&extension) {
        FileKind::Source
    } else if DOCUMENT.contains(&extension) {
        FileKind::Document
    } else {
        FileKind::Data
    }
}

/// What a line of a file of this kind is.
pub(super) fn line_kind(path: &str, line: &str) -> LineKind {
    let text = line.trim_start();
    if file_kind(path) == FileKind::Document || path.ends_with(".md") {
        return if is_heading(line) { LineKind::Heading } else { LineKind::Code };
    }
    if ["///", "//!", "/**", "\"\"\"", "'''", "* "].iter().any(|start| text.starts_with(start)) {
        return LineKind::Doc;
    }
    if text.starts_with("//") || text.starts_with("/*") || is_hash_comment(text) || text.starts_with("<!--") {
        return LineKind::Comment;
    }
    if let Some(name) = defined_name(path, line) {
        return LineKind::Definition { name, of: defined(text) };
    }
    let imports =
        ["use ", "pub use ", "import ", "from ", "#include", "require(", "package ", "extern crate "];
    if imports.iter().any(|start| text.starts_with(start))
        || (text.starts_with("export ") && text.contains(" from "))
    {
        return LineKind::Import;
    }
    LineKind::Code
}

/// A heading, or what stands for one: a short line that begins a paragraph and is no sentence, or bold text.
fn is_heading(line: &str) -> bool {
    /// Longer lines are sentences.
    const LONGEST: usize = 60;
    let marked = line.starts_with('#') && line.trim_start_matches('#').starts_with(' ');
    let short = line.chars().count() <= LONGEST && !line.ends_with(['.', ',', ';', '|']);
    marked || (short && (line.starts_with("**") || line.starts_with(char::is_uppercase)))
}

fn defined(text: &str) -> Defined {
    for word in text.split_whitespace() {
        match word {
            "struct" | "enum" | "trait" | "class" | "interface" | "type" | "union" => return Defined::Type,
            "fn" | "def" | "function" | "function*" | "func" | "macro_rules!" => return Defined::Function,
            "const" | "static" if text.contains("fn ") || text.contains("=>") => {}
            "const" | "static" | "let" | "var" | "mod" | "namespace" => return Defined::Value,
            _ => {}
        }
    }
    Defined::Function
}

fn is_hash_comment(text: &str) -> bool {
    text.starts_with('#')
        && !["#[", "#![", "#include", "#define", "#if"].iter().any(|start| text.starts_with(start))
}

/// The name that a line defines, if it is a definition.
pub(super) fn defined_name(path: &str, line: &str) -> Option<String> {
    let indented = line.starts_with([' ', '\t']);
    let mut rest = line.trim_start();
    loop {
        let (word, after) = next_word(rest)?;
        let bare = word.split('(').next().unwrap_or(word);
        if KEYWORDS.contains(&word) {
            let after = after.trim_start();
            if matches!(word, "const" | "static")
                && (after.starts_with("fn ") || after.starts_with("unsafe "))
            {
                rest = after;
                continue;
            }
            // `mod tests;` declares a file; `let` inside a function is no definition that anybody looks for.
            if (word == "mod" && after.ends_with(';')) || (matches!(word, "let" | "var") && indented) {
                return None;
            }
            // A constant inside a JavaScript function is a local variable.
            if word == "const" && indented && !after.contains(':') {
                return None;
            }
            let after =
                if word == "func" && after.starts_with('(') { after.split_once(')')?.1 } else { after };
            let after = after.trim_start();
            return identifier(after.strip_prefix("mut ").unwrap_or(after));
        }
        if !MODIFIERS.contains(&bare) && !word.starts_with('"') {
            break;
        }
        rest = after;
    }
    if is_script(path) { method_name(line) } else { None }
}

fn is_script(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, extension)| SCRIPT.contains(&extension))
}

/// A method of JavaScript has no keyword: `  async cancel(reason) {`.
fn method_name(line: &str) -> Option<String> {
    const CONTROL: &[&str] =
        &["if", "for", "while", "switch", "catch", "function", "with", "return", "super"];
    let text = line.trim();
    if !line.starts_with([' ', '\t'])
        || !text.ends_with('{')
        || text.contains("=>")
        || text.contains("function")
    {
        return None;
    }
    let text = ["async ", "static ", "get ", "set "]
        .iter()
        .find_map(|start| text.strip_prefix(start))
        .unwrap_or(text);
    let name = identifier(text)?;
    let after = text.strip_prefix(name.as_str())?;
    (after.starts_with('(') && after.contains(')') && !CONTROL.contains(&name.as_str())).then_some(name)
}

fn next_word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    if text.is_empty() {
        return None;
    }
    // `pub(in some::path)` is one word, blanks included.
    let end = match text.strip_prefix("pub(") {
        Some(_) => text.find(')')? + 1,
        None => text.find(char::is_whitespace).unwrap_or(text.len()),
    };
    text.split_at_checked(end)
}

fn identifier(text: &str) -> Option<String> {
    let name: String = text.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '$')).collect();
    (!name.is_empty()).then_some(name)
}

/// Whether a line marks what follows it as a test.
pub(super) fn is_test_attribute(line: &str) -> bool {
    let text = line.trim();
    let Some(inner) = text.strip_prefix("#[") else { return false };
    let name = inner.split(['(', ']']).next().unwrap_or_default();
    name == "test"
        || name.ends_with("::test")
        || text.starts_with("#[cfg(test)]")
        || text.starts_with("#[cfg(all(test")
}

/// Whether a definition's name, or a line that calls a test framework, is a test.
pub(super) fn is_test_line(path: &str, line: &str) -> bool {
    let text = line.trim_start();
    let framework = ["it(", "test(", "describe(", "it.each", "test.each", "bench("];
    if framework.iter().any(|start| text.starts_with(start)) {
        return file_kind(path) == FileKind::Test;
    }
    match defined_name(path, line) {
        Some(name) => {
            name.starts_with("test_")
                || (path.ends_with(".go")
                    && name.strip_prefix("Test").is_some_and(|rest| rest.starts_with(char::is_uppercase)))
        }
        None => false,
    }
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
