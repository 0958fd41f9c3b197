//! `traceless host`

use super::{GatewayDurability, LogForm, StoreArgs};
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
pub struct HostArgs {
    /// Serve gateways at this address
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6500")]
    pub listen: String,
    /// Where the tree is: `file:DIR`, or a URL: redis://, redis+cluster://, redis+sentinel://,
    /// s3://, postgres://
    #[arg(long, value_name = "STORE")]
    pub store: String,
    #[command(flatten)]
    pub engine: StoreArgs,
    /// Folder of the host's own files, its certificate and its record of gateways [default: the
    /// folder of `file:DIR`]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
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
    /// This machine is a confidential virtual machine (TDX, SEV-SNP): send gateways its evidence,
    /// which Linux gives out in this folder (configfs-tsm)
    #[arg(long, value_name = "DIR", num_args = 0..=1,
        default_missing_value = "/sys/kernel/config/tsm/report")]
    pub evidence: Option<PathBuf>,
    /// How to log to standard error
    #[arg(long, value_name = "FORM", value_enum, default_value = "text")]
    pub log: LogForm,
    /// What a commit to `file:DIR` has survived
    #[arg(long, value_enum, default_value = "power")]
    pub durability: GatewayDurability,
}
