use super::*;

#[test]
fn names_that_are_defined() {
    for (path, line, expected) in [
        ("a.rs", "pub(crate) async fn cancel(&self) {", Some("cancel")),
        ("a.rs", "    pub(in crate::a b) const fn new() -> Self {", Some("new")),
        ("a.rs", "    pub unsafe extern \"C\" fn raw()", Some("raw")),
        ("a.rs", "pub static mut COUNT: u8 = 0;", Some("COUNT")),
        ("a.rs", "struct Token<'a> {", Some("Token")),
        ("a.rs", "macro_rules! words {", Some("words")),
        ("a.rs", "mod tests;", None),
        ("a.rs", "    let token = 1;", None),
        ("a.rs", "    token.cancel();", None),
        ("a.rs", "impl Token {", None),
        ("a.rs", "    cancel(token) {", None),
        ("a.py", "    async def cancel(self):", Some("cancel")),
        ("a.py", "class Token(Base):", Some("Token")),
        ("a.py", "    classes = 3", None),
        ("a.go", "func (t *Token) Cancel(ctx Context) error {", Some("Cancel")),
        ("a.go", "type Token struct {", Some("Token")),
        ("a.ts", "export default async function cancel() {", Some("cancel")),
        ("a.ts", "export const cancel = () => {", Some("cancel")),
        ("a.ts", "  const token = 1", None),
        ("a.ts", "  async cancel(reason: string): void {", Some("cancel")),
        ("a.ts", "  if (cancel) {", None),
        ("a.ts", "  describe('x', () => {", None),
        ("a.ts", "export interface Token {", Some("Token")),
        ("a.rs", "", None),
        ("a.rs", "pub(", None),
        ("a.rs", "ä fn", None),
    ] {
        assert_eq!(defined_name(path, line).as_deref(), expected, "{line}");
    }
}

#[test]
fn kinds_of_lines() {
    let function = |name: &str| LineKind::Definition { name: name.into(), of: Defined::Function };
    for (path, line, expected) in [
        ("a.rs", "/// Cancels.", LineKind::Doc),
        ("a.rs", "    // why", LineKind::Comment),
        ("a.rs", "#[test]", LineKind::Code),
        ("a.rs", "use crate::token;", LineKind::Import),
        ("a.rs", "pub fn cancel() {", function("cancel")),
        ("a.rs", "const A: fn() = b;", LineKind::Definition { name: "A".into(), of: Defined::Value }),
        ("a.rs", "enum A {", LineKind::Definition { name: "A".into(), of: Defined::Type }),
        ("a.py", "# why", LineKind::Comment),
        ("a.py", "    \"\"\"Cancels.", LineKind::Doc),
        ("a.py", "from a import b", LineKind::Import),
        ("a.js", "export { a } from './a'", LineKind::Import),
        ("a.js", "export const a = () => 1", function("a")),
        ("a.c", "#include <a.h>", LineKind::Import),
        ("README.md", "## Cancelling", LineKind::Heading),
        ("README.md", "Cancellation", LineKind::Heading),
        ("README.md", "A run is cancelled by its parent.", LineKind::Code),
        ("README.md", "#hashtag", LineKind::Code),
    ] {
        assert_eq!(line_kind(path, line), expected, "{line}");
    }
}

#[test]
fn kinds_of_files() {
    for (paths, expected) in [
        ("src/a.rs a.py lib/a.ts cmd/a.go src/testing.rs latest.py", FileKind::Source),
        (
            "tests/a.rs src/a_tests.rs src/tests.rs test_a.py pkg/a_test.go a.spec.ts web/__tests__/a.js a.test.tsx conftest.py",
            FileKind::Test,
        ),
        ("README.md docs/a.rst tests/README.md", FileKind::Document),
        ("examples/a.rs benches/a.rs", FileKind::Example),
        ("Cargo.toml a.json Makefile .github/a.yml", FileKind::Data),
        (
            "Cargo.lock package-lock.json vendor/a.go node_modules/a/b.js a.min.js a_pb2.py CHANGELOG.md a.snap \
             tests/fixtures/a.rs third_party/a.c",
            FileKind::Foreign,
        ),
    ] {
        for path in paths.split_whitespace() {
            assert_eq!(file_kind(path), expected, "{path}");
        }
    }
}

#[test]
fn what_marks_a_test() {
    for line in
        ["#[test]", "  #[tokio::test(start_paused = true)]", "#[cfg(test)]", "#[cfg(all(test, unix))]"]
    {
        assert!(is_test_attribute(line), "{line}");
    }
    for line in ["#[testing]", "#[derive(Debug)]", "// #[test]", "#[cfg(unix)]"] {
        assert!(!is_test_attribute(line), "{line}");
    }
    assert!(begins_tests("mod tests {") && begins_tests("    mod loom_test {"));
    assert!(!begins_tests("mod tests;") && !begins_tests("mod attestation {"));
    assert!(is_test_line("a.py", "    def test_cancel(self):"));
    assert!(
        is_test_line("a.go", "func TestCancel(t *testing.T) {") && !is_test_line("a.go", "func Testify() {")
    );
    assert!(is_test_line("a.spec.ts", "  it('cancels', () => {") && !is_test_line("a.ts", "  it('cancels')"));
}

#[test]
fn globs_and_kinds_agree() {
    assert!(source_glob().starts_with("*.{rs,py,") && other_glob().starts_with("!*.{rs,"));
    assert!(document_glob().contains("md"));
    for name in ["**/test_*", "**/*_test.*", "**/*.spec.*", "**/tests/**"] {
        assert!(test_glob().contains(name));
    }
}
