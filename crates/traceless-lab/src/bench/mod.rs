//! `traceless-lab bench`: schemes and products, each beside controls of the same run.

mod cloud;
pub mod controls;
mod pager;
mod paging;
mod simulator;
mod stash;
mod tree;
mod volume;

use crate::args::{BenchCommand, PagedProgramArgs};
use serde::Serialize;
use serde_json::Value;
use traceless_cli::args::ProgressHow;
use traceless_cli::failure::Failure;
use traceless_cli::output::{Meter, say};
use traceless_cli::signals;
use traceless_sim::experiment::interleave::InterleavedRun;
use traceless_sim::experiment::results::{Control, Results};

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
        BenchCommand::Auditor(args) => crate::audit::floors::run(args),
    }
}

/// Runs one of the paged programs, and prints its result.
pub fn program(args: &PagedProgramArgs) -> Result<(), Failure> {
    let sum = paging::programs::run(&args.name, args.size);
    let sum = sum.ok_or_else(|| Failure::usage(format!("there is no program {}", args.name)))?;
    say(&format!("{sum:016x}"));
    Ok(())
}

/// Makes the runs of an experiment without a result, and shows how many are done.
fn make_all<I: Serialize + Sync>(
    runs: &[InterleavedRun<I>],
    results: &Results,
    progress: ProgressHow,
    make: impl Fn(&InterleavedRun<I>) -> Result<Value, Failure> + Sync,
) -> Result<(), Failure> {
    let mut meter = Meter::new("measuring", progress);
    let control = Control {
        interrupted: &*signals::flag()?,
        progress: &mut |done, all| meter.update(done, all),
    };
    InterleavedRun::make_all(runs, results, control, make)?;
    meter.finish();
    Ok(())
}
