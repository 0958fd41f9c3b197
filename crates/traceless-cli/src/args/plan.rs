//! `traceless plan`

use super::common::parse_size;
use clap::{Args, Subcommand, ValueEnum};

#[derive(Subcommand, Debug)]
pub enum PlanCommand {
    /// A gateway with its hosts, at a constant rate
    Cloud(PlanCloudArgs),
}

#[derive(Args, Clone, Debug)]
pub struct PlanCloudArgs {
    /// Bytes of all values together
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub data: u64,
    /// Bytes of a value
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1K")]
    pub value: u64,
    /// Values that clients read or write in a second, at most
    #[arg(long, value_name = "N")]
    pub requests: f64,
    /// Where the tree is
    #[arg(long, value_enum, default_value = "file")]
    pub engine: PlannedEngine,
    /// Milliseconds from a query to its reply: of the network and the engine
    /// [default: 1 for file, redis and postgres, 20 for s3]
    #[arg(long, value_name = "MS")]
    pub latency: Option<f64>,
    /// Memory of a host for the top layers, as of `traceless host --cache`
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    pub cache: u64,
    /// Each limit of the tree is met with probability 2^-BITS
    #[arg(long, value_name = "BITS", default_value_t = super::LAMBDA,
        value_parser = clap::value_parser!(u32).range(4..=128))]
    pub lambda: u32,
    /// Bytes of nodes that a host reads and writes in a second
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "240M")]
    pub host_speed: u64,
    /// Memory for copies of blocks used lately, as of `traceless gateway --copies`
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0")]
    pub copies: u64,
    /// How uneven requests are, which decides how many find a copy: the exponent of Zipf's law. 0:
    /// all values are alike; 0.99: as YCSB
    #[arg(long, value_name = "EXPONENT", default_value_t = 0.0)]
    pub skew: f64,
    /// The share of requests that read: only these can find a copy
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    pub reads: f64,
    /// Gateways that stand by, with the state in the engine, too
    #[arg(long, value_name = "N", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(0..=64))]
    pub standbys: u32,
    /// The lease of that state, as of `traceless gateway --lease`
    #[arg(long, value_name = "SECONDS", default_value_t = super::LEASE,
        value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub lease: u32,
    #[command(flatten)]
    pub prices: PriceArgs,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// Prices in dollars. The defaults are near a large provider's.
#[derive(Args, Clone, Debug)]
pub struct PriceArgs {
    /// Dollars for a million requests to S3 that read
    #[arg(long = "read-price", value_name = "USD", default_value_t = 0.40)]
    pub read: f64,
    /// Dollars for a million requests to S3 that write
    #[arg(long = "write-price", value_name = "USD", default_value_t = 5.00)]
    pub write: f64,
    /// Dollars for a gigabyte of the tree a month
    /// [default: 0.08 for file and postgres, 8 for redis, 0.023 for s3]
    #[arg(long = "storage-price", value_name = "USD")]
    pub storage: Option<f64>,
    /// Dollars for a machine a month
    #[arg(long = "machine-price", value_name = "USD", default_value_t = 60.0)]
    pub machine: f64,
    /// Dollars for a gigabyte from the provider to the gateway
    #[arg(long = "transfer-price", value_name = "USD", default_value_t = 0.0)]
    pub transfer: f64,
}

/// The engines of `--store`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PlannedEngine {
    /// Files of the hosts
    File,
    /// Redis or Valkey
    Redis,
    /// An object store
    S3,
    /// `PostgreSQL`
    Postgres,
}
