//! `traceless gateway`: the Redis protocol in front of an oblivious store.

use crate::args::{GatewayArgs, GatewayDurability};
use crate::bench::choice;
use crate::failure::{BUSY, DEVICE, FINDING, Failure};
use crate::output::{complain, say};
use crate::signals;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use traceless_cloud::Error;
use traceless_cloud::gateway::Gateway;
use traceless_cloud::local::Local;
use traceless_cloud::params::Params;
use traceless_cloud::resp;
use traceless_cloud::store::Durability;

pub fn run(args: &GatewayArgs) -> Result<(), Failure> {
    if !args.allow_simulated_tee {
        let what = "the enclave is simulated and protects nothing; --allow-simulated-tee goes on";
        return Err(Failure::usage(what));
    }
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
    let local = Local::new(&args.local, args.key_file.as_deref());
    complain("the enclave is simulated: it hides nothing from whoever controls this machine");
    if local.key_is_beside() {
        complain("the key lies beside the data: whoever takes the folder can read it (--key-file)");
    }
    let durability = match args.durability {
        GatewayDurability::Process => Durability::Process,
        GatewayDurability::Power => Durability::Power,
    };
    local.open(params, choice(args.kernel), durability).map_err(|e| failure(&e))
}

fn failure(error: &Error) -> Failure {
    match error {
        Error::Parameters(_) | Error::OutOfRange { .. } => Failure::usage(error),
        Error::RolledBack { .. } | Error::Tampered { .. } | Error::Forged { .. } => {
            Failure::new(FINDING, error)
        }
        Error::InUse(_) => Failure::new(BUSY, error),
        _ => Failure::new(DEVICE, error),
    }
}
