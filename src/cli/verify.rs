//! `anabranch verify`: a log, held against the invariants.

use std::collections::HashSet;
use std::io::{self, BufRead, Write};
use std::path::Path;

use super::exit::ExitStatus;
use super::log_file::{LogFile, LogLine, open_log};
use super::output::{complain, delivered};
use super::text::one_line;
use crate::id::RunId;
use crate::tree::Verifier;

/// Verifies a log and prints each way in which it does not hold.
pub(super) fn verify(path: &Path, out: &mut impl Write, err: &mut impl Write) -> ExitStatus {
    let log = match open_log(path) {
        Ok(log) => log,
        Err(error) => {
            complain(err, format_args!("error: {error}"));
            return ExitStatus::Usage;
        }
    };
    let mut holds = false;
    let printed = check(log, out).map(|held| holds = held);
    if delivered(printed, err) && holds { ExitStatus::Completed } else { ExitStatus::Failed }
}

/// Whether the log holds. Errors are those of `out`.
fn check<R: BufRead>(log: LogFile<R>, out: &mut impl Write) -> io::Result<bool> {
    let mut verifier = Verifier::new();
    let mut runs: HashSet<RunId> = HashSet::new();
    let (mut messages, mut problems) = (0_u64, 0_u64);
    for line in log {
        match line {
            Ok(LogLine::Message(message)) => {
                verifier.push(&message);
                messages += 1;
                if let Some(nesting) = message.nesting()
                    && !runs.contains(&nesting.origin.run_id)
                {
                    runs.insert(nesting.origin.run_id.clone());
                }
            }
            Ok(LogLine::Problem(problem)) => {
                problems += 1;
                writeln!(out, "{}", one_line(&problem.to_string()))?;
            }
            Err(error) => {
                problems += 1;
                writeln!(out, "the log cannot be read any further: {error}")?;
            }
        }
    }
    if messages == 0 {
        writeln!(out, "no message in this log")?;
        return Ok(false);
    }
    let violations = verifier.finish();
    for violation in &violations {
        writeln!(out, "{}", one_line(&violation.to_string()))?;
    }
    if violations.is_empty() && problems == 0 {
        let plural = |number, one: &str| format!("{number} {one}{}", if number == 1 { "" } else { "s" });
        writeln!(out, "ok: {}, {}", plural(messages, "message"), plural(runs.len() as u64, "run"))?;
        return Ok(true);
    }
    Ok(false)
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
