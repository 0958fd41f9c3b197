use super::snp_evidence;
use crate::error::{Error, Result};
use base64_simd::STANDARD;
use serde_json::{Value, json};
use traceless_sys::machine_evidence::{Machine, MachineEvidence, ReportData};

/// What speaks for the machine that this program runs in.
pub trait Attester {
    /// The name of the machine's kind in the protocol.
    fn kind(&self) -> Result<String>;

    /// Evidence that is bound to a hash of at most 64 bytes, in the form that Trustee takes.
    fn evidence(&self, hash: &[u8]) -> Result<Value>;
}

/// A machine that evidence speaks for.
pub struct MachineAttester(pub Box<dyn MachineEvidence>);

impl Attester for MachineAttester {
    fn kind(&self) -> Result<String> {
        let machine = self.0.machine().map_err(|error| Error::Machine(error.to_string()))?;
        Ok(machine.to_string())
    }

    fn evidence(&self, hash: &[u8]) -> Result<Value> {
        let failed = |error: std::io::Error| Error::Machine(error.to_string());
        let mut report_data: ReportData = [0; 64];
        report_data[..hash.len()].copy_from_slice(hash);
        let evidence = self.0.evidence(&report_data).map_err(failed)?;
        match self.0.machine().map_err(failed)? {
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
    fn kind(&self) -> Result<String> {
        Ok("sample".into())
    }

    fn evidence(&self, hash: &[u8]) -> Result<Value> {
        Ok(json!({"svn": "1", "report_data": STANDARD.encode_to_string(hash)}))
    }
}
