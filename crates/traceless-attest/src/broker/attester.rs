//! Evidence in the forms that Trustee takes.

use super::snp_evidence;
use crate::error::{Error, Result};
use base64_simd::STANDARD;
use serde_json::{Value, json};
use traceless_sys::machine_evidence::{Machine, MachineEvidence, ReportData};

/// What speaks for the machine that this program runs in.
pub trait Attester {
    /// The name of the machine's kind in the protocol.
    fn kind(&self) -> String;

    /// Evidence that is bound to a hash of at most 64 bytes, in the form that Trustee takes.
    fn evidence(&self, hash: &[u8]) -> Result<Value>;
}

/// A machine that evidence speaks for.
pub struct MachineAttester {
    source: Box<dyn MachineEvidence>,
    machine: Machine,
}

impl MachineAttester {
    /// Fails if the source has no evidence.
    pub fn new(source: Box<dyn MachineEvidence>) -> Result<Self> {
        let machine = source.machine().map_err(|error| Error::Machine(error.to_string()))?;
        Ok(Self { source, machine })
    }
}

impl Attester for MachineAttester {
    fn kind(&self) -> String {
        self.machine.to_string()
    }

    fn evidence(&self, hash: &[u8]) -> Result<Value> {
        let mut report_data: ReportData = [0; 64];
        report_data[..hash.len()].copy_from_slice(hash);
        let evidence = self.source.evidence(&report_data);
        let evidence = evidence.map_err(|error| Error::Machine(error.to_string()))?;
        match self.machine {
            Machine::Tdx => {
                Ok(json!({"quote": STANDARD.encode_to_string(evidence), "cc_eventlog": null}))
            }
            Machine::Sgx => Ok(json!({"quote": STANDARD.encode_to_string(evidence)})),
            Machine::Snp => snp_evidence::for_trustee(&evidence),
        }
    }
}

/// A machine that nothing speaks for: evidence of Trustee's kind `sample`, which a broker accepts
/// only while it is tried out.
pub struct SampleAttester;

impl Attester for SampleAttester {
    fn kind(&self) -> String {
        "sample".into()
    }

    fn evidence(&self, hash: &[u8]) -> Result<Value> {
        Ok(json!({"svn": "1", "report_data": STANDARD.encode_to_string(hash)}))
    }
}
