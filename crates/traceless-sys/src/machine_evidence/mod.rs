//! Evidence of the confidential virtual machine or enclave that this program runs in: TDX and
//! SEV-SNP by configfs-tsm, SGX by Gramine.
//!
//! Evidence that is bound to the hash of a public key, where there is any:
//!
//! ```
//! use traceless_sys::machine_evidence::{REPORTS, source};
//!
//! let source = source(REPORTS);
//! match source.machine() {
//!     Ok(machine) => println!("{machine}: {} bytes", source.evidence(&[7; 64])?.len()),
//!     Err(error) => println!("{error}"),
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

mod configfs_tsm;
mod gramine;

use configfs_tsm::ConfigfsTsm;
use gramine::{Gramine, REPORT_DATA_FILE};
use std::fmt::{self, Debug};
use std::fs::File;
use std::io::{Error, Read, Result};
use std::path::Path;

/// The value that evidence is bound to.
pub type ReportData = [u8; 64];

/// Bytes of a machine's evidence, at most.
pub const EVIDENCE_LEN_MAX: usize = 64 << 10;
/// The folder of configfs-tsm.
pub const REPORTS: &str = "/sys/kernel/config/tsm/report";
/// The folder of Gramine.
const GRAMINE: &str = "/dev/attestation";

/// A kind of confidential virtual machine or enclave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Machine {
    /// Intel TDX: evidence is a quote.
    Tdx,
    /// AMD SEV-SNP: evidence is a report, followed by the certificate table of the host.
    Snp,
    /// Intel SGX: evidence is a quote.
    Sgx,
}

/// A source of a machine's evidence.
pub trait MachineEvidence: Debug + Send + Sync {
    /// The kind of the machine. Fails if it has no evidence.
    fn machine(&self) -> Result<Machine>;

    /// Evidence that is bound to `report_data`, as `traceless-attest` takes it.
    fn evidence(&self, report_data: &ReportData) -> Result<Vec<u8>>;
}

/// The source in a folder: that of configfs-tsm ([`REPORTS`]), or `/dev/attestation` of Gramine.
pub fn source(folder: impl AsRef<Path>) -> Box<dyn MachineEvidence> {
    let folder = folder.as_ref();
    if folder.join(REPORT_DATA_FILE).exists() {
        Box::new(Gramine::new(folder))
    } else {
        Box::new(ConfigfsTsm::new(folder))
    }
}

/// The source in the folder of Gramine, if it is there, or that of configfs-tsm.
pub fn usual_source() -> Box<dyn MachineEvidence> {
    let gramine = Path::new(GRAMINE);
    source(if gramine.join(REPORT_DATA_FILE).exists() { gramine } else { Path::new(REPORTS) })
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tdx => "tdx",
            Self::Snp => "snp",
            Self::Sgx => "sgx",
        })
    }
}

/// Reads a file of evidence.
fn read_evidence(file: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more shows that there is too much.
    File::open(file)?.take(EVIDENCE_LEN_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > EVIDENCE_LEN_MAX {
        return Err(Error::other("the machine's evidence is too long"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn gramine_is_known_by_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert!(source(path).machine().is_err());
        fs::write(path.join("user_report_data"), [0; 64]).unwrap();
        fs::write(path.join("quote"), "quote").unwrap();
        let source = source(path);
        assert_eq!(source.machine().unwrap().to_string(), "sgx");
        assert_eq!(source.evidence(&[7; 64]).unwrap(), b"quote");
        assert_eq!(fs::read(path.join("user_report_data")).unwrap(), [7; 64]);
        fs::write(path.join("quote"), vec![0; EVIDENCE_LEN_MAX + 1]).unwrap();
        assert!(source.evidence(&[7; 64]).unwrap_err().to_string().contains("too long"));
    }
}
