//! `traceless gateway`: the Redis protocol in front of an oblivious store.

use crate::args::{EnclavePlace, GatewayArgs, GatewayDurability, RemoteArgs};
use crate::bench::choice;
use crate::failure::{BUSY, DEVICE, FINDING, Failure};
use crate::host::enclave_program;
use crate::output::{complain, say};
use crate::signals;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use traceless_cloud::Error;
use traceless_cloud::gateway::Gateway;
use traceless_cloud::local::Local;
use traceless_cloud::params::Params;
use traceless_cloud::remote::{Identity, Remote};
use traceless_cloud::resp;
use traceless_cloud::store::Durability;
use traceless_cloud::tee::Policy;

pub fn run(args: &GatewayArgs) -> Result<(), Failure> {
    let gateway = Arc::new(Mutex::new(open(args)?));
    let listener = TcpListener::bind(&args.resp).map_err(|e| Failure::new(DEVICE, e))?;
    let address = listener.local_addr().map_err(|e| Failure::new(DEVICE, e))?;
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    signals::on_stop(move || {
        asked.store(true, Ordering::SeqCst);
        // Wakes the listener, which then sees it.
        drop(TcpStream::connect(address));
    })?;
    say(&format!("RESP at {address}"));
    resp::serve(&listener, &gateway, &stop).map_err(|e| Failure::new(DEVICE, e))?;
    let mut gateway = gateway.lock().unwrap_or_else(PoisonError::into_inner);
    gateway.save().map_err(|e| failure(&e))
}

fn open(args: &GatewayArgs) -> Result<Gateway, Failure> {
    let block_len = usize::try_from(args.block_len).map_err(Failure::usage)?;
    let params = Params::new(args.blocks, block_len, args.lambda).map_err(Failure::usage)?;
    if args.key_file.is_none() {
        complain("the key lies beside the data: whoever takes the folder can read it (--key-file)");
    }
    let (choice, durability) = (choice(args.kernel), durability(args.durability));
    let opened = match (&args.home.local, &args.home.state) {
        (None, Some(home)) => {
            let remote = remote(&args.remote, args.allow_simulated_tee)?;
            remote.open(home, args.key_file.as_deref(), params, choice, durability)
        }
        (folder, _) => {
            let folder = folder.as_ref().expect("one of both is required");
            let enclave = (args.enclave == EnclavePlace::Process).then(enclave_program);
            let policy = Policy { allow_simulated: args.allow_simulated_tee };
            let local = Local::new(folder, args.key_file.as_deref(), enclave, policy);
            local.open(params, choice, durability)
        }
    };
    let opened = opened.map_err(|e| failure(&e))?;
    complain(&format!(
        "the enclave is {}: it hides nothing from whoever controls its machine",
        opened.enclave
    ));
    Ok(opened.gateway)
}

/// The host that these arguments name.
pub fn remote(args: &RemoteArgs, allow_simulated: bool) -> Result<Remote, Failure> {
    let (Some(address), Some(certificate)) = (args.host.clone(), args.host_cert.clone()) else {
        return Err(Failure::usage("a host elsewhere needs --host and --host-cert"));
    };
    let identity = args.client_cert.clone().zip(args.client_key.clone());
    let identity = identity.map(|(certificate, key)| Identity { certificate, key });
    Ok(Remote { address, certificate, identity, policy: Policy { allow_simulated } })
}

/// What a command line calls durable.
pub fn durability(of: GatewayDurability) -> Durability {
    match of {
        GatewayDurability::Process => Durability::Process,
        GatewayDurability::Power => Durability::Power,
    }
}

/// How an error of the cloud store ends the program.
pub fn failure(error: &Error) -> Failure {
    match error {
        Error::Parameters(_) | Error::OutOfRange { .. } | Error::Evidence(_) | Error::Tls(_) => {
            Failure::usage(error)
        }
        Error::RolledBack { .. } | Error::Tampered { .. } | Error::Forged { .. } => {
            Failure::new(FINDING, error)
        }
        Error::InUse(_) | Error::Fenced { .. } => Failure::new(BUSY, error),
        _ => Failure::new(DEVICE, error),
    }
}
