//! `traceless bench`: the schemes of the library by themselves.

mod cloud;
pub mod controls;
mod pager;
mod paging;
mod stash;
mod tree;

use crate::args::{BenchCommand, PagedProgramArgs};
use crate::failure::Failure;
use crate::output::say;

pub fn run(command: &BenchCommand) -> Result<(), Failure> {
    match command {
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
    }
}

/// Runs one of the programs that are paged.
pub fn program(args: &PagedProgramArgs) -> Result<(), Failure> {
    let sum = paging::programs::run(&args.name, args.size);
    let sum = sum.ok_or_else(|| Failure::usage(format!("there is no program {}", args.name)))?;
    say(&format!("{sum:016x}"));
    Ok(())
}
