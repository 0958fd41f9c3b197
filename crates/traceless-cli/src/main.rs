//! The command `traceless`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    traceless_cli::main()
}
