//! `traceless-attest`: verifies evidence of enclaves and confidential virtual machines.
#![forbid(unsafe_code)]

use clap::{Args, Parser, Subcommand};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};
use traceless_attest::{
    Claims, Collateral, EVIDENCE_LEN_MAX, EarKey, Error, HexBytes, Policy, Result, Roots,
    Submodule, attestation_result, read_unverified, verify,
};

/// Evidence was refused.
const REFUSED: u8 = 1;
/// Wrong use, or a policy that cannot be used.
const USAGE: u8 = 2;
/// A file cannot be used.
const FILE: u8 = 4;

/// Verifies evidence of Intel SGX and TDX and of AMD SEV-SNP, offline and by a policy
#[derive(Parser)]
#[command(name = "traceless-attest", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Is it genuine, and accepted by a policy? Exit code 0: yes; 1: no; 2: wrong use; 4: a file
    /// cannot be used
    Verify(VerifyArgs),
    /// Prints what evidence claims, without verifying it: to write a policy
    Show(ShowArgs),
}

#[derive(Args)]
struct VerifyArgs {
    /// Files of evidence, of which each must be accepted; `-` is the standard input. Quotes of SGX
    /// and TDX, or reports of SEV-SNP, which a certificate table may follow
    #[arg(required = true, value_name = "EVIDENCE")]
    evidence: Vec<PathBuf>,
    /// The policy (docs/deploy.md)
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// What makers sign: files, or folders of them. JSON as clients of a PCCS write it for Intel;
    /// certificates and revocation lists (PEM or DER) for AMD
    #[arg(long, value_name = "PATH")]
    collateral: Vec<PathBuf>,
    /// The 64 bytes that the evidence must be bound to [default: not compared]
    #[arg(long, value_name = "HEX")]
    report_data: Option<HexBytes>,
    /// Verify as of this time, in seconds since 1970 [default: now]
    #[arg(long, value_name = "SECONDS")]
    at: Option<u64>,
    /// Trust these certificates (PEM) in place of the makers': for simulators, which prove nothing
    #[arg(long, value_name = "FILE")]
    made_up_root: Option<PathBuf>,
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

#[derive(Args)]
struct ShowArgs {
    /// The file of evidence; `-` is the standard input
    evidence: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A piece of evidence, verified and appraised.
struct Appraisal {
    file: PathBuf,
    claims: Option<Claims>,
    refusal: Option<String>,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Verify(args) => verify_all(&args),
        Command::Show(args) => show(&args).map(|()| 0),
    };
    match done {
        Ok(code) => code.into(),
        Err(error) => {
            eprintln!("traceless-attest: {error}");
            ExitCode::from(code_of(&error))
        }
    }
}

fn code_of(error: &Error) -> u8 {
    match error {
        Error::Policy(_) => USAGE,
        Error::File { .. } => FILE,
        _ => REFUSED,
    }
}

fn verify_all(args: &VerifyArgs) -> Result<u8> {
    let policy = Policy::parse(&read_text(&args.policy)?)?;
    let mut collateral = Collateral::default();
    args.collateral.iter().try_for_each(|path| collateral.add(path))?;
    let roots = match &args.made_up_root {
        Some(file) => Roots::made_up(certificates(file)?),
        None => Roots::default(),
    };
    let report_data = args.report_data.as_ref().map(|bytes| {
        let bytes = bytes.0.as_slice().try_into();
        bytes.map_err(|_| Error::Policy("--report-data has 64 bytes, 128 digits".into()))
    });
    let report_data: Option<&[u8; 64]> = report_data.transpose()?;
    let ear_key = args.ear_key.as_deref().map(EarKey::read).transpose()?;
    let now = args.at.unwrap_or_else(seconds_since_1970);

    let mut all = Vec::new();
    for file in &args.evidence {
        let evidence = read_evidence(file)?;
        let (claims, refusal) = match verify(&evidence, &collateral, &roots, now) {
            Ok(claims) => {
                let refusal = policy.appraise_one(&claims, report_data, now).err();
                (Some(claims), refusal.map(|refusal| refusal.to_string()))
            }
            Err(error) => (None, Some(error.to_string())),
        };
        all.push(Appraisal { file: file.clone(), claims, refusal });
    }
    let refusal = all.iter().find_map(|each| each.refusal.clone()).or_else(|| {
        let claims: Vec<_> = all.iter().filter_map(|each| each.claims.as_ref()).collect();
        policy.check_makers(&claims).err().map(|refusal| refusal.to_string())
    });
    if let (Some(file), Some(key)) = (&args.ear, &ear_key) {
        write_result(file, &all, refusal.as_deref(), args.nonce.as_deref(), now, key)?;
    }
    print_all(args.json, &all, refusal.as_deref(), roots.are_made_up());
    Ok(if refusal.is_some() { REFUSED } else { 0 })
}

fn show(args: &ShowArgs) -> Result {
    let claims = read_unverified(&read_evidence(&args.evidence)?)?;
    if args.json {
        print(&json!({"schema": "traceless.attest.claims.v1", "claims": claims}).to_string());
    } else {
        print(&format!("NOT VERIFIED: anybody can make this up.\n{}", describe(&claims)));
    }
    Ok(())
}

/// Writes a result, in which all pieces are refused if one is.
fn write_result(
    file: &Path,
    all: &[Appraisal],
    refusal: Option<&str>,
    nonce: Option<&str>,
    now: u64,
    key: &EarKey,
) -> Result {
    let submodules: Vec<_> = all
        .iter()
        .map(|each| Submodule {
            claims: each.claims.as_ref(),
            refusal: each.refusal.as_deref().or(refusal),
        })
        .collect();
    let token = attestation_result(&submodules, nonce, now, key)?;
    fs::write(file, token).map_err(|error| Error::file(file, error))
}

fn print_all(as_json: bool, all: &[Appraisal], refusal: Option<&str>, made_up: bool) {
    if as_json {
        let evidence: Vec<Value> = all
            .iter()
            .map(|each| json!({"file": each.file, "claims": each.claims, "refusal": each.refusal}))
            .collect();
        let verdict = if refusal.is_some() { "refused" } else { "accepted" };
        let report = json!({
            "schema": "traceless.attest.v1", "verdict": verdict, "refusal": refusal,
            "made_up_root": made_up, "evidence": evidence,
        });
        return print(&report.to_string());
    }
    if made_up {
        print("MADE-UP ROOT: this proves nothing about a processor.");
    }
    for each in all {
        let name = each.file.display();
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

/// The claims as lines of text, named as in a policy.
fn describe(claims: &Claims) -> String {
    let claims = serde_json::to_value(claims).expect("claims are plain values");
    let Value::Object(claims) = claims else { unreachable!("claims have fields") };
    let lines: Vec<String> = claims
        .iter()
        .filter(|(_, value)| !value.is_null() && *value != &json!([]))
        .map(|(name, value)| format!("  {} = {value}", name.replace('_', "-")))
        .collect();
    lines.join("\n")
}

/// Prints a line. A reader that went away is no failure.
fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn read_evidence(file: &Path) -> Result<Vec<u8>> {
    let mut evidence = Vec::new();
    // One byte more shows that there is too much.
    let most = EVIDENCE_LEN_MAX as u64 + 1;
    let read = if file == Path::new("-") {
        std::io::stdin().take(most).read_to_end(&mut evidence)
    } else {
        fs::File::open(file).and_then(|file| file.take(most).read_to_end(&mut evidence))
    };
    read.map_err(|error| Error::file(file, error))?;
    Ok(evidence)
}

fn read_text(file: &Path) -> Result<String> {
    fs::read_to_string(file).map_err(|error| Error::file(file, error))
}

fn certificates(file: &Path) -> Result<Vec<Vec<u8>>> {
    let read = CertificateDer::pem_file_iter(file).map_err(|error| Error::file(file, error))?;
    let read = read.map(|each| each.map(|certificate| certificate.to_vec()));
    let certificates: std::result::Result<Vec<_>, _> = read.collect();
    match certificates {
        Ok(none) if none.is_empty() => {
            Err(Error::file(file, "there is no certificate in PEM in it"))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(Error::file(file, error)),
    }
}

#[expect(clippy::disallowed_methods, reason = "certificates are valid until a date")]
fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
