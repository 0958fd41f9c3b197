//! `traceless-attest`: verifies evidence of enclaves and confidential virtual machines.
#![forbid(unsafe_code)]

mod appraiser;
mod certify;
mod files;
mod key;
mod machine;
mod output;
mod pin;
mod shares;
mod show;
mod verify;

use clap::{CommandFactory, Parser, Subcommand};
use output::print_note;
use std::process::ExitCode;
use traceless_attest::Error;

/// Evidence was refused, or a key broker refused.
const REFUSED: u8 = 1;
/// Wrong use, or a policy that cannot be used.
const USAGE: u8 = 2;
/// A file, a server or a key broker cannot be used.
const UNUSABLE: u8 = 4;

/// Verifies evidence of Intel SGX and TDX and of AMD SEV-SNP, offline and by a policy; and makes
/// use of it in a machine that has it
///
/// Exit codes: 0 done, or accepted; 1 refused; 2 wrong use; 4 a file or a server cannot be used.
#[derive(Parser)]
#[command(name = "traceless-attest", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Is it genuine, and accepted by a policy?
    Verify(verify::VerifyArgs),
    /// Prints what evidence claims, without verifying it: to write a policy
    Show(show::ShowArgs),
    /// Verifies the evidence in the certificate of a server, and writes the certificate for clients
    /// to trust
    Pin(pin::PinArgs),
    /// In a confidential virtual machine: makes a key, and a certificate with evidence for it
    Certify(certify::CertifyArgs),
    /// In a confidential virtual machine: gets a key from a key broker (Trustee)
    Key(key::KeyArgs),
    /// Prints the completions of this command for a shell
    Completions(shares::CompletionsArgs),
    /// Writes the manual pages of this command
    Man(shares::ManArgs),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Verify(args) => verify::run(&args),
        Command::Show(args) => show::run(&args).map(|()| true),
        Command::Pin(args) => pin::run(&args),
        Command::Certify(args) => certify::run(&args).map(|()| true),
        Command::Key(args) => key::run(&args).map(|()| true),
        Command::Completions(args) => {
            shares::completions(&args, Cli::command());
            Ok(true)
        }
        Command::Man(args) => shares::man_pages(&args, Cli::command()).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => REFUSED.into(),
        Err(error) => {
            print_note(&format!("traceless-attest: {error}"));
            code_of(&error).into()
        }
    }
}

fn code_of(error: &Error) -> u8 {
    match error {
        Error::Policy(_) | Error::Usage(_) => USAGE,
        Error::File { .. } | Error::Unreachable { .. } | Error::Machine(_) => UNUSABLE,
        Error::Malformed(_)
        | Error::NotVerified(_)
        | Error::CollateralMissing(_)
        | Error::Broker(_) => REFUSED,
    }
}
