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
    /// Serve the Redis protocol at this address [default: 127.0.0.1:6400, without --s3]
    #[arg(long, value_name = "ADDR")]
    pub resp: Option<String>,
    /// The file whose first line is the password that clients of the Redis protocol must give
    #[arg(long, value_name = "FILE")]
    pub resp_password_file: Option<PathBuf>,
    /// Serve S3 at this address
    #[arg(long, value_name = "ADDR")]
    pub s3: Option<String>,
    /// Access keys, each line KEY SECRET [BUCKET=ro|rw]... [default: one of its own in the folder]
    #[arg(long, value_name = "FILE")]
    pub s3_keys: Option<PathBuf>,
    /// Speak TLS to clients of S3 and the Redis protocol, with this certificate and its chain, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Tell metrics at /metrics, and at /healthz whether it is ready, at this address
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<String>,
    /// How to log to standard error
    #[arg(long, value_name = "FORM", value_enum, default_value = "text")]
    pub log: LogForm,
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

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogForm {
    /// A line for a person
    Text,
    /// A JSON object a line
    Json,
}
