//! The option that names where the evidence of this machine comes from.

use clap::Args;
use std::path::PathBuf;
use traceless_sys::machine_evidence::{MachineEvidence, source, usual_source};

/// Where the evidence of this machine comes from.
#[derive(Args)]
pub struct MachineArgs {
    /// The folder that gives out the evidence of this machine [default: that of configfs-tsm, or of
    /// Gramine]
    #[arg(long, value_name = "DIR")]
    evidence: Option<PathBuf>,
}

impl MachineArgs {
    pub fn source(&self) -> Box<dyn MachineEvidence> {
        self.evidence.as_ref().map_or_else(usual_source, source)
    }
}
