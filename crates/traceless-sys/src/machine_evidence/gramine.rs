//! An enclave of SGX under Gramine: its files in `/dev/attestation`.

use super::{Machine, MachineEvidence, ReportData, read_evidence};
use std::fs;
use std::io::Result;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The file that names what a quote is bound to.
pub const REPORT_DATA_FILE: &str = "user_report_data";

/// The folder that Gramine shows to its enclave.
#[derive(Debug)]
pub struct Gramine {
    folder: PathBuf,
    /// One request at a time: all threads of the enclave use the same files.
    turn: Mutex<()>,
}

impl Gramine {
    /// The source in this folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), turn: Mutex::default() }
    }
}

impl MachineEvidence for Gramine {
    fn machine(&self) -> Result<Machine> {
        Ok(Machine::Sgx)
    }

    fn evidence(&self, report_data: &ReportData) -> Result<Vec<u8>> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        fs::write(self.folder.join(REPORT_DATA_FILE), report_data)?;
        read_evidence(&self.folder.join("quote"))
    }
}
