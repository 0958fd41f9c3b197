//! `traceless host`: the untrusted side of an oblivious store; and the enclave that it starts.

use crate::args::HostArgs;
use crate::cloud::{durability, enclave_program, failure, refused};
use crate::failure::{DEVICE, FINDING, Failure};
use crate::log;
use crate::output::{print_error, print_line};
use crate::signals;
use crate::store::{self, folder_of};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use traceless_cloud::process;
use traceless_cloud::server::{self, HostServer, Identity, STRANGER_TIME, Settings};
use traceless_cloud::store::StorePlace;
use traceless_sys::listen;
use traceless_sys::machine_evidence::{self, Machine};

pub fn run(args: &HostArgs) -> Result<(), Failure> {
    log::start(args.log);
    // A wrong address is refused before anything is opened.
    let clients = server::clients(args.client_ca.is_some());
    listen::resolve(&args.listen, clients).map_err(refused)?;
    let durability = durability(args.durability);
    let Some(folder) = args.state.clone().or_else(|| folder_of(&args.store)) else {
        return Err(Failure::usage(
            "a host whose store is elsewhere needs a folder of its own: --state",
        ));
    };
    let store = store::read(&args.store, &args.engine, durability)?;
    let stores = vec![StorePlace::new(store, args.engine.cache)];
    let store = store::with_copies(stores, &args.engine, durability)?.remove(0);
    let machine = args.evidence.as_ref().map(machine_evidence::source);
    let kind = machine.as_ref().map(|machine| machine.machine()).transpose();
    let kind = kind.map_err(|e| Failure::new(FINDING, e))?;
    let identity = args.tls_cert.clone().zip(args.tls_key.clone());
    let settings = Settings {
        folder,
        store,
        // Another process would be another enclave of SGX.
        enclave: (kind != Some(Machine::Sgx)).then(enclave_program),
        identity: identity.map(|(certificate, key)| Identity { certificate, key }),
        clients: args.client_ca.clone(),
        machine,
        stranger_time: STRANGER_TIME,
    };
    let server = Arc::new(HostServer::new(settings).map_err(|e| failure(&e))?);
    print_error(&match kind {
        Some(kind) => format!("gateways get evidence of this machine ({kind})"),
        None => "enclaves are simulated: they hide nothing from the party that controls this \
                 machine"
            .into(),
    });
    if args.client_ca.is_none() {
        print_error("any user of this machine can take the store over (--client-ca)");
    }
    let listener = listen::bind(&args.listen, clients).map_err(refused)?;
    let address = listener.local_addr().map_err(|e| Failure::new(DEVICE, e))?;
    let stop = Arc::new(AtomicBool::new(false));
    let stop_handle = stop.clone();
    signals::on_stop(move || {
        stop_handle.store(true, Ordering::SeqCst);
        // Wakes the listener, so that it notices `stop`.
        drop(TcpStream::connect(address));
    })?;
    print_line(&format!("host at {address}, certificate {}", server.certificate().display()));
    server.serve(&listener, &stop).map_err(|e| Failure::new(DEVICE, e))
}

/// Runs as an enclave, for the host that started this process.
pub fn enclave() -> Result<(), Failure> {
    process::run().map_err(|e| failure(&e))
}
