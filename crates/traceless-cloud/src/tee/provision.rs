//! The key, sealed by the gateway to an enclave with accepted evidence.

use super::evidence::{AttestedEnclave, EnclavePlace, session_of, simulated};
use crate::channel::Nonce;
use crate::codec::Reader;
use crate::enclave::{Session, Shared};
use crate::error::{Error, Result};
use crate::geometry::{GEOMETRY_LEN, Geometry};
use crate::kernel::Choice;
use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_256 as SUITE;
use rustls::crypto::hpke::{EncapsulatedSecret, Hpke, HpkePrivateKey, HpkePublicKey};
use traceless_core::seal::Secret;
use zeroize::Zeroizing;

/// The application info of HPKE.
const INFO: &[u8] = b"traceless cloud: an enclave's key, version 1";
const ENCAPSULATED_LEN: usize = 32;
const KEY_LEN: usize = 32;
/// Bytes of a sealed key and its parameters, at most.
pub const SEALED_LEN_MAX: usize = 256;

/// The parameters that an enclave receives once: a tree, its kernel, and the key.
pub struct Provision {
    /// The tree's shape.
    pub geometry: Geometry,
    /// The kernel.
    pub choice: Choice,
    /// The key that both sides derive their keys from.
    pub key: Secret,
}

impl Provision {
    /// Seals this, so that only the enclave of the evidence can read it.
    pub fn seal(&self, attested: &AttestedEnclave) -> Result<Vec<u8>> {
        let mut plain = Zeroizing::new(Vec::with_capacity(KEY_LEN + 1 + GEOMETRY_LEN));
        plain.extend_from_slice(self.key.bytes());
        plain.push(match self.choice {
            Choice::Benes => 0,
            Choice::Paper => 1,
        });
        plain.extend_from_slice(&self.geometry.encode());
        let bound = [attested.gateway, attested.enclave].concat();
        let sealed = SUITE.seal(INFO, &bound, &plain, &attested.key);
        let (encapsulated, sealed) =
            sealed.map_err(|_| Error::Evidence("nothing can be sealed to its key"))?;
        Ok([encapsulated.0, sealed].concat())
    }

    /// The same for the enclave of a partition.
    #[must_use]
    pub fn for_partition(&self, partition: u32) -> Self {
        let geometry = Geometry { partition, ..self.geometry };
        Self { geometry, choice: self.choice, key: self.key.clone() }
    }

    /// The parameters and keys that gateway and enclave share.
    pub fn shared(&self) -> Shared {
        Shared::new(self.geometry, self.choice, &self.key)
    }
}

/// An enclave that waits for its key. It accepts exactly one.
pub struct Candidate {
    gateway: Nonce,
    public: HpkePublicKey,
    private: HpkePrivateKey,
}

impl Candidate {
    /// A candidate with a new key pair, for the gateway that sent `nonce`.
    pub fn new(nonce: &Nonce) -> Result<Self> {
        let pair = SUITE.generate_key_pair();
        let (public, private) =
            pair.map_err(|_| Error::Store("there is no randomness for a key"))?;
        Ok(Self { gateway: *nonce, public, private })
    }

    /// The candidate's evidence.
    pub fn evidence(&self, place: EnclavePlace) -> Vec<u8> {
        simulated(&self.public, &self.gateway, place)
    }

    /// Opens the sealed key, and begins the session.
    pub fn accept(self, sealed: &[u8]) -> Result<(Shared, Session)> {
        let enclave = session_of(&self.public);
        let bound = [self.gateway, enclave].concat();
        let (encapsulated, rest) =
            sealed.split_at_checked(ENCAPSULATED_LEN).ok_or(Error::Malformed("no sealed key"))?;
        let encapsulated = EncapsulatedSecret(encapsulated.to_vec());
        let plain = SUITE.open(&encapsulated, INFO, &bound, rest, &self.private);
        let plain = Zeroizing::new(plain.map_err(|_| Error::Unauthentic)?);
        let mut reader = Reader::new(&plain);
        let key = Secret::from_bytes(reader.array()?);
        let choice = match reader.u8()? {
            0 => Choice::Benes,
            1 => Choice::Paper,
            _ => return Err(Error::Malformed("no such kernel")),
        };
        let geometry = Geometry::decode(&reader.array()?)?;
        reader.end()?;
        let shared = Shared::new(geometry, choice, &key);
        let session = shared.session(&self.gateway, &enclave);
        Ok((shared, session))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Policy, verify};
    use super::*;
    use crate::geometry::tests::small;

    const NONCE: Nonce = [5; 16];

    fn provision() -> Provision {
        Provision { geometry: small(), choice: Choice::Paper, key: Secret::from_bytes([3; 32]) }
    }

    fn attested(candidate: &Candidate) -> AttestedEnclave {
        let policy = Policy::Simulated;
        verify(&candidate.evidence(EnclavePlace::Inside), &NONCE, &policy).unwrap()
    }

    #[test]
    fn both_sides_derive_the_same_session() {
        let candidate = Candidate::new(&NONCE).unwrap();
        let attested = attested(&candidate);
        let sealed = provision().seal(&attested).unwrap();
        assert!(sealed.len() <= SEALED_LEN_MAX);
        let own = provision().shared().session(&attested.gateway, &attested.enclave);
        let (shared, session) = candidate.accept(&sealed).unwrap();
        assert_eq!((shared.geometry, shared.choice), (small(), Choice::Paper));
        assert_eq!(shared.transport.bytes(), provision().shared().transport.bytes());
        for (one, other) in
            [(own.query, session.query), (own.reply, session.reply), (own.evict, session.evict)]
        {
            assert_eq!(one.bytes(), other.bytes());
        }
    }

    #[test]
    fn only_the_enclave_of_the_evidence_can_read_the_key() {
        let candidate = || Candidate::new(&NONCE).unwrap();
        let (one, other) = (candidate(), candidate());
        let sealed = provision().seal(&attested(&one)).unwrap();
        assert!(matches!(other.accept(&sealed), Err(Error::Unauthentic)));
        assert_ne!(attested(&one).enclave, attested(&candidate()).enclave);
        for byte in 0..sealed.len() {
            let next = candidate();
            let mut changed = provision().seal(&attested(&next)).unwrap();
            changed[byte] ^= 1;
            assert!(next.accept(&changed).is_err(), "{byte}");
        }
        assert!(one.accept(&sealed[..9]).is_err());
    }
}
