//! `traceless sim`

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub enum SimCommand {
    /// Run one workload and tell what it took
    Trace(SimTraceArgs),
}

#[derive(Args, Debug)]
pub struct SimTraceArgs {
    /// The workload; unpacked if gzip or zstd packed it
    #[arg(value_name = "WORKLOAD")]
    pub workload: PathBuf,
    /// Its format [default: ours if it begins so, otherwise USIMM's]
    #[arg(long, value_enum)]
    pub format: Option<WorkloadFormat>,
    /// How memory is reached
    #[arg(long, value_enum)]
    pub scheme: SimScheme,
    /// The machine, as TOML [default: USIMM's with four channels]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SimScheme {
    /// Straight: addresses tell everything
    Dram,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum WorkloadFormat {
    /// What `traceless sim record` writes
    Packed,
    /// Lines of `<before> R|W <address>`
    Usimm,
    /// Lines of `<before> <read> [<written back>]`
    Ramulator,
}
