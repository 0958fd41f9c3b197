//! `traceless-attest show`: prints claims that nothing vouches for.

use crate::files::read_evidence;
use crate::output::{describe, print};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use traceless_attest::{CertificateEvidence, Result, read_unverified};

#[derive(Args)]
pub struct ShowArgs {
    /// The file of evidence, or a certificate with evidence; `-` is the standard input
    evidence: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &ShowArgs) -> Result {
    let bytes = read_evidence(&args.evidence)?;
    let claims = match CertificateEvidence::read(&bytes) {
        Some(read) => read_unverified(&read?.evidence)?,
        None => read_unverified(&bytes)?,
    };
    if args.json {
        print(&json!({"schema": "traceless.attest.claims.v1", "claims": claims}).to_string());
    } else {
        print(&format!("NOT VERIFIED: anybody can make this up.\n{}", describe(&claims)));
    }
    Ok(())
}
