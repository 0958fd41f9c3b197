//! `traceless-lab bench pager`

use super::ExperimentArgs;
use clap::Args;
use std::path::PathBuf;
use traceless_cli::args::{PageCipherArg, ProgressArgs};

/// Arguments of `bench pager`, which compares schemes with plain paging in the same run.
#[derive(Args, Debug)]
pub struct PagerBenchArgs {
    /// Faults of each measurement
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub faults: usize,
    /// Rounds of measurements, in which the schemes take turns
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// Pages that are touched, one after the other
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub pages: usize,
    /// Pages that are in memory at a time
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub resident: usize,
    /// The cipher that seals pages
    #[arg(long, value_enum, default_value = "aegis")]
    pub cipher: PageCipherArg,
    /// Processes that help a scheme, if it supports helpers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub helpers: usize,
    /// Only rows with one of these in the name
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Fewer faults
    #[arg(long)]
    pub quick: bool,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
    /// Instead of all that, run programs for a figure or table of the paging paper, as a file of
    /// experiments/paging describes it, and report whether its claims hold
    #[arg(long, value_name = "FILE", requires = "out")]
    pub experiment: Option<PathBuf>,
    #[command(flatten)]
    pub of_experiment: ExperimentArgs,
    #[command(flatten)]
    pub progress: ProgressArgs,
}

/// One of this project's programs that experiments page.
#[derive(Args, Debug)]
pub struct PagedProgramArgs {
    pub name: String,
    pub size: u64,
}
