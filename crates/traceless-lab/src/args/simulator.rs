//! `traceless-lab bench simulator`

use clap::Args;

#[derive(Args, Debug)]
pub struct SimulatorArgs {
    /// Measure for a shorter time
    #[arg(long)]
    pub quick: bool,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}
