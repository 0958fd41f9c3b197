//! `traceless host`

use super::{GatewayDurability, parse_size};
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
pub struct HostArgs {
    /// Serve gateways at this address
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6500")]
    pub listen: String,
    /// Where the tree is kept: `file:DIR`
    #[arg(long, value_name = "STORE", value_parser = parse_store)]
    pub store: PathBuf,
    /// Keep as many whole layers of the tree in memory, from the root on, as fit in so many bytes
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    pub cache: u64,
    /// The host's certificate, followed by the intermediate ones (PEM) [default: one that it makes,
    /// DIR/host.pem]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Certificates that sign the gateways' certificates (PEM): the host turns other gateways away.
    /// Needed to serve other machines than this one [default: no certificate is required]
    #[arg(long, value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
    /// What a commit has survived
    #[arg(long, value_enum, default_value = "power")]
    pub durability: GatewayDurability,
}

fn parse_store(text: &str) -> Result<PathBuf, String> {
    match text.split_once(':') {
        Some(("file", folder)) if !folder.is_empty() => Ok(PathBuf::from(folder)),
        _ => Err("a store is file:DIR".to_owned()),
    }
}
