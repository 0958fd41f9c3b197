//! The evidence of an enclave: an entity attestation token (RFC 9711), signed (RFC 9052).
//!
//! An enclave in a process is simulated. Its token names this in the profile, reports debugging as
//! enabled, and is signed with a public test key: alone it proves only that the other side follows
//! the protocol. In a confidential virtual machine the hardware's evidence is bound to the token.

use crate::channel::Nonce;
use crate::error::{Error, Result};
use crate::tee::verifier::EvidenceVerifier;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use coset::cbor::de::from_reader;
use coset::cbor::ser::into_writer;
use coset::cbor::value::Value;
use coset::cwt::{ClaimName, ClaimsSet, ClaimsSetBuilder};
use coset::iana::{Algorithm, CwtClaimName, EllipticCurve, EnumI64, KeyType, OkpKeyParameter};
use coset::{
    AsCborValue, CborSerializable, CoseKey, CoseKeyBuilder, CoseSign1, CoseSign1Builder,
    HeaderBuilder, Label, RegisteredLabel, TaggedCborSerializable,
};
use rustls::crypto::hpke::HpkePublicKey;
use sha2::{Digest, Sha256, Sha512};
use std::sync::Arc;
use traceless_sys::machine_evidence::{self, ReportData};

/// Bytes of an enclave's token, at most.
pub const TOKEN_LEN_MAX: usize = 1 << 12;
/// Bytes of evidence, at most: of a token and of the hardware's evidence for it.
pub const EVIDENCE_LEN_MAX: usize = machine_evidence::EVIDENCE_LEN_MAX + TOKEN_LEN_MAX + 16;
/// Prefix of the hash that a machine's evidence is bound to.
const ENDORSED_TOKEN: &[u8] = b"traceless: the token of an enclave, version 1";
/// The profile of a token that a simulated enclave signed.
const SIMULATED: &str = "traceless-sim";
/// How the description of a simulated enclave begins.
const SIMULATED_PLACE: &str = "simulated, ";
/// The name and the seed of the key that signs simulated tokens. The seed is not secret.
const SIMULATED_KEY: &[u8] = b"SIM";
const SIMULATED_SEED: &[u8; 32] = b"a simulated TEE protects nothing";
/// The value of `dbgstat` if debugging is enabled.
const DEBUG_ENABLED: i128 = 0;
/// The confirmation method "a key that is public".
const CONFIRMED_KEY: i128 = 1;
/// Prefix of the hash that derives a session's nonce from a public key.
const SESSION_OF_KEY: &[u8] = b"traceless session of an enclave's key";

/// Where a simulated enclave runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnclavePlace {
    /// In its own process.
    Process,
    /// In the host's process.
    Inside,
}

impl EnclavePlace {
    fn name(self) -> &'static str {
        match self {
            Self::Process => "simulated, in a process",
            Self::Inside => "simulated, inside its host",
        }
    }
}

/// Which evidence a gateway accepts.
#[derive(Clone, Debug, Default)]
pub enum Policy {
    /// None: no kind was chosen.
    #[default]
    Unset,
    /// Also an enclave that is simulated or may be debugged, and so protects nothing.
    Simulated,
    /// Evidence of hardware that this verifier accepts.
    Hardware(Arc<dyn EvidenceVerifier>),
}

/// An enclave with accepted evidence.
#[derive(Debug)]
pub struct AttestedEnclave {
    /// The public key to seal to.
    pub(super) key: HpkePublicKey,
    /// The gateway's nonce for the session.
    pub gateway: Nonce,
    /// The enclave's nonce for the session, derived from its public key.
    pub enclave: Nonce,
    /// A description of the enclave.
    pub what: String,
}

/// The token of an enclave in a confidential virtual machine, and the machine's evidence for it.
struct EndorsedToken {
    token: Vec<u8>,
    evidence: Vec<u8>,
}

impl EndorsedToken {
    /// `None` if the bytes are no endorsed token, but perhaps a bare one.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let Ok(Value::Array(parts)) = from_reader(bytes) else { return None };
        let [Value::Bytes(token), Value::Bytes(evidence)] = &parts[..] else { return None };
        Some(Self { token: token.clone(), evidence: evidence.clone() })
    }
}

/// The token of an enclave, endorsed with evidence of the confidential virtual machine in which it
/// and its host run. The evidence must be bound to [`report_data`] of the token.
pub fn endorse(token: Vec<u8>, evidence: Vec<u8>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let parts = Value::Array(vec![Value::Bytes(token), Value::Bytes(evidence)]);
    into_writer(&parts, &mut bytes).expect("a vector takes all");
    bytes
}

/// The 64 bytes that the evidence of a machine is bound to, so that it endorses this token, and
/// with it the key and the gateway's nonce.
pub fn report_data(token: &[u8]) -> ReportData {
    Sha512::new().chain_update(ENDORSED_TOKEN).chain_update(token).finalize().into()
}

