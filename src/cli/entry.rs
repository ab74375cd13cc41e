//! From the command line to a command.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use super::args::{Cli, Command};
use super::exit::ExitStatus;
use super::options::RunOptions;
use super::output::{Streams, complain, delivered};
use super::{replay, run, verify};
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
            Err(error) => {
                complain(&mut io::stderr(), format_args!("error: {error}"));
                complain(&mut io::stderr(), "For more information, try 'anabranch run --help'.");
                ExitStatus::Usage.into()
            }
        },
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
