//! `traceless-attest pin`: verifies the certificate of a server, for clients to trust.

use crate::appraiser::{Appraiser, AppraiserArgs};
use crate::files::replace_public;
use crate::output::{print, print_note};
use clap::Args;
use pem::{EncodeConfig, LineEnding, Pem};
use std::path::PathBuf;
use traceless_attest::{Result, server_certificate};

#[derive(Args)]
pub struct PinArgs {
    /// The server, which speaks TLS
    #[arg(value_name = "HOST:PORT")]
    server: String,
    #[command(flatten)]
    appraiser: AppraiserArgs,
    /// The file for the certificate (PEM). It is written, or replaced, only if the evidence is
    /// accepted
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Whether the evidence is accepted.
pub fn run(args: &PinArgs) -> Result<bool> {
    let appraiser = Appraiser::read(&args.appraiser)?;
    let certificate = server_certificate(&args.server)?;
    let appraisal = appraiser.appraise(&certificate, None);
    let refusal = appraisal.refusal.or_else(|| {
        let claims = appraisal.claims.as_ref()?;
        appraiser.policy.check_makers(&[claims]).err().map(|refusal| refusal.to_string())
    });
    if let Some(refusal) = refusal {
        print_note(&format!("{}: REFUSED: {refusal}", args.server));
        return Ok(false);
    }
    let lines = EncodeConfig::new().set_line_ending(LineEnding::LF);
    let text = pem::encode_config(&Pem::new("CERTIFICATE", certificate), lines);
    replace_public(&args.out, text.as_bytes())?;
    if appraiser.roots.are_made_up() {
        print("MADE-UP ROOT: this proves nothing about a processor.");
    }
    print(&format!("{}: ACCEPTED, {}", args.server, args.out.display()));
    Ok(true)
}