/// The evidence of a simulated enclave with this public key, for a gateway that sent `nonce`.
pub(super) fn simulated(key: &HpkePublicKey, nonce: &Nonce, place: EnclavePlace) -> Vec<u8> {
    let pair = Ed25519KeyPair::from_seed_unchecked(SIMULATED_SEED).expect("a seed of 32 bytes");
    let confirmed = CoseKeyBuilder::new_okp_key()
        .param(OkpKeyParameter::Crv.to_i64(), Value::from(EllipticCurve::X25519.to_i64()))
        .param(OkpKeyParameter::X.to_i64(), Value::Bytes(key.0.clone()))
        .build()
        .to_cbor_value()
        .expect("a key of plain values");
    let claims = ClaimsSetBuilder::new()
        .claim(CwtClaimName::Nonce, Value::Bytes(nonce.to_vec()))
        .claim(CwtClaimName::EatProfile, Value::from(SIMULATED))
        .claim(CwtClaimName::DebugStatus, Value::from(DEBUG_ENABLED as u8))
        .claim(CwtClaimName::SoftwareName, Value::from(place.name()))
        .claim(CwtClaimName::Cnf, Value::Map(vec![(Value::from(CONFIRMED_KEY as u8), confirmed)]))
        .build();
    let protected =
        HeaderBuilder::new().algorithm(Algorithm::EdDSA).key_id(SIMULATED_KEY.to_vec()).build();
    CoseSign1Builder::new()
        .protected(protected)
        .payload(claims.to_vec().expect("claims of plain values"))
        .create_signature(&[], |message| pair.sign(message).as_ref().to_vec())
        .build()
        .to_tagged_vec()
        .expect("a token of plain values")
}

/// Checks an enclave's evidence for the nonce `nonce`.
pub fn verify(evidence: &[u8], nonce: &Nonce, policy: &Policy) -> Result<AttestedEnclave> {
    if evidence.len() > EVIDENCE_LEN_MAX {
        return Err(Error::Evidence("it is too long"));
    }
    let endorsed = EndorsedToken::decode(evidence);
    let token = endorsed.as_ref().map_or(evidence, |endorsed| &endorsed.token);
    let enclave = verify_token(token, nonce)?;
    match (policy, endorsed) {
        (Policy::Simulated, _) => Ok(enclave),
        (Policy::Hardware(verifier), Some(EndorsedToken { token, evidence })) => {
            let machine = verifier.verify(&evidence, &report_data(&token));
            let machine = machine.map_err(Error::EvidenceRefused)?;
            let place = enclave.what.trim_start_matches(SIMULATED_PLACE);
            Ok(AttestedEnclave { what: format!("{place}, in {machine}"), ..enclave })
        }
        (Policy::Hardware(_), None) => Err(Error::Evidence(
            "the enclave is simulated and protects nothing: its host has no evidence of hardware",
        )),
        (Policy::Unset, _) => Err(Error::Evidence(
            "the enclave is simulated and protects nothing; --allow-simulated-tee goes on, and \
             --attestation-policy verifies hardware",
        )),
    }
}

/// Checks an enclave's token. What signs it is no secret.
fn verify_token(token: &[u8], nonce: &Nonce) -> Result<AttestedEnclave> {
    let wrong = |_| Error::Evidence("it is no token");
    let token = CoseSign1::from_tagged_slice(token).map_err(wrong)?;
    if token.protected.header.key_id != SIMULATED_KEY {
        return Err(Error::Evidence("its signer is unknown"));
    }
    let pair = Ed25519KeyPair::from_seed_unchecked(SIMULATED_SEED).expect("a seed of 32 bytes");
    let public = UnparsedPublicKey::new(&ED25519, pair.public_key().as_ref());
    token
        .verify_signature(&[], |signature, message| public.verify(message, signature))
        .map_err(|_| Error::Evidence("its signature is wrong"))?;
    let claims = token.payload.as_deref().unwrap_or_default();
    judge(&ClaimsSet::from_slice(claims).map_err(wrong)?, nonce)
}

fn judge(claims: &ClaimsSet, nonce: &Nonce) -> Result<AttestedEnclave> {
    if claim(claims, CwtClaimName::Nonce)?.as_bytes().map(Vec::as_slice) != Some(nonce) {
        return Err(Error::Evidence("it is not an answer to this question"));
    }
    let simulated = claim(claims, CwtClaimName::EatProfile)?.as_text() == Some(SIMULATED);
    if !simulated {
        return Err(Error::Evidence("it is of a kind that is not known here"));
    }
    let what = claim(claims, CwtClaimName::SoftwareName)?.as_text().unwrap_or(SIMULATED).to_owned();
    let key = confirmed_key(claim(claims, CwtClaimName::Cnf)?)?;
    Ok(AttestedEnclave { enclave: session_of(&key), key, gateway: *nonce, what })
}

/// The enclave's nonce for a session. Its key pair is drawn for one session only.
pub(super) fn session_of(key: &HpkePublicKey) -> Nonce {
    let hash = Sha256::new().chain_update(SESSION_OF_KEY).chain_update(&key.0).finalize();
    *hash.first_chunk().expect("a half of it")
}

fn claim(claims: &ClaimsSet, name: CwtClaimName) -> Result<&Value> {
    let found = claims.rest.iter().find(|(other, _)| *other == ClaimName::Assigned(name));
    Ok(&found.ok_or(Error::Evidence("a claim is missing"))?.1)
}

