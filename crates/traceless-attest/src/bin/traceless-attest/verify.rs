//! `traceless-attest verify`: judges files of evidence.

use crate::appraiser::{Appraisal, Appraiser, AppraiserArgs, seconds_since_1970};
use crate::files::{read_evidence, replace_public};
use crate::output::{describe, print};
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use traceless_attest::{EarKey, Error, HexBytes, Result, Submodule, attestation_result};

#[derive(Args)]
pub struct VerifyArgs {
    /// Files of evidence, of which each must be accepted; `-` is the standard input. Quotes of SGX
    /// and TDX; reports of SEV-SNP, which a certificate table may follow; certificates with one of
    /// these for their key
    #[arg(required = true, value_name = "EVIDENCE")]
    evidence: Vec<PathBuf>,
    #[command(flatten)]
    appraiser: AppraiserArgs,
    /// The 64 bytes that the evidence must be bound to [default: not compared, but a certificate's
    /// is bound to its key]
    #[arg(long, value_name = "HEX")]
    report_data: Option<HexBytes>,
    /// Write the result as a signed EAT Attestation Result (a JSON web token)
    #[arg(long, value_name = "FILE", requires = "ear_key")]
    ear: Option<PathBuf>,
    /// The key that signs it: ECDSA with P-256, PKCS #8 in PEM
    #[arg(long, value_name = "FILE", requires = "ear")]
    ear_key: Option<PathBuf>,
    /// The nonce of the result's consumer, to be named in it
    #[arg(long, value_name = "TEXT", requires = "ear")]
    nonce: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Whether all evidence is accepted.
pub fn run(args: &VerifyArgs) -> Result<bool> {
    let appraiser = Appraiser::read(&args.appraiser)?;
    let report_data = args.report_data.as_ref().map(|bytes| {
        let bytes = bytes.0.as_slice().try_into();
        bytes.map_err(|_| Error::Usage("--report-data has 64 bytes, 128 digits".into()))
    });
    let report_data: Option<&[u8; 64]> = report_data.transpose()?;
    let ear_key = args.ear_key.as_deref().map(EarKey::read).transpose()?;

    let mut all = Vec::new();
    for file in &args.evidence {
        all.push((file.as_path(), appraiser.appraise(&read_evidence(file)?, report_data)));
    }
    let refusal = all.iter().find_map(|(_, each)| each.refusal.clone()).or_else(|| {
        let claims: Vec<_> = all.iter().filter_map(|(_, each)| each.claims.as_ref()).collect();
        appraiser.policy.check_makers(&claims).err().map(|refusal| refusal.to_string())
    });
    let made_up = appraiser.roots.are_made_up();
    if let (Some(file), Some(key)) = (&args.ear, &ear_key) {
        let token = token(&all, refusal.as_deref(), args.nonce.as_deref(), made_up, key)?;
        replace_public(file, token.as_bytes())?;
    }
    if args.json {
        print(&report(&all, refusal.as_deref(), made_up).to_string());
    } else {
        print_all(&all, refusal.as_deref(), made_up);
    }
    Ok(refusal.is_none())
}

/// A signed result, in which all pieces are refused if one is.
fn token(
    all: &[(&Path, Appraisal)],
    refusal: Option<&str>,
    nonce: Option<&str>,
    made_up: bool,
    key: &EarKey,
) -> Result<String> {
    let submodules: Vec<_> = all
        .iter()
        .map(|(_, each)| Submodule {
            claims: each.claims.as_ref(),
            refusal: each.refusal.as_deref().or(refusal),
            made_up,
        })
        .collect();
    attestation_result(&submodules, nonce, seconds_since_1970(), key)
}

fn report(all: &[(&Path, Appraisal)], refusal: Option<&str>, made_up: bool) -> Value {
    let evidence: Vec<Value> = all
        .iter()
        .map(|(file, each)| json!({"file": file, "claims": each.claims, "refusal": each.refusal}))
        .collect();
    let verdict = if refusal.is_some() { "refused" } else { "accepted" };
    json!({
        "schema": "traceless.attest.v1", "verdict": verdict, "refusal": refusal,
        "made_up_root": made_up, "evidence": evidence,
    })
}

fn print_all(all: &[(&Path, Appraisal)], refusal: Option<&str>, made_up: bool) {
    if made_up {
        print("MADE-UP ROOT: this proves nothing about a processor.");
    }
    for (file, each) in all {
        let name = file.display();
        match &each.refusal {
            Some(refusal) => print(&format!("{name}: refused: {refusal}")),
            None => print(&format!("{name}: accepted")),
        }
        if let Some(claims) = &each.claims {
            print(&describe(claims));
        }
    }
    match refusal {
        Some(refusal) => print(&format!("REFUSED: {refusal}")),
        None => print("ACCEPTED"),
    }
}
