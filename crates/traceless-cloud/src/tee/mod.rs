//! How an enclave gets its key: it sends evidence that is bound to its public key, and a gateway
//! that accepts the evidence seals the key to that public key.
//!
//! A host in the middle has another public key, which no evidence contains. The roles are named as
//! in RFC 9334; sealing is HPKE's base mode (RFC 9180).

mod evidence;
mod provision;

pub use evidence::{AttestedEnclave, EVIDENCE_LEN_MAX, EnclavePlace, Policy, verify};
pub use provision::{Candidate, Provision, SEALED_LEN_MAX};
