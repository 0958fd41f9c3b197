//! `traceless-lab bench python`

use clap::Args;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub struct PythonBenchArgs {
    /// A Python that has the package `traceless` (tests/python/floors.sh makes one)
    #[arg(long, value_name = "PROGRAM")]
    pub python: PathBuf,
    /// Measure for a shorter time
    #[arg(long)]
    pub quick: bool,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}
