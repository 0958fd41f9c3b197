//! A gateway with a host on another machine.

use super::RemoteHost;
use super::line::Dial;
use crate::durable::make_folder;
use crate::error::Result;
use crate::gateway::{Gateway, Keys, StateLocation};
use crate::host::Host;
use crate::kernel::Choice;
use crate::local_deployment::{OpenGateway, read_keys, state_folder};
use crate::lock::Lock;
use crate::observed_host::observed;
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

/// A host on another machine, and how to authenticate it.
pub struct Remote {
    /// The host's name or number, and its port.
    pub address: String,
    /// A file with the host's certificate, or with the certificates that sign it.
    pub certificate: PathBuf,
    /// The gateway's own certificate and key, if the host requires them.
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
        let dial = self.dial()?;
        let provision = keys.provision(&params, choice);
        let host = RemoteHost::new(dial, opening, provision, self.policy, Some(lock));
        let folder = state_folder(home);
        let home = StateLocation { folder: &folder, durability, anchor: self.anchor.as_deref() };
        self.begin(host, params, &keys, choice, Some(&home), rng)
    }

    /// Creates a tree that cannot be opened again once its gateway is gone, for measurements. The
    /// host's store must be empty.
    pub fn open_once(&self, params: Params, choice: Choice) -> Result<OpenGateway> {
        let mut rng = SystemStream::drawn();
        let keys = Keys::new(&Secret::random(&mut rng), &[0; 16]);
        let opening = Opening { number: 1, instance: [0; 16] };
        let provision = keys.provision(&params, choice);
        let host = RemoteHost::new(self.dial()?, opening, provision, self.policy, None);
        self.begin(host, params, &keys, choice, None, rng)
    }

    fn dial(&self) -> Result<Dial> {
        Dial::new(&self.address, tls::client(&self.certificate, self.identity.as_ref())?)
    }

    /// Begins the first session, and opens the gateway.
    fn begin(
        &self,
        host: RemoteHost,
        params: Params,
        keys: &Keys,
        choice: Choice,
        home: Option<&StateLocation<'_>>,
        rng: SystemStream,
    ) -> Result<OpenGateway> {
        let (gateway, enclave) = host.renew()?;
        let what = host.enclave();
        let host = observed(host, params.geometry, self.witness.clone());
        let session = (&gateway, &enclave);
        let gateway = Gateway::open(params, keys, choice, host, session, home, Box::new(rng))?;
        Ok(OpenGateway { gateway, enclave: what })
    }
}
