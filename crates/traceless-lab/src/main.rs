//! The command `traceless-lab`: it measures the products, reproduces what papers found, and attacks
//! the products and the auditor with planted faults. Users of Traceless need none of it.
#![forbid(unsafe_code)]

mod args;
mod audit;
mod bench;
mod numbers;
mod program;

use args::{Cli, Command};
use std::process::ExitCode;
use traceless_cli::entry;

fn main() -> ExitCode {
    traceless_sys::harden_process();
    let cli: Cli = match entry::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let code = match &cli.command {
        Command::Audit(args) => audit::run(args),
        Command::Bench { command } => entry::report(bench::run(command)),
        Command::PagedProgram(args) => entry::report(bench::program(args)),
    };
    ExitCode::from(code)
}
