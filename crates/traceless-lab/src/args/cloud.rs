//! `traceless-lab bench cloud`

use super::ExperimentArgs;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use traceless_cli::args::{ProgressHow, RemoteArgs, parse_size};
use traceless_cloud::params::ARITY;

#[derive(Args, Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct CloudArgs {
    /// Bytes of data, all of which is written before anything is measured
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    pub data: u64,
    /// Bytes of a block
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1K")]
    pub block_len: u64,
    /// The kernel with which the enclave permutes
    #[arg(long, value_enum, default_value = "benes")]
    pub kernel: BenchKernel,
    /// Each limit of the tree is met with probability 2^-BITS
    #[arg(long, value_name = "BITS", default_value_t = 32,
        value_parser = clap::value_parser!(u32).range(4..=128))]
    pub lambda: u32,
    /// Children of a node
    #[arg(long, value_name = "N", default_value_t = ARITY,
        value_parser = clap::value_parser!(u32).range(2..=64))]
    pub arity: u32,
    /// Queries that are measured, for blocks at random
    #[arg(long, value_name = "N", default_value_t = 20_000,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub queries: u64,
    /// Clients, each of which waits for its answers
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1024))]
    pub clients: usize,
    /// Blocks that a client requests at once
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1024))]
    pub together: usize,
    /// Bytes of recently used blocks that the gateway keeps copies of: reading these sends no query
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0")]
    pub copies: u64,
    /// Measure a plain encrypted store, and Path and Circuit ORAM inside an enclave, too
    #[arg(long)]
    pub compare: bool,
    /// Measure the rows of bench/floors.toml instead
    #[arg(long, conflicts_with_all = ["data", "block_len", "kernel", "dir", "compare"])]
    pub floors: bool,
    /// With --floors: a sixteenth of the data, for a glance
    #[arg(long, requires = "floors")]
    pub quick: bool,
    /// With --floors: measure only this part of the rows
    #[arg(long, value_name = "PART", value_enum, requires = "floors")]
    pub part: Option<FloorPart>,
    /// Keep the tree in files in this folder, which must be empty, instead of memory
    #[arg(long, value_name = "DIR", conflicts_with = "host")]
    pub dir: Option<PathBuf>,
    // A remote host must have an empty store.
    #[command(flatten)]
    pub remote: RemoteArgs,
    /// Instead of all that, measure a table of the paper, as a file of experiments/cloud describes
    /// it, and report whether its claims hold
    #[arg(long, value_name = "FILE", requires = "out", conflicts_with_all = ["floors", "compare",
        "data", "block_len", "kernel", "lambda", "arity", "dir", "host"])]
    pub experiment: Option<PathBuf>,
    #[command(flatten)]
    pub of_experiment: ExperimentArgs,
    /// Seed for the choice of blocks: the same seed requests the same blocks
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
    /// Show the progress of filling
    #[arg(long, value_name = "HOW", value_enum, num_args = 0..=1, require_equals = true,
          default_value = "auto", default_missing_value = "plain")]
    pub progress: ProgressHow,
}

/// A part of the rows of bench/floors.toml.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum FloorPart {
    /// A tree in the process of the bench
    Tree,
    /// A gateway with clients of Redis, and its live page
    Redis,
    /// Hosts that are far away, or several
    Hosts,
    /// Trees in Redis
    Engines,
    /// Copies of blocks used lately, at a constant rate
    Copies,
    /// The model of `traceless-lab scale`, beside what it predicts
    Model,
}

/// The enclave's kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum BenchKernel {
    /// A network of exchanges, and AES-256-GCM
    Benes,
    /// The paper's pages of nibbles, and SHA-256
    Paper,
    /// A network that moves whole blocks through the enclave, two at a time
    BlockWise,
}
