//! `traceless-lab bench pager --experiment`: the evaluation of the paging paper, with programs that
//! are really paged.

mod measure;
mod native;
pub mod programs;
mod runner;
mod subject;
mod threads;
mod workloads;

use crate::args::PagerBenchArgs;
use crate::bench::experiment::{self, Experiment};
use crate::report::failed;
use runner::PagingRunner;
use std::path::Path;
use traceless_cli::failure::Failure;

/// Makes the missing results, and prints the report.
pub fn run(path: &Path, args: &PagerBenchArgs) -> Result<(), Failure> {
    // A file with a mistake is refused before this process starts anew.
    Experiment::<PagingRunner>::read(path)?;
    traceless_pager::paging::fix_addresses().map_err(failed)?;
    let progress = args.progress.progress;
    experiment::run(path, &PagingRunner, &args.of_experiment, progress, args.json)
}
