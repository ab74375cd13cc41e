//! From the command line to a command.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use super::args::{Cli, Command};
use super::exit::ExitStatus;
use super::options::{RunOptions, UsageError};
use super::output::{Streams, complain, delivered};
use super::plan::{self, PlanOptions};
use super::script::{self, ScriptOptions};
use super::{agents, replay, run, verify};
use crate::agent::sandbox::serve_stdio;

/// The whole program. Prints through `io::Write`, so that a closed pipe is an error that it handles, never a panic.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version are no errors: they go to stdout, with status 0.
        Err(message) => {
            delivered(message.print(), &mut io::stderr());
            return if message.use_stderr() { ExitStatus::Usage } else { ExitStatus::Completed }.into();
        }
    };
    match cli.command {
        Command::Run(args) => match RunOptions::try_from(*args) {
            Ok(options) => run::run(options),
            Err(error) => bad_usage("run", &error),
        },
        Command::Plan(args) => match PlanOptions::try_from(*args) {
            Ok(options) => plan::plan(options),
            Err(error) => bad_usage("plan", &error),
        },
        Command::Script(args) => match ScriptOptions::try_from(*args) {
            Ok(options) => script::script(&options),
            Err(error) => bad_usage("script", &error),
        },
        Command::Agents(args) => {
            let mut out = io::BufWriter::new(io::stdout().lock());
            match agents::agents(&args, &mut out, &mut io::stderr()) {
                Ok(status) => status.into(),
                Err(error) => bad_usage("agents", &error),
            }
        }
        Command::Replay(args) => {
            let mut out = io::BufWriter::new(io::stdout().lock());
            replay::replay(&args, Streams::of_process(), &mut out, &mut io::stderr()).into()
        }
        Command::Sandbox => match serve_stdio() {
            Ok(()) => ExitStatus::Completed.into(),
            Err(_) => ExitStatus::Failed.into(),
        },
        Command::Verify(args) => {
            let mut out = io::BufWriter::new(io::stdout().lock());
            let status = verify::verify(&args.file, &mut out, &mut io::stderr());
            delivered(out.flush(), &mut io::stderr());
            status.into()
        }
    }
}

fn bad_usage(command: &str, error: &UsageError) -> ExitCode {
    complain(&mut io::stderr(), format_args!("error: {error}"));
    complain(&mut io::stderr(), format_args!("For more information, try 'anabranch {command} --help'."));
    ExitStatus::Usage.into()
}
