//! Options and exit codes that the commands of the cloud store share.

use crate::args::{AttestationArgs, CloudKernel, GatewayDurability, RemoteArgs};
use crate::failure::{BUSY, DEVICE, FINDING, Failure, of_listening};
use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use traceless_cloud::Error;
use traceless_cloud::kernel::Choice;
use traceless_cloud::process::Program;
use traceless_cloud::remote::{HostAddress, Identity, Remote};
use traceless_cloud::store::Durability;
use traceless_cloud::tee::{Policy, VerifierProgram};
use traceless_sys::listen::ListenError;

/// The verifier of evidence.
const VERIFIER: &str = "traceless-attest";

/// The kernel of this name.
pub fn choice(kernel: CloudKernel) -> Choice {
    match kernel {
        CloudKernel::Benes => Choice::Benes,
        CloudKernel::Paper => Choice::Paper,
    }
}

/// The durability that the command line names.
pub fn durability(of: GatewayDurability) -> Durability {
    match of {
        GatewayDurability::Process => Durability::Process,
        GatewayDurability::Power => Durability::Power,
    }
}

/// The hosts that these arguments name.
pub fn remote(args: &RemoteArgs, policy: Policy) -> Result<Remote, Failure> {
    let certificates = match &args.host_cert[..] {
        [all] => vec![all.clone(); args.host.len()],
        each => each.to_vec(),
    };
    if args.host.is_empty() || certificates.len() != args.host.len() {
        return Err(Failure::usage("give --host-cert once, or once for each --host"));
    }
    let address = |(address, certificate): (&String, PathBuf)| HostAddress {
        address: address.clone(),
        certificate,
    };
    let hosts = args.host.iter().zip(certificates).map(address).collect();
    let identity = args.client_cert.clone().zip(args.client_key.clone());
    let identity = identity.map(|(certificate, key)| Identity { certificate, key });
    Ok(Remote { hosts, identity, policy, anchor: None, witness: None })
}

/// Which evidence these arguments accept.
pub fn policy(args: &AttestationArgs, allow_simulated: bool) -> Policy {
    let Some(policy) = args.attestation_policy.clone() else {
        return if allow_simulated { Policy::Simulated } else { Policy::Unset };
    };
    let path = attest_program(args);
    let (collateral, made_up_root) = (args.collateral.clone(), args.made_up_root.clone());
    Policy::Hardware(Arc::new(VerifierProgram { path, policy, collateral, made_up_root }))
}

/// The program that verifies evidence, and makes certificates with it.
pub fn attest_program(args: &AttestationArgs) -> PathBuf {
    let beside = env::current_exe().ok().map(|program| program.with_file_name(VERIFIER));
    let beside = beside.filter(|program| program.exists());
    args.verifier.clone().or(beside).unwrap_or_else(|| VERIFIER.into())
}

/// The program of the enclave: this program itself.
pub fn enclave_program() -> Program {
    // This path stays valid if the file was replaced or removed since the program was started.
    let path = "/proc/self/exe".into();
    Program { path, arguments: vec!["enclave".into()], environment: Vec::new() }
}

/// The exit code and message for an error of the cloud store.
pub fn failure(error: &Error) -> Failure {
    match error {
        Error::Parameters(_) | Error::OutOfRange { .. } | Error::Evidence(_) | Error::Tls(_) => {
            Failure::usage(error)
        }
        Error::EvidenceRefused(_)
        | Error::RolledBack { .. }
        | Error::Tampered { .. }
        | Error::Forged { .. }
        | Error::Damaged { .. }
        | Error::Anchor { .. } => Failure::new(FINDING, error),
        Error::InUse(_) | Error::Fenced { .. } => Failure::new(BUSY, error),
        _ => Failure::new(DEVICE, error),
    }
}

/// The exit code and message for an address that cannot be listened on.
pub fn refused(error: ListenError) -> Failure {
    match error {
        ListenError::Exposed { .. } => Failure::usage(error),
        ListenError::Io { ref source, .. } => Failure::new(of_listening(source, DEVICE), error),
    }
}
