//! Arguments of experiments.

use clap::Args;
use std::path::PathBuf;
use traceless_cli::args::Level;

/// The size of an experiment, and its folder.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of an experiment")]
pub struct ExperimentArgs {
    /// The size of the experiment
    #[arg(long, value_enum, default_value = "quick")]
    pub level: Level,
    /// Folder for results and report. Runs with a result in it are not made again
    #[arg(long, value_name = "DIR", requires = "experiment")]
    pub out: Option<PathBuf>,
}
