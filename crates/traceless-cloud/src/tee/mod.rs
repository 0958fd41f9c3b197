//! How an enclave comes by its key: it tells what it is, bound to a public key of its own, and the
//! gateway, if it likes what it hears, seals the key to that one.
//!
//! A host that puts itself between them has another public key, which no evidence speaks for. The
//! roles are those of RFC 9334, the sealing is HPKE's base mode (RFC 9180).

mod evidence;
mod provision;

pub use evidence::{AttestedEnclave, EVIDENCE_LEN_MAX, EnclavePlace, Policy, verify};
pub use provision::{Candidate, Provision, SEALED_LEN_MAX};
