//! `traceless bench cloud`

use super::{ProgressHow, RemoteArgs, parse_size};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
pub struct CloudArgs {
    /// Bytes of data, all of which is written before anything is measured
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    pub data: u64,
    /// Bytes of a block
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1K")]
    pub block_len: u64,
    /// How the enclave permutes
    #[arg(long, value_enum, default_value = "benes")]
    pub kernel: CloudKernel,
    /// Each limit of the tree is met with probability 2^-BITS
    #[arg(long, value_name = "BITS", default_value_t = 32,
        value_parser = clap::value_parser!(u32).range(4..=128))]
    pub lambda: u32,
    /// Queries that are measured, of one client that waits for each, for blocks at random
    #[arg(long, value_name = "N", default_value_t = 20_000,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub queries: u64,
    /// Keep the tree in files in this folder, which must be empty, in place of memory
    #[arg(long, value_name = "DIR", conflicts_with = "host")]
    pub dir: Option<PathBuf>,
    // A host elsewhere: its store must be empty.
    #[command(flatten)]
    pub remote: RemoteArgs,
    /// Whoever gives the same seed asks for the same blocks
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
    /// Show how far the filling is
    #[arg(long, value_name = "HOW", value_enum, num_args = 0..=1, require_equals = true,
          default_value = "auto", default_missing_value = "plain")]
    pub progress: ProgressHow,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum CloudKernel {
    /// A network of exchanges, and AES-256-GCM
    Benes,
    /// The paper's pages of nibbles, and SHA-256
    Paper,
}
