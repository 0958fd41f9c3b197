//! `traceless-lab bench`: schemes and products, each beside controls of the same run.

pub mod cloud;
pub mod controls;
mod experiment;
mod leftovers;
mod paged_server;
mod pager;
mod paging;
mod python;
mod simulator;
mod stash;
mod tree;
mod volume;

use crate::args::{BenchCommand, PagedProgramArgs};
use traceless_cli::failure::Failure;
use traceless_cli::output::print_line;

pub fn run(command: &BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Volume(args) => volume::run(args),
        BenchCommand::Tree(args) if args.floors => tree::floors::run(args),
        BenchCommand::Tree(args) => tree::run(args),
        BenchCommand::Pager(args) => match &args.experiment {
            Some(path) => paging::run(path, args),
            None => pager::run(args),
        },
        BenchCommand::Stash(args) => stash::run(args),
        BenchCommand::Cloud(args) if args.floors => cloud::floors::run(args),
        BenchCommand::Cloud(args) => match &args.experiment {
            Some(path) => cloud::experiment::run(path, args),
            None => cloud::run(args),
        },
        BenchCommand::Simulator(args) => simulator::run(args),
        BenchCommand::Python(args) => python::run(args),
        BenchCommand::Auditor(args) => crate::audit::floors::run(args),
    }
}

/// Runs one of the paged programs, and prints its result.
pub fn program(args: &PagedProgramArgs) -> Result<(), Failure> {
    let sum = paging::programs::run(&args.name, args.size);
    let sum = sum.ok_or_else(|| Failure::usage(format!("there is no program {}", args.name)))?;
    print_line(&format!("{sum:016x}"));
    Ok(())
}
