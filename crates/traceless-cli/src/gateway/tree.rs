//! Opens a gateway to its tree.

use crate::args::{EnclavePlace, GatewayTreeArgs, StatePlace};
use crate::cloud::{choice, durability, enclave_program, failure, policy, remote};
use crate::failure::Failure;
use crate::output::{print_error, print_line};
use crate::store;
use std::path::PathBuf;
use std::sync::Arc;
use traceless_cloud::Error;
use traceless_cloud::gateway::{Gateway, LeaseOptions, StateLease};
use traceless_cloud::local_deployment::{LocalDeployment, read_secret};
use traceless_cloud::params::Params;
use traceless_cloud::remote::Remote;
use traceless_cloud::shared::Stop;
use traceless_cloud::store::{Durability, StoreFolder, StorePlace};
use traceless_core::trace::Witness;

/// Opens the gateway, with a witness of what its host observes. With `stop` it stands by for a
/// gateway that has its state: it returns `None` if `stop` is requested meanwhile, and requests
/// `stop` when another gateway takes its place.
pub fn open(
    args: &GatewayTreeArgs,
    witness: Option<Arc<dyn Witness>>,
    stop: Option<&Arc<Stop>>,
) -> Result<Option<Gateway>, Failure> {
    let block_len = usize::try_from(args.block_len).map_err(Failure::usage)?;
    let (choice, durability) = (choice(args.kernel), durability(args.durability));
    let params = Params::for_kernel(choice, args.arity, args.blocks, block_len, args.lambda);
    let params = params.map_err(Failure::usage)?;
    let is_elsewhere = !args.remote.host.is_empty();
    if is_elsewhere && !args.engine.copy.is_empty() {
        return Err(Failure::usage("the host has the tree: give --copy to `traceless host`"));
    }
    let lease = match &args.home.state {
        Some(StatePlace::Engine(url)) => match take_lease(url, args, stop)? {
            Some(lease) => Some(lease),
            None => return Ok(None),
        },
        Some(StatePlace::Folder(_)) if !is_elsewhere => {
            return Err(Failure::usage("with its state in a folder, give a gateway its --host"));
        }
        _ => None,
    };
    if args.key_file.is_none() {
        print_error("the key lies beside the data: a thief of the folder can read it (--key-file)");
    }
    let opened = if is_elsewhere {
        let remote = remote(&args.remote, policy(&args.attestation, args.allow_simulated_tee))?;
        let remote = Remote { anchor: args.anchor.clone(), witness, ..remote };
        match lease {
            Some(lease) => remote.open_leased(&lease, params, choice),
            None => remote.open(&home(args)?, args.key_file.as_deref(), params, choice, durability),
        }
    } else {
        let local = local(args, durability)?.watched_by(witness);
        match lease {
            Some(lease) => local.open_leased(&lease, params, choice),
            None => local.open(params, choice, durability),
        }
    };
    let opened = opened.map_err(|e| failure(&e))?;
    let hides_nothing = if args.allow_simulated_tee {
        ": it hides nothing from the party that controls its machine"
    } else {
        ""
    };
    print_error(&format!("the enclave is {}{hides_nothing}", opened.enclave));
    let mut gateway = opened.gateway;
    let kept = gateway.tree_counts().len().saturating_sub(args.drain);
    gateway.keep_trees_at(kept).map_err(|e| failure(&e))?;
    if args.accept_damage {
        gateway.accept_loss();
    }
    Ok(Some(gateway))
}

/// Opens a gateway that does not run: it does not stand by for one that does, and takes the state
/// of one that was killed once its lease has run out.
pub fn open_alone(args: &GatewayTreeArgs) -> Result<Gateway, Failure> {
    open(args, None, None)?.ok_or_else(|| failure(&Error::InUse("the gateway's state")))
}

/// Takes the lease of the state in the engine of a URL; `None` if `stop` is requested first.
fn take_lease(
    url: &str,
    args: &GatewayTreeArgs,
    stop: Option<&Arc<Stop>>,
) -> Result<Option<Arc<StateLease>>, Failure> {
    let Some(key_file) = &args.key_file else {
        return Err(Failure::usage(
            "with its state in a storage engine, a gateway needs --key-file",
        ));
    };
    if args.remote.host.is_empty() && args.store.is_empty() {
        return Err(Failure::usage("where is the tree? give --host or --store"));
    }
    if args.anchor.is_some() {
        let message = "an anchor is for a state in a folder, which one gateway opens";
        return Err(Failure::usage(message));
    }
    if args.store.iter().chain(&args.engine.copy).any(|store| store == url) {
        let message = "the state needs a store of its own: give it another ?store=NAME, or prefix";
        return Err(Failure::usage(message));
    }
    let log = store::state_log(url, &args.lease)?;
    let master = read_secret(key_file).map_err(|e| failure(&e))?;
    let options = LeaseOptions {
        master: &master,
        period: args.lease.period(),
        anchor: None,
        stands_by: stop.is_some(),
        is_stopped: &|| stop.is_some_and(|stop| stop.is_requested()),
        on_wait: &|| match stop {
            Some(_) => print_line("standing by: another gateway has the state"),
            None => print_error(
                "a gateway that did not end in order has the state: waiting until \
                                 its lease has run out",
            ),
        },
    };
    let taken = StateLease::take(log, &options).map_err(|e| failure(&e))?;
    if let (Some(lease), Some(stop)) = (&taken, stop) {
        let stop = stop.clone();
        lease.on_loss(move || {
            tracing::error!("the gateway's state is lost to another gateway, or cannot be written");
            stop.request();
        });
    }
    Ok(taken)
}

/// The tree in this process, or in stores.
fn local(args: &GatewayTreeArgs, durability: Durability) -> Result<LocalDeployment, Failure> {
    let mut stores = Vec::new();
    for url in &args.store {
        let opener = store::read(url, &args.engine, durability)?;
        stores.push(StorePlace::new(opener, args.engine.cache));
    }
    // A state in an engine has no folder.
    let folder = args.home.local.clone().unwrap_or_default();
    if stores.is_empty() && !args.engine.copy.is_empty() {
        let folder = LocalDeployment::store_folder(&folder);
        stores.push(StorePlace::new(Box::new(StoreFolder { folder, durability }), 0));
    }
    let stores = store::with_copies(stores, &args.engine, durability)?;
    let enclave = (args.enclave == EnclavePlace::Process).then(enclave_program);
    let policy = policy(&args.attestation, args.allow_simulated_tee);
    let local = LocalDeployment::new(&folder, args.key_file.as_deref(), enclave, policy);
    Ok(local.stored_in(stores).anchored_by(args.anchor.clone()))
}

/// The folder of the gateway's own files.
pub fn home(args: &GatewayTreeArgs) -> Result<PathBuf, Failure> {
    match (&args.home.local, &args.home.state) {
        (Some(folder), _) => Ok(LocalDeployment::home(folder)),
        (None, Some(StatePlace::Folder(folder))) => Ok(folder.clone()),
        _ => Err(Failure::usage("a gateway without a folder needs --s3-keys")),
    }
}
