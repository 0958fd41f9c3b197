//! `traceless-lab bench auditor`

use clap::Args;

#[derive(Args, Debug)]
pub struct AuditorArgs {
    /// Measure for a shorter time
    #[arg(long)]
    pub quick: bool,
    /// Only rows with one of these in the name
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

impl AuditorArgs {
    /// Whether `--only` selects a row.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part))
    }
}
