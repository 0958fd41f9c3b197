//! The command `traceless`.
#![forbid(unsafe_code)]

mod args;
mod audit;
mod bench;
mod cloud;
mod experiment;
mod failure;
mod gateway;
mod host;
mod numbers;
mod output;
mod parallel;
mod run;
mod shares;
mod signals;
mod sim;
mod svg;
mod trace;
mod volume;

use args::{Cli, Product};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything secret is in memory.
    traceless_sys::harden_process();
    let cli = match parse() {
        Ok(cli) => cli,
        Err(e) => return ExitCode::from(refuse(&e)),
    };
    let code = match &cli.product {
        Product::Volume { command } => report(volume::run(command)),
        Product::Audit(args) => audit::run(args),
        Product::Run(args) => run::run(args),
        Product::ServePages => run::serve(),
        Product::PagedProgram(args) => report(bench::program(args)),
        Product::Gateway(args) => report(gateway::run(args)),
        Product::Host(args) => report(host::run(args)),
        Product::Enclave => report(host::enclave()),
        Product::Bench { command } => report(bench::run(command)),
        Product::Sim { command } => report(sim::run(command)),
        Product::Completions(args) => {
            shares::completions(args);
            0
        }
        Product::Man(args) => report(shares::man_pages(args)),
    };
    ExitCode::from(code)
}

/// The exit code of a result, after the message is printed.
fn report(result: Result<(), Failure>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(Failure { code, message }) => {
            output::tell(&failure::telling(code, failure::kind_of(code), &message));
            code
        }
    }
}

/// Reads the command line, and notes whether failures are told as JSON.
fn parse() -> clap::error::Result<Cli> {
    let matches = Cli::command().try_get_matches()?;
    if asks_for_json(&matches) {
        failure::tell_as_json();
    }
    Cli::from_arg_matches(&matches)
}

/// Whether the innermost command has an option `--json` that was given.
fn asks_for_json(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some((_, inner)) => asks_for_json(inner),
        None => matches!(matches.try_get_one::<bool>("json"), Ok(Some(true))),
    }
}

/// Tells what is wrong with the command line. It was not understood, so that `--json` is looked for
/// word by word, as far as the words are ours.
fn refuse(error: &clap::Error) -> u8 {
    if !error.use_stderr() {
        let _ = error.print();
        return 0;
    }
    if std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json") {
        failure::tell_as_json();
        output::tell(&failure::telling(
            failure::USAGE,
            failure::kind_of(failure::USAGE),
            error.to_string().trim_end(),
        ));
    } else {
        let _ = error.print();
    }
    failure::USAGE
}
