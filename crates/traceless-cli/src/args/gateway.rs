//! `traceless gateway`

use super::{CloudKernel, parse_size};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
pub struct GatewayArgs {
    /// Keep everything in this folder, with host and enclave in this process
    #[arg(long, value_name = "DIR")]
    pub local: PathBuf,
    /// Blocks of the tree, the same at each start
    #[arg(long, value_name = "N", default_value_t = 1 << 20,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub blocks: u64,
    /// Bytes of a block, the same at each start
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1K")]
    pub block_len: u64,
    /// How the enclave permutes, the same at each start
    #[arg(long, value_enum, default_value = "benes")]
    pub kernel: CloudKernel,
    /// Each limit of the tree is met with probability 2^-BITS, the same at each start
    #[arg(long, value_name = "BITS", default_value_t = 32,
        value_parser = clap::value_parser!(u32).range(4..=128))]
    pub lambda: u32,
    /// Go on although the enclave is simulated, and so protects nothing from this machine
    #[arg(long)]
    pub allow_simulated_tee: bool,
    /// Serve the Redis protocol at this address
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6400")]
    pub resp: String,
    /// The master key, 32 bytes [default: one of its own in the folder, beside the data]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// What an answer to a write has survived
    #[arg(long, value_enum, default_value = "process")]
    pub durability: GatewayDurability,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum GatewayDurability {
    /// The end of the process at any moment
    Process,
    /// The end of the machine's power, too: each answer waits for the disk
    Power,
}
