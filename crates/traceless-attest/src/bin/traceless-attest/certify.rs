//! `traceless-attest certify`: makes a certificate with evidence of this machine.

use crate::files::Output;
use crate::machine::MachineArgs;
use crate::output::print_note;
use clap::Args;
use std::path::PathBuf;
use traceless_attest::{CertifiedKey, Result};

#[derive(Args)]
pub struct CertifyArgs {
    /// Names and addresses under which clients reach the server
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// A new file for the certificate (PEM); `-` is the standard output
    #[arg(long, value_name = "FILE")]
    cert: PathBuf,
    /// A new file for its private key (PEM), for its owner alone; `-` is the standard output. It
    /// belongs into memory (/run): on a disk, it outlives the machine that the evidence is about
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    #[command(flatten)]
    machine: MachineArgs,
}

pub fn run(args: &CertifyArgs) -> Result {
    let (cert, key) = (Output::new(&args.cert)?, Output::new(&args.key)?);
    let certified = CertifiedKey::new(&args.names, args.machine.source().as_ref())?;
    key.write(certified.key.as_bytes())?;
    // A key without its certificate would be in the way of the next attempt.
    cert.write(certified.certificate.as_bytes()).inspect_err(|_| key.undo())?;
    print_note(&format!("{}: a certificate for {}", args.cert.display(), args.names.join(", ")));
    Ok(())
}
