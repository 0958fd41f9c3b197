//! `traceless-lab bench auditor`

use clap::Args;

#[derive(Args, Debug)]
pub struct AuditorArgs {
    /// Measure for a shorter time
    #[arg(long)]
    pub quick: bool,
    /// Only rows whose name contains one of these
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

impl AuditorArgs {
    /// Whether a row is to be measured.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part))
    }
}
