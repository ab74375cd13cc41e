//! Where the front matter of a file ends and its body begins.

/// A file, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    /// The text between the markers; none if the file has no front matter.
    pub(super) front: Option<&'a str>,
    /// The line of the file, from 1, at which `front` begins.
    pub(super) first_line: usize,
    /// What comes after it, or the whole file.
    pub(super) body: &'a str,
    /// Whether there is an opening marker, at this line, that nothing closes.
    pub(super) unclosed: Option<usize>,
}

/// Takes a file apart.
///
/// Blank lines may come first. A marker is a line of three hyphens and nothing else but blanks behind them: so `---x` opens nothing, and
/// an indented line of hyphens, as a block of text in the front matter may have, closes nothing.
pub(super) fn split(text: &str) -> Parts<'_> {
    let whole = Parts { front: None, first_line: 1, body: text, unclosed: None };
    let mut lines = lines(text).skip_while(|(_, line, _)| line.trim().is_empty());
    let Some((opened, _, start)) = lines.next().filter(|(_, line, _)| is_marker(line)) else { return whole };
    let mut end = start;
    for (_, line, next) in lines {
        if is_marker(line) {
            return Parts {
                front: text.get(start..end),
                first_line: opened + 1,
                body: text.get(next..).unwrap_or_default(),
                unclosed: None,
            };
        }
        end = next;
    }
    Parts { unclosed: Some(opened), ..whole }
}

/// Each line with its number, from 1, and where the next one begins.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str, usize)> {
    text.split_inclusive('\n').zip(1..).scan(0, |at, (line, number)| {
        *at += line.len();
        Some((number, line, *at))
    })
}

fn is_marker(line: &str) -> bool {
    line.trim_end() == "---"
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Front matter, its first line, body.
    fn of(text: &str) -> (Option<&str>, usize, &str) {
        let Parts { front, first_line, body, .. } = split(text);
        (front, first_line, body)
    }

    #[test]
    fn markers_are_lines_of_three_hyphens() {
        assert_eq!(of("---\na: 1\n---\nbody\n"), (Some("a: 1\n"), 2, "body\n"));
        assert_eq!(of("\n \n---  \na: 1\n--- \t\nbody"), (Some("a: 1\n"), 4, "body"));
        assert_eq!(of("---\r\na: 1\r\n---\r\nbody"), (Some("a: 1\r\n"), 2, "body"));
        assert_eq!(of("---\n---\n"), (Some(""), 2, ""));
        assert_eq!(of("---\na: 1\n---"), (Some("a: 1\n"), 2, ""));
        // Later markers belong to the body.
        assert_eq!(of("---\na: 1\n---\nx\n---\ny"), (Some("a: 1\n"), 2, "x\n---\ny"));
    }

    #[test]
    fn what_only_looks_like_a_marker_is_none() {
        for text in ["", "body", "---x\na: 1\n---\n", "----\na\n----\n", " ---\na\n---\n", "x\n---\na\n---\n"]
        {
            assert_eq!(of(text), (None, 1, text), "{text:?}");
        }
        // Inside a block of text.
        let text = "---\ndescription: |\n  one\n  ---\n  two\n---\nbody";
        assert_eq!(of(text), (Some("description: |\n  one\n  ---\n  two\n"), 2, "body"));
        assert_eq!(split("\n---\na: 1\n  ---\n").unclosed, Some(2));
        assert_eq!(split("---").unclosed, Some(1));
    }

    proptest! {
        /// Nothing is lost or invented, and what is given back is what was put in.
        #[test]
        fn parts_are_slices_of_the_whole(text in "(---|-| |\r|\n|a: b|x|é|\u{feff}){0,12}") {
            let parts = split(&text);
            prop_assert!(text.ends_with(parts.body));
            prop_assert_eq!(parts.front.is_none(), parts.body.len() == text.len());
            prop_assert!(parts.unclosed.is_none() || parts.front.is_none());
        }

        #[test]
        fn what_is_put_together_comes_apart(front in "([a-z]+: [a-z ]*\n){0,4}", body in "[a-z\n-]{0,30}", blanks in "\n{0,3}") {
            let text = format!("{blanks}---\n{front}---\n{body}");
            let first_line = blanks.len() + 2;
            let parts = Parts { front: Some(front.as_str()), first_line, body: body.as_str(), unclosed: None };
            prop_assert_eq!(split(&text), parts);
        }
    }
}
