//! Reports of SEV-SNP and the certificates of their keys (AMD 57230, "Versioned Chip Endorsement
//! Key (VCEK) Certificate and KDS Interface Specification").

use crate::amd_report::{Generation, Report, SigningKey};
use crate::certificate_table::certificates;
use crate::claims::{AmdTcb, Claims};
use crate::collateral::Collateral;
use crate::error::{Error, Result};
use crate::hex_bytes::HexBytes;
use crate::roots::Roots;
use aws_lc_rs::signature::{ECDSA_P384_SHA384_FIXED, RSA_PSS_2048_8192_SHA384, UnparsedPublicKey};
use der::asn1::ObjectIdentifier;
use der::{Decode, Encode};
use rustls_pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm,
    TrustAnchor, UnixTime, alg_id,
};
use std::time::Duration;
use webpki::{
    BorrowedCertRevocationList, CertRevocationList, EndEntityCert, ExpirationPolicy, KeyUsage,
    RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy,
};
use x509_cert::Certificate;
use x509_cert::certificate::Rfc5280;
use x509_cert::crl::CertificateList;

/// Extensions of a key's certificate: security versions, and the chip.
const BOOTLOADER: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.3704.1.3.1");
const TEE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.3704.1.3.2");
const SNP: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.3704.1.3.3");
const MICROCODE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.3704.1.3.8");
const FMC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.3704.1.3.9");
const CHIP: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.3704.1.4");

/// The claims of a genuine report. Certificates may follow it, in a table.
pub fn verify(evidence: &[u8], collateral: &Collateral, roots: &Roots, now: u64) -> Result<Claims> {
    let (report, table) = Report::parse(evidence)?;
    let passed = certificates(table)?;
    let passed = passed.iter().map(|entry| CertificateDer::from(entry.certificate));
    let known: Vec<_> = passed.chain(collateral.certificates.iter().cloned()).collect();
    // A key may have several certificates: AMD issues them anew.
    let keys: Vec<_> =
        known.iter().filter(|each| is_signed_by(&report, each).unwrap_or(false)).collect();
    if keys.is_empty() {
        return Err(no_key(&report));
    }
    let mut reason = "no root certificate of AMD is there (its key distribution service has it: \
        https://kdsintf.amd.com/vcek/v1/Milan/cert_chain, or of Genoa, Turin)"
        .to_owned();
    for root in &known {
        let Some(generation) = roots.amd_generation(root) else { continue };
        for key in &keys {
            let verified = verify_chain(key, &known, root, roots, collateral, now)
                .map_err(|error| format!("the certificate of the signing key: {error}"))
                .and_then(|()| check_key(&report, key, generation));
            match verified {
                Ok(()) => {
                    let collateral_issued = oldest_revocation_list(collateral, root);
                    return Ok(Claims { collateral_issued, ..report.claims(generation) });
                }
                Err(error) => reason = error,
            }
        }
    }
    Err(Error::NotVerified(reason))
}

/// Whether the key of a certificate signed a report.
fn is_signed_by(report: &Report<'_>, certificate: &CertificateDer<'_>) -> Result<bool> {
    let (r, s) = report.signature()?;
    let Ok(certificate) = Certificate::from_der(certificate) else { return Ok(false) };
    let key =
        certificate.tbs_certificate().subject_public_key_info().subject_public_key.raw_bytes();
    let key = UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, key);
    Ok(key.verify(report.signed(), &[r, s].concat()).is_ok())
}

/// The error if no certificate's key signed a report.
fn no_key(report: &Report<'_>) -> Error {
    let key = match (report.signing_key(), report.chip_id()) {
        (Ok(SigningKey::Vlek), _) => "the provider's VLEK".into(),
        (_, None) => "the VCEK of a chip that the report does not name".into(),
        (_, Some(chip)) => format!("the VCEK ({})", key_address(report, &chip)),
    };
    Error::CollateralMissing(format!(
        "no certificate there has the key that signed the report, {key}, or the report was changed"
    ))
}

/// Where AMD gives out the certificate of a chip's key.
fn key_address(report: &Report<'_>, chip: &[u8; 64]) -> String {
    let generation = report.generation();
    let AmdTcb { bootloader, tee, snp, microcode, fmc } = report.reported_tcb(generation);
    let rest = format!("blSPL={bootloader}&teeSPL={tee}&snpSPL={snp}&ucodeSPL={microcode}");
    let service = "https://kdsintf.amd.com/vcek/v1";
    match generation {
        Generation::BeforeTurin => {
            format!("{service}/Milan/{}?{rest}, or of Genoa", HexBytes(chip.to_vec()))
        }
        Generation::Turin => {
            format!("{service}/Turin/{}?fmcSPL={fmc}&{rest}", HexBytes(chip[..8].to_vec()))
        }
    }
}

