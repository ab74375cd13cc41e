//! Where what goes, and text that a person reads at the end.

use std::io::{self, IsTerminal, Write};

use serde_json::Value;

use super::args::RunOutput;
use super::text::{one_line, several_lines};

/// What the program's streams are, found out once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Streams {
    /// Stdout is a terminal that can draw.
    pub(crate) stdout_draws: bool,
    /// Stderr is a terminal that can draw.
    pub(crate) stderr_draws: bool,
    /// Stdout is a terminal, of whatever kind.
    pub(crate) stdout_is_terminal: bool,
    /// Nobody asked for output without colours.
    pub(crate) colours: bool,
}

impl Streams {
    /// Those of this process.
    pub(crate) fn of_process() -> Self {
        // https://no-color.org: set and not empty.
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb =
            std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty()) && !cfg!(windows);
        let stdout_is_terminal = io::stdout().is_terminal();
        Self {
            stdout_draws: stdout_is_terminal && !dumb,
            stderr_draws: io::stderr().is_terminal() && !dumb,
            stdout_is_terminal,
            colours: !set("NO_COLOR") && !dumb,
        }
    }
}

/// How a run is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Display {
    /// The live tree on stderr, the result on stdout.
    LiveOnStderr,
    /// The live tree, then the result, on stdout.
    LiveOnStdout,
    /// A line for each event on stdout, then the result.
    Lines,
    /// The result on stdout.
    Result,
    /// Each message on stdout.
    Messages,
}

impl Display {
    /// How a run is shown on these streams.
    pub(crate) fn of(output: RunOutput, streams: Streams) -> Self {
        match output {
            RunOutput::Auto if streams.stderr_draws => Self::LiveOnStderr,
            RunOutput::Auto | RunOutput::Text => Self::Result,
            RunOutput::Tree if streams.stdout_draws => Self::LiveOnStdout,
            RunOutput::Tree => Self::Lines,
            RunOutput::Jsonl => Self::Messages,
        }
    }
}

/// Writes a result: a string as it is, another value as JSON, null as nothing. On a terminal, what would steer it is
/// made harmless; into a pipe go the very bytes.
pub(crate) fn write_result(out: &mut impl Write, result: &Value, terminal: bool) -> io::Result<()> {
    let text = match result {
        Value::Null => return Ok(()),
        Value::String(text) => text.clone(),
        other => format!("{other:#}"),
    };
    let text = if terminal { several_lines(&text) } else { text };
    out.write_all(text.as_bytes())?;
    if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") }
}

/// Says something on stderr. If even that fails, there is nobody to tell.
pub(crate) fn complain(err: &mut impl Write, text: impl std::fmt::Display) {
    let _ = writeln!(err, "{}", one_line(&text.to_string()));
}

/// How many lines of one complaint are printed.
const MAX_LINES: usize = 20;

/// As [`complain`], with the lines of the text as they are: in an excerpt of code, what stands below a line points into it.
pub(crate) fn complain_in_lines(err: &mut impl Write, text: &str) {
    text.lines().take(MAX_LINES).for_each(|line| complain(err, line.trim_end()));
    let left_out = text.lines().count().saturating_sub(MAX_LINES);
    if left_out > 0 {
        complain(err, format_args!("(lines left out: {left_out})"));
    }
}

/// Whether what was printed arrived. A reader that went away is no failure: it had enough.
pub(crate) fn delivered(printed: io::Result<()>, err: &mut impl Write) -> bool {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(err, format_args!("error: cannot write to stdout: {error}"));
            false
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn auto_draws_on_stderr_and_tree_on_stdout() {
        let pipe =
            Streams { stdout_draws: false, stderr_draws: false, stdout_is_terminal: false, colours: true };
        let redirected = Streams { stderr_draws: true, ..pipe };
        let terminal = Streams { stdout_draws: true, stdout_is_terminal: true, ..redirected };
        let of = |output| [pipe, redirected, terminal].map(|streams| Display::of(output, streams));
        assert_eq!(of(RunOutput::Auto), [Display::Result, Display::LiveOnStderr, Display::LiveOnStderr]);
        assert_eq!(of(RunOutput::Tree), [Display::Lines, Display::Lines, Display::LiveOnStdout]);
        assert_eq!(of(RunOutput::Text), [Display::Result; 3]);
        assert_eq!(of(RunOutput::Jsonl), [Display::Messages; 3]);
    }

    #[test]
    fn results_are_text_and_harmless_on_a_terminal() {
        let written = |value: Value, terminal| {
            let mut out = Vec::new();
            write_result(&mut out, &value, terminal).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(json!("a\n"), false), "a\n");
        assert_eq!(written(json!("a\x1b[2J"), false), "a\x1b[2J\n");
        assert_eq!(written(json!("a\x1b[2J\nb"), true), "a␛[2J\nb\n");
        assert_eq!(written(json!({"n": 1}), false), "{\n  \"n\": 1\n}\n");
        assert_eq!(written(json!(null), true), "");
    }
}
