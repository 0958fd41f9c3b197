//! Results for other programs: an EAT Attestation Result (draft-ietf-rats-ear-04), a JSON web
//! token, with the trustworthiness claims of AR4SI.

use crate::claims::Claims;
use crate::error::{Error, Result};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64_simd::URL_SAFE_NO_PAD;
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Map, Value, json};
use std::path::Path;

const PROFILE: &str = "tag:ietf.org,2026:rats/ear#04";
/// Values of AR4SI.
const NO_CLAIM: i8 = 0;
const AFFIRMING: i8 = 2;
const UNRECOGNISED: i8 = 33;
const CONTRAINDICATED: i8 = 97;

/// A key that signs results: ECDSA with P-256.
pub struct EarKey(EcdsaKeyPair);

impl EarKey {
    /// The key of a file: PKCS #8 in PEM.
    pub fn read(path: &Path) -> Result<Self> {
        let unusable = |reason: String| Error::file(path, reason);
        let key = PrivatePkcs8KeyDer::from_pem_file(path)
            .map_err(|error| unusable(format!("no key in PEM (PKCS #8): {error}")))?;
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.secret_pkcs8_der());
        Ok(Self(pair.map_err(|error| unusable(format!("no key of P-256: {error}")))?))
    }
}

/// The result for one piece of evidence.
pub struct Submodule<'a> {
    /// Its claims, if it is genuine.
    pub claims: Option<&'a Claims>,
    /// Why it was refused, if it was.
    pub refusal: Option<&'a str>,
    /// Whether its root is made up, so that it proves nothing.
    pub made_up: bool,
}

/// A signed result for pieces of evidence, issued at the time `now` in seconds since 1970.
pub fn attestation_result(
    submodules: &[Submodule<'_>],
    nonce: Option<&str>,
    now: u64,
    key: &EarKey,
) -> Result<String> {
    let parts: Map<String, Value> = submodules
        .iter()
        .enumerate()
        .map(|(number, each)| {
            let tee = each.claims.map_or("unknown".into(), |claims| claims.tee.to_string());
            (format!("{tee}-{number}"), appraisal(each))
        })
        .collect();
    let mut token = json!({
        "eat_profile": PROFILE,
        "iat": now,
        "ear_verifier_id": {
            "developer": env!("CARGO_PKG_REPOSITORY"),
            "build": concat!("traceless-attest ", env!("CARGO_PKG_VERSION")),
        },
        "submods": parts,
    });
    if let Some(nonce) = nonce {
        token["eat_nonce"] = nonce.into();
    }
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode_to_string(value.to_string());
    let message = format!("{}.{}", encode(&json!({"typ": "JWT", "alg": "ES256"})), encode(&token));
    let signature = key.0.sign(&SystemRandom::new(), message.as_bytes());
    let signature = signature.map_err(|_| Error::Machine("the result cannot be signed".into()))?;
    Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode_to_string(signature)))
}

fn appraisal(submodule: &Submodule<'_>) -> Value {
    let (status, hardware, executables) = match submodule {
        Submodule { refusal: None, made_up: true, .. } => ("none", NO_CLAIM, NO_CLAIM),
        Submodule { refusal: None, .. } => ("affirming", AFFIRMING, AFFIRMING),
        Submodule { claims: Some(_), .. } => ("contraindicated", NO_CLAIM, UNRECOGNISED),
        Submodule { claims: None, .. } => ("contraindicated", CONTRAINDICATED, UNRECOGNISED),
    };
    json!({
        "ear_status": status,
        "ear_trustworthiness_vector": { "hardware": hardware, "executables": executables },
    })
}
