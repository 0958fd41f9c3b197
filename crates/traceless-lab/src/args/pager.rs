//! `traceless-lab bench pager`

use super::ExperimentArgs;
use clap::Args;
use std::path::PathBuf;
use traceless_cli::args::{PageCipherArg, ProgressArgs};

/// What is measured, beside plain paging in the same run.
#[derive(Args, Debug)]
pub struct PagerBenchArgs {
    /// Faults of each measurement
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub faults: usize,
    /// Times that everything is measured, in turns
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// Pages that are touched, one after the other
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub pages: usize,
    /// Pages that are in memory at a time
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub resident: usize,
    /// What pages are sealed with
    #[arg(long, value_enum, default_value = "aegis")]
    pub cipher: PageCipherArg,
    /// Processes that help, where the scheme lets them
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub helpers: usize,
    /// Only rows whose name contains one of these
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Fewer faults
    #[arg(long)]
    pub quick: bool,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
    /// Instead of all that, run programs as a file of experiments/paging says, a figure or table of
    /// the paging paper, and tell what becomes of its claims
    #[arg(long, value_name = "FILE", requires = "out")]
    pub experiment: Option<PathBuf>,
    #[command(flatten)]
    pub of_experiment: ExperimentArgs,
    #[command(flatten)]
    pub progress: ProgressArgs,
}

/// One of our own programs that experiments page.
#[derive(Args, Debug)]
pub struct PagedProgramArgs {
    pub name: String,
    pub size: u64,
}
