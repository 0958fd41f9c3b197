use crate::amd;
use crate::amd_report::Report;
use crate::claims::Claims;
use crate::collateral::Collateral;
use crate::error::{Error, Result};
use crate::intel;
use crate::roots::Roots;
use traceless_sys::machine_evidence::EVIDENCE_LEN_MAX;

/// A kind of evidence, by its first bytes.
enum Kind {
    /// A quote of SGX or TDX.
    Quote,
    /// An attestation report of SEV-SNP, which a certificate table may follow.
    Report,
}

/// The claims of genuine evidence at the time `now`, in seconds since 1970. The claims must still
/// be accepted by a policy, and `report_data` compared.
pub fn verify(evidence: &[u8], collateral: &Collateral, roots: &Roots, now: u64) -> Result<Claims> {
    match kind_of(evidence)? {
        Kind::Quote => intel::verify(evidence, collateral, roots, now),
        Kind::Report => amd::verify(evidence, collateral, roots, now),
    }
}

/// The claims of evidence that may be made up: to look at, not to rely on.
pub fn read_unverified(evidence: &[u8]) -> Result<Claims> {
    match kind_of(evidence)? {
        Kind::Quote => intel::read_unverified(evidence),
        Kind::Report => {
            let (report, _) = Report::parse(evidence)?;
            Ok(report.claims(report.generation()))
        }
    }
}

fn kind_of(evidence: &[u8]) -> Result<Kind> {
    if evidence.len() > EVIDENCE_LEN_MAX {
        return Err(Error::Malformed(format!("it has more than {EVIDENCE_LEN_MAX} bytes")));
    }
    // Quotes have a version of two bytes and the kind of a key, reports a version of four bytes.
    match evidence.first_chunk() {
        Some([3..=5, 0, 2 | 3, 0]) => Ok(Kind::Quote),
        Some([2..=5, 0, 0, 0]) => Ok(Kind::Report),
        _ => Err(Error::Malformed("it is neither a quote nor a report of a known version".into())),
    }
}