/// Checks the path from a key's certificate to a root, and that nothing on it is revoked.
fn verify_chain(
    key: &CertificateDer<'_>,
    known: &[CertificateDer<'_>],
    root: &CertificateDer<'_>,
    roots: &Roots,
    collateral: &Collateral,
    now: u64,
) -> std::result::Result<(), String> {
    let anchor = webpki::anchor_from_trusted_cert(root).map_err(|error| error.to_string())?;
    let mut algorithms: Vec<&dyn SignatureVerificationAlgorithm> =
        vec![&AmdPss, webpki::aws_lc_rs::RSA_PSS_2048_8192_SHA384_LEGACY_KEY];
    if roots.are_made_up() {
        algorithms.push(webpki::aws_lc_rs::ECDSA_P384_SHA384);
    }
    let lists = collateral.revocations.iter();
    let lists: Vec<CertRevocationList<'_>> = lists
        .filter_map(|list| BorrowedCertRevocationList::from_der(list).ok())
        .map(CertRevocationList::from)
        .collect();
    let lists: Vec<_> = lists.iter().collect();
    // Lists are of roots: they name intermediate certificates. Keys of chips are in none.
    let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
        options
            .with_depth(RevocationCheckDepth::Chain)
            .with_status_policy(UnknownStatusPolicy::Allow)
            .with_expiration_policy(ExpirationPolicy::Enforce)
            .build()
    });
    verify_path(key, known, &anchor, &algorithms, now, revocation)
}

fn verify_path(
    key: &CertificateDer<'_>,
    known: &[CertificateDer<'_>],
    anchor: &TrustAnchor<'_>,
    algorithms: &[&dyn SignatureVerificationAlgorithm],
    now: u64,
    revocation: Option<webpki::RevocationOptions<'_>>,
) -> std::result::Result<(), String> {
    let end = EndEntityCert::try_from(key).map_err(|error| error.to_string())?;
    end.verify_for_usage(
        algorithms,
        std::slice::from_ref(anchor),
        known,
        UnixTime::since_unix_epoch(Duration::from_secs(now)),
        KeyUsage::client_auth(),
        revocation,
        None,
    )
    .map(|_| ())
    .map_err(|error| error.to_string())
}

/// Checks that a key was derived from the security versions and the chip that its report names.
fn check_key(
    report: &Report<'_>,
    key: &CertificateDer<'_>,
    generation: Generation,
) -> std::result::Result<(), String> {
    let key = Certificate::from_der(key).map_err(|error| error.to_string())?;
    let tcb = report.reported_tcb(generation);
    let mut components = vec![
        (BOOTLOADER, tcb.bootloader),
        (TEE, tcb.tee),
        (SNP, tcb.snp),
        (MICROCODE, tcb.microcode),
    ];
    if generation == Generation::Turin {
        components.push((FMC, tcb.fmc));
    }
    for (extension, number) in components {
        if value_of(&key, extension)? != number.to_der().map_err(|error| error.to_string())? {
            return Err("its key is of other security versions than it reports".into());
        }
    }
    match report.chip_id() {
        // The key of a provider is of no chip.
        _ if matches!(report.signing_key(), Ok(SigningKey::Vlek)) => Ok(()),
        Some(chip) if !is_chip(value_of(&key, CHIP)?, &chip) => {
            Err("its key is of another chip than it reports".into())
        }
        _ => Ok(()),
    }
}

/// Whether the value of an extension is the number of a chip: bare or as an octet string, and since
/// Turin without the zeros at its end.
fn is_chip(value: &[u8], chip: &[u8; 64]) -> bool {
    let contents = [Some(value), value.strip_prefix(&[4, 64]), value.strip_prefix(&[4, 8])];
    contents.into_iter().flatten().any(|number| {
        matches!(number.len(), 8 | 64)
            && chip.strip_prefix(number).is_some_and(|rest| rest.iter().all(|byte| *byte == 0))
    })
}

/// The value of the only extension with this name.
fn value_of(
    certificate: &Certificate,
    name: ObjectIdentifier,
) -> std::result::Result<&[u8], String> {
    let extensions = certificate.tbs_certificate().extensions().map_or(&[][..], Vec::as_slice);
    let mut named = extensions.iter().filter(|extension| extension.extn_id == name);
    match (named.next(), named.next()) {
        (Some(only), None) => Ok(only.extn_value.as_bytes()),
        _ => Err(format!("its key's certificate has not one extension {name}")),
    }
}

/// When the oldest revocation list of a root was issued, in seconds since 1970.
fn oldest_revocation_list(collateral: &Collateral, root: &CertificateDer<'_>) -> Option<u64> {
    let root = Certificate::from_der(root).ok()?;
    let lists = collateral.revocations.iter();
    lists
        .filter_map(|list| CertificateList::<Rfc5280>::from_der(list).ok())
        .filter(|list| list.tbs_cert_list.issuer == *root.tbs_certificate().subject())
        .map(|list| list.tbs_cert_list.this_update.to_unix_duration().as_secs())
        .min()
}

/// RSA-PSS as certificates of VCEKs name it: with a field that has its default value, which DER
/// leaves out, so that no library knows this name. Certificates of VLEKs have the usual name.
#[derive(Debug)]
struct AmdPss;

/// The contents of AMD's `AlgorithmIdentifier`: RSASSA-PSS and MGF1 with SHA-384, a
/// salt of 48 bytes, and the trailer 1.
const AMD_PSS: &[u8] = &[
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a, 0x30, 0x39, 0xa0, 0x0f, 0x30,
    0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, 0x05, 0x00, 0xa1, 0x1c,
    0x30, 0x1a, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x08, 0x30, 0x0d, 0x06,
    0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, 0x05, 0x00, 0xa2, 0x03, 0x02, 0x01,
    0x30, 0xa3, 0x03, 0x02, 0x01, 0x01,
];

impl SignatureVerificationAlgorithm for AmdPss {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> std::result::Result<(), InvalidSignature> {
        UnparsedPublicKey::new(&RSA_PSS_2048_8192_SHA384, public_key)
            .verify(message, signature)
            .map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_ENCRYPTION
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        AlgorithmIdentifier::from_slice(AMD_PSS)
    }
}
