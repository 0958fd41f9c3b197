//! Quotes of SGX and TDX (Intel DCAP), verified by the crate `dcap-qvl` with the cryptography of
//! the other crates here.

use crate::claims::{Claims, Tcb, Tee};
use crate::collateral::Collateral;
use crate::error::{Error, Result};
use crate::hex_bytes::HexBytes;
use crate::roots::Roots;
use dcap_qvl::config::{Config, CryptoProvider};
use dcap_qvl::quote::{EnclaveReport, Quote, Report, TDReport10};
use dcap_qvl::signature::DerSigEncoder;
use dcap_qvl::verify::QuoteVerifier;
use dcap_qvl::x509::X509CertBackend;
use dcap_qvl::{QuoteClaims, QuoteCollateralV3, QuotePolicy};
use der::DateTime;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm};
use sha2::{Digest, Sha256, Sha384};
use std::str::FromStr;

/// Attribute bits of an enclave and of a trust domain.
const SGX_DEBUG: u8 = 1 << 1;
const TDX_MIGRATABLE: u64 = 1 << 29;

/// The claims of a genuine quote. A quote of a program under debugging is genuine, too.
pub fn verify(quote: &[u8], collateral: &Collateral, roots: &Roots, now: u64) -> Result<Claims> {
    let parsed = parse(quote)?;
    let kind = if parsed.header.is_sgx() { "SGX" } else { "TDX" };
    let model = dcap_qvl::intel::quote_fmspc_with::<AwsLcConfig>(&parsed);
    let model = HexBytes(model.map_err(|error| Error::Malformed(format!("{error:#}")))?.to_vec());
    let fits = |each: &&QuoteCollateralV3| {
        let about: Option<TcbInfo> = serde_json::from_str(&each.tcb_info).ok();
        about.is_some_and(|about| about.id == kind && about.fmspc.parse() == Ok(model.clone()))
    };
    let mut error = Error::CollateralMissing(format!(
        "there is none of Intel for {kind} on processors with the FMSPC {model}. A PCCS has it \
         (tcb?fmspc={model}); a client of it writes a file for --collateral"
    ));
    for each in collateral.intel.iter().filter(fits) {
        match verify_with(quote, each, roots, now) {
            Ok(claims) => return Ok(claims),
            Err(another) => error = another,
        }
    }
    Err(error)
}

/// The claims of a quote. Its signature is not checked.
pub fn read_unverified(quote: &[u8]) -> Result<Claims> {
    let unknown = Tcb::Intel { status: "not verified".into(), advisories: Vec::new() };
    Ok(claims_of(&parse(quote)?.report, unknown))
}

fn parse(quote: &[u8]) -> Result<Quote> {
    Quote::parse(quote).map_err(|error| Error::Malformed(format!("{error:#}")))
}

fn verify_with(quote: &[u8], with: &QuoteCollateralV3, roots: &Roots, now: u64) -> Result<Claims> {
    let chain = CertificateDer::pem_slice_iter(with.tcb_info_issuer_chain.as_bytes());
    let root = chain.filter_map(std::result::Result::ok).find(|each| roots.is_intel(each));
    let root = root.ok_or_else(|| {
        Error::NotVerified("the collateral's certificates do not end at Intel's root".into())
    })?;
    // A policy of our own judges debugging and security versions.
    let verified = QuoteVerifier::<AwsLcConfig>::new_with_config(root.to_vec())
        .allow_debug(true)
        .verify_with_policy(quote, with, now, &QuotePolicy::claims_only(now));
    let verified = verified.map_err(|error| Error::NotVerified(format!("{error:#}")))?;
    claims(&verified, with)
}

fn claims(verified: &QuoteClaims, with: &QuoteCollateralV3) -> Result<Claims> {
    let tcb = Tcb::Intel {
        status: verified.tcb.status.to_string(),
        advisories: verified.tcb.advisory_ids.clone(),
    };
    let issued = [&with.tcb_info, &with.qe_identity].map(|statement| issue_time(statement));
    let [Some(tcb_info), Some(qe_identity)] = issued else {
        return Err(Error::NotVerified("the collateral does not say when it was issued".into()));
    };
    Ok(Claims {
        platform: Some(HexBytes(verified.platform.pck.ppid.clone())),
        collateral_issued: Some(tcb_info.min(qe_identity)),
        ..claims_of(&verified.report, tcb)
    })
}

