//! Certificates of TLS with evidence of the machine that holds their key ("RA-TLS"), in the format
//! of the Confidential Computing Consortium's "Interoperable RA-TLS".
//!
//! An extension has evidence that is bound to claims, and the claims have a hash of the
//! certificate's public key.

use crate::error::{Error, Result};
use ciborium::Value;
use ciborium::{de, ser};
use der::asn1::ObjectIdentifier;
use der::{Decode, Encode};
use rcgen::{
    CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, KeyPair,
    PKCS_ECDSA_P256_SHA256, PublicKeyData,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use sha2::{Digest, Sha256, Sha384, Sha512};
use traceless_sys::machine_evidence::{EVIDENCE_LEN_MAX, Machine, MachineEvidence, ReportData};
use x509_cert::Certificate;
use zeroize::Zeroizing;

/// The extension: `tcg-dice-conceptual-message-wrapper`.
const EXTENSION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.23.133.5.4.9");
const EXTENSION_PARTS: [u64; 6] = [2, 23, 133, 5, 4, 9];
/// The CBOR tag of quotes of SGX and TDX (IANA).
const INTEL_QUOTE: u64 = 60_000;
/// The CBOR tag of reports of SEV-SNP. None is registered: the letters "snp" and the version.
const SNP_REPORT: u64 = 0x736e_7001;
/// The claim that has the hash of the public key.
const KEY_HASH: &str = "pubkey-hash";
/// Identifiers of hashes (RFC 6920).
const SHA_256: u64 = 1;
const SHA_384: u64 = 7;
const SHA_512: u64 = 8;
/// The first bytes of a text in PEM.
const PEM: &[u8] = b"-----BEGIN ";
/// Bytes of a certificate with evidence, as a file, at most.
pub const CERTIFICATE_LEN_MAX: usize = 3 * EVIDENCE_LEN_MAX;

/// A new key pair and its certificate, as PEM.
pub struct CertifiedKey {
    /// The self-signed certificate.
    pub certificate: String,
    /// The private key.
    pub key: Zeroizing<String>,
}

impl CertifiedKey {
    /// A certificate for servers with these names or addresses, with evidence of this machine.
    pub fn new(names: &[String], machine: &dyn MachineEvidence) -> Result<Self> {
        let failed = |error: rcgen::Error| Error::Machine(format!("no certificate: {error}"));
        let unreadable = |error: std::io::Error| Error::Machine(error.to_string());
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let hash = Sha256::digest(key.subject_public_key_info()).to_vec();
        let claims = claims(&hash);
        let tag = match machine.machine().map_err(unreadable)? {
            Machine::Sgx | Machine::Tdx => INTEL_QUOTE,
            Machine::Snp => SNP_REPORT,
        };
        let evidence = machine.evidence(&report_data(&claims)).map_err(unreadable)?;
        let parts = Value::Array(vec![Value::Bytes(evidence), Value::Bytes(claims)]);
        let extension = encode(&Value::Tag(tag, Box::new(parts)));

        let mut params = CertificateParams::new(names.to_vec()).map_err(failed)?;
        params.distinguished_name.push(DnType::CommonName, "traceless-attest");
        params.insert_extended_key_usage(ExtendedKeyUsagePurpose::ServerAuth);
        let extension = CustomExtension::from_oid_content(&EXTENSION_PARTS, extension);
        params.custom_extensions.push(extension);
        let certificate = params.self_signed(&key).map_err(failed)?.pem();
        Ok(Self { certificate, key: Zeroizing::new(key.serialize_pem()) })
    }
}

/// The evidence in a certificate, and what it must be bound to so that it speaks for the
/// certificate's key.
pub struct CertificateEvidence {
    /// As [`crate::verify`] takes it.
    pub evidence: Vec<u8>,
    /// The value that it must be bound to.
    pub report_data: ReportData,
}

impl CertificateEvidence {
    /// The evidence in a certificate, in DER or as a text in PEM with nothing else. `None` if these
    /// bytes are no certificate.
    pub fn read(bytes: &[u8]) -> Option<Result<Self>> {
        if let Ok(certificate) = Certificate::from_der(bytes) {
            return Some(Self::of(&certificate));
        }
        // Quotes have certificates in PEM, too, further inside.
        if !bytes.trim_ascii_start().starts_with(PEM) {
            return None;
        }
        // A client would trust every certificate of the file.
        let begins = bytes.windows(PEM.len()).filter(|window| *window == PEM).count();
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(bytes).collect();
        let [Ok(only)] = &certificates[..] else { return Some(Err(not_alone())) };
        if begins != 1 {
            return Some(Err(not_alone()));
        }
        Some(Self::of(&Certificate::from_der(only).ok()?))
    }

    fn of(certificate: &Certificate) -> Result<Self> {
        let malformed = || Error::Malformed("the certificate's evidence is damaged".into());
        let certificate = certificate.tbs_certificate();
        let extensions = certificate.extensions().map(Vec::as_slice).unwrap_or_default();
        let mut found = extensions.iter().filter(|each| each.extn_id == EXTENSION);
        let extension = found
            .next()
            .ok_or_else(|| Error::Malformed("there is no evidence in the certificate".into()))?;
        let mut rest = extension.extn_value.as_bytes();
        let Ok(Value::Tag(INTEL_QUOTE | SNP_REPORT, parts)) = de::from_reader(&mut rest) else {
            return Err(malformed());
        };
        if !rest.is_empty() || found.next().is_some() {
            return Err(malformed());
        }
        let Value::Array(parts) = *parts else { return Err(malformed()) };
        let Ok([Value::Bytes(evidence), Value::Bytes(claims)]) = <[Value; 2]>::try_from(parts)
        else {
            return Err(malformed());
        };
        let key = certificate.subject_public_key_info().to_der().map_err(|_| malformed())?;
        let hash = claimed_hash(&claims).ok_or_else(malformed)?;
        if !hash.fits(&key) {
            return Err(Error::NotVerified("its evidence is for another key".into()));
        }
        Ok(Self { evidence, report_data: report_data(&claims) })
    }
}

fn not_alone() -> Error {
    Error::Malformed("a file of a certificate to be verified has this one alone".into())
}

/// A hash of a public key.
struct KeyHash {
    algorithm: u64,
    value: Vec<u8>,
}

impl KeyHash {
    fn fits(&self, key: &[u8]) -> bool {
        match self.algorithm {
            SHA_256 => self.value == Sha256::digest(key).as_slice(),
            SHA_384 => self.value == Sha384::digest(key).as_slice(),
            SHA_512 => self.value == Sha512::digest(key).as_slice(),
            _ => false,
        }
    }
}

/// The hash in claims. Further claims say nothing about the key.
fn claimed_hash(claims: &[u8]) -> Option<KeyHash> {
    let Value::Map(claims) = de::from_reader(claims).ok()? else { return None };
    let mut found = claims.iter().filter(|(name, _)| name.as_text() == Some(KEY_HASH));
    let (Some((_, hash)), None) = (found.next(), found.next()) else { return None };
    let Value::Array(parts) = de::from_reader(&hash.as_bytes()?[..]).ok()? else { return None };
    let [algorithm, value] = &parts[..] else { return None };
    let algorithm = u64::try_from(algorithm.as_integer()?).ok()?;
    Some(KeyHash { algorithm, value: value.as_bytes()?.clone() })
}

/// Claims for a public key with this SHA-256.
fn claims(hash: &[u8]) -> Vec<u8> {
    let hash = Value::Array(vec![Value::from(SHA_256), Value::Bytes(hash.to_vec())]);
    encode(&Value::Map(vec![(Value::from(KEY_HASH), Value::Bytes(encode(&hash)))]))
}

/// What evidence for claims is bound to.
fn report_data(claims: &[u8]) -> ReportData {
    let mut report_data = [0; 64];
    report_data[..32].copy_from_slice(&Sha256::digest(claims));
    report_data
}

fn encode(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    ser::into_writer(value, &mut bytes).expect("a vector takes all");
    bytes
}
