//! The `anabranch` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    anabranch::cli::main()
}