/// The public key in the claim `cnf`.
fn confirmed_key(confirmation: &Value) -> Result<HpkePublicKey> {
    let wrong = Error::Evidence("it speaks for no key of X25519");
    let methods = confirmation.as_map().map(Vec::as_slice).unwrap_or_default();
    let confirmed = methods
        .iter()
        .find(|(method, _)| method.as_integer().map(i128::from) == Some(CONFIRMED_KEY));
    let Some((_, confirmed)) = confirmed else { return Err(wrong) };
    let Ok(key) = CoseKey::from_cbor_value(confirmed.clone()) else { return Err(wrong) };
    let value = |parameter: OkpKeyParameter| {
        let label = Label::Int(parameter.to_i64());
        key.params.iter().find(|(other, _)| *other == label).map(|(_, value)| value)
    };
    let curve = value(OkpKeyParameter::Crv).and_then(Value::as_integer).map(i128::from);
    let x = value(OkpKeyParameter::X).and_then(Value::as_bytes).filter(|x| x.len() == 32);
    let on_curve = key.kty == RegisteredLabel::Assigned(KeyType::OKP)
        && curve == Some(i128::from(EllipticCurve::X25519.to_i64()));
    match x {
        Some(x) if on_curve => Ok(HpkePublicKey(x.clone())),
        _ => Err(wrong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: Nonce = [7; 16];
    const ALLOWED: Policy = Policy::Simulated;

    fn refused(evidence: &[u8], nonce: Nonce, policy: &Policy) -> String {
        verify(evidence, &nonce, policy).unwrap_err().to_string()
    }

    #[test]
    fn a_simulated_enclave_is_identified_and_must_be_allowed() {
        let key = HpkePublicKey(vec![9; 32]);
        for (place, what) in [
            (EnclavePlace::Process, "simulated, in a process"),
            (EnclavePlace::Inside, "simulated, inside its host"),
        ] {
            let evidence = simulated(&key, &NONCE, place);
            let attested = verify(&evidence, &NONCE, &ALLOWED).unwrap();
            assert_eq!((&attested.what[..], &attested.key.0), (what, &key.0));
            let strict = Policy::Unset;
            assert!(refused(&evidence, NONCE, &strict).contains("--allow-simulated-tee"));
            assert!(refused(&evidence, [8; 16], &ALLOWED).contains("not an answer"));
        }
    }

    #[test]
    fn evidence_with_an_altered_byte_is_refused() {
        let evidence = simulated(&HpkePublicKey(vec![9; 32]), &NONCE, EnclavePlace::Process);
        assert!(evidence.len() < TOKEN_LEN_MAX);
        for byte in 0..evidence.len() {
            let mut changed = evidence.clone();
            changed[byte] ^= 1;
            assert!(verify(&changed, &NONCE, &ALLOWED).is_err(), "{byte}");
            assert!(verify(&evidence[..byte], &NONCE, &ALLOWED).is_err(), "{byte}");
        }
        assert!(refused(&vec![0; EVIDENCE_LEN_MAX + 1], NONCE, &ALLOWED).contains("too long"));
        let short = simulated(&HpkePublicKey(vec![9; 31]), &NONCE, EnclavePlace::Process);
        assert!(refused(&short, NONCE, &ALLOWED).contains("no key"));
    }

    /// Accepts what is bound to the data that it is given.
    #[derive(Debug)]
    struct Bound;

    impl EvidenceVerifier for Bound {
        fn verify(&self, evidence: &[u8], report_data: &ReportData) -> Result<String, String> {
            let bound = evidence == report_data;
            if bound { Ok("a machine".into()) } else { Err("not bound".into()) }
        }
    }

    #[test]
    fn hardware_endorses_one_token() {
        let (key, other) = (HpkePublicKey(vec![9; 32]), HpkePublicKey(vec![8; 32]));
        let token = simulated(&key, &NONCE, EnclavePlace::Process);
        let evidence = report_data(&token).to_vec();
        let policy = Policy::Hardware(Arc::new(Bound));
        let endorsed = endorse(token.clone(), evidence.clone());
        let attested = verify(&endorsed, &NONCE, &policy).unwrap();
        assert_eq!((attested.key.0, &attested.what[..]), (key.0, "in a process, in a machine"));

        let exchanged = endorse(simulated(&other, &NONCE, EnclavePlace::Process), evidence.clone());
        assert!(refused(&exchanged, NONCE, &policy).contains("not bound"));
        assert!(refused(&endorsed, [8; 16], &policy).contains("not an answer"));
        assert!(refused(&token, NONCE, &policy).contains("no evidence of hardware"));
        assert!(refused(&endorsed, NONCE, &Policy::Unset).contains("--attestation-policy"));
        for byte in 0..endorsed.len() {
            let mut changed = endorsed.clone();
            changed[byte] ^= 1;
            assert!(verify(&changed, &NONCE, &policy).is_err(), "{byte}");
            assert!(verify(&endorsed[..byte], &NONCE, &policy).is_err(), "{byte}");
        }
    }
}
