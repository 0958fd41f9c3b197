//! `traceless bench`: the schemes of the library by themselves.

mod cloud;
mod pager;
mod stash;
mod tree;

pub use cloud::choice;
pub use tree::cpu_seconds;

use crate::args::BenchCommand;
use crate::failure::Failure;

pub fn run(command: &BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Tree(args) if args.floors => tree::floors::run(args),
        BenchCommand::Tree(args) => tree::run(args),
        BenchCommand::Pager(args) => pager::run(args),
        BenchCommand::Stash(args) => stash::run(args),
        BenchCommand::Cloud(args) if args.floors => cloud::floors::run(args),
        BenchCommand::Cloud(args) => cloud::run(args),
    }
}