/// When Intel issued a statement, in seconds since 1970.
fn issue_time(statement: &str) -> Option<u64> {
    let issued: Issued = serde_json::from_str(statement).ok()?;
    Some(DateTime::from_str(&issued.issue_date).ok()?.unix_duration().as_secs())
}

fn claims_of(report: &Report, tcb: Tcb) -> Claims {
    match report {
        Report::SgxEnclave(report) => claims_of_enclave(report, tcb),
        Report::TD10(report) => claims_of_domain(report, tcb),
        Report::TD15(report) => claims_of_domain(&report.base, tcb),
        Report::TD15Ex(report) => claims_of_domain(&report.base.base, tcb),
    }
}

fn claims_of_enclave(report: &EnclaveReport, tcb: Tcb) -> Claims {
    Claims {
        tee: Tee::Sgx,
        report_data: HexBytes(report.report_data.to_vec()),
        measurement: HexBytes(report.mr_enclave.to_vec()),
        signer: Some(HexBytes(report.mr_signer.to_vec())),
        registers: Vec::new(),
        host_data: None,
        product: Some(report.isv_prod_id),
        svn: report.isv_svn.into(),
        debug: report.attributes[0] & SGX_DEBUG != 0,
        migratable: false,
        privilege_level: 0,
        tcb,
        platform: None,
        collateral_issued: None,
    }
}

fn claims_of_domain(report: &TDReport10, tcb: Tcb) -> Claims {
    let registers = [report.rt_mr0, report.rt_mr1, report.rt_mr2, report.rt_mr3];
    let owner = HexBytes(report.mr_owner.to_vec());
    Claims {
        tee: Tee::Tdx,
        report_data: HexBytes(report.report_data.to_vec()),
        measurement: HexBytes(report.mr_td.to_vec()),
        signer: Some(owner).filter(|owner| !owner.is_zero()),
        registers: registers.map(|register| HexBytes(register.to_vec())).to_vec(),
        host_data: Some(HexBytes(report.mr_config_id.to_vec())),
        product: None,
        svn: 0,
        // Any bit of the first byte ("TD under debug") lets the host look into the domain:
        // debugging, and profiling with its counters.
        debug: report.td_attributes[0] != 0,
        migratable: u64::from_le_bytes(report.td_attributes) & TDX_MIGRATABLE != 0,
        privilege_level: 0,
        tcb,
        platform: None,
        collateral_issued: None,
    }
}

/// What Intel's statement about a model's security versions is about.
#[derive(serde::Deserialize)]
struct TcbInfo {
    id: String,
    fmspc: String,
}

/// When a statement of Intel was issued.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Issued {
    issue_date: String,
}

/// The verifier's own parsers, with aws-lc for signatures.
struct AwsLcConfig;

impl Config for AwsLcConfig {
    type X509 = X509CertBackend;
    type SigEncoder = DerSigEncoder;
    type Crypto = AwsLcCrypto;
}

struct AwsLcCrypto;

impl CryptoProvider for AwsLcCrypto {
    fn sig_algo() -> &'static dyn SignatureVerificationAlgorithm {
        webpki::aws_lc_rs::ECDSA_P256_SHA256
    }

    fn sha256(data: &[u8]) -> [u8; 32] {
        Sha256::digest(data).into()
    }

    fn sha384(data: &[u8]) -> [u8; 48] {
        Sha384::digest(data).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debugging_and_profiling_let_the_host_look_inside() {
        let mut report = TDReport10 {
            tee_tcb_svn: [0; 16],
            mr_seam: [0; 48],
            mr_signer_seam: [0; 48],
            seam_attributes: [0; 8],
            td_attributes: [0; 8],
            xfam: [0; 8],
            mr_td: [0; 48],
            mr_config_id: [0; 48],
            mr_owner: [0; 48],
            mr_owner_config: [0; 48],
            rt_mr0: [0; 48],
            rt_mr1: [0; 48],
            rt_mr2: [0; 48],
            rt_mr3: [0; 48],
            report_data: [0; 64],
        };
        let unknown = || Tcb::Intel { status: String::new(), advisories: Vec::new() };
        for bit in 0..64 {
            report.td_attributes = (1_u64 << bit).to_le_bytes();
            let claims = claims_of_domain(&report, unknown());
            assert_eq!((claims.debug, claims.migratable), (bit < 8, bit == 29), "{bit}");
        }
    }
}
