//! `--dashboard`

use clap::Args;
use std::path::PathBuf;

/// Where to show a product live.
#[derive(Args, Clone, Default, Debug)]
pub struct DashboardArgs {
    /// Show live, at this address, what an adversary observes and what you do, and serve metrics
    /// for Prometheus. What you do is secret: the page opens with a token that is printed, and only
    /// on a loopback address like 127.0.0.1:0 (docs/dashboard.md)
    #[arg(long, value_name = "ADDR")]
    pub dashboard: Option<String>,
    /// File with the password of the dashboard, as its first line, in place of the token. Needed
    /// for an address that a network reaches; there is no TLS
    #[arg(long, value_name = "FILE", requires = "dashboard")]
    pub dashboard_password_file: Option<PathBuf>,
}
