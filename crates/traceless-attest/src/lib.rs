//! Verifier of evidence: is this program in a genuine enclave or confidential virtual machine, and
//! is it one that a policy accepts?
//!
//! In the terms of RFC 9334 this is the verifier. It works offline: certificates, revocation lists
//! and statements about security versions ("collateral") are files.
//!
//! ```
//! use traceless_attest::{Collateral, Policy, Roots, verify};
//!
//! let policy = Policy::parse(
//!     r#"
//!     [[accept]]
//!     tee = "snp"
//!     measurement = ["a5"]
//!     tcb-min = { snp = 20 }
//!     "#,
//! );
//! assert!(policy.unwrap_err().to_string().contains("48 bytes"));
//!
//! let collateral = Collateral::default();
//! let refused = verify(&[0; 100], &collateral, &Roots::default(), 1_700_000_000);
//! assert!(refused.unwrap_err().to_string().contains("neither a quote nor a report"));
//! ```
//!
//! The files:
//!
//! * `evidence`: which kind a piece of evidence is of; `intel`, `amd`: is it genuine; `amd_report`,
//!   `certificate_table`: the layouts of AMD
//! * `claims`: the statements of genuine evidence, in the same terms for all makers
//! * `policy`: which statements are accepted
//! * `collateral`, `roots`: what makers sign, and the keys that are trusted to sign it
//! * `ear`: results in the form of the IETF's EAR
//! * `evidence_certificate`: evidence in certificates of TLS ("RA-TLS"), made and read;
//!   `server_certificate`: a server's, over TLS
//! * `broker`: the other side, an attester that gets a key from a key broker: `attester`, the
//!   machine's evidence in the broker's form (`snp_evidence`); `session_key`, which the key is
//!   encrypted to
#![forbid(unsafe_code)]

mod amd;
mod amd_report;
mod broker;
mod certificate_table;
mod claims;
mod collateral;
mod ear;
mod error;
mod evidence;
mod evidence_certificate;
mod hex_bytes;
mod intel;
mod policy;
mod roots;
mod server_certificate;

pub use broker::{Attester, Broker, MachineAttester, ResourceName, SampleAttester, SessionKey};
pub use claims::{AmdTcb, Claims, Maker, Tcb, Tee};
pub use collateral::Collateral;
pub use ear::{EarKey, Submodule, attestation_result};
pub use error::{Error, Result};
pub use evidence::{read_unverified, verify};
pub use evidence_certificate::{CERTIFICATE_LEN_MAX, CertificateEvidence, CertifiedKey};
pub use hex_bytes::HexBytes;
pub use policy::{Policy, Refusal};
pub use roots::Roots;
pub use server_certificate::server_certificate;
