//! Opens a gateway to its tree.

use crate::args::{EnclavePlace, GatewayTreeArgs};
use crate::cloud::{choice, durability, enclave_program, failure, remote};
use crate::failure::Failure;
use crate::output::print_error;
use crate::store;
use std::path::PathBuf;
use std::sync::Arc;
use traceless_cloud::gateway::Gateway;
use traceless_cloud::local_deployment::LocalDeployment;
use traceless_cloud::params::Params;
use traceless_cloud::remote::Remote;
use traceless_cloud::store::{StoreFolder, StorePlace};
use traceless_cloud::tee::Policy;
use traceless_core::trace::Witness;

/// Opens the gateway, with a witness of what its host observes.
pub fn open(args: &GatewayTreeArgs, witness: Option<Arc<dyn Witness>>) -> Result<Gateway, Failure> {
    let block_len = usize::try_from(args.block_len).map_err(Failure::usage)?;
    let (choice, durability) = (choice(args.kernel), durability(args.durability));
    let params = Params::for_kernel(choice, args.arity, args.blocks, block_len, args.lambda);
    let params = params.map_err(Failure::usage)?;
    if args.key_file.is_none() {
        print_error("the key lies beside the data: a thief of the folder can read it (--key-file)");
    }
    let (key_file, anchor) = (args.key_file.as_deref(), args.anchor.clone());
    let opened = match (&args.home.local, &args.home.state) {
        (None, Some(_)) if !args.engine.copy.is_empty() => {
            return Err(Failure::usage("the host has the tree: give --copy to `traceless host`"));
        }
        (None, Some(home)) => {
            let remote = remote(&args.remote, args.allow_simulated_tee)?;
            let remote = Remote { anchor, witness, ..remote };
            remote.open(home, key_file, params, choice, durability)
        }
        (folder, _) => {
            let folder = folder.as_ref().expect("one of both is required");
            let enclave = (args.enclave == EnclavePlace::Process).then(enclave_program);
            let policy = Policy { allow_simulated: args.allow_simulated_tee };
            let mut stores = Vec::new();
            for url in &args.store {
                let opener = store::read(url, &args.engine, durability)?;
                stores.push(StorePlace::new(opener, args.engine.cache));
            }
            if stores.is_empty() && !args.engine.copy.is_empty() {
                let folder = LocalDeployment::store_folder(folder);
                stores.push(StorePlace::new(Box::new(StoreFolder { folder, durability }), 0));
            }
            let stores = store::with_copies(stores, &args.engine, durability)?;
            let local = LocalDeployment::new(folder, key_file, enclave, policy).stored_in(stores);
            local.watched_by(witness).anchored_by(anchor).open(params, choice, durability)
        }
    };
    let opened = opened.map_err(|e| failure(&e))?;
    print_error(&format!(
        "the enclave is {}: it hides nothing from the party that controls its machine",
        opened.enclave
    ));
    let mut gateway = opened.gateway;
    if args.accept_damage {
        gateway.accept_loss();
    }
    Ok(gateway)
}

/// The folder of the gateway's own state.
pub fn home(args: &GatewayTreeArgs) -> PathBuf {
    let local = args.home.local.as_deref().map(LocalDeployment::home);
    local.or(args.home.state.clone()).expect("one of both is required")
}
