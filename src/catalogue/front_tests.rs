//! Values that need quotes, and names that are nearly right.

use super::*;

#[test]
fn values_get_quotes_only_where_one_needs_them() {
    assert_eq!(requoted("name: a\ntools: [a, b]\n"), None);
    assert_eq!(requoted("a: b: c\nn: 5\n").unwrap(), "a: 'b: c'\nn: 5\n");
    assert_eq!(
        requoted("a: it's: so\n  and: more\n\nb:\n  - c\n").unwrap(),
        "a: 'it''s: so and: more'\n\nb:\n  - c\n"
    );
    // Blocks, quoted texts, lists and mappings are as they are.
    let kept = "a: b: c\nb: |\n  x: y: z\nc: \"q: r\"\nd: {e: f}\n";
    assert_eq!(requoted(kept).unwrap(), kept.replace("b: c", "'b: c'"));
}

#[test]
fn lists_are_taken_apart_at_commas_outside_of_brackets() {
    assert_eq!(at_commas("a, b(c, d), e"), ["a", " b(c, d)", " e"]);
    assert_eq!(at_commas("a)b,(c"), ["a)b", "(c"]);
}

#[test]
fn the_nearest_name_is_near() {
    let names = ["reviewer", "researcher"];
    assert_eq!(nearest("Reviwer", names.into_iter()), Some("reviewer"));
    assert_eq!(nearest("cook", names.into_iter()), None);
    // Whatever a model sends: it is cut before it is compared.
    assert_eq!(nearest(&"é".repeat(1_000_000), names.into_iter()), None);
}
