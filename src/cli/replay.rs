//! `anabranch replay`: a log, folded to its tree.

use std::io::{self, BufRead, Write};

use super::args::{ReplayArgs, ReplayOutput};
use super::exit::ExitStatus;
use super::lines::IndentedLines;
use super::live::{final_lines, write_lines};
use super::log_file::{LogFile, LogLine, open_log};
use super::output::{Streams, complain, delivered, write_result};
use crate::tree::{Delivery, RunTree, Status};

/// How many bad lines are quoted one by one.
const QUOTED: u64 = 20;

/// Replays a log; the status is that of the root's outcome.
pub(super) fn replay(
    args: &ReplayArgs,
    streams: Streams,
    out: &mut impl Write,
    err: &mut impl Write,
) -> ExitStatus {
    let log = match open_log(&args.file) {
        Ok(log) => log,
        Err(error) => {
            complain(err, format_args!("error: {error}"));
            return ExitStatus::Usage;
        }
    };
    let mut replay =
        Replay { output: args.output, streams, events: IndentedLines::new(), tree: RunTree::new() };
    let read = match replay.read(log, out, err) {
        Ok(read) => read,
        Err(error) => {
            // What was printed so far, nobody wants any more.
            return if delivered(Err(error), err) { replay.status() } else { ExitStatus::Failed };
        }
    };
    let printed = replay.print(out).and_then(|()| out.flush());
    if !delivered(printed, err) || !read {
        return ExitStatus::Failed;
    }
    replay.explain(err);
    replay.status()
}

struct Replay {
    output: ReplayOutput,
    streams: Streams,
    events: IndentedLines,
    tree: RunTree,
}

impl Replay {
    /// Reads the log and prints what is printed on the way. Errors are those of `out`; false if reading failed.
    fn read<R: BufRead>(
        &mut self,
        log: LogFile<R>,
        out: &mut impl Write,
        err: &mut impl Write,
    ) -> io::Result<bool> {
        let mut problems = 0;
        let mut whole = true;
        for line in log {
            let message = match line {
                Ok(LogLine::Message(message)) => message,
                Ok(LogLine::Problem(problem)) => {
                    problems += 1;
                    if problems <= QUOTED {
                        complain(err, format_args!("warning: {problem}"));
                    }
                    continue;
                }
                Err(error) => {
                    complain(err, format_args!("error: the log cannot be read any further: {error}"));
                    whole = false;
                    break;
                }
            };
            match self.output {
                ReplayOutput::Jsonl => {
                    self.tree.apply_message(&message);
                    writeln!(out, "{}", message.to_json())?;
                }
                ReplayOutput::Events => self.events.apply(&Delivery::Message(message), out)?,
                ReplayOutput::Tree | ReplayOutput::Text | ReplayOutput::Json => {
                    self.tree.apply_message(&message);
                }
            }
        }
        if problems > QUOTED {
            complain(
                err,
                format_args!("warning: {} more lines are no messages of this log", problems - QUOTED),
            );
        }
        Ok(whole)
    }

    fn tree(&self) -> &RunTree {
        match self.output {
            ReplayOutput::Events => self.events.tree(),
            ReplayOutput::Tree | ReplayOutput::Text | ReplayOutput::Jsonl | ReplayOutput::Json => &self.tree,
        }
    }

    /// Prints what is printed at the end.
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        match self.output {
            ReplayOutput::Jsonl | ReplayOutput::Events => Ok(()),
            ReplayOutput::Tree => {
                let columns = match ratatui::crossterm::terminal::size() {
                    Ok((columns, _)) if self.streams.stdout_is_terminal && columns > 0 => {
                        usize::from(columns)
                    }
                    _ => usize::MAX,
                };
                let colours = self.streams.stdout_draws && self.streams.colours;
                write_lines(out, &final_lines(&self.tree, columns), colours)
            }
            ReplayOutput::Text => {
                let finished = self.tree.root().and_then(|root| root.finished.as_ref());
                match finished.and_then(|finished| finished.result.as_ref()) {
                    Some(result) => write_result(out, result, self.streams.stdout_is_terminal),
                    None => Ok(()),
                }
            }
            ReplayOutput::Json => writeln!(out, "{}", self.tree.to_json()),
        }
    }

    /// Says on stderr what the status does not.
    fn explain(&self, err: &mut impl Write) {
        match self.tree().root() {
            None => complain(err, "error: no message in this log"),
            Some(root) if !root.status.is_settled() => {
                complain(err, "warning: interrupted: the log ends before its root run does");
            }
            Some(root) if self.output == ReplayOutput::Text => {
                if let Some(error) = root.finished.as_ref().and_then(|finished| finished.error.as_ref()) {
                    complain(err, format_args!("{}: {error}", root.status.as_str()));
                }
            }
            Some(_) => {}
        }
    }

    fn status(&self) -> ExitStatus {
        match self.tree().root().map(|root| root.status) {
            Some(Status::Settled(outcome)) => outcome.into(),
            _ => ExitStatus::Failed,
        }
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
