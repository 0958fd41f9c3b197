//! A gateway with a host on another machine.

use super::RemoteHost;
use super::line::Dial;
use crate::durable::make_folder;
use crate::error::Result;
use crate::gateway::{Gateway, Keys, OpenState, StateLease, StateLocation};
use crate::host::Host as _;
use crate::host_group::{describe_enclaves, observed_hosts};
use crate::kernel::Choice;
use crate::local_deployment::{OpenGateway, read_keys, state_folder};
use crate::lock::Lock;
use crate::params::Params;
use crate::random::SystemStream;
use crate::store::Durability;
use crate::tee::Policy;
use crate::wire::fence::Opening;
use crate::wire::tls::{self, Identity};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use traceless_core::seal::Secret;
use traceless_core::trace::Witness;

/// Where a host is, and how to authenticate it.
#[derive(Clone, Debug)]
pub struct HostAddress {
    /// The host's name or number, and its port.
    pub address: String,
    /// A file with the host's certificate, or with the certificates that sign it.
    pub certificate: PathBuf,
}

/// Hosts on other machines.
pub struct Remote {
    /// The hosts, among which the tree is divided, in the same order at each opening.
    pub hosts: Vec<HostAddress>,
    /// The gateway's own certificate and key, if the hosts require them.
    pub identity: Option<Identity>,
    /// Which evidence of the enclave is accepted.
    pub policy: Policy,
    /// The anchor: a file elsewhere that records how far the gateway's state has come.
    pub anchor: Option<PathBuf>,
    /// Receives reports of what the host can observe.
    pub witness: Option<Arc<dyn Witness>>,
}

impl Remote {
    /// Opens the tree with its state in `home`, or creates it. A gateway that was opened earlier
    /// with the same state, or a copy of it, is fenced off.
    pub fn open(
        &self,
        home: &Path,
        key_file: Option<&Path>,
        params: Params,
        choice: Choice,
        durability: Durability,
    ) -> Result<OpenGateway> {
        make_folder(home)?;
        // Locked before the host learns of another opening.
        let lock = Lock::take(home, "the gateway's state")?;
        let mut rng = SystemStream::drawn();
        let keys = read_keys(home, key_file, &mut rng)?;
        let opening = Opening::next(home, &mut rng)?;
        let folder = state_folder(home);
        let home = StateLocation { folder: &folder, durability, anchor: self.anchor.as_deref() };
        self.begin((opening, Some(lock)), params, &keys, choice, Some(&home), rng)
    }

    /// Opens a tree with its state under a lease, or creates it. Uses the lease's own anchor.
    pub fn open_leased(
        &self,
        lease: &Arc<StateLease>,
        params: Params,
        choice: Choice,
    ) -> Result<OpenGateway> {
        lease.persist(|| {
            let (opening, rng) = ((lease.opening(), None), SystemStream::drawn());
            self.begin(opening, params, lease.keys(), choice, Some(lease), rng)
        })
    }

    /// Creates a tree that cannot be opened again once its gateway is gone, for measurements. The
    /// host's store must be empty.
    pub fn open_once(&self, params: Params, choice: Choice) -> Result<OpenGateway> {
        let mut rng = SystemStream::drawn();
        let keys = Keys::new(&Secret::random(&mut rng), &[0; 16]);
        let opening = Opening { number: 1, instance: [0; 16] };
        self.begin((opening, None), params, &keys, choice, None, rng)
    }

    /// Begins the first sessions, and opens the gateway.
    fn begin(
        &self,
        (opening, mut lock): (Opening, Option<Lock>),
        params: Params,
        keys: &Keys,
        choice: Choice,
        home: Option<&dyn OpenState>,
        rng: SystemStream,
    ) -> Result<OpenGateway> {
        let (mut hosts, mut enclaves) = (Vec::new(), Vec::new());
        for (number, HostAddress { address, certificate }) in self.hosts.iter().enumerate() {
            let dial = Dial::new(address, tls::client(certificate, self.identity.as_ref())?)?;
            let provision = keys.provision(&params, choice).for_partition(number as u32);
            let host = RemoteHost::new(dial, opening, provision, self.policy.clone(), lock.take());
            let session = host.renew()?;
            enclaves.push(host.enclave());
            hosts.push((host, session));
        }
        let hosts = observed_hosts(hosts, params.geometry, self.witness.clone());
        let gateway = Gateway::open_divided(params, keys, choice, hosts, home, Box::new(rng))?;
        Ok(OpenGateway { gateway, enclave: describe_enclaves(enclaves) })
    }
}
