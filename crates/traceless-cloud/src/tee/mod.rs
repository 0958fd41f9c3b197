//! How an enclave gets its key: it sends evidence that is bound to its public key, and a gateway
//! that accepts the evidence seals the key to that public key.
//!
//! A host in the middle has another public key, which no evidence contains. The roles are named as
//! in RFC 9334; sealing is HPKE's base mode (RFC 9180).
//!
//! Both sides, which end up with the keys of one session:
//!
//! ```
//! use traceless_cloud::Error;
//! use traceless_cloud::kernel::Choice;
//! use traceless_cloud::params::Params;
//! use traceless_cloud::tee::{Candidate, EnclavePlace, Policy, Provision, verify};
//! use traceless_core::rng::System;
//! use traceless_core::seal::Secret;
//!
//! # fn main() -> traceless_cloud::Result {
//! let nonce = [1; 16]; // Fresh random bytes of the gateway.
//! let candidate = Candidate::new(&nonce)?;
//! let evidence = candidate.evidence(EnclavePlace::Inside);
//!
//! let strict = verify(&evidence, &nonce, &Policy::Unset);
//! assert!(matches!(strict, Err(Error::Evidence(_))));
//! let attested = verify(&evidence, &nonce, &Policy::Simulated)?;
//! let geometry = Params::new(1000, 64, 32)?.geometry;
//! let key = Secret::random(&mut System);
//! let provision = Provision { geometry, choice: Choice::Benes, key };
//! let (shared, session) = candidate.accept(&provision.seal(&attested)?)?;
//! let own = provision.shared().session(&attested.gateway, &attested.enclave);
//! assert_eq!(shared.geometry, geometry);
//! assert_eq!(session.query.bytes(), own.query.bytes());
//! # Ok(())
//! # }
//! ```

mod evidence;
mod provision;
mod verifier;

pub use evidence::{
    AttestedEnclave, EVIDENCE_LEN_MAX, EnclavePlace, Policy, TOKEN_LEN_MAX, endorse, report_data,
    verify,
};
pub use provision::{Candidate, Provision, SEALED_LEN_MAX};
pub use verifier::{EvidenceVerifier, VerifierProgram};
