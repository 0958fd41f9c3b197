//! The command `traceless`.
#![forbid(unsafe_code)]

mod args;
mod audit;
mod bench;
mod experiment;
mod failure;
mod gateway;
mod host;
mod numbers;
mod output;
mod parallel;
mod run;
mod signals;
mod sim;
mod svg;
mod trace;
mod volume;

use args::{Cli, Product};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything secret is in memory.
    traceless_sys::harden_process();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { failure::USAGE } else { 0 });
        }
    };
    let code = match &cli.product {
        Product::Volume { command } => failure::report(volume::run(command)),
        Product::Audit(args) => audit::run(args),
        Product::Run(args) => run::run(args),
        Product::ServePages => run::serve(),
        Product::PagedProgram(args) => failure::report(bench::program(args)),
        Product::Gateway(args) => failure::report(gateway::run(args)),
        Product::Host(args) => failure::report(host::run(args)),
        Product::Enclave => failure::report(host::enclave()),
        Product::Bench { command } => failure::report(bench::run(command)),
        Product::Sim { command } => failure::report(sim::run(command)),
    };
    ExitCode::from(code)
}
