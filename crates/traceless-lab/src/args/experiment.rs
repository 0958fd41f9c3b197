//! How experiments are run, whatever they measure.

use clap::Args;
use std::path::PathBuf;
use traceless_cli::args::Level;

/// How an experiment is run.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of an experiment")]
pub struct ExperimentArgs {
    /// How much of it
    #[arg(long, value_enum, default_value = "quick")]
    pub level: Level,
    /// Folder for results and report. Runs whose results are there are not made again
    #[arg(long, value_name = "DIR", requires = "experiment")]
    pub out: Option<PathBuf>,
}
